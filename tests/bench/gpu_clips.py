#!/usr/bin/env python3
"""Compares davy with the PyTorch reference of SeedVR2's video autoencoder, eager and compiled, on one NVIDIA GPU in one run.

    python3 tests/bench/gpu_clips.py [--library build/libdavy.so.1] [--size 1280x720]... [--frames 5,21,81]
                                     [--task decode,encode] [--only whole,slices,compiled,comfyui,davy]
                                     [--comfyui DIR] [--no-tune] [--until SECONDS] [--save F.jsonl]
                                     [--warm first|further] [--profile]

Weights are random in bf16; clips go from device memory to device memory. The contenders:

whole     eager, the clip at once, if less than --whole GiB are expected
slices    eager, in the reference's slices of one latent, four frames (with 5 frames that is the whole clip)
compiled  torch.compile (default mode, static shapes) of a clip's first slice and of a further one
comfyui   ComfyUI's own module (gpu_clip_comfy.py), if --comfyui names its checkout

cuDNN's autotuner is on if it makes the eager clip of 5 frames faster. Times are of the host's clock around a call and a wait.
Memory is the peak of torch's allocator, or of davy's context, with input, output and weights. Errors are relative to torch in
fp32 for 5 small frames, and to the eager result in bf16 for every clip. floor: direct FLOPs at 755 TFLOP/s. Compiling takes a
minute for each case. Earlier parallel processes with --warm and the same TORCHINDUCTOR_CACHE_DIR can fill the cache."""
import gc
import json
import statistics
import sys
import time

import gpu_bench
from gpu_bench import FLOPS, clock, relative, set_exact

CONTENDERS = ("whole", "slices", "compiled", "comfyui", "davy")
BOUND = 2e-2


def weights_of(args):
    """The file in bf16, written once, and the network with its numbers in fp32."""
    import gpu_clip_net as net
    import torch

    path = args.weights / "seedvr2-bfloat16.safetensors"
    return path, gpu_bench.weights_of(path, net.SeedVr2().cuda(), torch.bfloat16, net.randomise)


