"""davy upscale of videos, judged by FFmpeg's own programs: pictures, times, colours, sound, interruption, pipes, memory.

Environment: DAVY_BUILD, DAVY_SOURCE. Needs ffmpeg and ffprobe; skipped where they, or davy's video part, are missing.
Arguments: names of tests to run instead of all; --long also measures 1,000 frames; --small is for builds whose memory means
nothing (sanitizers): it is not measured. Ends "N passed, N failed, N skipped".
"""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

BUILD = pathlib.Path(os.environ["DAVY_BUILD"])
SOURCE = pathlib.Path(os.environ.get("DAVY_SOURCE", pathlib.Path(__file__).parents[2]))
DAVY = BUILD / "davy"
WORK = pathlib.Path(tempfile.mkdtemp(prefix="davy-video-"))
PART = 96  # frames, as VIDEO_PART
# To RGB as exactly as swscale can, chroma where MPEG-2 and H.264 have it when nothing is said.
EXACT = "scale=flags=bicubic+accurate_rnd+full_chroma_int+full_chroma_inp:in_h_chr_pos=0:in_v_chr_pos=128"
os.environ.setdefault("DAVY_MODELS", str(SOURCE / "packaging/models"))
os.environ.setdefault("DAVY_DEVICE", "cpu")

passed = failed = skipped = 0


def check(ok, what):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print("FAIL", what, flush=True)
    return bool(ok)


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


def make(name, *args, size="96x64", rate=24, seconds=1.0, source="testsrc2"):
    path = WORK / name
    ffmpeg("-f", "lavfi", "-i", f"{source}=size={size}:rate={rate}", "-t", seconds, *args, path)
    return path


def nothing_beside(path):
    left = [p.name for p in path.parent.iterdir() if p.name.startswith(path.name)]
    check(left == [], f"{path.name}: left behind: {left}")


# ---- tests ---------------------------------------------------------------------------------------------------------

def test_pictures():
    """Every frame is what davy makes of the same frame as a picture; the file's pixels are near them."""
    src = make("p.mkv", "-c:v", "ffv1", "-pix_fmt", "yuv420p", "-colorspace", "smpte170m", source="mandelbrot")
    up(src, WORK / "p-out.mkv", "--codec", "ffv1")
    up(src, WORK / "p.mp4")
    frames, large = WORK / "frames", WORK / "frames2"
    frames.mkdir()
    ffmpeg("-i", src, "-vf", EXACT, frames / "%06d.png")
    davy("upscale", frames, "-o", large, "--model", "davy-live-x2")
    folder = WORK / "folder"
    davy("upscale", src, "-o", f"{folder}/", "--model", "davy-live-x2")
    names = sorted(p.name for p in large.iterdir())
    check(sorted(p.name for p in folder.iterdir()) == names and names[0] == "000001.png" and len(names) == 24,
          "folder of frames: names")
    want = pictures(large / "%06d.png", (192, 128))
    direct = pictures(folder / "%06d.png", (192, 128))
    check(np.array_equal(direct, want), f"frames against pictures: {psnr(direct, want):.1f} dB")
    for name, bound in ("p-out.mkv", 34), ("p.mp4", 33):
        got = pictures(WORK / name, (192, 128))
        check(len(got) == 24, f"{name}: {len(got)} frames")
        check(psnr(got, want) > bound, f"{name}: {psnr(got, want):.1f} dB")
        each = [psnr(g, w) for g, w in zip(got, want)]
        check(min(each) > bound - 4, f"{name}: worst frame {min(each):.1f} dB")
        wrong = psnr(got[:-1], want[1:])
        check(wrong < psnr(got, want) - 3, f"{name}: frames are in their places")


