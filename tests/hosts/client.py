"""client.py MODELS FOLDER - a complete host in Python, with only ctypes and the standard library.

It uses the binding of the ComfyUI nodes (plugins/comfy/davy/abi.py). It tests the same as client.c: devices, a context with
callbacks, a shipped model by name, a VAE from memory and from a reader callback. Blocking calls, jobs, threads and errors
follow. Ends `N passed, N failed`."""

import array
import ctypes
import gc
import json
import math
import os
import pathlib
import random
import struct
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "plugins" / "comfy"))
sys.dont_write_bytecode = True

from davy import abi  # noqa: E402
from davy.abi import ref  # noqa: E402

passed = failed = 0


def check(ok, what):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"FAIL line {sys._getframe(1).f_lineno}: {what}", file=sys.stderr)
    return bool(ok)


def raises(code, call, what, needle=""):
    try:
        call()
    except abi.DavyError as error:
        check(error.code == code and error.name == code.name, f"{what}: {error.name}, expected {code.name} ({error})")
        check(len(str(error)) >= 8 and needle in str(error), f"{what}: no sentence with {needle!r}: {error}")
    else:
        check(False, f"{what}: no error, expected {code.name}")


# ---- pictures: flat float lists in NHWC order, in array.array so that they have an address --------------------------


def floats(count, seed):
    """Multiples of 1/255 in 0..1."""
    r = random.Random(seed)
    return array.array("f", [struct.unpack("f", struct.pack("f", r.randrange(256) / 255))[0] for _ in range(count)])


def tensor(memory, shape, layout, **members):
    t = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.F32, layout=layout, ndim=len(shape), **members)
    t.data = abi.buffer_address(memory)
    t.shape[: len(shape)] = shape
    t.keep = memory  # keeps the address valid as long as the tensor
    return t


def plan(lib, model, op, source, run=None):
    info = abi.PlanInfo()
    query = abi.Query(op=op, input=ctypes.pointer(source))
    if run is not None:
        query.run = ctypes.pointer(run)
    lib.check(lib.api.plan_query(model, ref(query), ref(info)))
    return info


def work(lib, model, call, op, source, run=None, **out_members):
    """Runs one of the three calls into fresh memory; (numbers, shape)."""
    info = plan(lib, model, op, source, run)
    shape = list(info.shape[: info.ndim])
    out = array.array("f", bytes(4 * math.prod(shape)))
    target = tensor(out, shape, source.layout, **out_members)
    lib.check(call(model, ref(source), ref(target), None if run is None else ref(run), None))
    return out, shape


# ---- a TAESD decoder, written from scratch ---------------------------------------------------------------------------


def taesd_decoder(seed):
    r = random.Random(seed)
    tensors = {}

    def conv(name, out, into, bias=True):
        spread = (4 / (9 * into)) ** 0.5
        tensors[f"{name}.weight"] = ([out, into, 3, 3], spread * (0.5 if name.endswith("conv.4") else 1))
        if bias:
            tensors[f"{name}.bias"] = ([out], 0.05)

    conv("1", 64, 4)
    for block in (3, 4, 5, 8, 9, 10, 13, 14, 15, 18):
        for layer in (0, 2, 4):
            conv(f"{block}.conv.{layer}", 64, 64)
    for step in (7, 12, 17):
        conv(str(step), 64, 64, bias=False)
    conv("19", 3, 64)
    header, payload = {}, bytearray()
    base = array.array("f", [r.uniform(-1, 1) for _ in range(64 * 64 * 9)])
    for name, (shape, spread) in tensors.items():
        count = math.prod(shape)
        start = r.randrange(len(base))  # one list of numbers with another start for each tensor: fast and different
        values = (base[start:] + base[:start])[:count]
        data = array.array("f", [spread * v for v in values]).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(payload), len(payload) + len(data)]}
        payload += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + payload


# ---- the parts of the job --------------------------------------------------------------------------------------------


