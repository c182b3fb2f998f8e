#!/usr/bin/env python3
"""Compares davy with PyTorch (eager and torch.compile) on one NVIDIA GPU, in one process and one run.

    python3 tests/bench/gpu_peers.py [--library build/libdavy.so.1] [--case PART]... [--only eager,compiled,davy]
                                     [--kl-mode max-autotune] [--seconds S] [--batch N] [--profile] [--save F.jsonl]

Needs torch with CUDA and a compiler for torch.compile. Every runtime gets the same 16-bit weight file, the same channels-last
16-bit input on the device, and the same stream; davy uses torch's tensors without a copy. Contenders take turns. Times are
medians of CUDA-event timings after a warm-up. Errors are relative (||a-b||/||b||) to torch in fp32 with the same weights and
input. floor: the network's direct FLOPs at 755 TFLOP/s, or its weights, input and output at 4.25 TB/s, whichever takes
longer."""
import statistics
import sys
import time

from gpu_bench import (BYTES, FLOPS, attempt, comparison, machine, parse, print_profile, reference, relative, save, take_turns, timed,
                       weights_of)

CONTENDERS = ("eager", "compiled", "davy")
BOUNDS = {"float16": 5e-3, "bfloat16": 2e-2}


def cases():
    """name -> network, task, input shape, dtype, mode of torch.compile"""
    import torch
    import gpu_nets as nets

    half, brain, graphs = torch.float16, torch.bfloat16, "reduce-overhead"
    return {
        "kl_decode_1024": (nets.KlDecoder, "decode", (4, 128, 128), brain, "kl"),
        "kl_encode_1024": (nets.KlEncoder, "encode", (3, 1024, 1024), brain, "kl"),
        "taesd_decode_1080p": (nets.taesd_decoder, "decode", (4, 135, 240), half, graphs),
        "compact_x4_general_720p": (lambda: nets.Compact(32), "upscale", (3, 720, 1280), half, graphs),
        "compact_x4_anime_720p": (lambda: nets.Compact(16), "upscale", (3, 720, 1280), half, graphs),
        "span48_x2_1080p": (nets.Span, "upscale", (3, 1080, 1920), half, graphs),
        "rrdb_x4_512": (nets.RrdbNet, "upscale", (3, 512, 512), half, graphs),
    }


class TorchContender:
    def __init__(self, model, x, expected, mode):
        import torch

        torch.cuda.empty_cache()
        held = model_bytes(model) + x.numel() * x.element_size()
        before = torch.cuda.memory_allocated()
        self.fn = torch.compile(model, mode=mode, dynamic=False) if mode else model
        self.row = {"mode": mode} if mode else {}
        start = time.perf_counter()
        self.fn(x)  # compiles; cuDNN tries its algorithms
        torch.cuda.reset_peak_memory_stats()
        for _ in range(2):  # records the graph, then replays it
            y = self.fn(x)
        torch.cuda.synchronize()
        self.row["first_s"] = time.perf_counter() - start
        self.row["peak_bytes"] = held + torch.cuda.max_memory_allocated() - before
        self.row["error"] = relative(y, expected)
        self.x = x

    def __call__(self):
        self.fn(self.x)


def model_bytes(model):
    return sum(p.numel() * p.element_size() for p in model.parameters())


class DavyContender:
    def __init__(self, args, path, task, dtype, x, expected):
        import torch
        from gpu_davy import Davy

        stream = torch.cuda.current_stream()
        start = time.perf_counter()
        davy = self.davy = Davy(args.library, args.device)  # a new context, so that its peak is this case's
        self.model = davy.model(path, dtype)
        # zeroed, so that memory which davy does not write does not pass as a result
        y = torch.zeros(expected.shape, device="cuda", dtype=dtype).contiguous(memory_format=torch.channels_last)
        self.once = davy.call(self.model, task, x, y, stream)
        self.blocking = davy.call(self.model, task, x, y)
        self.once()
        stream.synchronize()
        self.row = {"first_s": time.perf_counter() - start, "error": relative(y, expected)}
        plan = davy.plan(self.model, task, x)
        self.row["tiles"], self.row["gflop"] = plan.tiles_x * plan.tiles_y, plan.flops / 1e9

    def __call__(self):
        self.once()

    def finish(self, x, expected, dtype, profile):
        samples = []
        for _ in range(12):
            start = time.perf_counter()
            self.blocking()
            samples.append((time.perf_counter() - start) * 1e3)
        self.row["blocking_ms"] = statistics.median(samples[2:])
        tensors = x.numel() * x.element_size() + expected.numel() * dtype.itemsize
        self.row["peak_bytes"] = self.davy.memory().device_peak_bytes + tensors
        if profile:
            self.row["profile"] = self.davy.profile(self.once)
        self.davy.release(self.model)
        self.davy.close()


