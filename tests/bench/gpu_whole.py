#!/usr/bin/env python3
"""Measures a user's waiting times on a GPU: cold starts, video frames between host memory, one picture on several GPUs.

    python3 tests/bench/gpu_whole.py [--build build] [--what cold,frames,split] [--device cuda:0] [--devices cuda:0,cuda:1]
                                     [--without-torch] [--save F.jsonl]

cold    process start to the first 1024x1024 picture of an SDXL VAE in host memory, with the weights in the page cache. Three
        programs, each in separate processes: the command line program (which also writes a PNG), a Python host of the ABI,
        and PyTorch (eager).
frames  8-bit RGB frames from and to pinned host memory: copies, conversions and network; single and in batches of 4.
split   a 3840x2160 picture x2 on --device and on --devices, in turns; checks that both give the same picture."""
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import gpu_bench
from gpu_bench import HERE, ROOT, take_turns

SIDE = 128  # of the latent in its own pixels


def weights_of(args, name, make, dtype):
    """The weight file of gpu_peers.py."""
    path = args.weights / f"{name}-{str(dtype)[6:]}.safetensors"
    return path, gpu_bench.weights_of(path, make(), dtype)


# ---- cold starts; the children print (label, seconds since the parent started them) ----


class Stamps:
    def __init__(self, start):
        self.start, self.list = float(start), []

    def add(self, label):
        self.list.append((label, time.time() - self.start))

    def print(self):
        print(json.dumps(self.list))


def child_davy(start, library, device, weights):
    stamps = Stamps(start)
    sys.path.insert(0, str(ROOT / "plugins" / "comfy"))
    from davy import abi

    stamps.add("Python")
    lib, ref = abi.load(library), ctypes.byref
    api, context, model = lib.api, ctypes.c_void_p(), ctypes.c_void_p()
    stamps.add("library")
    lib.check(api.context_create(ref(abi.ContextDesc(device=device.encode())), ref(context)))
    stamps.add("context")
    source = abi.Source(path=abi.text(weights))
    desc = abi.ModelDesc(sources=ctypes.pointer(source), n_sources=1, compute=abi.Dtype.BF16)
    lib.check(api.model_open(context, ref(desc), ref(model)))
    lib.check(api.model_load(model, None, None))
    stamps.add("weights")
    latent, picture = (ctypes.c_float * (4 * SIDE * SIDE))(), (ctypes.c_uint8 * (3 * 64 * SIDE * SIDE))()
    given = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.F32, layout=abi.Layout.CHW, ndim=3, data=ctypes.addressof(latent))
    wanted = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3, data=ctypes.addressof(picture))
    given.shape[:3], wanted.shape[:3] = (4, SIDE, SIDE), (8 * SIDE, 8 * SIDE, 3)
    stamps.add("input")
    for label in ("first picture", "second picture"):
        lib.check(api.vae_decode(model, ref(given), ref(wanted), None, None))
        stamps.add(label)
    stamps.print()


def child_torch(start, weights):
    stamps = Stamps(start)
    import torch

    stamps.add("import torch")
    import gpu_nets as nets

    torch.zeros(1, device="cuda")
    stamps.add("context")
    with torch.inference_mode():
        with torch.device("meta"):
            model = nets.KlDecoder()
        model.load_state_dict(nets.read(weights), assign=True)
        model = model.eval().cuda().to(memory_format=torch.channels_last)
        stamps.add("weights")
        latent = torch.linspace(-1, 1, 4 * SIDE * SIDE).view(1, 4, SIDE, SIDE)
        stamps.add("input")
        for label in ("first picture", "second picture"):
            y = model(latent.to("cuda", torch.bfloat16).contiguous(memory_format=torch.channels_last))
            (y / 2 + 0.5).clamp(0, 1).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu()
            stamps.add(label)
    stamps.print()


def in_child(*command):
    start = time.time()
    done = subprocess.run([str(c).replace("START", repr(start)) for c in command], capture_output=True, text=True)
    wall = time.time() - start
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1][:300])
    return wall, done.stdout


def middle(runs):
    """The run with the median duration; each run is a list of time stamps."""
    return sorted(runs, key=lambda r: r[-1][1])[len(runs) // 2]


def cold(args, emit):
    import gpu_nets as nets
    import torch

    weights, _ = weights_of(args, "kl_decode_1024", nets.KlDecoder, torch.bfloat16)
    folder = tempfile.TemporaryDirectory(prefix="cold-")
    latent, picture = f"{folder.name}/latent.safetensors", f"{folder.name}/out.png"
    nets.write(latent, {"latent": torch.randn(1, 4, SIDE, SIDE)}, torch.float32)
    library = str(args.build / "libdavy.so.1")
    program = [args.build / "davy", "decode", latent, "-o", picture, "--model", weights]
    program += ["--device", args.device, "--precision", "bf16"]
    walls = [in_child(*program, "--quiet")[0] for _ in range(6)]
    emit({"what": "cold start", "who": "davy decode", "seconds": statistics.median(walls[1:]), "first": walls[0]})
    children = {"ABI host in Python": ["--child-davy", "START", library, args.device, weights]}
    if not args.without_torch:
        children["PyTorch eager"] = ["--child-torch", "START", weights]
    for who, command in children.items():
        count = 5 if "ABI" in who else 3
        stamps = middle([json.loads(in_child(sys.executable, HERE / "gpu_whole.py", *command)[1]) for _ in range(count)])
        emit({"what": "cold start", "who": who, "seconds": dict(stamps)["first picture"],
              "stamps": [[label, round(seconds, 3)] for label, seconds in stamps]})


# ---- frames ----


def per_frame(once, frames, seconds=1.5):
    import torch

    for _ in range(3):
        once()
    samples, begin = [], time.perf_counter()
    while len(samples) < 5 or (time.perf_counter() - begin < seconds and len(samples) < 400):
        start = time.perf_counter()
        once()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) * 1e3 / frames)
    return statistics.median(samples)


