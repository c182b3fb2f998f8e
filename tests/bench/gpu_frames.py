#!/usr/bin/env python3
"""Compares davy on videos with torch.compile and ONNX Runtime's CUDA provider on one NVIDIA GPU, in one process and one run.

    python3 tests/bench/gpu_frames.py [--library build/libdavy.so.1] [--net PART]... [--size 1280x720]... [--frames N]
                                      [--seconds S] [--only compiled,onnxruntime,davy,sequence] [--layouts nchw,nhwc]
                                      [--until SECONDS] [--save F.jsonl]

Input and output are 8-bit RGB frames in pinned host memory; the output has twice the size. The networks compute in fp16. Every
contender gets the same pipeline of three streams: copies in, the network and copies out run at once, with separate buffers.
torch.compile runs channels-last with CUDA graphs and makes one kernel of each pixel conversion. ONNX Runtime gets the network
in fp16 in a CUDA graph, bound to device buffers, with exhaustive search of algorithms. It runs in NCHW or NHWC, whichever is
faster; its conversions are torch.compile's. "sequence" is davy's own pipeline (sequence_open): frames in ordinary memory, which
two threads copy in and out. Every contender's frame is compared with torch in fp32. floor: the network's direct FLOPs at
755 TFLOP/s, or a result's bytes at the measured speed of copies to the host, whichever takes longer."""
import ctypes
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time

import gpu_bench
from gpu_bench import FLOPS, ROOT, attempt, reference, take_turns, timed

SLOTS = 3
CONTENDERS = ("compiled", "onnxruntime", "davy", "sequence")
SIZES = ("1280x720", "1920x1080")


def networks():
    import gpu_nets as nets

    return {"compact": lambda: nets.Compact(16, scale=2), "span48": nets.Span, "spanf3": nets.SpanF3,
            "davy-live-x2": lambda: nets.Compact(12, 32, 2), "realcugan": nets.Cugan}


def named(parts):
    """The selected networks, in the order of the options; without options all."""
    return list(dict.fromkeys(name for part in parts for name in networks() if part in name)) or list(networks())


def weights_of(args, name, make):
    import torch

    path = ROOT / "packaging" / "models" / f"{name}.safetensors"
    if not path.exists():
        path = args.weights / f"frames-{name}.safetensors"
    return path, gpu_bench.weights_of(path, make(), torch.float16)


def to_picture(y):
    """The network's numbers as 8 bits; + 0.5 and the truncation of the conversion round to nearest."""
    import torch

    return (y * 255 + 0.5).clamp(0, 255).to(torch.uint8)


# ---- networks: a function that enqueues one from 8 bits to 8 bits on the device, on the current stream ----


def compiled(model):
    import torch

    half = torch.compile(lambda u8: to_picture(model(u8.to(torch.float16) / 255)).contiguous(memory_format=torch.channels_last),
                         mode="reduce-overhead", dynamic=False)

    def once(x, y):
        torch.compiler.cudagraph_mark_step_begin()
        y.copy_(half(x))

    return once


def export(model, shape):
    import torch

    path = tempfile.NamedTemporaryFile(suffix=".onnx", delete=False).name
    x = torch.zeros(shape, device="cuda", dtype=torch.float16)
    torch.onnx.export(model, (x,), path, input_names=["x"], output_names=["y"], opset_version=18, dynamo=False)
    return path


