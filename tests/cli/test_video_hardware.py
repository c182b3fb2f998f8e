"""davy upscale of videos that hardware decodes, on a mock of NVIDIA's driver that FFmpeg loads (mock_nvdec.c). Each picture of the
mock has its own grey, in decoding order, so that a test can find the origin of each frame. See video_run.py.

The pictures of real hardware are not tested here. On GPUs they were equal to software's, bit for bit.
"""
import json
import os
import re
import subprocess
import sys

import numpy as np

import cli_run
import video_run
from cli_run import WORK, check
from video_run import davy, ffmpeg, make, probe

MOCK = os.environ.get("DAVY_MOCK_NVDEC", "")
X264 = ("-c:v", "libx264", "-pix_fmt", "yuv420p")
SMALL = {"size": "48x32"}  # for tests that do not look at the content: the network takes most of the time


def mocked(src, dst, *more, code=0, **variables):
    """Runs davy with the mock. Returns its decoder, its notes and the luma of its frames. A raw stream without times is piped."""
    names = {f"MOCK_NVDEC_{k.upper()}": str(v) for k, v in variables.items()}
    env = {**os.environ, **names, "LD_LIBRARY_PATH": MOCK}
    given = src.read_bytes() if src.suffix == ".h264" else None
    p = davy("upscale", "-" if given else src, "-o", dst, "--model", "davy-live-x2", "--json", *more, code=code, env=env, input=given)
    check(b"mock nvdec:" not in p.stderr, f"{src}: {p.stderr!r}")
    return (json.loads(p.stdout)["decoder"] if code == 0 else None), p.notes, luma(dst) if code == 0 else None


def luma(path):
    head, rest = path.read_bytes().split(b"\n", 1)
    w, h = (int(next(t[1:] for t in head.decode().split() if t[0] == k)) for k in "WH")
    size = w * h * 3 // 2 * (2 if b"420p10" in head else 1)
    frames = np.frombuffer(rest, np.uint8).reshape(-1, 6 + size)[:, 6:]
    return frames[:, : size * 2 // 3].reshape(len(frames), h, -1)


def software(src):
    name, notes, frames = mocked(src, WORK / "soft.y4m", "--decoder", "software")
    check(notes == [] and " on " not in name, f"{src.name}, software: {name}, {notes}")
    return frames


def steps(src):
    """The mock's luma of each frame, in display order."""
    shown = [float(p["pts_time"]) for p in probe(src, "packets", "-select_streams", "v:0")]
    return [32 + 8 * (i % 24) for i in np.argsort(shown, kind="stable")]


def grey(frames):
    """The luma of each uniform frame, else -1. The network changes it by a few steps."""
    inner = frames[:, 16:-16, 16:-16].astype(int)
    return [int(np.round(np.median(f))) if np.ptp(f) <= 4 else -1 for f in inner]


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 3 for x, y in zip(a, b))


def test_decoded():
    for name, more in (("d.mp4", ("-bf", "2", "-g", "12")), ("refs.mkv", ("-refs", "16", "-bf", "8", "-b_strategy", "0"))):
        src = make(name, *X264, *more, seconds=1.5)
        decoder, notes, frames = mocked(src, WORK / "d.y4m", "--decoder", "hardware")
        check(decoder == "h264 on cuda" and notes == [], f"{name}: {decoder}, {notes}")
        check(near(grey(frames), steps(src)), f"{name}: {grey(frames)}, expected {steps(src)}")
    decoder, notes, frames = mocked(src, WORK / "d.y4m")
    check(decoder == "h264" and notes == [], f"where a CPU computes it decodes: {decoder}, {notes}")


def test_cropped():
    """Left and top are cropped as well, to the pixel."""
    src = WORK / "crop.mp4"
    ffmpeg("-i", make("whole.mp4", *X264, seconds=0.5), "-c", "copy", "-bsf:v",
           "h264_metadata=crop_left=6:crop_top=10:crop_right=4:crop_bottom=2", src)
    soft = software(src)
    decoder, notes, frames = mocked(src, WORK / "d.y4m", "--decoder", "hardware")
    check(soft.shape[1:] == (104, 172) and frames.shape == soft.shape, f"cropped: {soft.shape}, {frames.shape}")
    check(decoder == "h264 on cuda" and near(grey(frames), steps(src)), f"cropped: {decoder}, {grey(frames)}")


def goes_on(src, at, told, by="h264", **variables):
    """The frames of the hardware, then those of software, none lost and none twice."""
    soft = goes_on.soft.setdefault(src, software(src))
    decoder, notes, frames = mocked(src, WORK / "f.y4m", "--decoder", "hardware", **variables)
    what = f"{src.name}, {variables}"
    check(len(notes) == 1 and told in notes[0] and decoder == by, f"{what}: {decoder}, {notes}")
    check(len(frames) == len(soft), f"{what}: {len(frames)} frames, expected {len(soft)}")
    same = [np.array_equal(a, b) for a, b in zip(frames, soft)]
    first = same.index(True) if True in same else len(same)
    check(all(same[first:]), f"{what}: software's frames from {first} on: {same}")
    check(-1 not in grey(frames[:first]) and first <= at, f"{what}: the hardware's {first} frames: {grey(frames[:first])}")
    check(at < 10 or first > 0, f"{what}: the hardware gave none")


goes_on.soft = {}