def torch_frames(model, x, y, mode):
    """One function from u8 to u8 on the device, with copies from and to pinned memory around it."""
    import torch

    def network(u8):
        y = model(u8.to(torch.float16) / 255).clamp(0, 1).mul(255).round()
        return y.to(torch.uint8, memory_format=torch.channels_last)  # so that the copy to the host is contiguous

    fn = torch.compile(network, mode=mode, dynamic=False) if mode else network

    def once():
        with torch.inference_mode():
            y.copy_(fn(x.to("cuda", non_blocking=True)), non_blocking=True)

    return once


def pinned(n, h, w, fill=False):
    import torch

    t = torch.randint(0, 256, (n, h, w, 3), dtype=torch.uint8) if fill else torch.zeros((n, h, w, 3), dtype=torch.uint8)
    return t.pin_memory().permute(0, 3, 1, 2)


def frames(args, emit):
    import torch
    import gpu_nets as nets
    from gpu_davy import Davy

    davy, half = Davy(str(args.build / "libdavy.so.1"), args.device), torch.float16
    models = [("compact_x4_anime", lambda: nets.Compact(16), 4), ("span48_x2", nets.Span, 2), ("davy-live-x2", None, 2),
              ("davy-live-x4", None, 4)]
    for name, make, scale in models:
        model = None
        path = ROOT / "packaging" / "models" / f"{name}.safetensors"
        if make:
            path, model = weights_of(args, name, make, half)
            model = model.half().to(memory_format=torch.channels_last)
        handle = davy.model(path, half)
        for n in (1, 4):
            x, y = pinned(n, 720, 1280, True), pinned(n, 720 * scale, 1280 * scale)
            row = {"what": "frames", "case": name, "from": "1280x720", "to": f"{1280 * scale}x{720 * scale}", "batch": n}
            row["davy_ms"] = per_frame(davy.call(handle, "upscale", x, y), n)
            if model and not args.without_torch and n == 1:
                row["eager_ms"] = per_frame(torch_frames(model, x, y, None), n)
                row["compiled_ms"] = per_frame(torch_frames(model, x, y, "reduce-overhead"), n)
            row["fps"] = 1e3 / row["davy_ms"]
            emit(row)
        davy.release(handle)
    davy.close()


def split(args, emit):
    import torch
    import gpu_nets as nets
    from gpu_davy import Davy

    half = torch.float16
    for name, make in (("compact_x2", lambda: nets.Compact(16, scale=2)), ("span48_x2", nets.Span)):
        path, _ = weights_of(args, name, make, half)
        x, results, calls = pinned(1, 2160, 3840, True), {}, {}
        for devices in (args.device, args.devices):
            davy = Davy(str(args.build / "libdavy.so.1"), devices)
            results[devices] = pinned(1, 4320, 7680)
            calls[devices] = davy.call(davy.model(path, half), "upscale", x, results[devices])
        times = take_turns(calls, lambda _, once: [per_frame(once, 1, 1.0)])
        ms = {devices: statistics.median(t) for devices, t in times.items()}
        difference = (results[args.device].short() - results[args.devices].short()).abs()
        emit({"what": "split", "case": name, "from": "3840x2160", "to": "7680x4320", "ms": ms,
              "speedup": ms[args.device] / ms[args.devices], "largest_difference": int(difference.max()),
              "different": float((difference > 0).float().mean())})


def main():
    if sys.argv[1:2] == ["--child-davy"]:
        return child_davy(*sys.argv[2:])
    if sys.argv[1:2] == ["--child-torch"]:
        return child_torch(*sys.argv[2:])
    parser = gpu_bench.command_line(__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--what", default="cold,frames")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--devices", default="cuda:0,cuda:1")
    parser.add_argument("--without-torch", action="store_true", help="no torch contender; torch's tensors are still used")
    args = gpu_bench.parse(parser)

    def emit(row):
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
        gpu_bench.save(args, row)

    for what in args.what.split(","):
        {"cold": cold, "frames": frames, "split": split}[what](args, emit)


if __name__ == "__main__":
    main()