def test_colours():
    """Tags stay; the same colour under different matrices and ranges comes out the same."""
    red = {}
    for matrix, tag in ("bt709", "bt709"), ("smpte170m", "bt601"), ("bt2020nc", "bt2020"):
        for span in "tv", "pc":
            src = WORK / f"c-{matrix}-{span}.mkv"
            ffmpeg("-f", "lavfi", "-i", "color=c=0xc02040:size=64x48:rate=5", "-t", "1",
                   "-vf", f"scale=out_color_matrix={tag}:out_range={span}:flags=accurate_rnd+full_chroma_int,format=yuv444p",
                   "-c:v", "ffv1", "-colorspace", matrix, "-color_primaries", "bt709", "-color_trc", "bt709",
                   "-color_range", span, src)
            out = WORK / f"{src.stem}-out.mkv"
            up(src, out)
            v, w = video_of(out), video_of(src)
            for key in "color_space", "color_primaries", "color_transfer", "color_range":
                check(v.get(key) == w.get(key), f"{src.name}: {key} {w.get(key)} became {v.get(key)}")
            davy("upscale", src, "-o", f"{WORK / src.stem}-folder/", "--model", "davy-live-x2")
            first = pictures(WORK / f"{src.stem}-folder/000001.png", (128, 96))[0]
            red[matrix, span] = first[48, 64].astype(int)
            back = ffmpeg("-i", out, "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "yuvj420p" if span == "pc" else "yuv420p",
                          "-")
            given = ffmpeg("-i", src, "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "yuv444p", "-")
            got = (back[48 * 128 + 64], back[128 * 96 + 24 * 64 + 32], back[128 * 96 * 5 // 4 + 24 * 64 + 32])
            had = (given[24 * 64 + 32], given[64 * 48 + 24 * 64 + 32], given[64 * 48 * 2 + 24 * 64 + 32])
            check(max(abs(a - b) for a, b in zip(got, had)) <= 4, f"{src.name}: Y'CbCr {had} became {got}")
    spread = np.ptp(np.array(list(red.values())), axis=0).max()
    check(spread <= 3, f"one colour under six matrices and ranges: {red}")


def test_hdr():
    src = make("hdr.mkv", "-c:v", "libx265", "-x265-params", "log-level=none", "-pix_fmt", "yuv420p10le", "-colorspace",
               "bt2020nc", "-color_primaries", "bt2020", "-color_trc", "smpte2084", "-color_range", "tv", seconds=0.5)
    p = up(src, WORK / "hdr-out.mkv")
    v = video_of(WORK / "hdr-out.mkv")
    check(v["pix_fmt"] == "yuv420p10le" and v["codec_name"] == "hevc", f"10 bits became {v['pix_fmt']}, {v['codec_name']}")
    check((v["color_space"], v["color_primaries"], v["color_transfer"]) == ("bt2020nc", "bt2020", "smpte2084"),
          f"HDR's tags: {v}")
    check(any("HDR (PQ)" in n for n in p.notes), f"HDR is told: {p.notes}")


def test_untagged():
    """What an untagged small video means by its size is written into the larger one."""
    src = make("u.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", seconds=0.3)
    up(src, WORK / "u-out.mp4")
    check(video_of(WORK / "u-out.mp4").get("color_space") == "smpte170m", "untagged, small: BT.601")


def test_variable():
    """Frames keep their times, whatever these are."""
    vf = "setpts='(N*N*0.003+N*0.02)/TB'"
    src = make("v.mp4", "-vf", vf, "-fps_mode", "vfr", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-video_track_timescale",
               "90000", seconds=1.5)
    for name in "v-out.mp4", "v-out.mkv":
        up(src, WORK / name)
        a, b = times(src), times(WORK / name)
        check(len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < (2e-3 if name.endswith("mkv") else 1e-6),
              f"{name}: times {b[:5]}, expected {a[:5]}")
        dts = [float(p["dts_time"]) for p in probe(WORK / name, "packets", "-select_streams", "v:0") if "dts_time" in p]
        check(all(x < y for x, y in zip(dts, dts[1:])), f"{name}: decoding times rise")


def test_streams():
    """Sound, subtitles, chapters, tags, the way it is turned, the shape of pixels."""
    (WORK / "s.srt").write_text("1\n00:00:00,100 --> 00:00:00,900\nA word\n")
    (WORK / "s.txt").write_text(";FFMETADATA1\ntitle=Cats\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=500\ntitle=One\n")
    src = WORK / "s.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=96x64:rate=24", "-f", "lavfi", "-i", "sine=frequency=440", "-i",
           WORK / "s.srt", "-i", WORK / "s.txt", "-map_metadata", "3", "-map", "0", "-map", "1", "-map", "2", "-t", "1", "-c:v",
           "libx264", "-vf", "setsar=8/9", "-pix_fmt", "yuv420p", "-c:a", "aac", "-c:s", "srt", "-metadata:s:a",
           "language=deu", src)
    up(src, WORK / "s-out.mkv")
    kinds = [s["codec_type"] for s in probe(WORK / "s-out.mkv")]
    check(kinds == ["video", "audio", "subtitle"], f"streams: {kinds}")
    for kind in "a", "s":
        a, b = (ffmpeg("-i", p, "-map", f"0:{kind}", "-c", "copy", "-f", "data", "-") for p in (src, WORK / "s-out.mkv"))
        check(a == b and len(a) > 0, f"stream {kind}: other bytes")
        check(np.allclose(times(src, kind), times(WORK / "s-out.mkv", kind), atol=2e-3), f"stream {kind}: other times")
    audio = probe(WORK / "s-out.mkv")[1]
    check(audio["tags"].get("language") == "ger" or audio["tags"].get("language") == "deu", "the sound's language")
    check(video_of(WORK / "s-out.mkv")["sample_aspect_ratio"] == "8:9", "the shape of pixels")
    check([c["tags"]["title"] for c in probe(WORK / "s-out.mkv", "chapters")] == ["One"], "chapters")
    check(probe(WORK / "s-out.mkv", "format")["tags"].get("title") == "Cats", "tags")
    p = up(src, WORK / "s-out.mp4")
    check(any("subrip" in n for n in p.notes), f"subtitles that mp4 cannot hold are told: {p.notes}")
    kinds = [s["codec_type"] for s in probe(WORK / "s-out.mp4") if s["codec_type"] != "data"]  # mp4's own chapter track
    check(kinds == ["video", "audio"], f"mp4: the rest: {kinds}")
    turned = WORK / "turned.mp4"
    ffmpeg("-i", src, "-map", "0:v", "-c", "copy", "-metadata:s:v", "rotate=90", turned)
    up(turned, WORK / "turned-out.mp4")
    sides = [[d.get("rotation") for d in video_of(p).get("side_data_list", [])] for p in (turned, WORK / "turned-out.mp4")]
    check(sides[0] == sides[1] and sides[0], f"turned: {sides}")


def test_odd():
    """Interlaced and odd-sized videos, alpha, grey."""
    src = make("i.mkv", "-vf", "interlace", "-flags", "+ilme+ildct", "-c:v", "libx264", "-pix_fmt", "yuv420p", seconds=0.4)
    p = up(src, WORK / "i-out.mkv")
    check(any("interlaced" in n for n in p.notes), f"interlaced is told: {p.notes}")
    src = make("odd.mkv", "-c:v", "ffv1", "-pix_fmt", "yuv444p", "-vf", "scale=33:21", seconds=0.3)
    p = davy("upscale", src, "-o", WORK / "odd-out.mkv", "--model", "davy-live-x2", "--scale", "1")
    v = video_of(WORK / "odd-out.mkv")
    check((v["width"], v["height"]) == (32, 20) and any("odd" in n for n in p.notes), f"odd sides: {v['width']}, {p.notes}")
    src = make("grey.mkv", "-c:v", "ffv1", "-pix_fmt", "gray", seconds=0.2)
    up(src, WORK / "grey-out.mkv")
    src = make("three.mkv", "-c:v", "ffv1", "-pix_fmt", "yuv420p", seconds=0.2)
    davy("upscale", src, "-o", WORK / "three-out.mkv", "--scale", "1.5")
    v = video_of(WORK / "three-out.mkv")
    check((v["width"], v["height"]) == (144, 96), f"--scale 1.5: {v['width']}x{v['height']}")


def interrupt(args, out, folder, parts):
    """Starts davy and stops it politely when so many parts are there; anew where it was ready before that was seen."""
    for _ in range(10):
        p = subprocess.Popen([DAVY, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while p.poll() is None and not (folder.is_dir() and sum(x.name.isdigit() for x in folder.iterdir()) >= parts):
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        error = p.communicate(timeout=600)[1].decode()
        if p.returncode != 0:
            break
        out.unlink()
    return p.returncode, error


def test_resume():
    """Stopped twice, the file is byte for byte what it is when nobody stops it."""
    src = make("r.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", "50", seconds=(4 * PART + 11) / 24)
    whole, out = WORK / "r-whole.mp4", WORK / "r-out.mp4"
    up(src, whole)
    folder = WORK / "r-out.mp4.davy-parts"
    args = ("upscale", src, "-o", out, "--scale", "2")
    for parts in 1, 2:
        code, error = interrupt(args, out, folder, parts)
        check(code == 130 and "interrupted" in error, f"interrupted: exit {code}: {error}")
        check(not out.exists() and len(list(folder.iterdir())) >= 1 + parts, "what is whole is kept")
        check(not [p for p in folder.iterdir() if ".tmp-" in p.name], "what is not is gone")
    p = up(src, out, "--json")
    done = json.loads(p.stdout)
    check(done["frames"] == 4 * PART + 11 and done["frames_now"] <= 3 * PART + 11 - PART, f"goes on: {done}")
    check(digest(out) == digest(whole), "an interrupted run gives the same file")
    check(not folder.exists(), "the folder of parts is gone")
    check(video_of(out)["nb_frames"] == str(4 * PART + 11), "number of frames")
    code, error = interrupt(args, out, folder, 1)
    up(src, out, "--crf", "30")  # another run: begins anew
    check(digest(out) != digest(whole) and not folder.exists(), "other options begin anew")
    p = subprocess.Popen([DAVY, "upscale", str(src), "-o", str(WORK / "n.mp4"), "--scale", "2"], stderr=subprocess.PIPE)
    time.sleep(0.15)
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=600)
    if p.returncode == 143:
        check(not (WORK / "n.mp4").exists(), "stopped at once: no file")


def test_pipes():
    src = make("pipe.mkv", "-c:v", "ffv1", "-pix_fmt", "yuv420p", seconds=0.5)
    y4m = ffmpeg("-i", src, "-f", "yuv4mpegpipe", "-")
    p = davy("upscale", "-", "-o", "-", "--scale", "2", input=y4m)
    check(p.stdout.startswith(b"YUV4MPEG2 W192 H128 F24:1"), f"y4m: {p.stdout[:60]!r}")
    (WORK / "pipe.y4m").write_bytes(p.stdout)
    (WORK / "given.y4m").write_bytes(y4m)
    up(WORK / "given.y4m", WORK / "pipe2.y4m")
    check((WORK / "pipe2.y4m").read_bytes() == p.stdout, "a file and a pipe give the same y4m")
    raw = ffmpeg("-i", WORK / "pipe.y4m", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-")
    check(len(raw) == 12 * 192 * 128 * 3 // 2, f"y4m: {len(raw)} bytes")
    davy("upscale", "-", "-o", WORK / "piped.mp4", "--scale", "2", input=y4m)
    check(video_of(WORK / "piped.mp4")["nb_frames"] == "12", "a pipe into a file")
    a = pictures(WORK / "piped.mp4", (192, 128))
    b = pictures(WORK / "pipe.y4m", (192, 128))
    check(psnr(a, b) > 34, f"mp4 against y4m: {psnr(a, b):.1f} dB")
    with open("/dev/full", "wb") as full:
        davy("upscale", src, "-o", "-", "--scale", "2", code=1, capture_output=False, stdout=full, stderr=subprocess.PIPE)


def test_failures():
    bad = WORK / "bad.mp4"
    bad.write_bytes(b"no video at all" * 100)
    up(bad, WORK / "bad-out.mp4", code=1)
    nothing_beside(WORK / "bad-out.mp4")
    src = make("f.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", seconds=0.5)
    up(src, WORK / "f-out.mp4", "--codec", "nonsense", code=1)
    up(src, WORK / "f-out.xyz", code=1)
    up(src, WORK / "nowhere" / "f.mp4", code=1)
    nothing_beside(WORK / "f-out.mp4")
    up(src, WORK / "f-out.webm", "--codec", "h264", code=1)
    davy("upscale", src, "-o", WORK / "x.mp4", "--raw", WORK / "x.safetensors", code=2)
    sound = WORK / "sound.mp4"
    ffmpeg("-f", "lavfi", "-i", "sine", "-t", "1", "-c:a", "aac", sound)
    up(sound, WORK / "sound-out.mp4", code=1)
    cut = WORK / "cut.mkv"
    make("long.mkv", "-c:v", "libx264", "-pix_fmt", "yuv420p", seconds=2)
    cut.write_bytes((WORK / "long.mkv").read_bytes()[: (WORK / "long.mkv").stat().st_size // 2])
    up(cut, WORK / "cut-out.mkv")  # as far as it goes
    check(0 < len(times(WORK / "cut-out.mkv")) < 48, "a file that ends early")


def test_codecs():
    src = make("k.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", seconds=0.3)
    for name, codec, wish in (("k.webm", "vp9", ()), ("k.mkv", "hevc", ("--codec", "hevc")), ("k1.mkv", "h264", ("--codec", "libx264")),
                              ("k.mov", "h264", ()), ("k.ts", "h264", ())):
        up(src, WORK / f"out-{name}", *wish)
        check(video_of(WORK / f"out-{name}")["codec_name"] == codec, f"{name}: {codec}")
        n = len(pictures(WORK / f"out-{name}", (192, 128)))
        check(n == 7 or n == 8, f"{name}: {n} frames")
    small, large = (WORK / f"q{q}.mkv" for q in (30, 10))
    up(src, small, "--crf", "30")
    up(src, large, "--crf", "10")
    check(large.stat().st_size > 1.5 * small.stat().st_size, "--crf")


def latents(path):
    """(the tensor, what the file says of itself)"""
    data = pathlib.Path(path).read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    at = header["latent"]["data_offsets"]
    found = np.frombuffer(data[8 + n + at[0]:8 + n + at[1]], np.float32).reshape(header["latent"]["shape"])
    return found, header.get("__metadata__", {})


def test_latents():
    """A clip to latents and back: from a file, a pipe and a folder the same; frames, rate and sound are the clip's."""
    made = WORK / "taehv"
    subprocess.run([sys.executable, SOURCE / "tests/golden/weights.py", SOURCE / "tests/golden/cases/taehv", made],
                   check=True, stdout=subprocess.DEVNULL)
    vae = ("--model", made / "model.safetensors")
    src = WORK / "l.mkv"
    ffmpeg("-f", "lavfi", "-i", "mandelbrot=size=96x64:rate=10", "-f", "lavfi", "-i", "sine=frequency=440", "-t", "1.0",
           "-c:v", "ffv1", "-pix_fmt", "yuv420p", "-c:a", "aac", src)
    davy("encode", src, "-o", WORK / "l.safetensors", *vae)
    got, about = latents(WORK / "l.safetensors")
    check(got.shape == (1, 16, 3, 8, 12) and np.isfinite(got).all(), f"latents {got.shape}")
    check(about == {"frames": "10", "fps": "10"}, f"the file says {about}")
    frames = WORK / "l-frames"
    frames.mkdir()
    ffmpeg("-i", src, "-vf", EXACT, frames / "%06d.png")
    davy("encode", frames, "-o", WORK / "l-folder.safetensors", *vae)
    other, about = latents(WORK / "l-folder.safetensors")
    check(np.array_equal(got, other) and about == {"frames": "10"}, "a folder of frames: the same latents")
    piped = ffmpeg("-i", src, "-c", "copy", "-f", "matroska", "-")
    davy("encode", "-", "-o", WORK / "l-pipe.safetensors", *vae, input=piped)
    check(np.array_equal(got, latents(WORK / "l-pipe.safetensors")[0]), "a pipe: the same latents")
    davy("decode", WORK / "l.safetensors", "-o", f"{WORK}/l-out/", *vae)
    whole = pictures(WORK / "l-out/%06d.png", (96, 64))
    check(len(whole) == 9, f"a folder: {len(whole)} frames")
    davy("decode", WORK / "l.safetensors", "-o", WORK / "l.mp4", "--audio", src, "--codec", "libx264", *vae)
    streams = probe(WORK / "l.mp4", "streams", "-count_frames")
    video = next(x for x in streams if x["codec_type"] == "video")
    check([x["codec_type"] for x in streams] == ["video", "audio"], "sound is copied")
    check(video["nb_read_frames"] == "9" and video["r_frame_rate"] == "10/1", f"{video['nb_read_frames']} frames")
    check(psnr(pictures(WORK / "l.mp4", (96, 64)), whole) > 25, "the file shows what the folder has")
    davy("decode", WORK / "l-folder.safetensors", "-o", WORK / "l-few.mkv", "--frames", 3, "--fps", 12.5, "--codec", "ffv1", *vae)
    video = probe(WORK / "l-few.mkv", "streams", "-count_frames")
    check(len(video) == 1 and video[0]["nb_read_frames"] == "3" and video[0]["r_frame_rate"] == "25/2", "--frames, --fps")
    y4m = davy("decode", WORK / "l.safetensors", "-o", "-", *vae).stdout
    check(y4m.startswith(b"YUV4MPEG2 W96 H64 F10:1 ") and y4m.count(b"FRAME\n") == 9, "y4m")
    davy("decode", WORK / "l.safetensors", "-o", WORK / "l-no.png", *vae, code=1)
    davy("encode", src, "-o", WORK / "l-no.safetensors", *vae, "--raw", WORK / "l-no.raw", code=2)
    davy("encode", WORK / "nothing.mp4", "-o", WORK / "l-no.safetensors", *vae, code=1)
    nothing_beside(WORK / "l-no.safetensors")
    nothing_beside(WORK / "l-no.png")


def test_short_of_memory():
    """Less and less memory for a clip's latents: in the end tiles, which show what the whole frames show, then a refusal."""
    made = WORK / "wan"
    subprocess.run([sys.executable, SOURCE / "tests/golden/weights.py", SOURCE / "tests/golden/cases/wan2_1", made],
                   check=True, stdout=subprocess.DEVNULL)
    latent = np.random.default_rng(4).standard_normal((1, 4, 3, 7, 8)).astype(np.float32).repeat(4, 3).repeat(4, 4)
    header = json.dumps({"latent": {"dtype": "F32", "shape": latent.shape, "data_offsets": [0, latent.nbytes]}}).encode()
    (WORK / "s.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + latent.tobytes())
    decode = ("decode", WORK / "s.safetensors", "--device", "cpu", "--model", made / "model.safetensors")
    davy(*decode, "-o", f"{WORK}/s-whole/")
    whole = pictures(WORK / "s-whole/%06d.png", (256, 224)).astype(float)
    check(len(whole) == 9, f"{len(whole)} frames")
    bytes_, off = 360 << 20, []
    while bytes_ > 20 << 20:
        out = WORK / f"s-{bytes_}"
        p = subprocess.run([DAVY, *decode, "-o", f"{out}/", "--memory", str(bytes_)], capture_output=True)
        if p.returncode:
            check(b"in the smallest tiles" in p.stderr, f"{bytes_} bytes: {p.stderr}")
            break
        off.append(np.abs(pictures(out / "%06d.png", (256, 224)) - whole).mean())
        bytes_ = bytes_ * 2 // 3
    check(off[0] == 0 and 0.5 < max(off) < 20, f"mean differences {off}")
    check(bytes_ > 20 << 20, "no memory is too small")


def test_memory():
    peaks = []
    for seconds in 2, 12:
        src = make(f"m{seconds}.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", size="128x96", seconds=seconds)
        peaks.append(json.loads(up(src, WORK / f"m{seconds}-out.mp4", "--json").stdout)["peak_memory"])
    check(peaks[1] < peaks[0] + (16 << 20), f"six times the frames: {peaks[0] >> 20} and {peaks[1] >> 20} MiB")
    if "--long" in sys.argv:
        src = make("m-long.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", size="320x180", seconds=1000 / 24)
        short = make("m-short.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", size="320x180", seconds=100 / 24)
        a, b = (json.loads(up(s, WORK / "m-x.mp4", "--json").stdout) for s in (short, src))
        print(f"  {a['frames']} frames {a['peak_memory'] >> 20} MiB, {b['frames']} frames {b['peak_memory'] >> 20} MiB, "
              f"{b['fps']:.1f} fps")
        check(b["peak_memory"] < a["peak_memory"] + (24 << 20), "1,000 frames hold no more than 100")


def main():
    global skipped
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    tests = {k[5:]: v for k, v in globals().items() if k.startswith("test_")}
    missing = [t for t in ("ffmpeg", "ffprobe") if shutil.which(t) is None]
    told = subprocess.run([DAVY, "upscale", "-", "-o", "-"], input=b"", capture_output=True).stderr
    if missing or b"davy-video.so" in told:
        skipped = len(tests)
        print("skipped:", "no " + missing[0] if missing else "davy was built without video")
        tests = {}
    if "--small" in sys.argv:
        tests.pop("memory", None)
    for name, test in tests.items():
        if not names or name in names:
            before = failed
            start = time.time()
            test()
            print(f"{name}: {'ok' if failed == before else 'FAILED'} {time.time() - start:.1f} s", flush=True)
    shutil.rmtree(WORK, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


sys.exit(main())