def test_stops():
    told = ") failed: "
    for name, more in (("s.mkv", ("-bf", "3", "-g", "10")), ("open.mkv", ("-bf", "3", "-g", "12", "-x264-params", "open-gop=1")),
                       ("long.mp4", ("-bf", "2", "-g", "500")), ("intra.mkv", ("-g", "1")), ("raw.h264", ("-bf", "2", "-g", "10"))):
        src = make(name, *X264, *more, seconds=1.5, **SMALL)
        for n in 0, 17, 35:
            goes_on(src, n, told, fails=n)
        goes_on(src, 20, told, map=20)


def test_av1():
    """FFmpeg has two AV1 decoders: its own, for hardware only, and dav1d."""
    if "libsvtav1" not in subprocess.run(["ffmpeg", "-hide_banner", "-encoders"], capture_output=True, text=True).stdout:
        cli_run.skip("AV1: this FFmpeg cannot make any")
        return
    for name in "av1.mkv", "av1.mp4":
        src = make(name, "-c:v", "libsvtav1", "-preset", "10", "-g", "16", "-pix_fmt", "yuv420p", size="64x64", seconds=1.5,
                   stderr=subprocess.DEVNULL)
        decoder, notes, frames = mocked(src, WORK / "d.y4m", "--decoder", "hardware")
        check(decoder == "av1 on cuda" and notes == [], f"{name}: {decoder}, {notes}")
        check(len(frames) == 36 and -1 not in grey(frames), f"{name}: {len(frames)} frames: {grey(frames)}")
        for n in 0, 17, 30:
            goes_on(src, n, ") failed: ", by="libdav1d", fails=n)
        goes_on(src, 0, "does not support av1", by="libdav1d", none=1)


def heavy(name, frames, filler):
    """Makes a raw stream of one group of pictures with `filler` bytes after each picture."""
    thin = make("thin.h264", *X264, "-bf", "2", "-g", "500", "-x264-params", "slices=1", seconds=frames / 24, **SMALL)
    nals = re.split(rb"(?=\x00\x00\x01)", thin.read_bytes())
    with open(WORK / name, "wb") as f:
        for nal in nals:
            f.write(nal)
            if len(nal) > 3 and nal[3] & 31 in (1, 5):
                f.write(b"\0\0\x01\x0c" + b"\xff" * filler + b"\x80")
    return WORK / name


def test_large_group():
    """A group larger than the limit of kept packets: software starts again with a file, and fails with a pipe."""
    raw = heavy("heavy.h264", 20, 14 << 20)  # the 19th picture exceeds the limit
    timed, untimed = WORK / "heavy.mkv", WORK / "heavy.mpg"
    ffmpeg("-r", "24", "-i", raw, "-c", "copy", "-bsf:v", "setts=ts=N*1000/24", timed)  # mkv's unit is 1 ms
    raw.rename(untimed)
    check(min(timed.stat().st_size, untimed.stat().st_size) > 270 << 20, f"{timed.stat().st_size} bytes")
    goes_on(timed, 15, "software continues", fails=15)
    for src in timed, untimed:
        goes_on(src, 19, "after it has decoded the video again from the beginning", fails=19)
    untimed.rename(raw)
    mocked(raw, WORK / "piped.y4m", "--decoder", "hardware", code=1, fails=19)
    check(not (WORK / "piped.y4m").exists(), "a pipe cannot begin again")
    raw.unlink()
    timed.unlink()


def test_refused():
    told = "does not support h264"
    goes_on(make("n.mp4", *X264, "-bf", "2", seconds=1, **SMALL), 0, told, none=1)
    for pixels in "yuv444p", "yuv422p", "yuv420p10le":
        goes_on(make(f"{pixels}.mp4", "-c:v", "libx264", "-pix_fmt", pixels, seconds=0.5), 0, told + f" with {pixels}")
    src = make("changes.h264", *X264, "-g", "12", seconds=0.5)
    src.write_bytes(src.read_bytes() + (make("other.h264", *X264, "-bf", "2", size="640x64", seconds=0.2)).read_bytes())
    decoder, notes, frames = mocked(src, WORK / "f.y4m", "--decoder", "hardware")  # the mock supports fewer than 640 columns
    check(decoder == "h264" and len(notes) == 1 and told in notes[0], f"a size in the middle: {decoder}, {notes}")
    soft = software(src)
    check(len(frames) == len(soft) and np.array_equal(frames[12:], soft[12:]), f"a size in the middle: {len(frames)} frames")
    src = make("ffv1.mkv", "-c:v", "ffv1", "-pix_fmt", "yuv420p", seconds=0.2)
    decoder, notes, frames = mocked(src, WORK / "f.y4m", "--decoder", "hardware")
    check(decoder == "ffv1" and len(notes) == 1 and "no hardware decoder for ffv1" in notes[0], f"ffv1: {decoder}, {notes}")
    check(mocked(src, WORK / "f.y4m", "--decoder", "fast", code=2)[0] is None, "an unknown word")


def main():
    kinds = subprocess.run(["ffmpeg", "-hide_banner", "-hwaccels"], capture_output=True, text=True).stdout.split()
    tests = globals()
    if "cuda" not in kinds:
        for name in [n for n in tests if n.startswith("test_")]:
            cli_run.skip(f"{name}: this FFmpeg was built without NVIDIA's decoders")
        tests = {}
    return video_run.main(tests)


if __name__ == "__main__":
    sys.exit(main())