def several(once, seconds):
    """ms of at least 4 runs, which take about `seconds` in all"""
    for _ in range(3):
        timed(once)
    times = []
    while len(times) < 4 or (sum(times) < seconds * 1e3 and len(times) < 100):
        times.append(timed(once))
    return times


def measure(args, name, case):
    import torch

    path = args.weights / f"{name}-{str(case[3])[6:]}.safetensors"
    model = weights_of(path, case[0](), case[3])
    with torch.inference_mode():
        row = compare(args, name, case, path, model)
    torch._dynamo.reset()
    return row


def compare(args, name, case, path, model):
    import torch

    _, task, shape, dtype, mode = case
    g = torch.Generator().manual_seed(1)
    x = (torch.randn if task == "decode" else torch.rand)((args.batch, *shape), generator=g)
    x = (x * 2 - 1 if task == "encode" else x).to("cuda", dtype).contiguous(memory_format=torch.channels_last)
    expected, flops = reference(lambda: torch.cat([model(one.float()[None]) for one in x]))
    traffic = 2 * (sum(p.numel() for p in model.parameters()) + x.numel() + expected.numel())
    row = {"case": name, "dtype": str(dtype)[6:], "batch": args.batch, "gflop": flops / 1e9,
           "floor_ms": max(flops / FLOPS, traffic / BYTES) * 1e3}
    model = model.to(dtype).to(memory_format=torch.channels_last)
    mode = args.kl_mode if mode == "kl" else mode
    make = {"eager": lambda: TorchContender(model, x, expected, None),
            "compiled": lambda: TorchContender(model, x, expected, mode),
            "davy": lambda: DavyContender(args, path, task, dtype, x, expected)}
    contenders = {who: attempt(row, who, name, make[who]) for who in CONTENDERS if who in args.only}
    contenders = {who: c for who, c in contenders.items() if c}
    for who, times in take_turns(contenders, lambda _, once: several(once, args.seconds / 3)).items():
        row[who] = {"ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times), "runs": len(times)}
        row[who].update(contenders[who].row)
    if "davy" in contenders:
        contenders["davy"].finish(x, expected, dtype, args.profile)
        row["davy"].update(contenders["davy"].row)
    return row


# ---- printing ----


def number(row, contender, key, form="{:.2f}", scale=1.0):
    value = row.get(contender, {}).get(key)
    return "-" if value is None else form.format(value * scale)


def print_table(rows):
    print("| case | eager ms | compiled ms | davy ms | best peer / davy | floor ms | davy's share of it | davy's error | "
          "eager's | compiled's | peak MiB eager, compiled, davy | compile s | davy first s |")
    print("|---|" + "---|" * 12)
    for row in rows:
        peers = [row[c]["ms"] for c in CONTENDERS[:2] if "ms" in row.get(c, {})]
        davy = row.get("davy", {}).get("ms")
        peaks = ", ".join(number(row, c, "peak_bytes", "{:.0f}", 2.0**-20) for c in CONTENDERS)
        cells = [row["case"] + ("" if row["batch"] == 1 else f" x{row['batch']}")]
        cells += [number(row, c, "ms") for c in CONTENDERS]
        cells += [f"{min(peers) / davy:.2f}x" if peers and davy else "-", f"{row['floor_ms']:.2f}"]
        cells += [f"{100 * row['floor_ms'] / davy:.0f} %" if davy else "-"]
        cells += [number(row, c, "error", "{:.1e}") for c in ("davy", "eager", "compiled")]
        cells += [peaks, number(row, "compiled", "first_s", "{:.1f}"), number(row, "davy", "first_s")]
        print("| " + " | ".join(cells) + " |")


def arguments():
    parser = comparison(__doc__, CONTENDERS)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--case", action="append", default=[], help="part of a name; may be repeated")
    parser.add_argument("--kl-mode", default="max-autotune", help="torch.compile's mode for the KL VAE; takes minutes per case")
    parser.add_argument("--seconds", type=float, default=1.5, help="time of the timed runs, per case and contender")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    return parse(parser, CONTENDERS)


def main():
    args = arguments()
    import torch

    found, rows = machine(), []
    with torch.cuda.stream(torch.cuda.Stream()):
        for name, case in cases().items():
            if not args.case or any(part in name for part in args.case):
                rows.append(measure(args, name, case))
                save(args, {**rows[-1], **found})
    print_table(rows)
    for row in rows if args.profile else []:
        print_profile(row["case"], row.get("davy", {}).get("profile", []))
    wrong = [row["case"] for row in rows if "davy" in args.only and not row["davy"].get("error", 1) <= BOUNDS[row["dtype"]]]
    return f"gpu_peers.py: davy failed or exceeds its error bound: {', '.join(wrong)}" if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
