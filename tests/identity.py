#!/usr/bin/env python3
"""Proves that a change keeps every result: compares two builds of davy, bit for bit on the CPU.

    tests/identity.py record BUILD RECORD.json          what a build computes and plans, as a file of hashes and texts
    tests/identity.py compare OLD NEW                   each a build folder or such a record
    tests/identity.py pack OLD NEW DIR                  what the GPU part needs, as DIR/identity.tar.xz
    tests/identity.py gpu DIR                           the GPU part, of a packed folder, on a machine without a network
    tests/identity.py gpu OLD NEW                       the same of two build folders
    tests/identity.py check BUILD                       checks this script itself, in a few seconds

Options:
    --quick            the small cases only, in two ways each: half a minute on two idle cores
    --only PART        golden, plans, davy or abi; may be repeated
    --case WORD        only cases with this word in their names
    --renames FILE     lines "old new": words that the old side's plan dumps are rewritten with before they are compared
    --jobs N           cases at a time (1; of the GPU part 6)
    --device D         of the GPU part (cuda)
    --minutes N        of the GPU part: benchmarks that would begin later are skipped (7)
    --show N           lines shown of a difference (6)

Parts:
    golden  every case of tests/golden/all.py: each tensor's hash and error, in fp32 and bf16, on one thread and on two;
            some in int8 and int4, too
    plans   build/plan_dump of every model: graphs, plans for processors and for GPUs that need not be there, and the tiles
            and slices that the engine chooses within memory budgets
    davy    files that the program writes: pictures with the shipped models, latents, clips, captions
    abi     exported symbols, needed libraries, layout of every struct; abidiff where it is installed
    gpu     golden cases in fp32, fp16 and bf16 keep their bounds, with equal hashes unless a build differs from itself;
            `davy bench` of both builds in turns

Larger cases and real models are read from DAVY_SHARED (else as BUILD was configured), and skipped without it. A record holds
no path, so that builds of other folders compare with it.

Speed on the CPU is measured by tests/bench/cpu_peers.py. Run it once for each build, with nothing else on the machine, and
compare the lines of davy: medians that differ by less than the spread of two runs of one build are equal.
    tests/bench/cpu_peers.py --build OLD --save old.jsonl && tests/bench/cpu_peers.py --build NEW --save new.jsonl

The output ends with `N passed, N failed, N skipped`. The exit status is 1 on any difference."""
import argparse
import base64
import concurrent.futures
import contextlib
import difflib
import functools
import hashlib
import importlib.util
import json
import lzma
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
GOLDEN = HERE / "golden"
IMAGES = HERE / "data" / "images"
MODELS = ROOT / "packaging" / "models"
PARTS = ["golden", "plans", "davy", "abi"]
TIMEOUT = 1200

# --quick leaves out larger weights than these, and cases that are another's but for the names of tensors or the format.
QUICK_BYTES = 24 << 20
LIKE_OTHERS = ["wan2_1_diffusers", "qwen_image", "qwen_image_original", "wan2_2_diffusers", "taew2_2_super", "lighttaehy1_5",
               "taeh3", "davy-tiny-vlm gguf"]
# Tiles of these share means, share norms, and fade into each other.
TILED = ["cugan_fast", "realplksr_dysample_x2", "swinir_x1"]
GPU_PRECISIONS = ["fp32", "fp16", "bf16"]
GPU_BENCH = ["decode-vae_kl-1024-bf16", "encode-vae_kl-1024-bf16", "decode-vae_tae-1080p-fp16", "upscale-compact-720p-fp16",
             "upscale-span-1080p-fp16", "upscale-rrdb-512-fp16", "upscale-live2-1080p-fp16", "upscale-live4-720p-fp16",
             "upscale-swinir-64x64x16-bf16", "upscale-hat-256-bf16", "upscale-dat-256-bf16", "upscale-realplksr-512-fp16"]
BENCH_ROUNDS = 3
BENCH_SLOWER = 1.03  # a median above this, with every round slower than the old build's slowest, is a difference
PACK_BYTES = 40 << 20
# Real models that travel to the GPU's machine; the others are too large.
PACKED_MODELS = ["span/", "realcugan/realcugan-se-up2x", "waifu2x/waifu2x-upcunet", "compact/realesr-general"]


# ---- results ----------------------------------------------------------------------------------------------------------


class Tally:
    """What passed, failed or was skipped. Differences are printed as they are found."""

    def __init__(self, show=6):
        self.passed = self.failed = self.skipped = 0
        self.show = show
        self.skips = {}

    def fail(self, title, lines=()):
        self.failed += 1
        lines = list(lines)
        more = [f"    ... {len(lines) - self.show} more lines"] if len(lines) > self.show else []
        print("\n".join([f"DIFFERS {title}"] + [f"    {line[:200]}" for line in lines[:self.show]] + more), flush=True)

    def check(self, same, title, lines=()):
        if same:
            self.passed += 1
        else:
            self.fail(title, lines() if callable(lines) else lines)
        return same

    def skip(self, what, why):
        self.skipped += 1
        self.skips.setdefault(why, []).append(what)

    def done(self):
        for why, what in self.skips.items():
            named = ", ".join(sorted(what)[:6]) + (", ..." if len(what) > 6 else "")
            print(f"skipped, {why}: {len(what)} ({named})")
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return self.failed != 0


