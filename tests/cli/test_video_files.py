"""davy upscale of videos from practice: odd names, killed runs, full disks, covers, HDR, alpha, rotated pictures.

See video_run.py.
"""
import os
import resource
import signal
import subprocess
import sys
import time
from fractions import Fraction

import video_run
from cli_run import DAVY, WORK, check
from video_run import davy, digest, ffmpeg, make, nothing_beside, probe, times, video_of

PART = 96  # frames, as VIDEO_PART
X264 = ("-c:v", "libx264", "-pix_fmt", "yuv420p")
SMALL = {"size": "48x32"}  # not for libx265, which corrupts its memory at this size


def up(src, dst, *more, **how):
    return davy("upscale", src, "-o", dst, "--model", "davy-live-x2", *more, **how)


def noted(src, dst, words):
    notes = up(src, dst).notes
    check(len(notes) == 1 and words in notes[0], f"{src.name}: {notes}")


def parts_of(out):
    folder = WORK / (out.name + ".davy-parts")
    return [p for p in folder.iterdir() if p.name.isdigit()] if folder.is_dir() else []


def stop(src, out, how):
    """Runs davy and stops it by a signal after the first part. Tries again if the run ended before that."""
    for _ in range(10):
        p = subprocess.Popen([DAVY, "upscale", str(src), "-o", str(out), "--model", "davy-live-x2"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE)
        while p.poll() is None and not parts_of(out):
            time.sleep(0.005)
        p.send_signal(how)
        error = p.communicate(timeout=600)[1].decode()
        if p.returncode != 0:
            return error
        out.unlink()
    check(False, f"{out.name}: never stopped in time")
    return ""


def boxes(path):
    """The names of the outermost boxes of an mp4."""
    data, at, names = path.read_bytes(), 0, []
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        names.append(data[at + 4:at + 8].decode())
        at += size if size > 1 else int.from_bytes(data[at + 8:at + 16], "big") if size else len(data)
    return names


def test_front():
    """The index of mp4 and mov comes before the frames, which equal those of an mkv."""
    src = make("front.mp4", *X264, seconds=0.5, **SMALL)
    frames = []
    for name in "f.mp4", "f.mov", "f.mkv":
        up(src, WORK / name)
        lines = ffmpeg("-i", WORK / name, "-f", "framemd5", "-").splitlines()
        frames.append([line.split(b",")[-1] for line in lines if not line.startswith(b"#")])
        if name != "f.mkv":
            order = boxes(WORK / name)
            check(order.index("moov") < order.index("mdat"), f"{name}: {order}")
    check(len(frames[0]) == 12 and frames[0] == frames[1] == frames[2], f"frames {frames}")


def test_names():
    """Names with colons, percent signs, spaces, or like a URL. The input is never overwritten."""
    given = make("n.mp4", *X264, seconds=0.2, **SMALL).read_bytes()
    folder = WORK / "a b" / "ü"
    folder.mkdir(parents=True)
    for name in "c:d e.mp4", "http:x.mp4", "%03d.mp4", "q?#&.mp4":
        (folder / name).write_bytes(given)
        up(name, "out-" + name, cwd=folder)
        check(len(probe(folder / ("out-" + name), "packets")) == 5, f"{name}: frames")
    src = WORK / "n.mp4"
    (WORK / "link.mp4").symlink_to(src)
    os.link(src, WORK / "hard.mp4")
    for same in src, WORK / "link.mp4", WORK / "hard.mp4":
        up(src, same, code=1)
    check(src.read_bytes() == given, "the input is not overwritten")
    for name in "x.ogv", "x.gif", "x.m3u8":  # fails at once, not after the work
        up(src, WORK / name, code=1)
        nothing_beside(WORK / name)
    up(make("moving.gif", "-loop", "0", rate=5, **SMALL), WORK / "moving.mkv")
    check(len(probe(WORK / "moving.mkv", "packets")) == 5, "a GIF's pictures")
    for name in "raw.h264", "raw.hevc", "raw.ivf":
        codec = {"h264": "libx264", "hevc": "libx265", "ivf": "libvpx-vp9"}[name[4:]]
        up(make(name, "-c:v", codec, "-pix_fmt", "yuv420p", seconds=0.2, stderr=subprocess.DEVNULL), WORK / (name + ".mkv"))


def test_killed():
    """A killed run continues after its parts, for each file format."""
    frames = PART + 60
    for name, *how in (("k.ts", *X264, "-bf", "3", "-g", "40"), ("open.ts", "-c:v", "libx265", "-x265-params",
                       "log-level=none:open-gop=1:keyint=40"), ("k.mpg", "-c:v", "mpeg2video", "-bf", "2"), ("k.h264", *X264),
                       ("k.mkv", *X264, "-bf", "3", "-g", "60"), ("av1.mkv", "-c:v", "libsvtav1", "-preset", "10", "-g", "70"),
                       ("av1.mp4", "-c:v", "libsvtav1", "-preset", "10", "-pix_fmt", "yuv420p10le")):
        size = SMALL if "libx264" in how else {"size": "64x64"}  # other encoders need larger frames
        src = make(name, *how, seconds=frames / 24, stderr=subprocess.DEVNULL, **size)
        whole, out = WORK / f"{name}-whole.mkv", WORK / f"{name}-out.mkv"
        up(src, whole)
        check(len(probe(whole, "packets")) == frames, f"{name}: frames")
        stop(src, out, signal.SIGKILL)
        left = out.with_name(out.name + ".tmp-99999999")
        left.write_bytes(b"of a run that was killed while it wrote")
        p = up(src, out)
        check(any("continues after the" in n for n in p.notes), f"{name}: {p.notes}")
        check(digest(out) == digest(whole), f"{name}: a run that was killed gives another file")
        check([p.name for p in WORK.iterdir() if p.name.startswith(out.name)] == [out.name], f"{name}: left behind")


def test_fifo():
    """A named pipe can be read once only. No part of an earlier run is reused."""
    src = make("fifo.mkv", *X264, seconds=(PART + 60) / 24, **SMALL)
    other = make("other.mkv", *X264, seconds=(PART + 60) / 24, source="testsrc", **SMALL)
    whole, out, name = WORK / "fifo-whole.mkv", WORK / "fifo-out.mkv", WORK / "pipe"
    os.mkfifo(name)
    up(src, whole)
    for given, how in (other, "killed"), (src, "to its end"):
        cat = subprocess.Popen(["sh", "-c", 'exec cat "$0" > "$1"', given, name], stderr=subprocess.DEVNULL)
        if how == "killed":
            p = subprocess.Popen([DAVY, "upscale", str(name), "-o", str(out), "--model", "davy-live-x2", "--quiet"])
            while p.poll() is None and not parts_of(out):
                time.sleep(0.002)
            p.kill()
            p.wait(timeout=600)
        else:
            check(up(name, out).notes == [], "a pipe begins from the start")
        cat.wait(timeout=600)
    frames = [ffmpeg("-i", p, "-map", "0:v", "-f", "framemd5", "-") for p in (whole, out)]
    check(frames[0] == frames[1], "a pipe with a name: other frames")
    sound = WORK / "sound.mkv"
    ffmpeg("-i", src, "-f", "lavfi", "-i", "sine", "-t", "0.2", "-c:v", "copy", "-c:a", "aac", sound)
    notes = up("-", WORK / "sound-out.mkv", input=sound.read_bytes()).notes
    check(len(notes) == 1 and "sound and other streams" in notes[0], f"a pipe's sound: {notes}")


def hears(p):
    """Waits until the program has installed its signal handlers."""
    caught = 0
    while p.poll() is None and not caught >> (signal.SIGTERM - 1) & 1:
        status = open(f"/proc/{p.pid}/status").read()
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        time.sleep(0.005)


def test_waiting():
    """An interrupt ends the wait for a pipe: without a writer, before the first byte, in the middle of a frame."""
    src = make("waiting.mkv", "-c:v", "ffv1", "-pix_fmt", "yuv420p", seconds=0.4, **SMALL)
    y4m, out, name = ffmpeg("-i", src, "-f", "yuv4mpegpipe", "-"), WORK / "waiting-out.mp4", WORK / "waiting-pipe"
    os.mkfifo(name)
    for given, number in (None, signal.SIGTERM), (b"", signal.SIGINT), (y4m[:-99], signal.SIGTERM):
        args = [DAVY, "upscale", "-" if given is not None else str(name), "-o", str(out), "--model", "davy-live-x2"]
        p = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        p.stdin.write(given or b"")
        p.stdin.flush()
        hears(p)
        time.sleep(0.3)
        p.send_signal(number)
        try:
            p.wait(timeout=30)
        except subprocess.TimeoutExpired:
            check(False, f"{len(given or b'')} bytes of a pipe: it waits on")
            p.kill()
        error = p.communicate()[1]
        check(p.returncode == 128 + number and error.count(b"\n") == 1 and b"interrupted" in error, f"{p.returncode}: {error!r}")
        nothing_beside(out)


def test_two_at_once():
    src = make("two.mkv", *X264, seconds=(2 * PART + 9) / 24, **SMALL)
    out = WORK / "two-out.mkv"
    args = [DAVY, "upscale", str(src), "-o", str(out), "--model", "davy-live-x2", "--quiet"]
    p = subprocess.Popen(args)
    while p.poll() is None and not (WORK / "two-out.mkv.davy-parts" / "run.json").exists():
        time.sleep(0.002)
    p.send_signal(signal.SIGSTOP)
    second = subprocess.run(args, capture_output=True, timeout=600)
    p.send_signal(signal.SIGCONT)
    check(second.returncode == 1 and b"another davy" in second.stderr, f"a second run: {second.returncode}, {second.stderr}")
    check(p.wait(timeout=600) == 0 and len(probe(out, "packets")) == 2 * PART + 9, "the first one goes on")


def test_full():
    """A full disk: the error reports it, the finished frames are kept and counted, and the next run writes the same file."""
    src = make("full.mp4", *X264, seconds=(PART + 20) / 24, **SMALL)
    whole, out = WORK / "full-whole.mp4", WORK / "full-out.mp4"
    up(src, whole)
    room = whole.stat().st_size * 9 // 10  # the limit for each part, not for the file

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    p = up(src, out, code=1, preexec_fn=limit)
    check(b"File too large" in p.stderr and f"{PART + 20} frames are kept" in " ".join(p.notes), f"{p.stderr}")
    up(src, out)
    check(digest(out) == digest(whole), "after there was room again: another file")
    room = 3000
    up(src, out, "--crf", "30", code=1, preexec_fn=limit)
    check(digest(out) == digest(whole) and not parts_of(out), "no part fits: the old file stays")


def test_covers():
    video = make("plain.mp4", *X264, seconds=0.2, **SMALL)
    for kind, mime in ("png", "image/png"), ("jpg", "image/jpeg"):
        cover = make(f"cover.{kind}", "-frames:v", "1", size="20x20")
        boxed, filed = WORK / f"cover-{kind}.mp4", WORK / f"cover-{kind}.mkv"
        ffmpeg("-i", video, "-i", cover, "-map", "0", "-map", "1", "-c", "copy", "-disposition:v:1", "attached_pic", boxed)
        ffmpeg("-i", video, "-c", "copy", "-attach", cover, "-metadata:s:t", f"mimetype={mime}", filed)
        for src in boxed, filed:
            for ending in ".mp4", ".mkv":
                out = WORK / f"{src.name}-out{ending}"
                p = up(src, out)
                covers = [s for s in probe(out) if s["disposition"]["attached_pic"]]
                check(p.notes == [] and len(probe(out)) == 2 and len(covers) == 1, f"{out.name}: {p.notes}, {covers}")
                given = ffmpeg("-i", out, "-map", "0:v:1", "-c", "copy", "-f", "image2pipe", "-")
                check(given == cover.read_bytes(), f"{out.name}: another picture")


def light_of(thing):
    """The mastering display and light levels of a frame or a stream."""
    kinds = ("Content light level metadata", "Mastering display metadata")
    found = {d.pop("side_data_type"): d for d in thing.get("side_data_list", [])}
    return [{n: Fraction(v) for n, v in found[k].items()} for k in kinds if k in found]


def test_light():
    """Static HDR metadata from packets or from the container is written to both."""
    hdr = ("-pix_fmt", "yuv420p10le", "-colorspace", "bt2020nc", "-color_primaries", "bt2020", "-color_trc", "smpte2084")
    numbers = "master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50):max-cll=1000,400"
    src = make("hdr.mp4", "-c:v", "libx265", "-x265-params", "log-level=none:" + numbers, *hdr, seconds=0.3)
    up(src, WORK / "hdr-out.mp4", "--codec", "hevc")
    up(WORK / "hdr-out.mp4", WORK / "hdr-boxed.mkv", "--codec", "ffv1")  # without metadata in its packets
    up(WORK / "hdr-boxed.mkv", WORK / "hdr-again.mkv", "--codec", "hevc", "--scale", "1")
    raw = WORK / "hdr-again.hevc"
    ffmpeg("-i", WORK / "hdr-again.mkv", "-c", "copy", "-bsf:v", "hevc_mp4toannexb", raw)
    first = {p: light_of(probe(p, "frames", "-read_intervals", "%+#1")[0]) for p in (src, WORK / "hdr-out.mp4", raw)}
    check(len(first[src]) == 2 and all(x == first[src] for x in first.values()), f"in the packets: {first}")
    boxed = {p: light_of(video_of(WORK / p)) for p in ("hdr-out.mp4", "hdr-boxed.mkv", "hdr-again.mkv")}
    check(all(x == first[src] for x in boxed.values()), f"in the container: {boxed}")


def dolby(path, profile, base):
    """Writes the mp4 with a Dolby Vision configuration in its sample entry."""
    data = bytearray(path.read_bytes())
    entry = data.index(b"hvc1")
    end = entry - 4 + int.from_bytes(data[entry - 4:entry], "big")
    at = entry
    for box in b"hvc1", b"stsd", b"stbl", b"minf", b"mdia", b"trak", b"moov":
        at = data.rindex(box, 0, at + 4)
        data[at - 4:at] = (int.from_bytes(data[at - 4:at], "big") + 32).to_bytes(4, "big")
    data[end:end] = b"\0\0\0\x20dvcC\1\0" + (profile << 9 | 1 << 3 | 5).to_bytes(2, "big") + bytes([base << 4]) + bytes(19)
    out = path.with_name(f"dolby{profile}.mp4")
    out.write_bytes(data)
    return out


def test_left_out():
    """A note names each loss: transparency, rotation, Dolby Vision metadata."""
    noted(make("a.mov", "-vf", "format=yuva444p10le,colorchannelmixer=aa=0.5", "-c:v", "prores_ks", "-profile:v", "4444", seconds=0.2,
               **SMALL), WORK / "a-out.mp4", "transparent")
    noted(make("a.webm", "-vf", "format=yuva420p", "-c:v", "libvpx-vp9", "-cpu-used", "8", seconds=0.2, **SMALL), WORK / "b-out.mp4",
          "transparent")
    two = WORK / "two.mkv"
    small = make("small.mp4", *X264, seconds=0.2, **SMALL)
    ffmpeg("-i", make("large.mp4", *X264, seconds=0.2), "-i", small, "-map", "0", "-map", "1", "-c", "copy", two)
    noted(two, WORK / "two-out.mkv", "another video")
    check(len(probe(WORK / "two-out.mkv")) == 1 and video_of(WORK / "two-out.mkv")["width"] == 192, "the best of two videos")
    turned = WORK / "turned.mp4"
    ffmpeg("-i", make("flat.mp4", *X264, seconds=0.2, **SMALL), "-c", "copy", "-metadata:s:v", "rotate=270", turned)
    for name in "t-out.y4m", "t-out.avi", "t-out/":
        noted(turned, f"{WORK}/{name}", "is rotated for display")
    for name in "t-out.mp4", "t-out.mov":
        check(up(turned, WORK / name).notes == [], f"{name}: nothing is left out")
        check(video_of(WORK / name)["side_data_list"][0]["rotation"] in (90, -90, 270), f"{name}: turned")
    hevc = make("h.mp4", "-c:v", "libx265", "-x265-params", "log-level=none", "-pix_fmt", "yuv420p10le", "-tag:v", "hvc1",
                seconds=0.2)
    noted(dolby(hevc, 8, 1), WORK / "d8.mp4", "Dolby Vision metadata is left out")
    noted(dolby(hevc, 5, 0), WORK / "d5.mp4", "will be wrong")


def chapter(title, start, end):
    return f"[CHAPTER]\nTIMEBASE=1/1000\nSTART={start}\nEND={end}\ntitle={title}\n"


def chapters(path):
    return [(c["tags"]["title"], float(c["start_time"])) for c in probe(path, "chapters")]


def words(path):
    """The subtitles with their times."""
    return ffmpeg("-i", path, "-map", "0:s", "-f", "srt", "-").decode()


def test_kept():
    """Languages, defaults, titles, creation time, timecode and chapters are kept; subtitles are converted if necessary."""
    (WORK / "k.srt").write_text("1\n00:00:00,100 --> 00:00:00,500\nOne <i>word</i>\n\n2\n00:00:00,600 --> 00:00:00,900\nZwei: ü\n")
    (WORK / "k.txt").write_text(";FFMETADATA1\n" + chapter("One", 0, 500) + chapter("Two", 500, 900))
    src = WORK / "kept.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=48x32:rate=25", "-f", "lavfi", "-i", "sine=440", "-f", "lavfi", "-i", "sine=880",
           "-i", WORK / "k.srt", "-i", WORK / "k.txt", "-map", "0", "-map", "1", "-map", "2", "-map", "3", "-map_chapters", "4", "-t", 1,
           *X264, "-c:a", "pcm_s16le", "-c:s", "srt", "-metadata", "title=A ü", "-metadata", "creation_time=2021-02-03T04:05:06Z",
           "-metadata:s:v", "timecode=01:00:00:00", "-metadata:s:a:0", "language=ger", "-metadata:s:a:1", "language=fra",
           "-metadata:s:s", "language=ger", "-disposition:a:0", "0", "-disposition:a:1", "default", src)
    told = {".mkv": [], ".mov": ["(subrip) is converted to mov_text"], ".ts": 2 * ["(pcm_s16le) is left out"] + ["(subrip) is left out"]}
    for ending, want in told.items():
        notes = up(src, WORK / f"kept-out{ending}").notes
        check(len(notes) == len(want) and all(w in n for w, n in zip(want, notes)), f"{ending}: {notes}")
    up(WORK / "kept-out.mov", WORK / "kept-back.mkv", "--scale", "1")
    for out in WORK / "kept-out.mkv", WORK / "kept-out.mov", WORK / "kept-back.mkv":
        found = [(s["codec_type"], s["tags"].get("language"), s["disposition"]["default"]) for s in probe(out)[1:4]]
        check([f[:2] for f in found] == [("audio", "ger"), ("audio", "fra"), ("subtitle", "ger")] and found[0][2] < found[1][2],
              f"{out.name}: {found}")
        tags = probe(out, "format")["tags"]
        check(tags.get("title") == "A ü" and tags.get("creation_time", "").startswith("2021-02-03T04:05:06"), f"{out.name}: {tags}")
        check("01:00:00:00" in [v for k, v in video_of(out)["tags"].items() if k.lower() == "timecode"], f"{out.name}: timecode")
        check(chapters(out) == [("One", 0.0), ("Two", 0.5)], f"{out.name}: {chapters(out)}")
        check(words(out) == words(src), f"{out.name}: {words(out)}, expected {words(src)}")
    (WORK / "k.txt").write_text(";FFMETADATA1\n" + chapter("Before", 0, 9000) + chapter("Two", 10500, 10900))
    ffmpeg("-i", src, "-i", WORK / "k.txt", "-map", "0:v", "-map_chapters", "1", "-c", "copy", "-output_ts_offset", 10, WORK / "at10.mkv")
    up(WORK / "at10.mkv", WORK / "at10-out.mkv")
    check(chapters(WORK / "at10-out.mkv") == [("Two", 0.5)], f"a film that begins at 10 s: {chapters(WORK / 'at10-out.mkv')}")