class OrtNetwork:
    def __init__(self, path, shape, scale, nhwc, graph):
        import onnxruntime as ort
        import torch

        stream = torch.cuda.current_stream()
        options = {"device_id": 0, "user_compute_stream": str(stream.cuda_stream), "enable_cuda_graph": str(int(graph)),
                   "cudnn_conv_algo_search": "EXHAUSTIVE", "cudnn_conv_use_max_workspace": "1",
                   "prefer_nhwc": str(int(nhwc))}
        session = ort.SessionOptions()
        session.log_severity_level = 3
        self.session = ort.InferenceSession(path, session, providers=[("CUDAExecutionProvider", options)])
        if "CUDAExecutionProvider" not in self.session.get_providers():
            raise RuntimeError("the session does not run on CUDA")
        self.x = torch.zeros(shape, device="cuda", dtype=torch.float16)
        self.y = torch.zeros((1, 3, shape[2] * scale, shape[3] * scale), device="cuda", dtype=torch.float16)
        self.run = ort.RunOptions()
        self.run.add_run_config_entry("disable_synchronize_execution_providers", "1")
        self.binding = self.session.io_binding()
        self.binding.bind_input("x", "cuda", 0, "float16", list(self.x.shape), self.x.data_ptr())
        self.binding.bind_output("y", "cuda", 0, "float16", list(self.y.shape), self.y.data_ptr())
        for _ in range(4):  # searches, then records, then replays
            self()

    def __call__(self):
        self.session.run_with_iobinding(self.binding, self.run)


def onnxruntime(model, shape, layouts, row):
    import torch

    path = export(model, shape)
    tried, failed = {}, {}
    for graph, layout in itertools.product((True, False), layouts):
        key = layout + (", graph" if graph else "")
        if not graph and tried:
            break
        try:
            network = OrtNetwork(path, shape, 2, layout == "nhwc", graph)
            tried[key] = (statistics.median(timed(network) for _ in range(8)), network)
        except Exception as error:  # if one layout fails, the others still run
            failed[key] = str(error).splitlines()[0][:300]
    os.unlink(path)
    row.update(network_ms={key: ms for key, (ms, _) in tried.items()}, refused=failed)
    if not tried:
        raise RuntimeError(failed)
    network = min(tried.values(), key=lambda t: t[0])[1]
    del tried
    before = torch.compile(lambda u8, x: x.copy_(u8.to(torch.float16) / 255), dynamic=False)
    after = torch.compile(lambda y, u8: u8.copy_(to_picture(y)), dynamic=False)

    def once(x, y):
        before(x, network.x)
        network()
        after(network.y, y)

    return once


# ---- the pipeline ----


def pinned(shape, fill=False):
    """Pinned memory as [1, 3, H, W], channels last, for the copy of a frame."""
    import torch

    t = torch.randint(0, 256, shape, dtype=torch.uint8) if fill else torch.zeros(shape, dtype=torch.uint8)
    return t.pin_memory().permute(0, 3, 1, 2)


class Pipeline:
    def __init__(self, h, w):
        import torch

        self.x = [pinned((1, h, w, 3), True) for _ in range(SLOTS)]
        self.y = [pinned((1, 2 * h, 2 * w, 3)) for _ in range(SLOTS)]
        self.dx, self.dy = [x.cuda() for x in self.x], [y.cuda() for y in self.y]
        self.into, self.out, self.work = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()
        self.arrived, self.made, self.gone = ([torch.cuda.Event() for _ in range(SLOTS)] for _ in range(3))

    def bring(self, i):
        import torch

        s = i % SLOTS
        with torch.cuda.stream(self.into):
            self.into.wait_event(self.made[s])  # its last reader
            self.dx[s].copy_(self.x[s], non_blocking=True)
            self.arrived[s].record(self.into)

    def frames(self, network, count):
        """Seconds for `count` frames. `network` gets the slot's tensors on the device."""
        import torch

        torch.cuda.synchronize()
        start = time.perf_counter()
        self.bring(0)
        for i in range(count):
            s = i % SLOTS
            if i + 1 < count:
                self.bring(i + 1)
            self.work.wait_event(self.arrived[s])
            self.gone[s].synchronize()  # the slot's last frame has reached the host; the first round does not wait
            network(self.dx[s], self.dy[s])
            self.made[s].record(self.work)
            with torch.cuda.stream(self.out):
                self.out.wait_event(self.made[s])
                self.y[s].copy_(self.dy[s], non_blocking=True)
                self.gone[s].record(self.out)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def copies(self):
        """Bytes per second of copies of a result to pinned memory."""
        ms = [timed(lambda: self.y[0].copy_(self.dy[0], non_blocking=True)) for _ in range(8)]
        return self.y[0].numel() / statistics.median(ms) * 1e3


