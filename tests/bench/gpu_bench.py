"""Common functions of the comparisons on one NVIDIA GPU: command line, machine, weights for both sides, times, turns."""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FLOPS, BYTES = 755e12, 4.25e12  # per second, of an H200: dense 16-bit products at best, and its memory

# ---- the command line ----


def command_line(doc):
    """A parser with the arguments of every comparison. The caller adds its own."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=pathlib.Path, default=ROOT / "build" / "gpu-weights", help="folder of weight files, kept for later runs")
    parser.add_argument("--save")
    return parser


def comparison(doc, contenders):
    parser = command_line(doc)
    parser.add_argument("--library", default=str(ROOT / "build" / "libdavy.so.1"))
    parser.add_argument("--only", default=",".join(contenders), type=lambda s: s.split(","))
    return parser


def parse(parser, contenders=()):
    """Parses the arguments and creates their folders."""
    args = parser.parse_args()
    if contenders and set(args.only) - set(contenders):
        parser.error(f"--only takes {', '.join(contenders)}")
    args.weights.mkdir(parents=True, exist_ok=True)
    # a fresh cache, so that compile times are those of a first run
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="inductor-"))
    return args


def machine(**more):
    """Returns and prints the machine and the date of a row."""
    import torch

    if not torch.cuda.is_available():
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: torch finds no CUDA device")
    found = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
             "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **more}
    print(json.dumps(found), flush=True)
    return found


def save(args, *rows):
    if args.save:
        with open(args.save, "a") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)


# ---- networks ----


def weights_of(path, model, dtype, randomise=None):
    """The network with exactly the file's numbers in fp32. If the file does not exist, it is written with random numbers."""
    import gpu_nets as nets

    if not path.exists():
        nets.write(path, (randomise or nets.randomise)(model).state_dict(), dtype)
    model.load_state_dict({key: t.float() for key, t in nets.read(path).items()})
    return model.eval().cuda()


def set_exact(exact):
    """fp32 without TF32; else TF32 and cuDNN's autotuner."""
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = not exact


def reference(once):
    """A result of fp32 without TF32, in host memory, and its FLOPs."""
    from torch.utils.flop_counter import FlopCounterMode

    set_exact(True)
    with FlopCounterMode(display=False) as counter:
        y = once().cpu()
    set_exact(False)
    return y, counter.get_total_flops()


def relative(y, expected):
    import torch
    from torch.linalg import vector_norm

    y = y.to(expected.device).float()
    return float(vector_norm(y - expected, dtype=torch.float64) / vector_norm(expected, dtype=torch.float64))


# ---- times ----


def timed(once):
    """GPU time in ms."""
    import torch

    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    once()
    b.record()
    b.synchronize()
    return a.elapsed_time(b)


def clock(once):
    """Host time in ms until the GPU has finished, and the result."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    y = once()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3, y


def take_turns(contenders, sample, rounds=3):
    """name -> samples. Contenders take turns, so that changes in the machine's speed affect all of them equally."""
    samples = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            samples[name] += sample(name, contender)
    return samples


def attempt(row, name, case, make):
    """A contender, or None with the reason in the row."""
    try:
        return make()
    except Exception as error:  # one runtime's failure must not end the comparison
        row.setdefault(name, {})["failed"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        print(f"{case}: {name}: {row[name]['failed']}", file=sys.stderr)
        return None


# ---- profiles ----


def print_profile(name, steps):
    """Prints times by kernel, then the longest steps, of [{step, kernel, calls, ms, flops, bytes}]."""
    total = sum(s["ms"] for s in steps)
    kernels = {}
    for s in steps:
        k = kernels.setdefault(s["kernel"], {"ms": 0.0, "flops": 0.0, "bytes": 0.0, "calls": 0.0})
        for key in k:
            k[key] += s[key]
    print(f"\n{name}: {total:.3f} ms in the steps")
    longest = sorted(steps, key=lambda s: -s["ms"])[:12]
    ordered = sorted(kernels.items(), key=lambda item: -item[1]["ms"])
    for label, s in ordered + [(f"{s['step']} ({s['kernel']})", s) for s in longest]:
        if s["ms"] > 0:
            print(f"  {label[:72]:72} {s['calls']:5.0f} {s['ms']:9.3f} ms {100 * s['ms'] / total:5.1f} % "
                  f"{s['flops'] / s['ms'] / 1e9:8.1f} TFLOP/s {s['bytes'] / s['ms'] / 1e6:8.0f} GB/s")
