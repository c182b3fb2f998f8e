"""The command line from the outside: codecs, errors and exit codes, whole runs on real pictures.

Environment: DAVY_BUILD (the build folder), DAVY_SOURCE, DAVY_SHARED (optional, larger data).
cli_copy is davy's picture code without a network, so that files can be compared exactly; cli_dump is another decoder.
Arguments: names of tests to run instead of all; --small leaves out the large pictures and networks (sanitizers).
Ends with "N passed, N failed, N skipped".
"""
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib

import numpy as np

import cli_run
from cli_run import BUILD, DAVY, QUICK, SHARED, SMALL, SOURCE, WORK, check, leftovers, run, skip

LARGE = SHARED / "images" if not QUICK else pathlib.Path("none")
COPY, DUMP = BUILD / "tests/cli_copy", BUILD / "tests/cli_dump"


# ---- helpers -------------------------------------------------------------------------------------------------------

def copy(src, dst, *more, code=0):
    return run(src, dst, *more, code=code, tool=COPY)


def dump(path):
    raw = WORK / "dump.raw"
    p = subprocess.run([str(DUMP), str(path), str(raw)], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{path} cannot be read: {p.stderr}")
    w, h, c, bits = map(int, p.stdout.split())
    return np.fromfile(raw, np.uint16 if bits == 16 else np.uint8).reshape(h, w, c)


def png_chunks(data):
    at = 8
    while at + 12 <= len(data):
        n, = struct.unpack(">I", data[at:at + 4])
        yield data[at + 4:at + 8].decode(), data[at + 8:at + 8 + n]
        at += 12 + n


def icc_of(path):
    """The ICC profile of any of the three formats, or None."""
    data = pathlib.Path(path).read_bytes()
    if data[:4] == b"\x89PNG":
        for t, b in png_chunks(data):
            if t == "iCCP":
                return zlib.decompress(b[b.index(b"\0") + 2:])
    elif data[:2] == b"\xff\xd8":
        parts, at = [], 2
        while data[at] == 0xFF and data[at + 1] != 0xDA:
            n, = struct.unpack(">H", data[at + 2:at + 4])
            body = data[at + 4:at + 2 + n]
            if data[at + 1] == 0xE2 and body.startswith(b"ICC_PROFILE\0"):
                parts.append((body[12], body[14:]))
            at += 2 + n
        return b"".join(b for _, b in sorted(parts)) if parts else None
    else:
        at = 12
        while at + 8 <= len(data):
            n, = struct.unpack("<I", data[at + 4:at + 8])
            if data[at:at + 4] == b"ICCP":
                return data[at + 8:at + 8 + n]
            at += 8 + n + n % 2
    return None


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def write_png(path, w, h, depth, colour, rows, extra=()):
    """rows: bytes a row, packed as the depth asks."""
    body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, 0))
    for name, b in extra:
        body += chunk(name, b)
    body += chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b"")
    pathlib.Path(path).write_bytes(body)


def safetensors(path):
    data = pathlib.Path(path).read_bytes()
    n, = struct.unpack("<Q", data[:8])
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        a, b = t["data_offsets"]
        out[name] = np.frombuffer(data[8 + n + a:8 + n + b], "<f4").reshape(t["shape"])
    return out


def write_safetensors(path, **arrays):
    header, at, body = {}, 0, b""
    for name, a in arrays.items():
        b = a.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [at, at + len(b)]}
        at, body = at + len(b), body + b
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def profile(space, size):
    """Bytes that begin like an ICC profile of this colour space."""
    return struct.pack(">I", size) + b"davy" + b"\2\x10\0\0mntr" + space + b"XYZ " + bytes(i * 7 % 251 for i in range(size - 24))


def with_icc(src, dst, icc):
    """A JPEG with a profile in APP2 segments of up to 65,519 bytes."""
    data = pathlib.Path(src).read_bytes()
    parts = [icc[i:i + 65519] for i in range(0, len(icc), 65519)]
    segments = b"".join(b"\xff\xe2" + struct.pack(">H", 16 + len(p)) + b"ICC_PROFILE\0" + bytes([i + 1, len(parts)]) + p
                        for i, p in enumerate(parts))
    pathlib.Path(dst).write_bytes(data[:2] + segments + data[2:])


def difference(a, b):
    return float(np.mean(np.abs(a.astype(np.float64) - b.astype(np.float64))))