def test_told_first():
    """A stream that the file cannot hold is reported before the work."""
    src = WORK / "kept.mkv"
    if not src.exists():
        test_kept()
    ffmpeg("-i", src, "-map", "0:v", "-map", "0:a", "-c:v", "copy", "-c:a", "aac", WORK / "sounds.ts")
    p = up(WORK / "sounds.ts", WORK / "sounds.flv", code=1)  # flv holds one sound stream
    check(b"cannot hold the video with its sound" in p.stderr, f"{p.stderr}")
    nothing_beside(WORK / "sounds.flv")
    check(up(WORK / "sounds.ts", WORK / "sounds-out.ts").notes == [], "sound from .ts to .ts")
    check([s["codec_name"] for s in probe(WORK / "sounds-out.ts")] == ["h264", "aac", "aac"], "sound from .ts to .ts")
    data = bytearray(WORK.joinpath("kept-out.mov").read_bytes())
    at = data.rindex(b"tmcd")
    data[at:at + 4] = b"gpmd"  # a camera's format
    (WORK / "camera.mov").write_bytes(data)
    notes = up(WORK / "camera.mov", WORK / "camera-out.mov").notes
    check(len(notes) == 1 and "gpmd" in notes[0] and "is left out: it is a data stream" in notes[0], f"data: {notes}")


