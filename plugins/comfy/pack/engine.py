"""The library, and its contexts: one for each device that a node has used."""

import ctypes
import logging
import os
import threading

from . import errors, host
from ..davy import abi
from ..davy.abi import ref

log = logging.getLogger("davy")
CHOICES = ["default", "cpu"]  # a loader's devices

_lock = threading.RLock()
_library = None
_engines = {}
_refused = {}  # device: the reason why it cannot be used


def library():
    """The opened library, one for the process."""
    global _library
    with _lock:
        if _library is None:
            try:
                _library = abi.load()
            except OSError as error:
                raise errors.Error(
                    f"{errors.sentence(error)}: run `make install-comfy`, or set DAVY_LIBRARY to the library's path"
                ) from None
            log.info("davy %s from %s", _library.version, _library.path)
        return _library


def of(choice):
    """The engine for a loader's choice of device. If davy cannot use ComfyUI's GPU it is the CPU, and the log has the
    reason."""
    device = host.device()
    if choice == "cpu" or device is None or device.type != "cuda":
        return on("cpu")
    name = f"cuda:{device.index or 0}"
    if name not in _refused:
        try:
            return on(name, device)
        except abi.DavyError as error:
            if error.code in errors.MEMORY:  # the GPU is full only for the moment
                host.make_room(device)
                return on(name, device)
            _refused[name] = errors.sentence(error)
            log.warning("davy computes on the CPU instead of %s: %s", name, _refused[name])
    return on("cpu")


def on(name, device=None):
    with _lock:
        if name not in _engines:
            _engines[name] = Engine(library(), name, device)
        return _engines[name]


def known():
    """({name: engine}, {name: the reason why it cannot be used})."""
    with _lock:
        return dict(_engines), dict(_refused)


def _write_log(user, level, text):
    """Logs warnings. Error messages go to the debug level, because the node shows them."""
    log.log(logging.WARNING if level == abi.Log.WARN else logging.DEBUG, "%s", text.decode("utf-8", "replace"))


_log = abi.LogFn(_write_log)  # kept for ever: the library may call it while a context exists


class Engine:
    """A context. It is never released: it costs a few idle threads, and it ends with the process."""

    def __init__(self, lib, name, device=None):
        self.lib, self.name, self.device = lib, name, device
        self.is_gpu = name != "cpu"
        self.host = abi.Host(log_level=abi.Log.WARN, log=_log)
        options, pack_models = (abi.Option * 1)(), os.path.join(os.path.dirname(os.path.dirname(__file__)), "bin")
        shipped = os.path.exists(os.path.join(pack_models, "davy-live-x4.safetensors"))
        if shipped:
            options[0] = abi.Option(b"models_dir", abi.text(pack_models))
        desc = abi.ContextDesc(host=ctypes.pointer(self.host), device=abi.text(name), options=options, n_options=shipped)
        self.handle = abi.Handle()
        lib.check(lib.api.context_create(ref(desc), ref(self.handle)))

    def reaches(self, device):
        """Whether tensors on a torch.device can be read and written in place."""
        if device.type == "cpu":
            return True
        return self.is_gpu and device.type == "cuda" and (device.index or 0) == (self.device.index or 0)

    def stream(self, *tensors):
        """The stream whose work the library must wait for. None if all tensors are in host memory."""
        return host.stream(self.device) if any(t.device.type == "cuda" for t in tensors) else None

    def memory(self):
        info = abi.MemoryInfo()
        self.lib.check(self.lib.api.context_memory(self.handle, ref(info)))
        return info

    def in_use(self):
        """(weights, everything else) in bytes, in the memory of this engine's device."""
        m = self.memory()
        if self.is_gpu:
            return m.device_weights_bytes, m.device_workspace_bytes + m.device_cache_bytes
        return m.host_weights_bytes, m.host_workspace_bytes

    def trim(self, keep=0):
        """Frees memory until at most `keep` bytes are in use, caches first. Returns the number of freed bytes."""
        before = sum(self.in_use())
        if self.is_gpu:
            self.lib.api.context_trim(self.handle, keep, (1 << 64) - 1)
        else:
            self.lib.api.context_trim(self.handle, (1 << 64) - 1, keep)
        return max(0, before - sum(self.in_use()))

    def budget(self, extra=None):
        """Limits the engine's GPU memory to what it uses now plus `extra` bytes. None: all of the GPU but ComfyUI's reserve."""
        if not self.is_gpu:
            return
        if extra is None:
            total = int(host.management().get_total_memory(self.device))
            ceiling = max(total - host.reserved_memory(), 1 << 28)
        else:
            ceiling = sum(self.in_use()) + max(extra, 1 << 28)
        self.lib.check(self.lib.api.context_budget(self.handle, ceiling, 0))
