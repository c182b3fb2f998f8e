#!/usr/bin/env python3
"""Compares davy with ONNX Runtime, OpenVINO and ncnn on this machine's CPU, in one run.

    python3 tests/bench/cpu_peers.py [--build build] [--threads N] [--rounds N] [--case PART] [--save F.jsonl] [--markdown]

The script installs the peers from PyPI into a virtual environment (--venv, kept for later runs). Every runtime gets the same
random networks (nets.py). The runtimes take turns, so that changes in the machine's speed affect all of them equally. The table
has medians, and each result's PSNR against ONNX Runtime in fp32, so that a fast but wrong result is visible."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = ["numpy", "onnx", "onnxruntime", "openvino", "ncnn"]


def runner_onnxruntime(folder, case, precision, threads, _):
    import onnxruntime as ort

    best = []
    for path in sorted(pathlib.Path(folder).glob(f"{case}*.onnx")):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        best.append(lambda x, s=session: s.run(None, {"in0": x[None]})[0][0])
    return ort.__version__, best


def runner_openvino(folder, case, precision, threads, _):
    import openvino as ov

    best = []
    for path in sorted(pathlib.Path(folder).glob(f"{case}*.onnx")):
        model = ov.Core().compile_model(str(path), "CPU", {
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
            "INFERENCE_NUM_THREADS": str(threads), "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"})
        request = model.create_infer_request()
        best.append(lambda x, r=request: r.infer({0: x[None]}, share_inputs=True, share_outputs=True)[0][0])
    return ov.__version__.split("-")[0], best


def runner_ncnn(folder, case, precision, threads, _):
    import ncnn
    import numpy as np

    net = ncnn.Net()
    net.opt.num_threads = threads
    net.opt.use_bf16_storage = precision == "bf16"
    net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = net.opt.use_fp16_packed = False
    assert net.load_param(f"{folder}/{case}.param") == 0 and net.load_model(f"{folder}/{case}.bin") == 0
    out = json.loads(pathlib.Path(folder, case + ".json").read_text())["ncnn_out"]

    def run(x):
        extractor = net.create_extractor()
        extractor.input("in0", ncnn.Mat(x).clone())
        result, y = extractor.extract(out)
        assert result == 0
        return np.array(y)

    return ncnn.__version__, [run]


def runner_davy(folder, case, precision, threads, build):
    from davy_bench import open_model

    return open_model(build, f"{folder}/{case}.safetensors", precision, threads,
                      json.loads(pathlib.Path(folder, case + ".json").read_text())["task"])


RUNNERS = {"onnxruntime": runner_onnxruntime, "openvino": runner_openvino, "ncnn": runner_ncnn, "davy": runner_davy}


def worker(args):
    """One runtime and one case in a separate process: it answers each line on stdin with one timed run."""
    import numpy as np

    peer, folder, case, precision, threads, build = args
    version, candidates = RUNNERS[peer](folder, case, precision, int(threads), build)
    x = np.load(f"{folder}/{case}.input.npy")
    times = []
    for run in candidates:  # e.g. two forms of a group norm in ONNX: the runtime's faster one counts
        run(x)
        start = time.perf_counter()
        y = run(x)
        times.append(time.perf_counter() - start)
    run = candidates[times.index(min(times))]
    y = np.asarray(run(x), "f").copy()
    np.save(f"{folder}/{case}.{peer}.{precision}.npy", y)
    print(json.dumps({"version": version}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        run(x)
        print(time.perf_counter() - start, flush=True)


def write_nets(folder, pick):
    import numpy as np

    sys.path.insert(0, str(HERE))
    import nets

    for name, (make, task) in nets.CASES.items():
        if pick not in name or (folder / f"{name}.json").exists():
            continue
        n = make()
        nets.write_davy(name, n, folder / f"{name}.safetensors")
        nets.write_onnx(n, folder / f"{name}.onnx", group_norm_op=True)
        if any(op == "gn" for op, *_ in n.nodes):
            nets.write_onnx(n, folder / f"{name}.instance.onnx", group_norm_op=False)
        nets.write_ncnn(n, str(folder / name))
        rng = np.random.default_rng(1)
        shape = n.shape["in0"]
        x = rng.uniform(0, 1, shape) if task == "upscale" else rng.standard_normal(shape)
        np.save(folder / f"{name}.input.npy", x.astype("f"))
        (folder / f"{name}.json").write_text(json.dumps({"task": task, "gflop": n.flop / 1e9, "ncnn_out": n.out}))


def measure(folder, case, precision, threads, rounds, build):
    peers = ["davy", "openvino", "ncnn"] + (["onnxruntime"] if precision == "f32" else [])
    rows = []
    processes = {}
    for peer in peers:
        command = [sys.executable, __file__, "--worker", peer, str(folder), case, precision, str(threads), build]
        processes[peer] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        version = json.loads(processes[peer].stdout.readline())["version"]
        rows.append({"case": case, "precision": precision, "peer": peer, "version": version, "threads": threads, "ms": []})
    for _ in range(rounds):
        for row in rows:
            process = processes[row["peer"]]
            time.sleep(0.2)  # some runtimes' threads spin for a while after a run
            process.stdin.write("\n")
            process.stdin.flush()
            row["ms"].append(float(process.stdout.readline()) * 1e3)
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return rows


def psnr(folder, row):
    import numpy as np

    reference = np.load(folder / f"{row['case']}.onnxruntime.f32.npy")
    y = np.load(folder / f"{row['case']}.{row['peer']}.{row['precision']}.npy").reshape(reference.shape)
    error = float(np.sqrt(np.mean((y - reference) ** 2)))
    return round(float(20 * np.log10(np.abs(reference).max() / max(error, 1e-12))), 1)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--case", default="")
    parser.add_argument("--venv", default=str(ROOT / "build" / "peers-venv"))
    parser.add_argument("--nets", default=str(ROOT / "build" / "peers-nets"))
    parser.add_argument("--save")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    python = pathlib.Path(args.venv, "bin", "python")
    if not python.exists():
        subprocess.check_call([sys.executable, "-m", "venv", args.venv])
        subprocess.check_call([python, "-m", "pip", "-q", "install", *PACKAGES])
    if os.environ.get("DAVY_PEERS_INSIDE") != "1":  # the rest of the script needs the environment's packages
        os.environ["DAVY_PEERS_INSIDE"] = "1"
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    folder = pathlib.Path(args.nets)
    folder.mkdir(parents=True, exist_ok=True)
    write_nets(folder, args.case)
    sys.path.insert(0, str(HERE))
    import nets

    rows = []
    for case in nets.CASES:
        for precision in ("f32", "bf16"):
            if args.case in case:
                for row in measure(folder, case, precision, args.threads, args.rounds, args.build):
                    gflop = json.loads((folder / f"{case}.json").read_text())["gflop"]
                    row["median_ms"] = round(statistics.median(row["ms"]), 1)
                    row["min_ms"] = round(min(row["ms"]), 1)
                    row["gflop_s"] = round(gflop / row["median_ms"] * 1e3, 1)
                    row["psnr_db"] = psnr(folder, row)
                    del row["ms"]
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    if args.save:
        pathlib.Path(args.save).write_text("".join(json.dumps(r) + "\n" for r in rows))
    if args.markdown:
        print_table(rows)


def print_table(rows):
    print("| case | precision | davy ms | best peer | its ms | davy / best | GFLOP/s | PSNR dB |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        if row["peer"] != "davy":
            continue
        others = [r for r in rows if r["peer"] != "davy" and (r["case"], r["precision"]) == (row["case"], row["precision"])]
        best = min(others, key=lambda r: r["median_ms"])
        print(f"| {row['case']} | {row['precision']} | {row['median_ms']} | {best['peer']} {best['version']} | "
              f"{best['median_ms']} | {best['median_ms'] / row['median_ms']:.2f}x | {row['gflop_s']} | {row['psnr_db']} |")


if __name__ == "__main__":
    main()