# ---- davy ----


class DavySequence:
    """Frames in ordinary memory; one thread pushes them and one pulls."""

    def __init__(self, davy, model, x, y):
        import gpu_davy
        import torch

        self.davy, self.model = davy, model
        self.x, self.y = (torch.empty((1, *t.shape[2:], 3), dtype=torch.uint8).permute(0, 3, 1, 2) for t in (x, y))
        self.x.copy_(x)
        self.given = gpu_davy.describe(self.x, gpu_davy.abi.Channels.RGB)
        self.wanted = gpu_davy.describe(self.y, gpu_davy.abi.Channels.RGB)

    def frames(self, count, in_flight):
        from gpu_davy import abi, ref

        davy, handle = self.davy, ctypes.c_void_p()
        desc = abi.SequenceDesc(op=abi.Op.UPSCALE, input=ctypes.pointer(self.given), max_in_flight=in_flight)
        davy.check(davy.api.sequence_open(self.model, ref(desc), ref(handle)))
        forever = 2**64 - 1

        def push():
            for _ in range(count):
                davy.check(davy.api.sequence_push(handle, ref(self.given), forever))
            davy.check(davy.api.sequence_finish(handle))

        seconds = []
        for _ in range(2):  # the first round allocates the frames' memory
            start = time.perf_counter()
            pusher = threading.Thread(target=push)
            pusher.start()
            pulled = 0
            while pulled < count:  # NEED_INPUT (the pusher is late) does not count as a frame
                pulled += davy.check(davy.api.sequence_pull(handle, ref(self.wanted), forever)) == 0
            pusher.join()
            seconds.append(time.perf_counter() - start)
            davy.check(davy.api.sequence_reset(handle))
        davy.api.sequence_release(handle)
        return seconds[1]


# ---- comparing ----


def difference(y, expected):
    d = (y.short() - expected.short()).abs()
    return {"largest": int(d.max()), "mean": float(d.float().mean())}


def frames_of(args, row):
    """Frames of a round; slow contenders get fewer."""
    return min(args.frames, max(10 * SLOTS, int(args.seconds * 1e3 / row.get("device_ms", 1))))


def begin(pipe, make, expected, row):
    """Runs a network, and stores its first frame's difference and its device time in the row."""
    start = time.perf_counter()
    network = make(row)
    for y in pipe.y + pipe.dy:
        y.zero_()  # so that unwritten memory does not pass as a result
    pipe.frames(network, 2 * SLOTS)
    row.update(first_s=time.perf_counter() - start, **difference(pipe.y[0], expected))
    row["device_ms"] = statistics.median(timed(lambda: network(pipe.dx[0], pipe.dy[0])) for _ in range(10))
    return network