class Callbacks:
    """Host callbacks with counters; the ctypes objects must live as long as the context."""

    def __init__(self):
        self.blocks, self.lines, self.log_levels = {}, [], set()
        self.lock = threading.Lock()
        self.host = abi.Host(log_level=abi.Log.DEBUG)
        self.host.log = abi.LogFn(self.log)
        self.host.alloc = abi.AllocFn(self.alloc)
        self.host.free = abi.FreeFn(self.free)

    def log(self, user, level, utf8):
        self.log_levels.add(level)
        self.lines.append(utf8.decode())

    def alloc(self, user, size, align):
        block = (ctypes.c_char * (size + align))()
        address = -(-ctypes.addressof(block) // align) * align
        with self.lock:
            self.blocks[address] = (block, size)
        return address

    def free(self, user, address, size):
        with self.lock:
            if address:
                check(self.blocks.pop(address)[1] == size, "a block was given back with another size")


def devices(lib):
    count = ctypes.c_int32()
    lib.check(lib.api.device_count(None, ref(count)))
    check(count.value >= 1, "no device")
    info = abi.DeviceInfo()
    lib.check(lib.api.device_info(None, 0, ref(info)))
    check(info.kind == abi.DeviceKind.CPU and info.selector == b"cpu" and not info.reason, "device 0 is not the CPU")
    print(f"  davy {lib.version} on {info.name.decode()}")


def open_model(lib, ctx, *sources, **members):
    model = abi.Handle()
    table = (abi.Source * len(sources))(*sources)
    desc = abi.ModelDesc(sources=table, n_sources=len(sources), **members)
    lib.check(lib.api.model_open(ctx, ref(desc), ref(model)))
    return model


def upscale(lib, ctx, folder):
    model = open_model(lib, ctx, abi.Source(name=b"davy-live-x2"), task=abi.Task.UPSCALE)
    info = abi.ModelInfo()
    lib.check(lib.api.model_info(model, ref(info)))
    check(info.arch == b"compact" and info.scale_num == 2 and info.parameters == 115756, f"model_info: {info.variant}")
    check(info.features & abi.ModelFeature.UPSCALES, "davy-live does not upscale")

    h, w = 21, 34
    pixels = floats(h * w * 3, 1)
    source = tensor(pixels, [h, w, 3], abi.Layout.HWC, channels=abi.Channels.RGB, range=abi.Range.UNIT)
    want, shape = work(lib, model, lib.api.upscale, abi.Op.UPSCALE, source)
    check(shape == [2 * h, 2 * w, 3], f"shape {shape}")
    check(all(0 <= v <= 1 for v in want) and len(set(want)) > 100, "not a picture")
    (folder / "upscaled.f32").write_bytes(want.tobytes())

    # planes instead of interleaved colours, blue first
    planes = array.array("f", [pixels[i * 3 + c] for c in (2, 1, 0) for i in range(h * w)])
    other = tensor(planes, [1, 3, h, w], abi.Layout.NCHW, channels=abi.Channels.BGR, range=abi.Range.UNIT)
    got, shape = work(lib, model, lib.api.upscale, abi.Op.UPSCALE, other, channels=abi.Channels.BGR)
    n = 4 * h * w
    check(shape == [1, 3, 2 * h, 2 * w], f"shape {shape}")
    check(all(got[c * n + i] == want[i * 3 + 2 - c] for c in range(3) for i in range(n)), "NCHW BGR differs from HWC RGB")

    # bytes in, bytes out
    whole = bytearray(round(v * 255) for v in pixels)
    target = bytearray(len(want))
    source8 = abi.Tensor(dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3, data=abi.buffer_address(whole))
    source8.shape[:3] = [h, w, 3]
    target8 = abi.Tensor(dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3, data=abi.buffer_address(target))
    target8.shape[:3] = [2 * h, 2 * w, 3]
    lib.check(lib.api.upscale(model, ref(source8), ref(target8), None, None))
    check(all(abs(b - 255 * v) <= 0.501 for b, v in zip(target, want)), "bytes differ from floats")

    # a buffer of the library's
    lent = abi.Tensor()
    lib.check(lib.api.upscale(model, ref(source), ref(lent), None, None))
    seen = abi.Tensor()
    lib.check(lib.api.buffer_tensor(lent.buffer, ref(seen)))
    check(list(seen.shape[:3]) == [2 * h, 2 * w, 3] and seen.data, "no buffer")
    check(ctypes.string_at(seen.data, 4 * len(want)) == want.tobytes(), "the library's buffer differs")
    lib.api.buffer_release(lent.buffer)

    jobs_and_progress(lib, model, source, want)
    many_threads(lib, model, source, want)
    as_vae = lambda: work(lib, model, lib.api.vae_decode, abi.Op.VAE_DECODE, source)  # noqa: E731
    raises(abi.Result.E_UNSUPPORTED, as_vae, "upscaler as VAE")
    small = tensor(array.array("f", bytes(4 * 12)), [2, 2, 3], abi.Layout.HWC)
    into_small = lambda: lib.check(lib.api.upscale(model, ref(source), ref(small), None, None))  # noqa: E731
    raises(abi.Result.E_SHAPE, into_small, "small output")
    check(not any(small.keep), "an output was written by a failing call")
    lib.api.model_release(model)


def jobs_and_progress(lib, model, source, want):
    info = plan(lib, model, abi.Op.UPSCALE, source)
    out = array.array("f", bytes(4 * len(want)))
    target = tensor(out, list(info.shape[: info.ndim]), source.layout)
    seen = []

    def progress(user, stage, done, total):
        seen.append((stage.decode(), done, total))
        return 0

    keep = abi.ProgressFn(progress)
    run = abi.Run(progress=keep)
    job = abi.Handle()
    lib.check(lib.api.upscale(model, ref(source), ref(target), ref(run), ref(job)))
    state = lib.api.job_wait(job, 0)
    check(state in (abi.Result.OK, abi.Result.PENDING), f"job_wait: {state}")
    lib.check_job(job, lib.api.job_wait(job, 2**64 - 1))
    check(out == want, "a job gives another result")
    check(all(done <= total for _, done, total in seen), f"progress beyond its total: {seen}")
    job_info = abi.JobInfo()
    lib.check(lib.api.job_info(job, ref(job_info)))
    check(job_info.state == abi.Result.OK and job_info.done == job_info.total, "a finished job is not finished")
    lib.api.job_release(job)

    big = array.array("f", bytes(4 * 3 * 1500 * 1500))
    big_source = tensor(big, [1500, 1500, 3], abi.Layout.HWC)
    stop = abi.ProgressFn(lambda user, stage, done, total: 1)
    raises(
        abi.Result.E_CANCELLED,
        lambda: work(lib, model, lib.api.upscale, abi.Op.UPSCALE, big_source, abi.Run(progress=stop)),
        "a callback that cancels",
    )
    big_target = abi.Tensor()
    lib.check(lib.api.upscale(model, ref(big_source), ref(big_target), None, ref(job)))
    lib.check(lib.api.job_cancel(job))
    raises(abi.Result.E_CANCELLED, lambda: lib.check_job(job, lib.api.job_wait(job, 2**64 - 1)), "a cancelled job")
    lib.api.job_release(job)
    lib.api.buffer_release(big_target.buffer)  # made when the job was accepted
    raises(
        abi.Result.E_TIMEOUT,
        lambda: work(lib, model, lib.api.upscale, abi.Op.UPSCALE, big_source, abi.Run(timeout_ns=20_000_000)),
        "a timeout",
    )


def many_threads(lib, model, source, want):
    wrong = []

    def run():
        got, _ = work(lib, model, lib.api.upscale, abi.Op.UPSCALE, source)
        if got != want:
            wrong.append(threading.current_thread().name)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not wrong, f"threads with another result: {wrong}")