def run(command, build, **more):
    """Exit status, output and errors. The build's own libraries come first."""
    paths = [str(build), str(build / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = dict(os.environ, LD_LIBRARY_PATH=":".join(p for p in paths if p), DAVY_MODELS=str(MODELS))
    command = [str(c) for c in command]
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=TIMEOUT, **more)
    except subprocess.TimeoutExpired:
        done = subprocess.CompletedProcess(command, 124, b"", b"it has not ended")
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()


def hash_of(data):
    return hashlib.sha256(data).hexdigest()[:32]


def packed(text):
    return base64.b85encode(lzma.compress(text.encode(), preset=6)).decode()


def unpacked(text):
    return lzma.decompress(base64.b85decode(text)).decode()


# ---- cases ------------------------------------------------------------------------------------------------------------


def load_list():
    """tests/golden/all.py, which knows what cases there are."""
    spec = importlib.util.spec_from_file_location("golden_all", GOLDEN / "all.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Case:
    """A golden case: its folder or reference file, and how its weights come about.

    weights: paths that are there; None: tests/golden/weights.py writes them. gguf: None, or gguf_pair.py's arguments."""

    def __init__(self, name, folder, weights=None, caption=False, integers=False, gguf=None):
        self.name, self.folder, self.weights = name, pathlib.Path(folder), weights
        self.caption, self.integers, self.gguf = caption, integers, gguf

    def missing(self):
        there = [self.folder] + [pathlib.Path(w) for w in self.weights or []]
        return [str(p) for p in there if not p.exists()]

    def is_quick(self):
        if self.name in LIKE_OTHERS:
            return False
        if self.weights:
            return sum(size_of(pathlib.Path(w)) for w in self.weights) <= QUICK_BYTES
        return written_bytes(self.folder) <= QUICK_BYTES

    def runs(self, quick):
        """Precisions and numbers of threads on the CPU."""
        if quick:
            return [("fp32", 2), ("bf16", 1)]
        runs = [(precision, threads) for precision in ("fp32", "bf16") for threads in (1, 2)]
        runs += [("int8", 2)] if self.integers or self.caption else []
        return runs + ([("int4", 2)] if self.caption else [])

    @contextlib.contextmanager
    def written(self, scratch):
        """What the golden runner is given as weights."""
        if self.weights and not self.gguf:
            yield ",".join(map(str, self.weights))
            return
        folder = pathlib.Path(tempfile.mkdtemp(prefix="identity-", dir=scratch))
        try:
            source = pathlib.Path(self.weights[0]) if self.weights else folder / "weights"
            if not self.weights:
                script([GOLDEN / "weights.py", self.folder, source])
            if self.gguf is not None:
                script([GOLDEN / "gguf_pair.py", source, folder / "gguf", *self.gguf])
                if not self.weights:
                    shutil.move(source / "inputs.safetensors", folder / "gguf")
                source = folder / "gguf"
            yield str(source)
        finally:
            shutil.rmtree(folder)

    def model_files(self, weights):
        """The files that plan_dump is given: a list for each model of the case."""
        if self.folder.is_file():
            return [weights.split(",")]
        case = self.folder / "case.json"
        if not case.exists():
            return [[p] for p in sorted(map(str, pathlib.Path(weights).glob("*.safetensors")))]
        told = json.loads(case.read_text())
        names = [told["model"]] if "model" in told else [told.get("encoder"), told.get("decoder")]
        return [[str(pathlib.Path(weights) / n) for n in names + [told.get("config")] if n]]


def size_of(path):
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size


def written_bytes(folder):
    """How large the weights of a manifest are."""
    total = 0
    for file in json.loads((folder / "manifest.json").read_text())["files"]:
        for tensor in file["tensors"]:
            elements = 1
            for side in tensor["shape"]:
                elements *= side
            total += elements * (4 if tensor["dtype"] == "F32" else 2)
    return total


@functools.lru_cache
def python():
    """One that has NumPy, where there is one."""
    for path in (sys.executable, "/usr/bin/python3", shutil.which("python3")):
        if path and subprocess.run([path, "-c", "import numpy"], capture_output=True).returncode == 0:
            return path
    return sys.executable


def script(command):
    done = subprocess.run([python(), *map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{command[0]} failed")


def shared_folder(builds=()):
    """Where the larger cases and real models are."""
    if os.environ.get("DAVY_SHARED"):
        return pathlib.Path(os.environ["DAVY_SHARED"])
    for cache in (b / "CMakeCache.txt" for b in builds if b):
        found = re.search(r"^DAVY_SHARED:\w+=(.+)$", cache.read_text(), re.M) if cache.exists() else None
        if found and pathlib.Path(found[1]).is_dir():
            return pathlib.Path(found[1])
    return ROOT.parent / "shared"


def all_cases(shared):
    known = load_list()
    own = GOLDEN / "cases"
    cases = [Case(n, own / n, integers=n in known.INTEGERS) for n in known.OURS + known.CLIPS]
    cases += [Case("davy-live", own / "davy-live", [MODELS], integers=True)]
    cases += [Case(n, own / n, caption=True) for n in known.OWN_CAPTIONS]
    cases += [Case(n + " gguf", own / n, caption=True, gguf=["k"]) for n in known.K_QUANTS]
    for reference, weights in known.MODELS:
        files = [shared / "models" / w for w in weights.split(",")]
        cases.append(Case("model " + weights.split(",")[0], shared / "models" / (reference + ".ref.safetensors"), files))
    tiny = shared / "golden" / "davy-tiny-vlm", [shared / "models" / "davy-tiny-vlm"]
    cases += [Case("davy-tiny-vlm", *tiny, caption=True), Case("davy-tiny-vlm gguf", *tiny, caption=True, gguf=[])]
    cases += [Case(n, shared / "golden" / n) for n in known.LARGER]
    cases += [Case(n, shared / "golden" / n, caption=True) for n in known.CAPTIONS]
    cases += [Case(n + " gguf", shared / "golden" / n, caption=True, gguf=[]) for n in known.CAPTIONS if "256m" not in n]
    return cases


# ---- golden cases and plans of a build --------------------------------------------------------------------------------


def golden(build, case, weights, precision, device="cpu", threads=0):
    """The runner's exit status and lines; how many checks it made is none of the results."""
    command = [build / "golden", case.folder, weights, "--precision", precision, "--device", device]
    status, said, errors = run(command + (["--threads", threads] if threads else []), build)
    lines = [line for line in said.splitlines() if not re.fullmatch(r"\d+ passed, \d+ failed.*", line)]
    lines += [re.sub(r"^FAIL \S+: ", "FAIL ", line).replace(weights, "WEIGHTS") for line in errors.splitlines()]
    return {"status": status, "lines": lines}


def plans(build, files):
    status, text, errors = run([build / "plan_dump", *files], build)
    folder = str(pathlib.Path(files[0]).parent)
    return text + (f"== status\n{status} {errors.replace(folder, '')}\n" if status else "")


def record_case(case, builds, options):
    """For each build: {"golden": {...}, "plans": {...}} of one case. None with a reason: it cannot be run."""
    missing = case.missing()
    if missing:
        return None, "not there"
    records = [{"golden": {}, "plans": {}} for _ in builds]
    try:
        with case.written(options.scratch) as weights:
            for build, record in zip(builds, records):
                for precision, threads in case.runs(options.quick) if "golden" in options.only else []:
                    key = f"{case.name} {precision} {threads}"
                    record["golden"][key] = golden(build, case, weights, precision, threads=threads)
                for files in case.model_files(weights) if "plans" in options.only and not case.caption else []:
                    name = case.name + (" " + pathlib.Path(files[0]).name if case.name == "davy-live" else "")
                    record["plans"][name] = packed(plans(build, files))
    except RuntimeError as error:
        return None, str(error)
    return records, None


# ---- the program davy -------------------------------------------------------------------------------------------------


def write_png(path, width, height, rows):
    """An 8-bit RGB picture."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def write_inputs(folder):
    """A clip as a folder of pictures and as y4m, and the weights of some small networks."""
    width, height, frames = 96, 64, 9
    (folder / "frames").mkdir()
    with open(folder / "clip.y4m", "wb") as f:
        f.write(b"YUV4MPEG2 W96 H64 F25:1 Ip A1:1 C420jpeg\n")
        for t in range(frames):
            rgb = [bytes(v % 256 for x in range(width) for v in (2 * x + 9 * t, 3 * y + 5 * t, x + y + 7 * t))
                   for y in range(height)]
            write_png(folder / "frames" / f"{t:04}.png", width, height, rgb)
            f.write(b"FRAME\n" + b"".join(row[::3] for row in rgb))
            f.write(b"".join(row[1::6] for row in rgb[::2]) + b"".join(row[2::6] for row in rgb[::2]))
    for name in ("taesd", "wan2_1", *TILED):
        script([GOLDEN / "weights.py", GOLDEN / "cases" / name, folder / name])


def commands(folder, shared, quick, device="cpu"):
    """Commands of davy, each with the files that it writes. Later ones read what earlier ones have written."""
    cat = ROOT / "packaging" / "examples" / "cat.png"
    taesd = ["--model", folder / "taesd" / "encoder.safetensors", "--model", folder / "taesd" / "decoder.safetensors"]
    wan = ["--model", folder / "wan2_1" / "model.safetensors"]
    ways = [("fp32", 2), ("bf16", 1)] if quick or device != "cpu" else [(p, t) for p in ("fp32", "bf16") for t in (1, 2)]
    listed = []

    def add(name, command, *outputs):
        listed.append((name, [str(c) for c in command], outputs))

    for precision, threads in ways:
        way = ["--precision", precision, "--device", device, "--threads", threads, "--quiet"]
        at = f"{precision} {threads}"
        for model in ("davy-live-x2", "davy-live-x4"):
            add(f"upscale cat {model} {at}", ["upscale", cat, "-o", "a.png", "--model", model, "--raw", "a.safetensors"] + way,
                "a.png", "a.safetensors")
            add(f"upscale cat {model} in tiles {at}", ["upscale", cat, "-o", "t.png", "--model", model, "--tile", 100] + way,
                "t.png")
        add(f"upscale cat 3 times, little memory {at}", ["upscale", cat, "-o", "s.png", "--scale", 3, "--memory", "24M"] + way,
            "s.png")
        for picture in sorted(p for p in IMAGES.iterdir() if p.suffix in (".png", ".jpg", ".webp")):
            add(f"upscale {picture.name} {at}", ["upscale", picture, "-o", "p.png", "--scale", 2] + way, "p.png")
        add(f"upscale clip {at}", ["upscale", folder / "clip.y4m", "-o", "v.y4m", "--scale", 2] + way, "v.y4m")
        add(f"encode cat {at}", ["encode", cat, "-o", "l.safetensors", "--crop", "--raw", "m.safetensors"] + taesd + way,
            "l.safetensors", "m.safetensors")
        add(f"decode cat {at}", ["decode", "l.safetensors", "-o", "d.png", "--raw", "e.safetensors"] + taesd + way, "d.png",
            "e.safetensors")
        for name in TILED:
            model = ["--model", folder / name / "model.safetensors", "--tile", 128]
            add(f"upscale cat {name} in tiles {at}", ["upscale", cat, "-o", "n.png"] + model + way, "n.png")
        for memory in ("1G", "64M", "40M"):
            clip = wan + ["--memory", memory] + way
            add(f"encode clip {memory} {at}", ["encode", folder / "frames", "-o", "c.safetensors"] + clip, "c.safetensors")
            add(f"decode clip {memory} {at}", ["decode", "c.safetensors", "-o", "c.y4m"] + clip, "c.y4m")
        tiny, seen = shared / "models" / "davy-tiny-vlm", shared / "golden" / "davy-tiny-vlm"
        if tiny.is_dir() and seen.is_dir():
            pictures = [seen / f"case{i:02}.png" for i in range(4)]
            ask = ["--model", tiny, "--max-tokens", 24]
            add(f"caption {at}", ["caption", *pictures] + ask + way)
            add(f"caption with a question {at}", ["caption", pictures[0], "--ask", "What colour is it?"] + ask + way)
            add(f"caption drawn {at}", ["caption", pictures[1], "--temperature", "0.8", "--seed", 3] + ask + way)
    return listed


def record_davy(build, inputs, options, device="cpu"):
    """{name: [status, hash of each output, of stdout, or the error]}"""
    record = {}
    with tempfile.TemporaryDirectory(prefix="identity-", dir=options.scratch) as folder:
        for name, command, outputs in commands(inputs, options.shared, options.quick, device):
            if options.case and options.case not in name:
                continue
            status, said, errors = run([build / "davy", *command], build, cwd=folder)
            files = [pathlib.Path(folder, o) for o in outputs]
            record[name] = [status] + [hash_of(f.read_bytes()) if f.exists() else "no file" for f in files]
            record[name].append(errors.replace(str(inputs), "")[-200:] if status else hash_of(said.encode()))
    return record


# ---- the ABI ----------------------------------------------------------------------------------------------------------


def record_abi(build):
    library = build / "libdavy.so.1"
    dynamic = subprocess.run(["readelf", "-dW", str(library)], capture_output=True, text=True).stdout
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", str(library)], capture_output=True, text=True).stdout
    exported = [line.split()[7] for line in symbols.splitlines()
                if re.match(r"\s*\d+:(\s+\S+){3}\s+(GLOBAL|WEAK)\s+\S+\s+\d+\s+\S", line)]
    layout = run([build / "tests" / "abi_dump"], build)[1]
    return {"exported symbols": sorted(exported),
            "needed libraries": sorted(re.findall(r"\((?:NEEDED|SONAME)\).*\[(.*)\]", dynamic)), "layout": layout.splitlines()}


def build_type(build):
    cache = build / "CMakeCache.txt"
    found = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache.read_text(), re.M) if cache.exists() else None
    return (found[1] if found else "") or "Release"


def compare_abi(old, new, builds, tally):
    for what in old:
        tally.check(old[what] == new.get(what), f"abi: {what}", lambda w=what: changes(old[w], new.get(w, [])))
    library = builds[1] / "libdavy.so.1" if builds[1] else None
    if library:
        done = subprocess.run(["sh", str(HERE / "abi" / "exports.sh"), str(library)], capture_output=True, text=True)
        tally.check(done.returncode == 0, "abi: tests/abi/exports.sh", done.stderr.splitlines())
        checker = [sys.executable, str(HERE / "abi" / "check_layout.py"), str(builds[1] / "tests" / "abi_dump")]
        done = subprocess.run(checker, capture_output=True, text=True)
        tally.check(done.returncode == 0, "abi: tests/abi/check_layout.py", done.stderr.splitlines())
    if not all(builds):
        tally.skip("abidiff", "it needs two build folders")
    elif build_type(builds[0]) != build_type(builds[1]):
        tally.skip("abidiff", "the two builds are of different types, with more or less debug information")
    elif shutil.which("abidiff") is None:
        tally.skip("abidiff", "it is not installed")
    else:
        pair = [str(b / "libdavy.so.1") for b in builds]
        done = subprocess.run(["abidiff", "--no-show-locs", *pair], capture_output=True, text=True)
        tally.check(done.returncode == 0, "abi: abidiff", (done.stdout + done.stderr).splitlines())


# ---- records ----------------------------------------------------------------------------------------------------------


def machine():
    """The processor: it decides which kernels are used."""
    names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return names[0] if names else "?"


def record_builds(builds, options, cases=None):
    """One record for each build. Weights are written once for all of them."""
    records = [{"machine": machine(), "golden": {}, "plans": {}, "davy": {}, "abi": {}, "skipped": {}} for _ in builds]
    for build in builds:
        wanted = ["golden"] * ("golden" in options.only) + ["plan_dump"] * ("plans" in options.only) + \
                 ["davy"] * ("davy" in options.only) + ["tests/abi_dump"] * ("abi" in options.only)
        lacking = [w for w in wanted if not (build / w).exists()]
        if lacking:
            sys.exit(f"{build}: no {', '.join(lacking)}; build first (ninja -C {build})")
    cases = all_cases(options.shared) if cases is None else cases
    cases = [c for c in cases if (not options.case or options.case in c.name)]
    if options.quick:
        cases = [c for c in cases if c.missing() or c.is_quick()]
    if not {"golden", "plans"} & set(options.only):
        cases = []
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        work = [(c, pool.submit(record_case, c, builds, options)) for c in cases]
        for i, (case, one) in enumerate(work):
            found, why = one.result()
            for k, record in enumerate(records):
                if found is None:
                    record["skipped"][case.name] = why
                else:
                    record["golden"].update(found[k]["golden"])
                    record["plans"].update(found[k]["plans"])
            if options.verbose:
                print(f"{time.monotonic() - started:6.0f} s  {i + 1} of {len(work)}  {case.name}", file=sys.stderr, flush=True)
    if "davy" in options.only:
        with tempfile.TemporaryDirectory(prefix="identity-", dir=options.scratch) as inputs:
            write_inputs(pathlib.Path(inputs))
            for build, record in zip(builds, records):
                record["davy"] = record_davy(build, pathlib.Path(inputs), options)
                if not options.case and not any(name.startswith("caption") for name in record["davy"]):
                    record["skipped"]["caption"] = "not there"
    if "abi" in options.only:
        for build, record in zip(builds, records):
            record["abi"] = record_abi(build)
    return records


# ---- comparing --------------------------------------------------------------------------------------------------------


def changes(old, new):
    return [line for line in difflib.unified_diff(old, new, lineterm="", n=0) if not line.startswith(("---", "+++", "@@"))]


def sections(text):
    """{title: text} of plan_dump's output."""
    parts = re.split(r"^== (.*)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def read_renames(path):
    """A function that applies the file's renames to a text, all at once."""
    if path is None:
        return lambda text: text
    lines = [line.split("#")[0].split() for line in pathlib.Path(path).read_text().splitlines()]
    names = {line[0]: line[1] for line in lines if len(line) == 2}
    bad = [line for line in lines if len(line) not in (0, 2)]
    if bad:
        sys.exit(f"{path}: \"{' '.join(bad[0])}\" is not \"old new\"")
    if not names:
        return lambda text: text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile(r"(?<![\w/.])(?:" + "|".join(map(re.escape, longest_first)) + r")(?![\w/]|\.\w)")
    return lambda text: pattern.sub(lambda found: names[found[0]], text)


def common(old, new, part, tally, left_out=()):
    """Keys that both have. What the new side lost is a difference, unless it is of a case that was left out and told of."""
    for key in sorted(old.keys() - new.keys()):
        if not any(key == name or key.startswith(name + " ") for name in left_out):
            tally.fail(f"{part} {key}", ["it is not among the new side's results"])
    for key in new.keys() - old.keys():
        tally.skip(f"{part} {key}", "the old side does not have it")
    return sorted(old.keys() & new.keys())


def compare_plans(old, new, rename, tally, left_out):
    for name in common(old, new, "plans of", tally, left_out):
        if old[name] == new[name]:
            tally.passed += len(sections(unpacked(old[name])))
            continue
        before, after = sections(rename(unpacked(old[name]))), sections(unpacked(new[name]))
        for title in common(before, after, name, tally):
            tally.check(before[title] == after[title], f"{name}: {title}",
                        lambda t=title: changes(before[t].splitlines(), after[t].splitlines()))


def compare_records(old, new, builds, options, tally):
    if old["machine"] != new["machine"]:
        print(f"note: the old side is of another processor, whose kernels may round otherwise: {old['machine']}")
    for key in common(old["golden"], new["golden"], "golden", tally, new["skipped"]):
        before, after = old["golden"][key], new["golden"][key]
        tally.check(before == after, f"golden {key}", lambda: changes(before["lines"], after["lines"]))
        if after["status"] != 0:
            tally.fail(f"golden {key}", ["the case does not keep its bounds"] + after["lines"])
    compare_plans(old["plans"], new["plans"], read_renames(options.renames), tally, new["skipped"])
    for key in common(old["davy"], new["davy"], "davy", tally, new["skipped"]):
        before, after = old["davy"][key], new["davy"][key]
        if before[0] != 0 and after[0] == before[0]:
            tally.skip(f"davy {key}", "the program fails on both sides")
            continue
        tally.check(before == after, f"davy {key}", [f"old {before}", f"new {after}"])
    if old["abi"] and new["abi"]:
        compare_abi(old["abi"], new["abi"], builds, tally)
    for name, why in sorted({**old["skipped"], **new["skipped"]}.items()):
        tally.skip(name, why)


def restrict(record, options):
    """A record of everything, less what this comparison leaves out."""
    kept = {part: dict(record[part]) if part in options.only else {} for part in PARTS}
    kept.update(machine=record["machine"], skipped={})
    if options.case:
        for part in ("golden", "plans", "davy"):
            kept[part] = {k: v for k, v in kept[part].items() if options.case in k}
    if options.quick:
        small = {c.name for c in all_cases(options.shared) if not c.missing() and c.is_quick()}
        ways = (" fp32 2", " bf16 1")
        kept["golden"] = {k: v for k, v in kept["golden"].items() if k.endswith(ways) and k.rsplit(" ", 2)[0] in small}
        kept["plans"] = {k: v for k, v in kept["plans"].items() if k in small or k.startswith("davy-live")}
        kept["davy"] = {k: v for k, v in kept["davy"].items() if k.endswith(ways)}
    return kept


def compare(old_path, new_path, options):
    if new_path.is_file() and old_path.is_dir():
        old_path, new_path = new_path, old_path  # a record is the old side
    paths = [old_path, new_path]
    builds = [p.resolve() if p.is_dir() else None for p in paths]
    recorded = iter(record_builds([b for b in builds if b], options))
    records = [next(recorded) if b else restrict(json.loads(p.read_text()), options) for p, b in zip(paths, builds)]
    tally = Tally(options.show)
    compare_records(*records, builds, options, tally)
    return tally.done()


# ---- the GPU's part ---------------------------------------------------------------------------------------------------


def needed_libraries(programs):
    """What programs load but for the C library's own, which has to be the machine's."""
    found = {}
    for program in programs:
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout
        for name, path in re.findall(r"(\S+) => (/\S+)", listed):
            if not re.match(r"(libc|libm|libdl|libpthread|librt|ld-linux.*|libdavy)\.so", name):
                found[name] = path
    return found


def pack(old, new, folder, from_shared):
    """Stripped programs, the libraries that they load, and the larger cases and models that fit."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "identity.tar.xz"
    known = load_list()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 128 << 20}]
    with tempfile.TemporaryDirectory(prefix="identity-") as name:
        root = pathlib.Path(name)
        for side, build in (("old", old), ("new", new)):
            (root / side / "lib").mkdir(parents=True)
            programs = [build / p for p in ("davy", "golden", "libdavy.so.1")]
            for program in programs:
                shutil.copy(program.resolve(), root / side / program.name)
                subprocess.run(["strip", str(root / side / program.name)], check=True)
            for library, path in needed_libraries(programs).items():
                shutil.copy(path, root / side / "lib" / library)
        shared = root / "shared"
        for case in [from_shared / "golden" / n for n in known.LARGER + known.CAPTIONS]:
            if case.is_dir():
                shutil.copytree(case, shared / "golden" / case.name)
        for reference, weights in known.MODELS:
            files = [reference + ".ref.safetensors"] + weights.split(",")
            if any(reference.startswith(p) for p in PACKED_MODELS) and all((from_shared / "models" / f).exists() for f in files):
                for file in files:
                    (shared / "models" / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(from_shared / "models" / file, shared / "models" / file)
        with lzma.open(archive, "wb", format=lzma.FORMAT_XZ, filters=filters) as stream, \
                tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(root.iterdir()):
                tar.add(path, path.name)
    size = archive.stat().st_size
    print(f"{archive}: {size / 2**20:.1f} MiB")
    return size > PACK_BYTES


def errors_of(lines):
    """{tensor: relative error} of the golden runner's lines."""
    found = (re.match(r"(.*): largest error \S+, relative (\S+) ", line) for line in lines)
    return {m[1]: float(m[2]) for m in found if m}


class GpuCase:
    """A golden case of both builds on the GPU, in one precision."""

    def __init__(self, name, precision, old, new, again):
        self.title, self.old, self.new, self.again = f"golden {name} {precision}", old, new, again

    def judge(self, tally):
        """Equal lines pass. Others pass where the old build differs from itself and errors are alike. Whether all were equal."""
        if self.new["status"] != 0 and self.old["status"] != 0:
            tally.skip(self.title, "neither build keeps its bounds")
            return self.old == self.new
        if self.new["status"] != 0:
            tally.fail(self.title, ["it does not keep its bounds"] + self.new["lines"][-3:])
            return False
        if self.old == self.new:
            tally.passed += 1
            return True
        before, after = errors_of(self.old["lines"]), errors_of(self.new["lines"])
        worse = [f"{t}: relative error {before.get(t)} before, {e} now" for t, e in after.items()
                 if t not in before or e > 1.25 * before[t] + 1e-7]
        varies = self.again is not None and self.again != self.old
        tally.check(varies and not worse, self.title,
                    (worse or ["hashes differ"]) + changes(self.old["lines"], self.new["lines"]))
        return False


def gpu_case(case, builds, options):
    """A GpuCase for each precision, or why there is none."""
    if case.missing():
        return None, "not there"
    found = []
    try:
        with case.written(options.scratch) as weights:
            for precision in GPU_PRECISIONS + (["int8"] if case.integers else []):
                old, new = (golden(b, case, weights, precision, options.device) for b in builds)
                again = golden(builds[0], case, weights, precision, options.device) if old != new else None
                found.append(GpuCase(case.name, precision, old, new, again))
    except RuntimeError as error:
        return None, str(error)[:100]
    return found, None


def gpu_golden(builds, options, tally):
    cases = [c for c in all_cases(options.shared) if not options.case or options.case in c.name]
    cases = [c for c in cases if not c.missing() or "gguf" not in c.name]
    equal = total = 0
    worst = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, one in [(c, pool.submit(gpu_case, c, builds, options)) for c in cases]:
            found, why = one.result()
            if found is None:
                tally.skip(case.name, why)
            for result in found or []:
                same = result.judge(tally)
                equal, total = equal + same, total + 1
                if not same:
                    print(f"hashes differ: {result.title}")
                precision = result.title.rsplit(" ", 1)[1]
                for side, run_of in (("old", result.old), ("new", result.new)):
                    most = max(errors_of(run_of["lines"]).values(), default=0.0)
                    worst[precision, side] = max(worst.get((precision, side), 0.0), most)
    print(f"golden on the GPU: {equal} of {total} cases and precisions have equal hashes")
    for precision in sorted({p for p, _ in worst}):
        before, now = worst[precision, "old"], worst[precision, "new"]
        print(f"    largest relative error in {precision}: {before:.3g} before, {now:.3g} now")


def gpu_davy(builds, options, tally):
    with tempfile.TemporaryDirectory(prefix="identity-", dir=options.scratch) as inputs:
        write_inputs(pathlib.Path(inputs))
        old, new = (record_davy(b, pathlib.Path(inputs), options, options.device) for b in builds)
        again = record_davy(builds[0], pathlib.Path(inputs), options, options.device) if old != new else old
    for name in common(old, new, "davy", tally):
        if old[name][0] != 0 and new[name][0] == old[name][0]:
            tally.skip(f"davy {name}", "the program fails on both sides")
        elif old[name] != again[name]:
            tally.skip(f"davy {name}", "the old build differs from itself")
        else:
            tally.check(old[name] == new[name], f"davy {name}", [f"old {old[name]}", f"new {new[name]}"])
    print(f"davy on the GPU: {sum(old[n] == new.get(n) for n in old)} of {len(old)} commands give equal files")


def bench(build, case, device):
    """Milliseconds; None: this case cannot be run, with what was said."""
    status, said, errors = run([build / "davy", "bench", case, "--json", "--quiet", "--device", device], build)
    if status != 0 or not said.strip():
        return None, errors[-100:] or "nothing is said"
    return json.loads(said.strip().splitlines()[-1])["median_ms"], None


def gpu_bench(builds, options, tally, started):
    print(f"davy bench, {BENCH_ROUNDS} rounds in turns: median ms before, now, ratio")
    for case in GPU_BENCH:
        if options.case and options.case not in case:
            continue
        if time.monotonic() - started > options.minutes * 60:
            tally.skip(f"bench {case}", "no time is left")
            continue
        times = [[], []]
        said = None
        for _ in range(BENCH_ROUNDS):
            for side in (0, 1):
                ms, why = bench(builds[side], case, options.device)
                said = said or why
                times[side] += [ms] if ms is not None else []
        if said or not all(times):
            tally.check(not (times[0] and not times[1]), f"bench {case}", [str(said)])
            if not times[0]:
                tally.skip(f"bench {case}", str(said))
            continue
        before, now = (statistics.median(t) for t in times)
        slower = now > BENCH_SLOWER * before and min(times[1]) > max(times[0])
        print(f"    {case:34} {before:9.3f} {now:9.3f}  {now / before:.3f}")
        tally.check(not slower, f"bench {case}", [f"before {times[0]}", f"now {times[1]}"])


def gpu(paths, options):
    started = time.monotonic()
    tally = Tally(options.show)
    with contextlib.ExitStack() as stack:
        if len(paths) == 1:
            root = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="identity-", dir=options.scratch)))
            archive = paths[0] / "identity.tar.xz" if paths[0].is_dir() else paths[0]
            with lzma.open(archive) as stream, tarfile.open(fileobj=stream) as tar:
                tar.extractall(root)
            builds, options.shared = [root / "old", root / "new"], root / "shared"
        else:
            builds = [p.resolve() for p in paths]
        for build in builds:
            _, said, errors = run([build / "davy", "devices"], build)
            print(f"{build.name}: {(said.strip() or errors or '?').splitlines()[-1]}")
        for part, work in (("golden", lambda: gpu_golden(builds, options, tally)),
                           ("davy", lambda: gpu_davy(builds, options, tally)),
                           ("bench", lambda: gpu_bench(builds, options, tally, started))):
            if part in options.only:
                work()
                print(f"{part} done after {time.monotonic() - started:.0f} s", flush=True)
    return tally.done()


# ---- this script itself -----------------------------------------------------------------------------------------------


def altered(value):
    """The same with one character changed somewhere: of a hash, a line or a text."""
    if isinstance(value, dict):
        key = sorted(value)[-1]
        return {**value, key: altered(value[key])}
    if isinstance(value, list):
        return value[:-1] + [altered(value[-1])]
    if isinstance(value, int):
        return value + 1
    return value[:-1] + ("0" if value[-1] != "0" else "1")


def self_check(build, options):
    """Two records of one build are equal. One with a byte changed in any part is not, and renames change what they say."""
    options.quick = True
    few = [c for c in all_cases(options.shared) if c.name in ("compact_x2", "taesd", "vlm_nanochat")]
    options.case, checks = "", Tally(options.show)
    options.only = [p for p in PARTS if p != "davy"]
    first, second = record_builds([build, build], options, few)
    if any("numpy" in why for why in first["skipped"].values()):
        checks.skip("everything", "NumPy is not installed")
        return checks.done()

    def differences(old, new):
        tally = Tally(0)
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            compare_records(old, new, [build, None], options, tally)
        return tally.failed, tally.passed

    checks.check(differences(first, second)[0] == 0, "two records of the same build differ")
    checks.check(differences(first, second)[1] > 50, "hardly anything is compared")
    checks.check(all(len(r["golden"]) == 6 and len(r["plans"]) == 2 for r in (first, second)), "cases are missing")
    for part in ("golden", "abi"):
        checks.check(differences(first, {**second, part: altered(second[part])})[0] > 0, f"a changed byte in {part} is not seen")
    lost = {k: v for k, v in second["golden"].items() if k != sorted(second["golden"])[0]}
    checks.check(differences(first, {**second, "golden": lost})[0] > 0, "a lost case is not seen")
    name = sorted(first["plans"])[0]
    renamed = unpacked(first["plans"][name]).replace("conv2d", "other2d")
    other = {**second, "plans": {**second["plans"], name: packed(renamed)}}
    checks.check(differences(first, other)[0] > 0, "a changed plan is not seen")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("# of this check\nconv2d other2d\n")
        file.flush()
        options.renames = file.name
        only_one = [{**r, "plans": {name: r["plans"][name]}} for r in (first, other)]
        checks.check(differences(*only_one)[0] == 0, "a rename is not applied")
    return checks.done()


# ---- main -------------------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage=argparse.SUPPRESS)
    parser.add_argument("command", choices=["record", "compare", "pack", "gpu", "check"])
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=PARTS + ["bench"])
    parser.add_argument("--case", default="")
    parser.add_argument("--renames")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--show", type=int, default=6)
    parser.add_argument("--scratch", help="a folder for weights that are written (the system's)")
    parser.add_argument("--verbose", action="store_true", help="tells each case as it is done")
    options = parser.parse_args()
    paths, wanted = options.paths, {"record": (2,), "compare": (2,), "pack": (3,), "gpu": (1, 2), "check": (1,)}
    if len(paths) not in wanted[options.command]:
        parser.error(f"{options.command}: {' or '.join(map(str, wanted[options.command]))} paths are expected")
    options.shared = shared_folder([p.resolve() for p in paths if p.is_dir()])
    options.jobs = options.jobs or (6 if options.command == "gpu" else 1)
    options.only = options.only or (["golden", "davy", "bench"] if options.command == "gpu" else list(PARTS))
    if options.command == "record":
        record = record_builds([paths[0].resolve()], options)[0]
        paths[1].write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        print(f"{paths[1]}: " + ", ".join(f"{len(record[part])} of {part}" for part in PARTS))
        return 0
    if options.command == "compare":
        return compare(paths[0], paths[1], options)
    if options.command == "pack":
        return pack(paths[0].resolve(), paths[1].resolve(), paths[2], options.shared)
    if options.command == "gpu":
        return gpu(paths, options)
    return self_check(paths[0].resolve(), options)


if __name__ == "__main__":
    sys.exit(main())
