"""Wrong command lines, bad files, full disks and closed streams: davy prints one line of error. See cli_run.py.

Arguments: names of tests to run instead of all. Ends with "N passed, N failed, N skipped".
"""
import json
import os
import shutil
import subprocess
import sys

import cli_run
from cli_run import DAVY, SHARED, SMALL, SOURCE, WORK, check, leftovers, run


def test_usage():
    p = run("--help")
    check("upscale" in p.stdout and p.stderr == "", "--help")
    for command in ("devices", "inspect", "upscale", "encode", "decode", "caption", "bench"):
        check("usage: davy " + command in run(command, "--help").stdout, f"{command} --help")
    check(run("--version").stdout.startswith("davy 1."), "--version")
    for bad in ([], ["fly"], ["upscale"], ["upscale", "a"], ["upscale", "a", "-o"], ["upscale", "a", "-o", "b", "--scale", "0"],
                ["upscale", "a", "-o", "b", "--precision", "fp7"], ["devices", "x"], ["upscale", "a", "-o", "b", "--sample"],
                *(["decode", "a", "-o", "b", "--model", "m", "--fps", rate] for rate in ("0", "-3", "1e-9", "20000", "nan", "x")),
                ["bench", "upscale-compact-64"], ["bench", "fly-compact-64-fp32"], ["encode", "a", "-o", "b"],
                ["encode", "a", "-o", "b", "--model", "m", "--decoder", "software"],
                ["caption", "--model", "m"], ["caption", "a"], ["caption", "a", "--model", "m", "--top-p", "2"],
                *(["caption", "a", "--model", "m", "--repeat-penalty", x] for x in ("0", "0.009", "-1", "101", "nan", "1,1", "")),
                *(["caption", "a", "--model", "m", "--context", x] for x in ("0", "-1", "1.5", "2147483648", "x")),
                *(["caption", "a", "--model", "m", "--temperature", x] for x in ("-1", "101", "nan", "")),
                ["caption", "a", "--model", "m", "--stop", ""], ["caption", "a", "--model", "m", "--stop"],
                ["caption", "a", "--model", "m"] + ["--stop", "x"] * 65, ["upscale", "a", "-o", "b", "--stop", "x"],
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
    src = shutil.copy(cat, WORK / "src.png")
    for args in (["encode", src, "-o", src, "--model", "m"], ["upscale", src, "-o", out, "--raw", src],
                 ["decode", src, "-o", out, "--model", "m", "--raw", src], ["upscale", src, "-o", out, "--raw", out]):
        p = run(*args, code=2)
        check("file" in p.stderr and src.read_bytes() == cat.read_bytes(), f"the input stays: {p.stderr!r}")
    p = run("upscale", src, "-o", out, "--raw", "-", cwd=WORK, code=1)
    check("standard output" in p.stderr and not (WORK / "-").exists(), f"--raw -: {p.stderr!r}")
    src.unlink()
    (WORK / "clip.y4m").write_bytes(b"YUV4MPEG2 W16 H16 F30:1\n")
    p = run("upscale", WORK / "clip.y4m", "-o", WORK / "clip-out.y4m", code=1)
    check("video" in p.stderr, "a video without frames is refused")
    for brand in "avif", "mif1", "heic":
        (WORK / "still.avif").write_bytes(b"\0\0\0\x1cftyp" + brand.encode() + bytes(32))
        p = run("upscale", WORK / "still.avif", "-o", out, code=1)
        check("which davy" in p.stderr and "does not read" in p.stderr, f"{brand}: {p.stderr}")
    check(not out.exists() and not leftovers(WORK), "an error left a file")


def test_streams():
    """Standard streams that are full or closed: lost output is an error, and no message is written into a picture."""
    def closed():
        for fd in (0, 1, 2):
            os.close(fd)

    with open("/dev/full", "w") as full:
        for args in (["--help"], ["upscale", "--help"], ["--version"], ["devices"], ["bench", "upscale-live2-64x36-fp32"]):
            p = subprocess.run([DAVY, *args], stdout=full, stderr=subprocess.PIPE, text=True)
            check(p.returncode == 1 and "standard output" in p.stderr, f"{args[0]} into a full disk: {p.returncode} {p.stderr!r}")
    # the note that 16 bits become 8 goes to stderr, which is closed
    subprocess.run([DAVY, "upscale", SMALL / "rgb16_tagged.png", "-o", WORK / "closed.jpg"], preexec_fn=closed)
    run("upscale", SMALL / "rgb16_tagged.png", "-o", WORK / "open.jpg")
    check((WORK / "closed.jpg").read_bytes() == (WORK / "open.jpg").read_bytes(), "closed streams change the picture")


def test_devices_for_files():
    """Pipes and devices in place of files are refused or skipped. davy never waits for them."""
    src, pipe = WORK / "odd", WORK / "odd/pipe.png"
    src.mkdir()
    os.mkfifo(pipe)
    (src / "endless.webp").symlink_to("/dev/zero")
    shutil.copy(SMALL / "tiny_3x2.png", src)
    p = run("upscale", src, "-o", WORK / "odd-out", "--scale", "1")
    check(p.stderr.count("is skipped: a pipe or a device") == 2, f"pipes in a folder: {p.stderr!r}")
    check([x.name for x in (WORK / "odd-out").iterdir()] == ["tiny_3x2.png"], "the picture beside them is done")
    decoder = SHARED / "models/tae/taef2_decoder.safetensors"
    if decoder.is_file():
        p = run("decode", pipe, "-o", WORK / "no.png", "--model", decoder, code=1)
        check("pipe" in p.stderr, f"latents from a pipe: {p.stderr!r}")


def test_control_characters():
    """Texts from a file and names cannot control the terminal or forge a line. An error is printed once."""
    model = (SOURCE / "packaging/models/davy-live-x2.safetensors").read_bytes()
    n = int.from_bytes(model[:8], "little")
    header = json.loads(model[8:8 + n])
    header["__metadata__"] |= {"title": "\x1b[2Jgone\x07", "author": "a\nscale 9", "license": "\x9b31m"}
    text = json.dumps(header).encode()
    (WORK / "title.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + model[8 + n:])
    shown = run("inspect", WORK / "title.safetensors").stdout
    check("gone" in shown and "a scale 9" in shown and not set(shown) & {"\x1b", "\x07", "\x9b"}, f"inspect: {shown!r}")
    p = run("inspect", WORK / "a\x1b[31m\nb.pth", code=1)
    check("\x1b" not in p.stderr, f"a name: {p.stderr!r}")
    p = run("upscale", SMALL / "tiny_3x2.png", "-o", WORK / "no.png", "--tile", "1", code=1)
    check(len(p.stderr.splitlines()) == 1, f"printed once: {p.stderr!r}")


if __name__ == "__main__":
    sys.exit(cli_run.main(globals()))
