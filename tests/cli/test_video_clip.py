"""davy encode and decode of clips: frames, rate and sound, pipes and folders, short memory. See video_run.py.

Arguments: names of tests to run instead of all. Ends with "N passed, N failed, N skipped".
"""
import json
import pathlib
import subprocess
import sys

import numpy as np

import video_run
from cli_run import DAVY, SOURCE, WORK, check
from video_run import EXACT, davy, ffmpeg, nothing_beside, pictures, probe, psnr
import tiny_vlm


def latents(path):
    """(the tensor, the metadata of the file)"""
    data = pathlib.Path(path).read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    at = header["latent"]["data_offsets"]
    found = np.frombuffer(data[8 + n + at[0]:8 + n + at[1]], np.float32).reshape(header["latent"]["shape"])
    return found, header.get("__metadata__", {})


def store(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def taehv():
    made = WORK / "taehv"
    if not made.exists():
        subprocess.run([sys.executable, SOURCE / "tests/golden/weights.py", SOURCE / "tests/golden/cases/taehv", made],
                       check=True, stdout=subprocess.DEVNULL)
    return "--model", made / "model.safetensors"


def cut_in_pieces(frames):
    """Ten frames with a model that takes 5 or 22: five are left out, with a note."""
    made = WORK / "taeh3"
    subprocess.run([sys.executable, SOURCE / "tests/golden/weights.py", SOURCE / "tests/golden/cases/taeh3", made],
                   check=True, stdout=subprocess.DEVNULL)
    vae = ("--model", made / "model.safetensors")
    said = davy("encode", frames, "-o", WORK / "h.safetensors", *vae).stderr
    got, about = latents(WORK / "h.safetensors")
    check(got.shape == (1, 24, 2, 4, 6) and about == {"frames": "10"}, f"latents {got.shape}, {about}")
    check(b"the last 5 of 10 frames are left out" in said, f"of frames without latents: {said}")
    said = davy("decode", WORK / "h.safetensors", "-o", f"{WORK}/h-out/", *vae).stderr
    check(len(pictures(WORK / "h-out/%06d.png", (96, 64))) == 5 and b"the last" not in said, f"five frames: {said}")


def test_latents():
    """A clip to latents and back. A file, a pipe and a folder give the same latents; frames, rate and sound are kept."""
    vae = taehv()
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
    davy("decode", WORK / "l.safetensors", "-o", src, "--audio", src, *vae, code=1)
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
    cut_in_pieces(frames)
    davy("decode", WORK / "l.safetensors", "-o", WORK / "l-no.png", *vae, code=1)
    davy("encode", src, "-o", WORK / "l-no.safetensors", *vae, "--raw", WORK / "l-no.raw", code=2)
    davy("encode", WORK / "nothing.mp4", "-o", WORK / "l-no.safetensors", *vae, code=1)
    for rate, asked, said in (("10", ("--fps", 120), b"F120:1 "), ("1e-99", (), b"F24:1 "), ("30/1", (), b"F24:1 "),
                              ("nan", (), b"F24:1 ")):
        store(WORK / "l-rate.safetensors", {"latent": {"dtype": "F32", "shape": got.shape, "data_offsets": [0, got.nbytes]},
                                            "__metadata__": {"fps": rate}}, got.tobytes())
        y4m = davy("decode", WORK / "l-rate.safetensors", "-o", "-", "--frames", 1, *asked, *vae).stdout
        check(said in y4m[:60], f"{rate} frames a second, {asked}: {y4m[:60]}")
    for header in ([1], [], [{"dtype": "F32"}], None, "latent", {}, {"latent": []}, {"a": {}, "b": {}}):
        store(WORK / "l-odd.safetensors", header, bytes(64))
        davy("decode", WORK / "l-odd.safetensors", "-o", WORK / "l-no.png", *vae, code=1)
    nothing_beside(WORK / "l-no.safetensors")
    nothing_beside(WORK / "l-no.png")


def rotated(src, out, matrix):
    """Writes the mp4 with another display matrix in its track header."""
    data = bytearray(src.read_bytes())
    at = data.find(b"tkhd") + 44
    data[at:at + 36] = b"".join((round(v * 65536) & 0xffffffff).to_bytes(4, "big") for v in matrix[:2]) + bytes(4) + \
        b"".join((round(v * 65536) & 0xffffffff).to_bytes(4, "big") for v in matrix[2:]) + bytes(12) + (1 << 30).to_bytes(4, "big")
    out.write_bytes(data)


def test_turned():
    """A rotated video is encoded as it is displayed. Its result, with its sound, is not rotated again."""
    vae = taehv()
    stored = WORK / "t.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc=size=96x64:rate=10", "-t", "0.2", "-c:v", "libx264rgb", "-qp", "0", stored)
    for name, matrix in (("90", (0, 1, -1, 0)), ("180", (-1, 0, 0, -1)), ("270", (0, -1, 1, 0)), ("mirrored", (-1, 0, 0, 1))):
        src, frames = WORK / f"t-{name}.mp4", WORK / f"t-{name}"
        rotated(stored, src, matrix)
        frames.mkdir()
        ffmpeg("-i", src, frames / "%06d.png")  # ffmpeg rotates by default
        davy("encode", src, "-o", WORK / "t.safetensors", *vae)
        davy("encode", frames, "-o", WORK / "t-folder.safetensors", *vae)
        got, want = latents(WORK / "t.safetensors")[0], latents(WORK / "t-folder.safetensors")[0]
        check(got.shape == want.shape and np.array_equal(got, want), f"{name}: latents {got.shape}, {want.shape}")
    davy("decode", WORK / "t.safetensors", "-o", WORK / "t-back.mp4", "--audio", WORK / "t-90.mp4", "--codec", "libx264", *vae)
    (video,) = probe(WORK / "t-back.mp4", "streams")
    check(not video.get("side_data_list"), f"turned again: {video.get('side_data_list')}")


