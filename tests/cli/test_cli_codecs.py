"""davy's picture code without a network: reading, writing, colour descriptions, damaged files. See cli_files.py.

Arguments: names of tests to run instead of all; --small leaves out the large pictures (sanitizers).
Ends with "N passed, N failed, N skipped".
"""
import pathlib
import struct
import subprocess
import sys

import numpy as np

import cli_run
from cli_files import COPY, copy, difference, dump, icc_of, png_chunks, profile, with_icc, write_png
from cli_run import LARGE, SMALL, WORK, check, leftovers


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
    write_png(src, 2, 1, 8, 2, [bytes(6)], [(b"acTL", struct.pack(">II", 2, 0))])
    check("animated: only the first frame is used" in copy(src, dst).stderr, "an animated PNG")


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
    """PNG and WebP may hold EXIF, too. The orientation is applied and not copied."""
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
    write_png(WORK / "cut.png", 2, 2, 8, 3, [bytes(2)] * 2)
    check("palette missing" in copy(WORK / "cut.png", WORK / "cut-out.png", code=1).stderr, "a palette PNG without its palette")
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


if __name__ == "__main__":
    sys.exit(cli_run.main(globals()))