def shrunk(a, f):
    """Mean over f x f blocks."""
    h, w, c = a.shape
    return a.reshape(h // f, f, w // f, f, c).astype(np.float64).mean((1, 3))



# ---- codecs, without a network -------------------------------------------------------------------------------------

def test_png_kinds():
    rng = np.random.default_rng(1)
    w, h = 19, 7
    palette = rng.integers(0, 256, (16, 3), dtype=np.uint8)
    for depth, colour, channels in [(1, 0, 1), (2, 0, 1), (4, 0, 1), (8, 0, 1), (16, 0, 1), (8, 4, 2), (16, 4, 2),
                                    (8, 2, 3), (16, 2, 3), (8, 6, 4), (16, 6, 4), (1, 3, 1), (2, 3, 1), (4, 3, 1), (8, 3, 1)]:
        for trns in (False, True):
            if trns and colour in (4, 6):
                continue
            top = min(1 << depth, 16) if colour == 3 else 1 << depth
            v = rng.integers(0, top, (h, w, channels))
            extra = [(b"PLTE", palette[:top].tobytes())] if colour == 3 else []
            if trns:
                key = v[2, 3]
                extra.append((b"tRNS", bytes([0, 128, 255][:min(top, 3)]) if colour == 3 else key.astype(">u2").tobytes()))
            if depth < 8:
                bits = ((v[:, :, 0, None] >> np.arange(depth - 1, -1, -1)) & 1).reshape(h, -1).astype(np.uint8)
                rows = [np.packbits(r).tobytes() for r in bits]
            else:
                rows = [r.astype(">u2" if depth == 16 else np.uint8).tobytes() for r in v]
            src, dst = WORK / "kind.png", WORK / "kind-out.png"
            write_png(src, w, h, depth, colour, rows, extra)
            copy(src, dst)
            a, b = dump(src), dump(dst)
            check(a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b),
                  f"PNG depth {depth} colour {colour} tRNS {trns}: {a.shape} {a.dtype} became {b.shape} {b.dtype}")


def test_files_unchanged():
    files = sorted(SMALL.glob("*.png")) + (sorted(LARGE.glob("*.png")) if LARGE.is_dir() else [])
    for f in files:
        dst = WORK / "same.png"
        copy(f, dst)
        a, b = dump(f), dump(dst)
        check(a.dtype == b.dtype and np.array_equal(a, b), f"{f.name}: pixels changed")
        check(icc_of(f) == icc_of(dst), f"{f.name}: ICC profile changed")
        kept = {"gAMA", "cHRM", "sRGB", "cICP"}
        before = {t: d for t, d in png_chunks(f.read_bytes()) if t in kept}
        after = {t: d for t, d in png_chunks(dst.read_bytes()) if t in kept}
        check(before == after, f"{f.name}: colour chunks {sorted(before)} became {sorted(after)}")
    tags = [(b"gAMA", struct.pack(">I", 45455)), (b"cHRM", struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)),
            (b"sRGB", b"\1"), (b"cICP", bytes([1, 13, 0, 1]))]
    write_png(WORK / "tags.png", 4, 4, 8, 2, [bytes(12)] * 4, tags)
    copy(WORK / "tags.png", WORK / "tags-out.png")
    out = {t.encode(): d for t, d in png_chunks((WORK / "tags-out.png").read_bytes())}
    for name, body in tags:
        check(out.get(name) == body, f"{name} not carried over")


def test_icc_between_formats():
    rgb, grey, ink = profile(b"RGB ", 150000), profile(b"GRAY", 3000), profile(b"CMYK", 3000)
    with_icc(SMALL / "exif/orientation_1.jpg", WORK / "icc.jpg", rgb)
    check(icc_of(WORK / "icc.jpg") == rgb, "the test's own JPEG")
    for end in ("jpg", "png", "webp"):
        copy(WORK / "icc.jpg", WORK / f"icc-out.{end}")
        check(icc_of(WORK / f"icc-out.{end}") == rgb, f"ICC of several segments lost on the way to {end}")
        copy(WORK / f"icc-out.{end}", WORK / "icc-back.png")
        check(icc_of(WORK / "icc-back.png") == rgb, f"ICC lost on the way from {end}")
    with_icc(SMALL / "jpeg_grey_progressive.jpg", WORK / "icc.jpg", grey)
    copy(WORK / "icc.jpg", WORK / "icc-out.png")
    check(icc_of(WORK / "icc-out.png") == grey, "grey profile of a grey picture lost")
    copy(WORK / "icc.jpg", WORK / "icc-out.webp")
    check(icc_of(WORK / "icc-out.webp") is None, "grey profile on a WebP, which is RGB")
    with_icc(SMALL / "jpeg_cmyk.jpg", WORK / "icc.jpg", ink)
    copy(WORK / "icc.jpg", WORK / "icc-out.png")
    check(icc_of(WORK / "icc-out.png") is None, "CMYK profile on an RGB picture")