def compare(args, name, make, size):
    import torch
    from gpu_davy import Davy

    w, h = (int(n) for n in size.split("x"))
    path, model = weights_of(args, name, make)
    pipe = Pipeline(h, w)
    expected, flops = reference(lambda: to_picture(model(pipe.x[0].cuda().float() / 255)))
    rate = pipe.copies()
    row = {"net": name, "size": size, "gflop": flops / 1e9, "to_host_gb_s": rate / 1e9,
           "floor_ms": max(flops / FLOPS, expected.numel() / rate) * 1e3}
    model = model.half().to(memory_format=torch.channels_last)
    davy = Davy(args.library, "cuda:0")
    handle = davy.model(path, torch.float16)
    calls = {}

    def davy_network(x, y):
        key = x.data_ptr()
        if key not in calls:
            calls[key] = davy.call(handle, "upscale", x, y, pipe.work)
        calls[key]()

    make_network = {"compiled": lambda r: compiled(model), "davy": lambda r: davy_network,
                    "onnxruntime": lambda r: onnxruntime(model, (1, 3, h, w), args.layouts, r)}
    ready = {}
    for who in args.only:
        if who != "sequence":
            row[who] = {}
            ready[who] = attempt(row, who, f"{name} {size}", lambda: begin(pipe, make_network[who], expected, row[who]))
            if ready[who]:
                print(f"{name} {size}: {who}, {row[who]['device_ms']:.2f} ms on the device", file=sys.stderr, flush=True)

    def round_of(who, network):
        count = frames_of(args, row[who])
        pipe.frames(network, SLOTS)
        return [count / pipe.frames(network, count)]

    samples = take_turns({who: network for who, network in ready.items() if network}, round_of)
    for who, fps in samples.items():
        row[who]["fps"] = statistics.median(fps)
    print(json.dumps(row), flush=True)
    if "sequence" in args.only and "failed" not in row.get("davy", {}):
        own = DavySequence(davy, handle, pipe.x[0], pipe.y[0])
        count = frames_of(args, row.get("davy", {}))
        fps = {n: count / own.frames(count, n) for n in (3, 4, 6)}
        row["sequence"] = {"fps": max(fps.values()), "in_flight": fps, **difference(own.y, expected)}
    davy.release(handle)
    davy.close()
    return row


def print_table(rows):
    print("| network, to twice the size | torch.compile fps | ONNX Runtime fps | davy fps | davy / best peer | floor fps | "
          "davy reaches | davy's sequence fps | largest, mean difference in levels: torch.compile, ONNX Runtime, davy |")
    print("|---|" + "---|" * 8)
    for row in rows:
        fps = {who: row.get(who, {}).get("fps") for who in CONTENDERS}
        peers = [fps[who] for who in CONTENDERS[:2] if fps[who]]
        text = {who: f"{v:.0f}" if v else "-" for who, v in fps.items()}
        off = ", ".join(f"{row[w]['largest']} {row[w]['mean']:.3f}" if "largest" in row.get(w, {}) else "-"
                        for w in CONTENDERS[:3])
        floor = 1e3 / row["floor_ms"]
        cells = [f"{row['net']} {row['size']}", text["compiled"], text["onnxruntime"], text["davy"]]
        cells += [f"{fps['davy'] / max(peers):.2f}x" if peers and fps["davy"] else "-", f"{floor:.0f}"]
        cells += [f"{100 * fps['davy'] / floor:.0f} %" if fps["davy"] else "-", text["sequence"], off]
        print("| " + " | ".join(cells) + " |")


def arguments():
    parser = gpu_bench.comparison(__doc__, CONTENDERS)
    parser.add_argument("--net", action="append", default=[], help="part of a name; may be repeated")
    parser.add_argument("--size", action="append", default=[])
    parser.add_argument("--frames", type=int, default=200, help="frames of a round")
    parser.add_argument("--seconds", type=float, default=1e9, help="longest time of a round; it then has fewer frames, but at least 30")
    parser.add_argument("--layouts", default="nchw,nhwc", type=lambda s: s.split(","), help="that ONNX Runtime tries")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no further case starts")
    return gpu_bench.parse(parser, CONTENDERS)


def main():
    args, start = arguments(), time.perf_counter()
    import torch

    more = {}
    if "onnxruntime" in args.only:
        import onnxruntime as ort

        more = {"onnxruntime": ort.__version__, "providers": ort.get_available_providers()}
    machine = gpu_bench.machine(**more)
    rows = []
    with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream()):
        for size in args.size or SIZES:
            for name in named(args.net):
                if time.perf_counter() - start > args.until:
                    continue
                rows.append(compare(args, name, networks()[name], size))
                torch._dynamo.reset()
                print(json.dumps(rows[-1].get("sequence")), flush=True)
                gpu_bench.save(args, {**rows[-1], **machine})
    print_table(rows)
    wrong = [f"{r['net']} {r['size']}" for r in rows if "davy" in args.only and r["davy"].get("mean", 9) > 0.5]
    return f"gpu_frames.py: davy failed or is wrong: {', '.join(wrong)}" if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
