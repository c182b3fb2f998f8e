"""Shared by the tests of videos: davy with data in its pipes, and FFmpeg's programs, which check its output. See cli_run.py.

The tests are skipped if ffmpeg, ffprobe or davy-video.so is missing.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np

import cli_run
from cli_run import DAVY, WORK, check

# To RGB as exactly as swscale can, with the default chroma position of MPEG-2 and H.264.
EXACT = "scale=flags=bicubic+accurate_rnd+full_chroma_int+full_chroma_inp:in_h_chr_pos=0:in_v_chr_pos=128"
os.environ.setdefault("DAVY_DEVICE", "cpu")


def davy(*args, code=0, **more):
    more.setdefault("capture_output", True)
    p = subprocess.run([DAVY, *map(str, args)], timeout=900, **more)
    shown = " ".join(map(str, args))
    error = (p.stderr or b"").decode()
    check(p.returncode == code, f"{shown}: exit {p.returncode}, expected {code}: {error.strip()}")
    p.notes = [line for line in error.splitlines() if ": note: " in line]
    if code:
        lines = [line for line in error.splitlines() if ": note: " not in line]
        check(len(lines) == 1 and lines[0].startswith("davy: ") and lines[0].count(": ") >= 2, f"{shown}: {error!r}")
    return p


def up(src, dst, *more, code=0):
    return davy("upscale", src, "-o", dst, "--scale", "2", *more, code=code)


def ffmpeg(*args, **more):
    return subprocess.run(["ffmpeg", "-hide_banner", "-loglevel", "error", "-nostdin", "-y", *map(str, args)],
                          check=True, stdout=subprocess.PIPE, **more).stdout


def probe(path, what="streams", *more):
    out = subprocess.run(["ffprobe", "-v", "error", "-print_format", "json", f"-show_{what}", *more, str(path)],
                         check=True, capture_output=True).stdout
    return json.loads(out)[what]


def video_of(path):
    return next(s for s in probe(path) if s["codec_type"] == "video")


def times(path, stream="v:0"):
    packets = probe(path, "packets", "-select_streams", stream)
    return sorted(float(p["pts_time"]) for p in packets)


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def pictures(path, size):
    turn = () if str(path).endswith("png") else ("-vf", EXACT)
    raw = ffmpeg("-i", path, *turn, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    return np.frombuffer(raw, np.uint8).reshape(-1, size[1], size[0], 3)


def psnr(a, b):
    d = a.astype(np.float64) - b.astype(np.float64)
    return 10 * np.log10(255.0**2 / max(np.mean(d * d), 1e-9))


def make(name, *args, size="96x64", rate=24, seconds=1.0, source="testsrc2", **more):
    path = WORK / name
    ffmpeg("-f", "lavfi", "-i", f"{source}=size={size}:rate={rate}", "-t", seconds, *args, path, **more)
    return path


def nothing_beside(path):
    left = [p.name for p in path.parent.iterdir() if p.name.startswith(path.name)]
    check(left == [], f"{path.name}: left behind: {left}")


def main(tests):
    missing = [t for t in ("ffmpeg", "ffprobe") if shutil.which(t) is None]
    told = subprocess.run([DAVY, "upscale", "-", "-o", "-"], input=b"", capture_output=True).stderr
    if missing or b"davy-video.so" in told:
        for name in [n for n in tests if n.startswith("test_")]:
            cli_run.skip(f"{name}: " + ("no " + missing[0] if missing else "davy was built without video"))
        tests = {}
    return cli_run.main(tests)
