"""The command line as a user runs it: whole runs on real pictures. See cli_run.py.

Arguments: names of tests to run instead of all; --small leaves out the large pictures and networks (sanitizers).
Ends with "N passed, N failed, N skipped".
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

import cli_run
from cli_files import copy, difference, dump, icc_of, png_chunks, safetensors, shrunk, write_png, write_safetensors
from cli_run import DAVY, LARGE, QUICK, SHARED, SMALL, SOURCE, WORK, check, has_device_code, leftovers, run, skip


def test_devices_and_inspect():
    check("cpu" in run("devices").stdout, "devices")
    devices = json.loads(run("devices", "--json").stdout)
    check(devices[0]["device"] == "cpu" and devices[0]["usable"] and "int8" in devices[0], "devices --json")
    model = SOURCE / "packaging/models/davy-live-x4.safetensors"
    check("compact" in run("inspect", model).stdout, "inspect")
    j = json.loads(run("inspect", model, "--json").stdout)
    check(j["recognised"] is True and j["arch"] == "compact" and 355488 in j.values(), f"inspect --json: {j}")
    write_safetensors(WORK / "odd.safetensors", one=np.zeros((3, 4)), two=np.zeros(5))
    p = run("inspect", WORK / "odd.safetensors", "--json", code=1)
    check(json.loads(p.stdout)["recognised"] is False and "not recognised" in p.stderr, "an unknown file is reported")


def upscaled(src, dst, factor, *more):
    run("upscale", src, "-o", dst, "--quiet", *more)
    return dump(dst)


def test_pictures():
    """Each picture x2 has the right size and kind. Reduced again, it is the same picture."""
    files = sorted(SMALL.glob("*.*")) + sorted(SMALL.glob("exif/*"))
    files += (sorted(LARGE.glob("*.*")) if LARGE.is_dir() else [])
    for f in files:
        if f.suffix not in (".png", ".jpg", ".webp"):
            continue
        copy(f, WORK / "before.png")
        before = dump(WORK / "before.png")
        after = upscaled(f, WORK / "after.png", 2, "--scale", "2")
        h, w, c = before.shape
        if not check(after.shape == (2 * h, 2 * w, c) and after.dtype == before.dtype,
                     f"{f.name}: {before.shape} {before.dtype} became {after.shape} {after.dtype}"):
            continue
        full = 65535 if before.dtype == np.uint16 else 255
        # The network sharpens, so small pictures of noise change more. Colours are weighted by alpha.
        weight = before[:, :, -1:] / full if c % 2 == 0 else np.ones((h, w, 1))
        off = np.abs(shrunk(after, 2) - before) * (np.where(np.arange(c) == c - 1, 1, weight) if c % 2 == 0 else weight)
        bound = 0.15 if f.name.startswith("tiny") else 0.03
        check(off.mean() / full < bound, f"{f.name}: differs by {off.mean() / full:.4f} of full scale")
        check(icc_of(WORK / "after.png") == icc_of(WORK / "before.png"), f"{f.name}: ICC profile")
    upright = upscaled(SMALL / "exif/upright.png", WORK / "upright.png", 2, "--scale", "2")
    for i in range(1, 9):
        got = upscaled(SMALL / f"exif/orientation_{i}.jpg", WORK / "turned.png", 2, "--scale", "2")
        check(got.shape == upright.shape and difference(got, upright) < 3, f"orientation {i} after upscaling")


def test_formats_and_scales():
    cat = SMALL / "png_interlaced.png"
    base = upscaled(cat, WORK / "x4.png", 4)
    check(base.shape == (300, 452, 3), "the default is x4")
    for scale, shape in (("4", (300, 452)), ("3", (225, 339)), ("1.5", (113, 170)), ("1", (75, 113)), ("0.5", (38, 57)),
                         ("8", (600, 904)), ("0.001", (1, 1))):
        got = upscaled(cat, WORK / "s.png", 0, "--scale", scale)
        check(got.shape[:2] == shape, f"--scale {scale} gives {got.shape}")
    check(np.array_equal(upscaled(cat, WORK / "s.png", 4, "--scale", "4"), base), "--scale 4 is the network's own")
    for model, factor in (("davy-live-x2", 2), ("davy-live-x4", 4)):
        got = upscaled(cat, WORK / "s.png", factor, "--model", model)
        check(got.shape == (75 * factor, 113 * factor, 3), f"--model {model}")
        path = SOURCE / f"packaging/models/{model}.safetensors"
        check(np.array_equal(upscaled(cat, WORK / "s.png", factor, "--model", path), got), "the model by path")
    got = upscaled(cat, WORK / "s.jpg", 4, "--quality", "97")
    check(got.shape == base.shape and difference(got, base) < 3, "to JPEG")
    got = upscaled(cat, WORK / "s.webp", 4, "--lossless")
    check(np.array_equal(got, base), "to lossless WebP")
    p = run("upscale", SMALL / "rgb16_tagged.png", "-o", WORK / "s.jpg")
    check("16" in p.stderr and icc_of(WORK / "s.jpg") == icc_of(SMALL / "rgb16_tagged.png"), "16 bit to JPEG: note, profile")
    got = upscaled(SMALL / "rgb16_tagged.png", WORK / "s.png", 4)
    check(got.dtype == np.uint16 and len(np.unique(got)) > 256, "16 bit are used, not only kept")
    chunks = dict(png_chunks((WORK / "s.png").read_bytes()))
    check(chunks.get("cICP") == bytes([9, 18, 0, 1]), "cICP")
    rgba = np.full((9, 12, 4), 255, np.uint8)
    rgba[:, :, 0] = 100
    write_png(WORK / "opaque.png", 12, 9, 8, 6, [r.tobytes() for r in rgba])
    check(upscaled(WORK / "opaque.png", WORK / "s.jpg", 4).shape == (36, 48, 3), "opaque alpha into JPEG")
    j = json.loads(run("upscale", cat, "-o", WORK / "s.png", "--json").stdout)
    check(j["width"] == 452 and j["height"] == 300 and j["seconds"] > 0, "--json")
    check(run("upscale", cat, "-o", WORK / "s.png", "--quiet").stdout == "", "--quiet")
    check("\x1b" not in p.stderr and "\r" not in p.stderr, "no progress bar without a terminal")
    tiled = upscaled(cat, WORK / "s.png", 4, "--tile", "64")
    check(difference(tiled, base) < 0.5, "--tile 64")


def test_hard_alpha():
    """A red disc with a hard edge on transparent black has no dark fringe at its visible edge."""
    y, x = np.mgrid[0:24, 0:24]
    for depth, dtype in ((8, np.uint8), (16, ">u2")):
        full = (1 << depth) - 1
        rgba = np.zeros((24, 24, 4), dtype)
        rgba[np.hypot(x - 11.5, y - 11.5) < 8] = [full * 9 // 10, full // 5, full // 5, full]
        write_png(WORK / "disc.png", 24, 24, depth, 6, [r.tobytes() for r in rgba])
        for scale in ("4", "2", "1.5"):
            got = upscaled(WORK / "disc.png", WORK / "s.png", 2, "--scale", scale).astype(float) / full
            seen = got[got[:, :, 3] > 0.1]
            check(seen[:, 0].min() > 0.85 and got[:, :, 3].max() > 0.99 and got[0, 0, 3] < 0.01,
                  f"{depth} bit x{scale}: red falls to {seen[:, 0].min():.2f} at the edge")


def test_raw():
    for name in ("png_interlaced.png", "rgb16_tagged.png"):
        picture = upscaled(SMALL / name, WORK / "raw.png", 4, "--raw", WORK / "raw.safetensors")
        tensors = safetensors(WORK / "raw.safetensors")
        h, w, c = picture.shape
        full = 65535 if picture.dtype == np.uint16 else 255
        check(list(tensors) == ["output"] and tensors["output"].shape == (1, 3, h, w), f"{name}: the raw tensor")
        again = np.clip(tensors["output"][0].transpose(1, 2, 0), 0, 1) * full
        check(np.abs(again - picture).max() <= 0.51 + full * 2e-6, f"{name}: raw output and picture agree")


def test_terminal():
    """On a terminal davy draws a bar and erases it at the end."""
    import pty
    import fcntl
    import struct
    import termios
    src = shutil.copy(SMALL / "exif/upright.png", WORK / "a-rather-long-name-of-upright.png")
    for quiet, columns in (False, 80), (True, 80), (False, 44):
        try:
            parent, child = pty.openpty()
        except OSError:  # a container without /dev/pts
            return skip("this system has no terminals")
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        args = [DAVY, "upscale", src, "-o", WORK / "bar.png"] + (["--quiet"] if quiet else [])
        p = subprocess.Popen(args, stderr=child, stdout=subprocess.DEVNULL)
        os.close(child)
        text = b""
        try:
            while part := os.read(parent, 4096):
                text += part
        except OSError:  # Linux: the other end is closed
            pass
        os.close(parent)
        check(p.wait() == 0, "exit on a terminal")
        if quiet:
            check(text == b"", f"--quiet draws nothing: {text[:80]!r}")
        else:
            check(b"a-rather-l" in text and b" %" in text and text.rstrip(b"\r").endswith(b" "), f"the bar: {text[-200:]!r}")
            longest = max(map(len, text.split(b"\r")))
            check(longest < columns, f"a line of {longest} on {columns} columns")


def test_folder():
    src, dst = WORK / "album", WORK / "album-out"
    (src / "more").mkdir(parents=True)
    for name in ("png_interlaced.png", "jpeg_cmyk.jpg", "photo_lossy.webp", "tiny_3x2.png"):
        shutil.copy(SMALL / name, src / name)
    (src / "notes.txt").write_text("not a picture")
    p = run("upscale", src, "-o", dst, "--scale", "2", "--json")
    check(sorted(x.name for x in dst.iterdir()) == ["jpeg_cmyk.jpg", "photo_lossy.webp", "png_interlaced.png", "tiny_3x2.png"],
          "a folder gives the same names")
    check(len([json.loads(l) for l in p.stdout.splitlines()]) == 4, "one JSON line a picture")
    check("notes.txt" in p.stderr and "more" in p.stderr, "skipped files are named")
    check(dump(dst / "photo_lossy.webp").shape[:2] == (180, 320), "sizes in the folder")
    (src / "broken.png").write_bytes((SMALL / "png_palette.png").read_bytes()[:900])
    shutil.rmtree(dst)
    p = subprocess.run([DAVY, "upscale", src, "-o", dst, "--scale", "2", "--quiet"], capture_output=True, text=True)
    check(p.returncode == 1 and len(p.stderr.splitlines()) == 2 and "1 of 5" in p.stderr, f"a failing file: {p.stderr!r}")
    check(len(list(dst.iterdir())) == 4, "the other pictures are written")
    (WORK / "empty").mkdir()
    run("upscale", WORK / "empty", "-o", WORK / "empty-out", code=1)


def test_atomic():
    old = b"what was there before"
    out = WORK / "atomic" / "out.png"
    out.parent.mkdir()
    src = WORK / "noise.png"
    rng = np.random.default_rng(5)
    write_png(src, 900, 700, 8, 2, [rng.integers(0, 256, 2700, dtype=np.uint8).tobytes() for _ in range(700)])

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

    for name in ("out.png", "out.jpg", "out.webp"):
        target = out.parent / name
        target.write_bytes(old)
        p = run("upscale", src, "-o", target, "--scale", "1", code=1, preexec_fn=limited)
        check("cannot be written" in p.stderr, f"a full disk: {p.stderr!r}")
        check(target.read_bytes() == old and not leftovers(out.parent), f"{name}: a full disk left something")
    p = run("upscale", SMALL / "png_interlaced.png", "-o", WORK / "atomic/raw.png", "--raw", WORK / "atomic/r.safetensors",
            code=1, preexec_fn=limited)
    check(not leftovers(out.parent) and not (WORK / "atomic/raw.png").exists(), "a full disk for --raw")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        for delay in (0.05, 0.3, 0.8):
            out.write_bytes(old)
            p = subprocess.Popen([DAVY, "upscale", src, "-o", out], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            time.sleep(delay)
            p.send_signal(number)
            start = time.time()
            stderr = p.communicate(timeout=600)[1]
            whole = out.read_bytes() == old or dump(out).shape == (2800, 3600, 3)
            check(whole, f"{number.name} after {delay} s left half a file")
            if number != signal.SIGKILL:
                check(p.returncode in (0, 128 + number, -number), f"{number.name}: exit {p.returncode}")
                check(not leftovers(out.parent), f"{number.name} after {delay} s left a temporary file")
                check(time.time() - start < 60, f"{number.name} after {delay} s took {time.time() - start:.1f} s")
                if p.returncode == 128 + number:
                    check(len(stderr.splitlines()) == 1 and "interrupted" in stderr, f"{number.name}: {stderr!r}")
    link = WORK / "atomic/link.png"
    link.symlink_to(out)
    run("upscale", SMALL / "tiny_3x2.png", "-o", link)
    check(link.is_symlink() and dump(out).shape == (8, 12, 3), "writing through a link keeps the link")
    far, later = WORK / "far", WORK / "atomic/later.png"
    far.mkdir()
    later.symlink_to("second.png")
    (WORK / "atomic/second.png").symlink_to("../far/third.png")
    run("upscale", SMALL / "tiny_3x2.png", "-o", later)
    check(later.is_symlink() and dump(far / "third.png").shape == (8, 12, 3), "a link to a missing file")
    for n in 251, 225, 224:
        name = far / ("n" * n + ".png")
        run("upscale", SMALL / "tiny_3x2.png", "-o", name)
        check(dump(name).shape == (8, 12, 3) and not leftovers(far), f"a name of {n + 4} bytes")


def test_latents():
    tae = SHARED / "models/tae"
    if not tae.is_dir():
        skip("no TAE FLUX.2 weights in DAVY_SHARED")
        return
    models = ["--model", tae / "taef2_encoder.safetensors", "--model", tae / "taef2_decoder.safetensors"]
    ref = safetensors(tae / "taef2.ref.safetensors")
    src = WORK / "vae.png"
    rgb = np.round(np.clip(ref["input"][0].transpose(1, 2, 0), 0, 1) * 255).astype(np.uint8)
    write_png(src, 80, 64, 8, 2, [r.tobytes() for r in rgb])
    run("encode", src, "-o", WORK / "l.safetensors", *models, "--raw", WORK / "m.safetensors", "--quiet")
    latent = safetensors(WORK / "l.safetensors")["latent"]
    check(latent.shape == (1, 32, 8, 10), f"latent {latent.shape}")
    check(np.array_equal(safetensors(WORK / "m.safetensors")["mean"], latent), "--raw of encode: mean")
    error = np.linalg.norm(latent - ref["latent"]) / np.linalg.norm(ref["latent"])
    check(error < 2e-2, f"latent differs by {error:.2e} from the reference (the input is rounded to 8 bit)")
    run("decode", WORK / "l.safetensors", "-o", WORK / "d.png", *models, "--raw", WORK / "o.safetensors", "--quiet")
    back = dump(WORK / "d.png")
    mse = np.mean((back.astype(np.float64) - rgb) ** 2)
    check(back.shape == rgb.shape and 10 * np.log10(255 ** 2 / mse) > 28, f"round trip: {10 * np.log10(255 ** 2 / mse):.1f} dB")
    raw = safetensors(WORK / "o.safetensors")["output"][0].transpose(1, 2, 0)
    check(np.abs(np.clip(raw, 0, 1) * 255 - back).max() <= 0.52, "--raw of decode agrees with the picture")
    write_safetensors(WORK / "l.safetensors", latent=ref["latent"])
    run("decode", WORK / "l.safetensors", "-o", WORK / "d.png", *models[2:], "--raw", WORK / "o.safetensors", "--quiet")
    out = safetensors(WORK / "o.safetensors")["output"]
    error = np.linalg.norm(out - ref["output"]) / np.linalg.norm(ref["output"])
    check(error < 1e-4, f"decode differs by {error:.2e} from the reference")
    run("encode", src, "-o", WORK / "n.safetensors", *models[2:], code=1)
    run("decode", WORK / "l.safetensors", "-o", WORK / "n.png", *models[:2], code=1)
    run("encode", SMALL / "png_interlaced.png", "-o", WORK / "n.safetensors", *models, code=1)
    run("encode", SMALL / "png_interlaced.png", "-o", WORK / "n.safetensors", *models, "--crop", "--quiet")
    check(safetensors(WORK / "n.safetensors")["latent"].shape == (1, 32, 9, 14), "--crop")
    run("encode", SMALL / "gradient_rgba16.png", "-o", WORK / "n.safetensors", *models)
    run("encode", src, "-o", WORK / "n.safetensors", *models, "--sample", code=1)
    write_safetensors(WORK / "bad.safetensors", latent=np.zeros((1, 7, 4, 4)))
    run("decode", WORK / "bad.safetensors", "-o", WORK / "n.png", *models, code=1)
    write_safetensors(WORK / "bad.safetensors", latent=np.zeros((2, 32, 4, 4)))
    run("decode", WORK / "bad.safetensors", "-o", WORK / "n.png", *models, code=1)


def test_bench():
    cases = ["upscale-live2-64x36-fp32", "upscale-compact-32-fp32", "upscale-rrdb-16-fp32", "encode-taesd-64-fp32",
             "decode-taesd-64-fp32", "decode-sdxl-64-fp32", "encode-sdxl-64-fp32"][:2 if QUICK else None]
    run("bench", *cases, "--save", WORK / "bench.jsonl")
    lines = [json.loads(l) for l in (WORK / "bench.jsonl").read_text().splitlines()]
    check([l["case"] for l in lines] == cases, "bench --save")
    for l in lines:
        check(0 < l["min_ms"] <= l["median_ms"] <= l["max_ms"] and l["peak_bytes"] > 1e6 and l["machine"] and l["gflop"] > 0,
              f"bench line {l['case']}")
    lines[0]["median_ms"] *= 0.01
    (WORK / "fast.jsonl").write_text("".join(json.dumps(l) + "\n" for l in lines[:1]))
    run("bench", cases[0], "--compare", WORK / "fast.jsonl", code=1)
    lines[0]["median_ms"] *= 1e6
    (WORK / "slow.jsonl").write_text("".join(json.dumps(l) + "\n" for l in lines[:1]))
    check("ratio 0.0" in run("bench", cases[0], "--compare", WORK / "slow.jsonl").stdout, "bench --compare")
    run("bench", cases[0], "--compare", SMALL / "README.md", code=1)
    check("GFLOP/s" in run("bench", cases[1], "--profile", "--peak", "500").stdout, "bench --profile")
    j = json.loads(run("bench", cases[1], "--profile", "--json").stdout)
    check(len(j["profile"]) > 3 and all(s["ms"] >= 0 for s in j["profile"]), "bench --profile --json")


def test_no_gpu():
    """Without a driver, the list has the reason why there is no GPU. A run on a GPU fails with the same reason."""
    env = {**os.environ, "DAVY_CUDA_DRIVER": str(WORK / "no-driver.so")}
    why = run("devices", env=env).stdout.splitlines()[-1]
    check(why.startswith("cuda ") and "not usable: " in why, f"devices without a GPU: {why}")
    listed = json.loads(run("devices", "--json", env=env).stdout)
    check([d["kind"] for d in listed] == ["cpu", "cuda"] and not listed[1]["usable"] and listed[1]["reason"],
          f"devices --json without a GPU: {listed}")
    cat, out = SMALL / "png_interlaced.png", WORK / "no-gpu.png"
    p = run("upscale", cat, "-o", out, "--device", "cuda", env=env, code=1)
    check(listed[1]["reason"] in p.stderr, f"--device cuda without a GPU: {p.stderr!r}")
    run("upscale", cat, "-o", out, "--device", "auto", "--scale", "2", env={**env, "DAVY_DEVICE": "auto"})
    run("upscale", cat, "-o", out, env={**env, "DAVY_DEVICE": "cuda:0"}, code=1)
    run("upscale", cat, "-o", out, env={**env, "DAVY_DEVICE": "tpu"}, code=1)
    run("upscale", cat, "-o", out, "--precision", "tf32", env=env, code=1)


def test_mock_gpu():
    """A driver that computes nothing: tests messages and requests, not pictures."""
    env = {**os.environ, "DAVY_CUDA_DRIVER": os.environ["DAVY_MOCK_CUDA"], "DAVY_DEVICE": "auto"}
    cat, out = SMALL / "png_interlaced.png", WORK / "mock.png"
    j = json.loads(run("upscale", cat, "-o", out, "--precision", "int8", "--device", "cpu", "--json", env=env).stdout)
    check(j["precision"] in ("int8", "fp32"), f"int8 on a CPU: {j['precision']}")  # fp32 if no layer gains from int8
    run("upscale", cat, "-o", out, "--precision", "fp8", "--device", "cpu", env=env, code=1)
    run("upscale", cat, "-o", out, "--precision", "int4", env=env, code=1)
    run("upscale", cat, "-o", out, "--device", "cuda:2", env=env, code=1)
    run("upscale", cat, "-o", out, "--device", "cuda:0,cpu", env=env, code=1)
    listed = json.loads(run("devices", "--json", env=env).stdout)
    if not has_device_code("hosts.cli: GPUs"):
        return check(all("no device code" in d["reason"] for d in listed[1:]) and len(listed) == 3, f"{listed}")
    check([d["device"] for d in listed] == ["cpu", "cuda:0", "cuda:1"] and all(d["usable"] for d in listed), f"{listed}")
    check(all(d["memory_free_bytes"] > 0 and d["driver_version"] >= 13000 for d in listed[1:]), "a GPU's memory and driver")
    text = run("devices", env=env).stdout
    check("GiB free" in text and "9.0" in text and "13.0" in text, f"devices: {text}")
    for device in ("auto", "cuda", "cuda:1", "cuda:0,cuda:1"):
        j = json.loads(run("upscale", cat, "-o", out, "--device", device, "--json", env=env).stdout)
        check(j["precision"] == "fp16", f"--device {device} computes in {j['precision']}")
    for precision in ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"):
        run("upscale", cat, "-o", out, "--precision", precision, env=env)
    p = run("upscale", cat, "-o", out, "--precision", "fp8", "--device", "cuda:1", env=env, code=1)
    check("8.6" in p.stderr and "8.9" in p.stderr, f"fp8 on a GPU without it: {p.stderr!r}")
    p = run("upscale", cat, "-o", out, "--memory", "64K", env=env, code=1)
    check("budget" in p.stderr, f"--memory on a GPU: {p.stderr!r}")
    j = json.loads(run("bench", "upscale-compact16-64x64-fp16", "--json", env=env).stdout)
    check(j["device"] == "cuda:0" and j["device_name"] == "Mock GPU A" and j["device_peak_bytes"] > 0 and j["host_ms"] > 0,
          f"bench on a GPU: {j}")
    j = json.loads(run("bench", "upscale-span-90p-fp16", "--device", "cuda:uuid=GPU-1234ff78", "--json", env=env).stdout)
    check(j["device_name"] == "Mock GPU B", f"bench by UUID: {j}")
    text = run("bench", "upscale-live2-64x64-fp16", "--profile", env=env).stdout
    check("TFLOP/s" in text and "GB/s" in text and "peak" in text, f"bench --profile on a GPU: {text}")
    cases = ["decode-vae_tae-1080p-fp16", "upscale-compact-720p-fp16", "upscale-span-1080p-fp16", "upscale-rrdb-512-fp16"]
    text = run("bench", *cases[:1 if QUICK else None], env=env).stdout
    check(all(f"{c} " in text for c in cases[:1 if QUICK else None]) and " on cuda:0" in text, f"cases of a GPU: {text}")


def test_split():
    case, made = SOURCE / "tests/golden/cases/rgt_x2", WORK / "rgt"
    subprocess.run([sys.executable, SOURCE / "tests/golden/weights.py", case, made], check=True, capture_output=True)
    data = (made / "model.safetensors").read_bytes()
    stripped = data.replace(b".rpe_biases", b".not_biases").replace(b".relative_position_index", b".unstored_position_index")
    (made / "stripped.safetensors").write_bytes(stripped)
    raw = []
    for name, *more in ("model",), ("stripped", "--split", "4x8"), ("stripped",):
        run("upscale", case / "input.png", "-o", WORK / "rgt.png", "--model", made / f"{name}.safetensors", *more,
            "--device", "cpu", "--raw", made / "raw.safetensors", "--quiet")
        raw.append(safetensors(made / "raw.safetensors")["output"])
    check(np.array_equal(raw[0], raw[1]) and not np.array_equal(raw[0], raw[2]), "--split replaces the missing windows")


if __name__ == "__main__":
    sys.exit(cli_run.main(globals()))