def clip_of(task, frames, w, h):
    import torch

    g = torch.Generator("cuda").manual_seed(frames)
    if task == "decode":
        return torch.randn(1, 16, 1 + (frames - 1) // 4, h // 8, w // 8, generator=g, device="cuda").bfloat16()
    return (torch.rand(1, 3, frames, h, w, generator=g, device="cuda") * 2 - 1).bfloat16()


def free():
    import torch

    gc.collect()
    torch.cuda.empty_cache()


# ---- davy ----


def describe(t, frames_last, pictures):
    """[1, C, T, H, W], or consecutive channels-last frames: [1, T, H, W, C]"""
    from gpu_davy import DTYPES, abi

    out = abi.Tensor(memory=abi.Memory.CUDA, device=t.device.index or 0, dtype=DTYPES[t.dtype], ndim=5, data=t.data_ptr(),
                     layout=abi.Layout.NTHWC if frames_last else abi.Layout.NCTHW, range=abi.Range.RAW,
                     channels=abi.Channels.RGB if pictures else abi.Channels.LATENT)
    for axis, size in enumerate(t.shape):
        out.shape[axis] = size
    return out


def davy_clip(args, path, task, x, shape, times):
    """ms of each call, peak bytes, the result as [1, C, T, H, W], and with --profile the steps"""
    import torch
    from gpu_davy import Davy, abi, ref

    davy = Davy(args.library, "cuda:0")
    model = davy.model(path, torch.bfloat16)
    pictures = task == "encode"
    given = x.permute(0, 2, 3, 4, 1).contiguous() if pictures else x
    y = torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
    y = y if pictures else y.permute(0, 2, 3, 4, 1).contiguous()
    torch.cuda.synchronize()
    work = davy.api.vae_encode if pictures else davy.api.vae_decode
    source, target, run = describe(given, pictures, pictures), describe(y, not pictures, not pictures), abi.Run()

    def once():
        davy.check(work(model, ref(source), ref(target), ref(run), None))

    ms = [clock(once)[0] for _ in range(times)]
    peak = davy.memory().device_peak_bytes + (given.numel() + y.numel()) * 2
    steps = davy.profile(once, 1) if args.profile else []
    davy.release(model)
    davy.close()
    return ms, peak, y if pictures else y.permute(0, 4, 1, 2, 3), steps


# ---- one task at one size ----


class Task:
    def __init__(self, args, task, size, path, model):
        self.args, self.task, self.size, self.path = args, task, size, path
        self.w, self.h = (int(n) for n in size.split("x"))
        self.half = model.encoder if task == "encode" else model.decoder
        self.each = 4 if task == "encode" else 1
        self.comfy = None
        if "comfyui" in args.only and args.comfyui:
            import gpu_clip_comfy

            self.comfy, run = gpu_clip_comfy.load(args.comfyui, model.state_dict())
            self.comfy_run = run[task]
        self.rows = []

    def shape(self, frames):
        latents = 1 + (frames - 1) // 4
        return (1, 16, latents, self.h // 8, self.w // 8) if self.task == "encode" else (1, 3, frames, self.h, self.w)

    def mean(self, y):
        return y[:, :16] if self.task == "encode" else y

    def errors(self):
        """Errors of 5 small frames against torch in fp32 without TF32. Afterwards the network is in bf16."""
        set_exact(True)
        w, h, self.w, self.h = self.w, self.h, 320, 192
        x = clip_of(self.task, 5, self.w, self.h)
        expected = self.mean(self.half(x.float())[0])
        self.half = self.half.bfloat16()
        row = {"task": self.task, "eager": relative(self.mean(self.half(x)[0]), expected)}
        if "davy" in self.args.only:
            row["davy"] = relative(davy_clip(self.args, self.path, self.task, x, self.shape(5), 1)[2], expected)
        self.w, self.h = w, h
        print(json.dumps(row), flush=True)
        return row

    def count(self):
        """FLOPs of a clip's first slice and of a further one."""
        from torch.utils.flop_counter import FlopCounterMode

        x = clip_of(self.task, 5, self.w, self.h)
        with FlopCounterMode(display=False) as first:
            before = self.half(x, None, True)[1]
        with FlopCounterMode(display=False) as further:
            self.half(x[:, :, 1:], before, True)
        self.flops = first.get_total_flops(), further.get_total_flops()

    def tune(self):
        """Turns cuDNN's autotuner on if it makes the clip faster."""
        import torch

        x, ms, self.tuned = clip_of(self.task, 5, self.w, self.h), {}, False
        if "whole" not in self.args.only or self.args.no_tune:
            return
        for on in (False, True):
            torch.backends.cudnn.benchmark = on
            for _ in range(3):
                ms[on], _ = clock(lambda: self.half(x)[0])
            free()
        torch.backends.cudnn.benchmark = self.tuned = ms[True] < ms[False]
        print(json.dumps({"task": self.task, "size": self.size, "eager_ms": ms[False], "autotuned_ms": ms[True]}), flush=True)

    def torch_ms(self, run, x, times):
        """Median ms of run(x), in PyTorch, its peak with one half of the network, its result"""
        import torch

        free()
        torch.cuda.reset_peak_memory_stats()
        others = torch.cuda.memory_allocated() - x.numel() * 2 - sum(p.numel() * 2 for p in self.half.parameters())
        ms, y = [], None
        for _ in range(times):
            del y
            t, y = clock(lambda: run(x))
            ms.append(t)
        peak, reserved = torch.cuda.max_memory_allocated() - others, torch.cuda.max_memory_reserved() - others
        return {"ms": statistics.median(ms[1:] or ms), "gib": peak / 2**30, "reserved_gib": reserved / 2**30}, self.mean(y)

    def compile(self, parts):
        """A clip's first slice and a further one: the parts of every longer clip."""
        import torch

        torch._dynamo.reset()
        half = torch.compile(self.half, dynamic=False)
        x = clip_of(self.task, 9, self.w, self.h)
        start, first = time.perf_counter(), x[:, :, :1 + self.each].contiguous()
        _, before = (half if "first" in parts else self.half)(first, None, True)
        if "further" in parts:
            half(x[:, :, 1 + self.each:].contiguous(), before, True)
        torch.cuda.synchronize()
        self.compile_s = time.perf_counter() - start
        print(json.dumps({"task": self.task, "size": self.size, "compiled": parts, "compile_s": self.compile_s}), flush=True)
        return half

    def frames(self, frames, compiled):
        import gpu_clip_net as net

        x = clip_of(self.task, frames, self.w, self.h)
        flops = self.flops[0] + (frames - 5) // 4 * self.flops[1]
        row = {"task": self.task, "size": self.size, "frames": frames, "floor_ms": flops / FLOPS * 1e3, "tuned": self.tuned}
        expected_gib = 0.75 * frames * self.w * self.h / 1280 / 720 * (3.8 if self.task == "decode" else 2.3)
        times, y = 3 if frames == 5 else 1, None
        if "whole" in self.args.only and expected_gib < self.args.whole:
            row["whole"], y = self.torch_ms(lambda x: net.run(self.half, x), x, max(times, 2))
        if "slices" in self.args.only and frames > 5:
            if "whole" not in row:
                net.run(self.half, clip_of(self.task, 9, self.w, self.h), self.each)  # its shapes, once
            row["slices"], y = self.torch_ms(lambda x: net.run(self.half, x, self.each), x, times)
        if compiled is not None:

            def one(x, before=None, keep=True):  # for 5 frames, too, the first slice of longer clips is used
                return compiled(x, before, True)

            row["compiled"], z = self.torch_ms(lambda x: net.run(one, x, self.each), x, times)
            row["compiled"]["from eager"], z = relative(z, y.float()) if y is not None else None, None
        if self.comfy is not None:
            row["comfyui"], z = self.torch_ms(self.comfy_run, x, times)
            row["comfyui"]["from eager"], z = relative(z, y.float()) if y is not None else None, None
        free()
        if "davy" in self.args.only:
            ms, peak, z, steps = davy_clip(self.args, self.path, self.task, x, self.shape(frames), {5: 4, 21: 3}.get(frames, 2))
            row["davy"] = {"ms": statistics.median(ms[1:]), "gib": peak / 2**30}
            row["davy"]["from eager"] = relative(z, y.float()) if y is not None else None
            if steps:
                gpu_bench.print_profile(f"{self.task} {frames} frames of {self.size}", steps)
        print(json.dumps(row), flush=True)
        self.rows.append(row)
        del x, y
        free()


def print_table(rows):
    heads = ["clip", "eager, whole", "eager, slices", "torch.compile, slices", "ComfyUI", "davy", "best of them / davy"]
    print("| " + " | ".join(heads + ["floor ms", "davy reaches"]) + " |")
    print("|" + "---|" * (len(heads) + 2))
    for row in rows:
        cells = [f"{row['task']} {row['frames']} frames of {row['size']}"]
        cells += [f"{row[w]['ms']:.0f} ms, {row[w]['gib']:.1f} GiB" if w in row else "-" for w in CONTENDERS]
        peers = [row[w]["ms"] for w in CONTENDERS[:-1] if w in row]
        if "davy" in row:
            cells += [f"{min(peers) / row['davy']['ms']:.2f}x" if peers else "-", f"{row['floor_ms']:.0f}"]
            cells += [f"{100 * row['floor_ms'] / row['davy']['ms']:.0f} %"]
        print("| " + " | ".join(cells) + " |")


def arguments():
    parser = gpu_bench.comparison(__doc__, CONTENDERS)
    parser.add_argument("--size", action="append", default=[], help="multiples of 8")
    parser.add_argument("--frames", default="5,21,81", type=lambda s: [int(n) for n in s.split(",")], help="1 + 4n each")
    parser.add_argument("--task", default="decode,encode", type=lambda s: s.split(","))
    parser.add_argument("--no-tune", action="store_true", help="do not use or try cuDNN's autotuner")
    parser.add_argument("--warm", choices=("first", "further"), help="compile this slice and exit")
    parser.add_argument("--profile", action="store_true", help="davy's kernels and longest steps of each clip")
    parser.add_argument("--whole", type=float, default=100, help="GiB")
    parser.add_argument("--comfyui", help="a checkout that has comfy/ldm/seedvr")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no further clip starts")
    args = gpu_bench.parse(parser, CONTENDERS)
    if "comfyui" in args.only and not args.comfyui and len(args.only) < len(CONTENDERS):
        parser.error("comfyui needs --comfyui")
    return args


def main():
    args, start = arguments(), time.perf_counter()
    import torch

    torch.set_float32_matmul_precision("highest")
    gpu_bench.machine()
    rows, errors = [], []
    with torch.inference_mode():
        path, model = weights_of(args)
        for size in args.size or ("1280x720", "1920x1088"):
            for task in args.task:
                if time.perf_counter() - start > args.until:
                    continue
                work = Task(args, task, size, path, model.float())
                if args.warm:
                    work.half = work.half.bfloat16()
                    work.compile([args.warm])
                    continue
                errors.append(work.errors())
                work.count()
                work.tune()
                parts = ["first", "further"] if max(args.frames) > 5 else ["first"]
                compiled = work.compile(parts) if "compiled" in args.only else None
                for frames in args.frames:
                    if time.perf_counter() - start < args.until:
                        work.frames(frames, compiled)
                rows += work.rows
    print_table(rows)
    gpu_bench.save(args, *rows)
    # two bf16 results may differ by twice the bound, if their errors against fp32 have opposite directions
    far = [r for r in rows if not (r.get("davy", {}).get("from eager") or 0) <= 2 * BOUND]
    far += [r for r in errors if not r.get("davy", 0) <= BOUND]
    return f"gpu_clips.py: davy is too far from PyTorch: {far}" if far else 0


if __name__ == "__main__":
    sys.exit(main())