def test_turned_caption():
    """A model sees a rotated video as it is displayed: the answer equals that about the frames that ffmpeg has rotated."""
    model, stored = tiny_vlm.write_qwen(WORK / "tiny-qwen"), WORK / "c.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc=size=96x64:rate=10", "-t", "0.4", "-c:v", "libx264rgb", "-qp", "0", stored)
    said = []
    for name, matrix in (("stored", (1, 0, 0, 1)), ("90", (0, 1, -1, 0)), ("180", (-1, 0, 0, -1)), ("mirrored", (-1, 0, 0, 1))):
        src, frames = WORK / f"c-{name}.mp4", WORK / f"c-{name}"
        rotated(stored, src, matrix)
        frames.mkdir()
        ffmpeg("-i", src, frames / "%06d.png")
        asked = ("--model", model, "--video-fps", "10", "--max-tokens", "12", "--json")
        file, folder = (json.loads(davy("caption", *of, *asked).stdout) for of in ((src,), (frames, "--video")))
        check(file["text"] == folder["text"] and file["image_tokens"] == folder["image_tokens"] > 0, f"{name}: {file}, {folder}")
        said.append(file["text"])
    check(len(set(said)) == 4, f"the way it is turned says nothing: {said}")


def test_folder_of_sizes():
    """A picture of another size among the frames is an error."""
    vae = taehv()
    frames = WORK / "f"
    frames.mkdir()
    for i, size in enumerate(("32x32", "64x48", "35x32")):
        ffmpeg("-f", "lavfi", "-i", f"testsrc=size={size}", "-frames:v", "1", frames / f"{i}.png")
    encode = lambda code, *more: davy("encode", frames, "-o", WORK / "f.safetensors", *vae, *more, code=code).stderr  # noqa: E731
    check(b"frame 2 is 64x48" in encode(1) and b"frame 2 is 64x48" in encode(1, "--crop"), "the larger one")
    (frames / "1.png").unlink()
    check(b"frame 2 is 35x32" in encode(1), "without --crop")
    encode(0, "--crop")
    ffmpeg("-f", "lavfi", "-i", "testsrc=size=32x32", "-frames:v", "1", "-pix_fmt", "rgb48be", frames / "3.png")
    check(b"with 16 bits" in encode(1, "--crop"), "more bits")


def test_short_of_memory():
    """With less and less memory, davy decodes a clip in tiles, whose result is near that of whole frames, and then fails."""
    made = WORK / "wan"
    subprocess.run([sys.executable, SOURCE / "tests/golden/weights.py", SOURCE / "tests/golden/cases/wan2_1", made],
                   check=True, stdout=subprocess.DEVNULL)
    latent = np.random.default_rng(4).standard_normal((1, 4, 3, 7, 8)).astype(np.float32).repeat(4, 3).repeat(4, 4)
    about = {"latent": {"dtype": "F32", "shape": latent.shape, "data_offsets": [0, latent.nbytes]}}
    store(WORK / "s.safetensors", about, latent.tobytes())
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


if __name__ == "__main__":
    sys.exit(video_run.main(globals()))