def test_jpeg_kinds():
    upright = dump(SMALL / "exif/upright.png")
    for i in range(1, 9):
        copy(SMALL / f"exif/orientation_{i}.jpg", WORK / "turned.png")
        got = dump(WORK / "turned.png")
        check(got.shape == upright.shape and difference(got, upright) < 2, f"orientation {i} is not upright")
        copy(SMALL / f"exif/orientation_{i}.jpg", WORK / "turned.jpg")
        copy(WORK / "turned.jpg", WORK / "turned.png")
        got = dump(WORK / "turned.png")
        check(got.shape == upright.shape and difference(got, upright) < 3, f"orientation {i} turned twice")
    cat = dump(SMALL / "png_interlaced.png").astype(np.float64)
    copy(SMALL / "jpeg_cmyk.jpg", WORK / "cmyk.png")
    check(difference(dump(WORK / "cmyk.png"), cat) < 6, "CMYK has the wrong colours")
    copy(SMALL / "jpeg_grey_progressive.jpg", WORK / "grey.png")
    grey = dump(WORK / "grey.png")
    luma = cat @ [0.299, 0.587, 0.114]
    check(grey.shape == (75, 113, 1) and difference(grey[:, :, 0], luma) < 6, "grey JPEG is wrong")
    copy(SMALL / "jpeg_grey_progressive.jpg", WORK / "grey.jpg")
    check(dump(WORK / "grey.jpg").shape == (75, 113, 1), "grey JPEG did not stay grey")
    data = (WORK / "turned.jpg").read_bytes()
    sof = data.index(b"\xff\xc0")
    check(data[sof + 11] == 0x11, "JPEG is not written 4:4:4")


def test_orientation_elsewhere():
    """PNG and WebP may carry EXIF as well; the tag is applied and not copied."""
    exif = b"MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"
    rng = np.random.default_rng(9)
    v = rng.integers(0, 256, (5, 8, 3), dtype=np.uint8)
    turned = np.rot90(v, -1)
    write_png(WORK / "exif.png", 8, 5, 8, 2, [r.tobytes() for r in v], [(b"eXIf", exif)])
    copy(WORK / "exif.png", WORK / "exif-out.png")
    check(np.array_equal(dump(WORK / "exif-out.png"), turned), "eXIf of a PNG")
    check(b"eXIf" not in (WORK / "exif-out.png").read_bytes(), "an applied orientation is not copied")
    write_png(WORK / "plain.png", 8, 5, 8, 2, [r.tobytes() for r in v])
    copy(WORK / "plain.png", WORK / "plain.webp", "lossless")
    stream = (WORK / "plain.webp").read_bytes()[12:]
    head = b"VP8X" + struct.pack("<I", 10) + bytes([8, 0, 0, 0, 7, 0, 0, 4, 0, 0])
    body = b"WEBP" + head + stream + b"EXIF" + struct.pack("<I", len(exif)) + exif + b"\0" * (len(exif) % 2)
    (WORK / "exif.webp").write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    copy(WORK / "exif.webp", WORK / "exif-out.png")
    check(np.array_equal(dump(WORK / "exif-out.png"), turned), "EXIF of a WebP")


def test_webp():
    src = SMALL / "illustration_lossless.webp"
    copy(src, WORK / "art.png")
    check(np.array_equal(dump(WORK / "art.png"), dump(src)), "lossless WebP to PNG")
    copy(src, WORK / "art.webp", "lossless")
    check(np.array_equal(dump(WORK / "art.webp"), dump(src)), "lossless WebP to itself")
    copy(src, WORK / "art.webp")
    a, b = dump(src), dump(WORK / "art.webp")
    check(np.array_equal(a[:, :, 3], b[:, :, 3]) and difference(a[a[:, :, 3] == 255], b[a[:, :, 3] == 255]) < 6, "lossy alpha")
    copy(SMALL / "photo_lossy.webp", WORK / "photo.png")
    check(np.array_equal(dump(WORK / "photo.png"), dump(SMALL / "photo_lossy.webp")), "lossy WebP to PNG")


