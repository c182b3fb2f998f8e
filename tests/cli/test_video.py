"""davy upscale of videos: pictures, times, colours, sound, interruption, pipes, memory. See video_run.py.

Arguments: names of tests to run instead of all; --long also measures 1,000 frames; --small measures no memory, for builds with
sanitizers. Ends with "N passed, N failed, N skipped".
"""
import json
import os
import select
import signal
import subprocess
import sys
import time

import numpy as np

import video_run
from cli_run import DAVY, QUICK, WORK, check
from video_run import EXACT, davy, digest, ffmpeg, make, nothing_beside, pictures, probe, psnr, times, up, video_of

PART = 96  # frames, as VIDEO_PART


def test_pictures():
    """Each frame equals the enlarged picture of the same frame. The pixels of an encoded file are near it."""
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
    """Colour tags are kept. One colour under different matrices and ranges gives one result."""
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
    check(any("HDR (PQ)" in n for n in p.notes), f"a note about HDR: {p.notes}")


def test_untagged():
    """The matrix that a small untagged video has by default is written into the larger one."""
    src = make("u.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", seconds=0.3)
    up(src, WORK / "u-out.mp4")
    check(video_of(WORK / "u-out.mp4").get("color_space") == "smpte170m", "untagged, small: BT.601")


def test_variable():
    """Frames keep their times at a variable rate."""
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
    notes = up(src, WORK / "v-out.y4m").notes
    check(len(notes) == 1 and "the frame rate varies" in notes[0], f"y4m has no times: {notes}")


def test_streams():
    """Sound, subtitles, chapters, tags, rotation and pixel shape are kept."""
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
    check(len(p.notes) == 1 and "(subrip) is converted to mov_text" in p.notes[0], f"a note about converted subtitles: {p.notes}")
    kinds = [s["codec_type"] for s in probe(WORK / "s-out.mp4") if s["codec_type"] != "data"]  # the chapter track of mp4
    check(kinds == ["video", "audio", "subtitle"], f"mp4: the rest: {kinds}")
    turned = WORK / "turned.mp4"
    ffmpeg("-i", src, "-map", "0:v", "-c", "copy", "-metadata:s:v", "rotate=90", turned)
    up(turned, WORK / "turned-out.mp4")
    sides = [[d.get("rotation") for d in video_of(p).get("side_data_list", [])] for p in (turned, WORK / "turned-out.mp4")]
    check(sides[0] == sides[1] and sides[0], f"turned: {sides}")


def test_odd():
    """Interlaced and odd-sized videos, alpha, grey."""
    src = make("i.mkv", "-vf", "interlace", "-flags", "+ilme+ildct", "-c:v", "libx264", "-pix_fmt", "yuv420p", seconds=0.4)
    p = up(src, WORK / "i-out.mkv")
    check(any("interlaced" in n for n in p.notes), f"a note about interlacing: {p.notes}")
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
    """Starts davy and interrupts it after `parts` parts. Tries again if the run ended before that."""
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
    """A run that was interrupted twice writes the same file, byte for byte, as an uninterrupted one."""
    src = make("r.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", "50", size="48x32", seconds=(4 * PART + 11) / 24)
    whole, out = WORK / "r-whole.mp4", WORK / "r-out.mp4"
    up(src, whole)
    folder = WORK / "r-out.mp4.davy-parts"
    args = ("upscale", src, "-o", out, "--scale", "2")
    for parts in 1, 2:
        code, error = interrupt(args, out, folder, parts)
        check(code == 130 and "interrupted" in error, f"interrupted: exit {code}: {error}")
        check(not out.exists() and len(list(folder.iterdir())) >= 1 + parts, "complete parts are kept")
        check(not [p for p in folder.iterdir() if ".tmp-" in p.name], "incomplete parts are removed")
    p = up(src, out, "--json")
    done = json.loads(p.stdout)
    check(done["frames"] == 4 * PART + 11 and done["frames_now"] <= 3 * PART + 11 - PART, f"goes on: {done}")
    check(digest(out) == digest(whole), "an interrupted run gives the same file")
    check(not folder.exists(), "the folder of parts is gone")
    check(video_of(out)["nb_frames"] == str(4 * PART + 11), "number of frames")
    code, error = interrupt(args, out, folder, 1)
    up(src, out, "--crf", "30")  # another run starts from the beginning
    check(digest(out) != digest(whole) and not folder.exists(), "other options start from the beginning")
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
    check(up(WORK / "given.y4m", WORK / "pipe2.y4m").notes == [], "notes")
    check((WORK / "pipe2.y4m").read_bytes() == p.stdout, "a file and a pipe give the same y4m")
    raw = ffmpeg("-i", WORK / "pipe.y4m", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-")
    check(len(raw) == 12 * 192 * 128 * 3 // 2, f"y4m: {len(raw)} bytes")
    live = subprocess.Popen([DAVY, "upscale", "-", "-o", "-", "--scale", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    live.stdin.write(y4m)
    live.stdin.flush()
    seen, want = b"", (WORK / "pipe2.y4m").read_bytes()
    while len(seen) < len(want) and select.select([live.stdout], [], [], 30)[0]:
        seen += os.read(live.stdout.fileno(), 1 << 16)
    check(seen == want, f"all of the last frame while more may come: {len(seen)} bytes of {len(want)}")
    live.stdin.close()
    check(live.wait(timeout=600) == 0 and live.stdout.read() == b"", "the end of a pipe")
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
    few = WORK / "few"
    few.mkdir()
    ffmpeg("-i", src, "-frames:v", "2", few / "%03d.png")
    for name in "few.mp4", "few.png":  # must not make folders of these names
        davy("upscale", few, "-o", WORK / name, code=1)
        nothing_beside(WORK / name)
    sound = WORK / "sound.mp4"
    ffmpeg("-f", "lavfi", "-i", "sine", "-t", "1", "-c:a", "aac", sound)
    up(sound, WORK / "sound-out.mp4", code=1)
    cut = WORK / "cut.mkv"
    make("long.mkv", "-c:v", "libx264", "-pix_fmt", "yuv420p", seconds=2)
    cut.write_bytes((WORK / "long.mkv").read_bytes()[: (WORK / "long.mkv").stat().st_size // 2])
    up(cut, WORK / "cut-out.mkv")  # up to the cut
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
    noise = make("noise.mkv", "-vf", "noise=alls=40:allf=t", "-c:v", "ffv1", "-pix_fmt", "yuv420p", size="160x96", seconds=0.3)
    for crf in 5, 30:  # VP8's bit rate is an upper bound
        davy("upscale", noise, "-o", WORK / f"vp8-{crf}.webm", "--model", "davy-live-x2", "--codec", "libvpx", "--crf", crf)
    check((WORK / "vp8-5.webm").stat().st_size > 2 * (WORK / "vp8-30.webm").stat().st_size, "--crf of VP8")
    for name, wish, most in ("o.webm", "vp9", 63), ("o.mkv", "hevc", 51), ("o.mkv", "h264", 51):
        p = up(src, WORK / name, "--codec", wish, "--crf", most + 1, code=1)
        check(f"up to {most}, not {most + 1}".encode() in p.stderr, f"{wish}: {p.stderr}")
    check("has no --crf" in up(src, WORK / "o.mkv", "--codec", "ffv1", "--crf", "20").notes[0], "--crf where there is none")


def test_memory():
    if QUICK:
        return  # meaningless with sanitizers
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


if __name__ == "__main__":
    sys.exit(video_run.main(globals()))