def decode(lib, ctx):
    weights = taesd_decoder(3)
    reads = []

    def read(user, offset, dst, count):
        part = weights[offset : offset + count]
        ctypes.memmove(dst, part, len(part))
        reads.append(len(part))
        return len(part)

    keep = abi.ReadFn(read)
    memory = ctypes.create_string_buffer(weights, len(weights))
    in_memory = abi.Source(name=b"d.safetensors", data=ctypes.addressof(memory), data_bytes=len(weights))
    from_memory = open_model(lib, ctx, in_memory)
    from_reader = open_model(lib, ctx, abi.Source(name=b"r.safetensors", read=keep, read_bytes=len(weights)))
    check(sum(reads) < len(weights) // 4, f"opening read {sum(reads)} of {len(weights)} bytes")
    info = abi.ModelInfo()
    lib.check(lib.api.model_info(from_reader, ref(info)))
    check(info.task == abi.Task.VAE and info.latent_channels == 4 and info.spatial_factor == 8, "not a TAESD")
    check(info.features & abi.ModelFeature.DECODES and not info.features & abi.ModelFeature.ENCODES, "a decoder alone")
    r = random.Random(4)
    latent = array.array("f", [r.uniform(-1, 1) for _ in range(4 * 6 * 5)])
    source = tensor(latent, [1, 4, 6, 5], abi.Layout.NCHW)
    first, shape = work(lib, from_memory, lib.api.vae_decode, abi.Op.VAE_DECODE, source, range=abi.Range.RAW)
    second, _ = work(lib, from_reader, lib.api.vae_decode, abi.Op.VAE_DECODE, source, range=abi.Range.RAW)
    check(shape == [1, 3, 48, 40], f"shape {shape}")
    check(first == second, "memory and reader give different pictures")
    check(all(math.isfinite(v) for v in first) and len(set(first)) > 1000, "not numbers")
    encode_source = tensor(array.array("f", bytes(4 * 3 * 64)), [8, 8, 3], abi.Layout.HWC)
    raises(
        abi.Result.E_UNSUPPORTED,
        lambda: work(lib, from_memory, lib.api.vae_encode, abi.Op.VAE_ENCODE, encode_source),
        "encoding with a decoder",
    )
    lib.api.model_release(from_memory)
    lib.api.model_release(from_reader)

    short = abi.ReadFn(lambda user, offset, dst, count: 0)
    raises(
        abi.Result.E_IO,
        lambda: open_model(lib, ctx, abi.Source(name=b"short.safetensors", read=short, read_bytes=len(weights))),
        "a reader that reads nothing",
        "short.safetensors",
    )


def inspect(lib, ctx, models):
    extension = lib.extension("davy.inspect/1", abi.Inspect1)
    check(lib.extension("davy.nothing/1", abi.Inspect1) is None, "an extension that does not exist")
    if not check(extension is not None, "no davy.inspect/1"):
        return
    source = abi.Source(path=abi.text(models / "davy-live-x4.safetensors"))
    text = abi.Handle()
    desc = abi.ModelDesc(sources=ctypes.pointer(source), n_sources=1)
    lib.check(extension.describe(ctx, ref(desc), ref(text)))
    description = json.loads(lib.take_text(text))
    check(description.get("recognised") is True, f"davy-live-x4 is not recognised: {description}")
    check("355488" in json.dumps(description), f"no parameter count: {description}")


def run(models, folder):
    lib = abi.load()
    check(lib.api.abi_version >= abi.ABI_1_0 and lib.has("buffer_release"), "an older table")
    devices(lib)
    callbacks = Callbacks()
    ctx = abi.Handle()
    options = (abi.Option * 1)(abi.Option(b"models_dir", abi.text(models)))
    desc = abi.ContextDesc(host=ctypes.pointer(callbacks.host), device=b"cpu", options=options, n_options=1)
    lib.check(lib.api.context_create(ref(desc), ref(ctx)))
    upscale(lib, ctx, folder)
    decode(lib, ctx)
    inspect(lib, ctx, models)
    missing = abi.Source(path=abi.text(folder / "nö sùch ファイル.safetensors"))
    raises(abi.Result.E_NOT_FOUND, lambda: open_model(lib, ctx, missing), "a missing file", "nö sùch ファイル")
    lib.api.context_release(ctx)
    gc.collect()
    check(not callbacks.blocks, f"{len(callbacks.blocks)} blocks were never given back")
    check(callbacks.lines and callbacks.log_levels <= set(abi.Log), "no log lines, or of unknown levels")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    os.makedirs(sys.argv[2], exist_ok=True)
    sys.exit(run(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
