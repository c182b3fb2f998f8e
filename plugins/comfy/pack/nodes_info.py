"""Info: davy's version, devices and memory."""

import ctypes

from . import engine
from .schema import Node, Output, Shown
from ..davy import abi
from ..davy.abi import ref


def gigabytes(count):
    return f"{count / (1 << 30):.1f} GiB"


def devices(lib):
    count = ctypes.c_int32()
    lib.check(lib.api.device_count(None, ref(count)))
    for i in range(count.value):
        info = abi.DeviceInfo()
        lib.check(lib.api.device_info(None, i, ref(info)))
        line = f"{info.selector.decode()}: {info.name.decode('utf-8', 'replace')}, {gigabytes(info.memory_total_bytes)}"
        yield line + (f" (cannot be used: {info.reason.decode('utf-8', 'replace')})" if info.reason else "")


class Info(Node):
    id = "DavyInfo"
    name = "Info (davy)"
    category = "davy"
    description = "Shows davy's version, its devices and the memory of its models."
    aliases = ("device info", "davy", "version", "memory", "vram")
    outputs = [Output("text", "STRING", "The text that the node shows.")]
    ends = True

    @staticmethod
    def run():
        lib = engine.library()
        lines = [f"davy {lib.version}", lib.path, *devices(lib)]
        running, refused = engine.known()
        for name, used in running.items():
            weights, rest = used.in_use()
            lines.append(f"in use on {name}: {gigabytes(weights)} of weights, {gigabytes(rest)} of other memory")
        lines += [f"{name} is not used: {why}" for name, why in refused.items()]
        text = "\n".join(lines)
        return Shown((text,), text)

    @staticmethod
    def fingerprint():
        return float("nan")  # never equal to itself: the node runs every time


NODES = [Info]