def test_damaged():
    for name in ("png_palette.png", "png_interlaced.png", "jpeg_cmyk.jpg", "exif/orientation_6.jpg", "photo_lossy.webp",
                 "illustration_lossless.webp"):
        data = (SMALL / name).read_bytes()
        for part in (0.001, 0.01, 0.1, 0.5, 0.9):
            cut = WORK / ("cut" + pathlib.Path(name).suffix)
            cut.write_bytes(data[:max(1, int(len(data) * part))])
            out = WORK / "cut-out.png"
            copy(cut, out, code=1)
            check(not out.exists() and not leftovers(WORK), f"{name} cut at {part}: something was written")
    rng = np.random.default_rng(3)
    for name in ("png_interlaced.png", "jpeg_cmyk.jpg", "illustration_lossless.webp"):
        data = bytearray((SMALL / name).read_bytes())
        for _ in range(20):
            bad = bytearray(data)
            for at in rng.integers(20, len(bad), 8):
                bad[at] = int(rng.integers(0, 256))
            (WORK / "bad").write_bytes(bad)
            p = subprocess.run([COPY, WORK / "bad", WORK / "bad-out.png"], capture_output=True)
            check(p.returncode in (0, 1), f"{name} with wrong bytes: exit {p.returncode}")


# ---- the command line ----------------------------------------------------------------------------------------------

def test_usage():
    p = run("--help")
    check("upscale" in p.stdout and p.stderr == "", "--help")
    for command in ("devices", "inspect", "upscale", "encode", "decode", "caption", "bench"):
        check("usage: davy " + command in run(command, "--help").stdout, f"{command} --help")
    check(run("--version").stdout.startswith("davy 1."), "--version")
    for bad in ([], ["fly"], ["upscale"], ["upscale", "a"], ["upscale", "a", "-o"], ["upscale", "a", "-o", "b", "--scale", "0"],
                ["upscale", "a", "-o", "b", "--precision", "fp7"], ["devices", "x"], ["upscale", "a", "-o", "b", "--sample"],
                ["bench", "upscale-compact-64"], ["bench", "fly-compact-64-fp32"], ["encode", "a", "-o", "b"],
                ["caption", "--model", "m"], ["caption", "a"], ["caption", "a", "--model", "m", "--top-p", "2"],
                ["caption", "a", "--model", "m", "--max-tokens", "0"], ["caption", "a", "--model", "m", "--scale", "2"]):
        run(*bad, code=2)


def test_errors():
    cat, out = SMALL / "png_interlaced.png", WORK / "no.png"
    run("upscale", WORK / "missing.png", "-o", out, code=1)
    run("upscale", SMALL / "README.md", "-o", out, code=1)
    run("upscale", cat, "-o", WORK / "no.tiff", code=1)
    run("upscale", cat, "-o", WORK / "missing/no.png", code=1)
    run("upscale", cat, "-o", WORK, code=1)
    run("upscale", cat, "-o", out, "--model", WORK / "missing.safetensors", code=1)
    run("upscale", cat, "-o", out, "--model", cat, code=1)
    run("upscale", cat, "-o", out, "--model", "no-such-model", code=1)
    run("upscale", cat, "-o", out, "--device", "toaster", code=1)
    run("upscale", SMALL / "gradient_rgba16.png", "-o", WORK / "no.jpg", code=1)
    run("upscale", SMALL, "-o", SMALL, code=1)
    run("upscale", SMALL, "-o", WORK / "folder", "--raw", WORK / "raw", code=2)
    run("inspect", cat, code=1)
    run("inspect", WORK / "missing", code=1)
    run("decode", cat, "-o", out, "--model", "davy-live-x2", code=1)
    (WORK / "clip.y4m").write_bytes(b"YUV4MPEG2 W16 H16 F30:1\n")
    p = run("upscale", WORK / "clip.y4m", "-o", WORK / "clip-out.y4m", code=1)
    check("video" in p.stderr, "a video without frames is refused")
    check(not out.exists() and not leftovers(WORK), "an error left a file")


def test_devices_and_inspect():
    check("cpu" in run("devices").stdout, "devices")
    devices = json.loads(run("devices", "--json").stdout)
    check(devices[0]["device"] == "cpu" and devices[0]["usable"], "devices --json")
    model = SOURCE / "packaging/models/davy-live-x4.safetensors"
    check("compact" in run("inspect", model).stdout, "inspect")
    j = json.loads(run("inspect", model, "--json").stdout)
    check(j["recognised"] is True and j["arch"] == "compact" and 355488 in j.values(), f"inspect --json: {j}")
    write_safetensors(WORK / "odd.safetensors", one=np.zeros((3, 4)), two=np.zeros(5))
    p = run("inspect", WORK / "odd.safetensors", "--json", code=1)
    check(json.loads(p.stdout)["recognised"] is False and "not recognised" in p.stderr, "an unknown file says so")