def test_jumps():
    """Recordings whose clock restarts, and sounds that begin late."""
    src = WORK / "once.ts"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=48x32:rate=25", "-f", "lavfi", "-i", "sine=440", "-t", 1, *X264, "-c:a", "aac", src)
    once = src.read_bytes()
    (WORK / "twice.ts").write_bytes(once + once)
    later = WORK / "later.ts"
    ffmpeg("-i", src, "-c", "copy", "-output_ts_offset", 90000, later)
    (WORK / "gap.ts").write_bytes(once + later.read_bytes())
    for name in "twice", "gap":
        for ending in ".mkv", ".mp4", ".ts":
            out = WORK / f"{name}-out{ending}"
            check(up(WORK / f"{name}.ts", out).notes == [], f"{out.name}: notes")
            shown, heard = times(out), times(out, "a:0")
            check(len(shown) == 50 and max(b - a for a, b in zip(shown, shown[1:])) < 0.1, f"{out.name}: {shown}")
            check(abs(heard[-1] - shown[-1]) < 0.1 and max(b - a for a, b in zip(heard, heard[1:])) < 0.1, f"{out.name}: {heard}")
    (WORK / "often.ts").write_bytes(6 * once)
    up(WORK / "often.ts", WORK / "often-whole.mkv")
    stop(WORK / "often.ts", WORK / "often-out.mkv", signal.SIGKILL)
    up(WORK / "often.ts", WORK / "often-out.mkv")
    check(digest(WORK / "often-out.mkv") == digest(WORK / "often-whole.mkv"), "a run that was killed gives another file")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=48x32:rate=25", "-t", 8, *X264, WORK / "silent.ts")
    (WORK / "late.ts").write_bytes((WORK / "silent.ts").read_bytes() + later.read_bytes())
    notes = up(WORK / "late.ts", WORK / "late-out.mkv").notes
    check(len(notes) == 1 and "is left out" in notes[0], f"a sound that begins late: {notes}")
    check(len(probe(WORK / "late-out.mkv", "packets")) == 225, "a sound that begins late: frames")


if __name__ == "__main__":
    sys.exit(video_run.main(globals()))