def upscaled(src, dst, factor, *more):
    run("upscale", src, "-o", dst, "--quiet", *more)
    return dump(dst)


def test_pictures():
    """Every picture x2: the right size, kind and, seen small again, the same picture."""
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
        # The network sharpens, so small pictures of pure noise change more; alpha weighs the colours that are seen.
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
    """A red disc cut hard out of black transparency: no dark fringe where the edge is to be seen."""
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
    """On a terminal there is a bar, and it is gone at the end."""
    import pty
    for quiet in (False, True):
        try:
            parent, child = pty.openpty()
        except OSError:  # a container without /dev/pts
            return skip("this system has no terminals")
        args = [DAVY, "upscale", SMALL / "exif/upright.png", "-o", WORK / "bar.png"] + (["--quiet"] if quiet else [])
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
            check(b"upright.png" in text and b" %" in text and text.rstrip(b"\r").endswith(b" "), f"the bar: {text[-200:]!r}")


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
    check(len(list(dst.iterdir())) == 4, "the others are done all the same")
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
        check("cannot be written" in p.stderr, f"a full disk is told: {p.stderr!r}")
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
            stderr = p.communicate(timeout=60)[1]
            whole = out.read_bytes() == old or dump(out).shape == (2800, 3600, 3)
            check(whole, f"{number.name} after {delay} s left half a file")
            if number != signal.SIGKILL:
                check(p.returncode in (0, 128 + number, -number), f"{number.name}: exit {p.returncode}")
                check(not leftovers(out.parent), f"{number.name} after {delay} s left a temporary file")
                check(time.time() - start < (30 if QUICK else 5), f"{number.name} after {delay} s took {time.time() - start:.1f} s")
                if p.returncode == 128 + number:
                    check(len(stderr.splitlines()) == 1 and "interrupted" in stderr, f"{number.name}: {stderr!r}")
    link = WORK / "atomic/link.png"
    link.symlink_to(out)
    run("upscale", SMALL / "tiny_3x2.png", "-o", link)
    check(link.is_symlink() and dump(out).shape == (8, 12, 3), "writing through a link keeps the link")


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
    """Without a driver: the list says why there is no GPU, and asking for one fails with that reason."""
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
    """A driver that computes nothing: what the program says and asks for, not the pictures."""
    env = {**os.environ, "DAVY_CUDA_DRIVER": os.environ["DAVY_MOCK_CUDA"], "DAVY_DEVICE": "auto"}
    listed = json.loads(run("devices", "--json", env=env).stdout)
    check([d["device"] for d in listed] == ["cpu", "cuda:0", "cuda:1"] and all(d["usable"] for d in listed), f"{listed}")
    check(all(d["memory_free_bytes"] > 0 and d["driver_version"] >= 13000 for d in listed[1:]), "a GPU's memory and driver")
    text = run("devices", env=env).stdout
    check("GiB free" in text and "9.0" in text and "13.0" in text, f"devices: {text}")
    cat, out = SMALL / "png_interlaced.png", WORK / "mock.png"
    for device in ("auto", "cuda", "cuda:1", "cuda:0,cuda:1"):
        j = json.loads(run("upscale", cat, "-o", out, "--device", device, "--json", env=env).stdout)
        check(j["precision"] == "fp16", f"--device {device} computes in {j['precision']}")
    for precision in ("fp32", "tf32", "bf16", "fp16", "fp8"):
        run("upscale", cat, "-o", out, "--precision", precision, env=env)
    for precision in ("int8", "int4"):
        run("upscale", cat, "-o", out, "--precision", precision, env=env, code=1)
    p = run("upscale", cat, "-o", out, "--precision", "fp8", "--device", "cuda:1", env=env, code=1)
    check("8.6" in p.stderr and "8.9" in p.stderr, f"fp8 on a GPU without it: {p.stderr!r}")
    run("upscale", cat, "-o", out, "--device", "cuda:2", env=env, code=1)
    run("upscale", cat, "-o", out, "--device", "cuda:0,cpu", env=env, code=1)
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


if __name__ == "__main__":
    sys.exit(cli_run.main(globals()))
