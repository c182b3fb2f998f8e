"""davy caption as a user runs it: pictures, folders, videos, groups, saved and resumed answers. See cli_run.py.

Arguments: names of tests to run instead of all; --small does not time anything (sanitizers). Ends with "N passed, N failed, N skipped".
"""
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time

import cli_run
import tiny_vlm
from cli_run import DAVY, QUICK, SHARED, SMALL, SOURCE, WORK, check, has_device_code, leftovers, run, skip


def test_caption():
    """A model with random weights: its answers are nonsense, but the same each time."""
    model = tiny_vlm.write(WORK / "tiny-vlm")
    cat, tiny, out = SMALL / "png_interlaced.png", SMALL / "tiny_3x2.png", WORK / "captions.jsonl"
    say = ("caption", cat, "--model", model, "--max-tokens", "9")
    text = run(*say).stdout
    check(run(*say).stdout == text and len(text) > 1, f"the same caption: {text!r}")
    j = json.loads(run(*say, "--ask", "And?", "--ask", "Then?", "--json").stdout)
    check(j["file"] == str(cat) and j["text"] + "\n" == text and j["generated_tokens"] <= 9, f"--json: {j}")
    check(j["prompt_tokens"] > j["image_tokens"] > 0 and j["seconds_to_first_token"] > 0 and j["tokens_per_second"] >= 0, "numbers")
    check([t["question"] for t in j["turns"]] == ["And?", "Then?"] and j["turns"][0]["image_tokens"] == 0, "turns")
    whole = json.loads(run(*say, "--max-tiles", "1", "--json").stdout)
    check(whole["image_tokens"] < j["image_tokens"], "--max-tiles 1: no tiles")
    drawn = [run(*say, "--temperature", "1.5", "--seed", n).stdout for n in (1, 1, 2)]
    check(drawn[0] == drawn[1] != drawn[2], "--seed")
    check(run(*say, "--temperature", "1.5", "--min-p", "1").stdout == text, "--min-p 1: the likeliest")
    check(run(*say, "--no-repeat", "1").stdout != text and run(*say, "--published", "--thoughts").stdout == text, "--no-repeat, --published")
    check(run(*say, "--temperature", "0.0").stdout == text, "--temperature 0.0")
    for stops in (("--stop", text[2:4]), ("--stop=" + text[2:4], "--stop", "never said")):
        j = json.loads(run(*say, *stops, "--json").stdout)
        check(j["text"] == text[:text.index(text[2:4])] and j["end"] == "stop", f"{stops}: {j['text']!r} of {text!r}")
    check(run(*say, "--repeat-penalty", "1").stdout == text != run(*say, "--repeat-penalty", "20").stdout, "--repeat-penalty")
    wide = json.loads(run(*say, "--json").stdout)
    p = run(*say, "--context", wide["prompt_tokens"] - 1, code=1)
    check(str(wide["prompt_tokens"] - 1) in p.stderr, f"--context too small names it: {p.stderr!r}")
    short = json.loads(run(*say, "--context", wide["prompt_tokens"] + 4, "--json").stdout)
    check(short["end"] == "length" and short["generated_tokens"] < wide["generated_tokens"] == 9, f"--context: {short}")
    run(*say, "--context", "100000", code=1)
    album = WORK / "caption-album"
    album.mkdir()
    for name in ("png_interlaced.png", "photo_lossy.webp"):
        shutil.copy(SMALL / name, album / name)
    (album / "notes.txt").write_text("not a picture")
    p = run("caption", album, tiny, "--model", model, "--max-tokens", "5", "--out", out)
    lines = [json.loads(l) for l in out.read_text().splitlines()]
    check(len(lines) == 3 and p.stdout == "" and "notes.txt" in p.stderr, "a folder and a file, --out")
    alone = [json.loads(run("caption", l["file"], "--model", model, "--max-tokens", "5", "--json").stdout) for l in lines]
    same = [[(j["text"], j["prompt_tokens"], j["image_tokens"], j["generated_tokens"], j["end"]) for j in js] for js in (lines, alone)]
    check(same[0] == same[1], f"several at once say what each says alone: {same}")
    check(all(l["seconds_to_first_token"] > 0 and l["tokens_per_second"] > 0 for l in lines), "times of several")
    check(run("caption", tiny, album, "--model", model, "--max-tokens", "5", "--quiet").stdout.count(": ") >= 3, "names of many")
    (album / "broken.png").write_bytes((SMALL / "png_palette.png").read_bytes()[:900])
    p = subprocess.run([DAVY, "caption", album, "--model", model, "--out", out, "--again", "--quiet"], capture_output=True, text=True)
    check(p.returncode == 1 and "1 of 3" in p.stderr and len(out.read_text().splitlines()) == 2, f"a broken one: {p.stderr!r}")
    check(not leftovers(WORK), "nothing half-written")
    run("caption", WORK / "none.png", "--model", model, code=1)
    run("caption", cat, "--model", WORK / "none", code=1)
    run("caption", cat, "--model", album, code=1)
    run(*say, "--precision", "fp16", code=1)
    p = run(*say, "--memory", "20K", code=1)
    check("budget" in p.stderr, f"--memory: {p.stderr!r}")
    p = run("caption", cat, "--model", model, "--prompt", "word " * 700, code=1)
    check("512" in p.stderr, f"a full context names its limit: {p.stderr!r}")
    for precision in ("fp32", "bf16", "int8", "int4"):
        check(json.loads(run(*say, "--precision", precision, "--json").stdout)["precision"] == precision, precision)
    info = json.loads(run("inspect", model, "--json").stdout)
    check(info["task"] == "caption" and info["family"] == "SmolVLM", f"inspect: {info}")


def test_caption_thoughts():
    """A reasoning model finishes its answer by default. With too few tokens the picture fails, and the next run tries it again."""
    model, out, tiny = tiny_vlm.write_thinking(WORK / "tiny-thinking"), WORK / "thoughts.jsonl", SMALL / "tiny_3x2.png"
    album = WORK / "thoughts-album"
    album.mkdir()
    for name in "a.png", "b.png":
        shutil.copy(tiny, album / name)
    say = ("caption", tiny, "--model", model)
    check(run(*say).stdout == "Yes\n", "an answer behind 300 thoughts")
    check(run(*say, "--thoughts", "--max-tokens", "2").stdout == "t0t1\n", "--thoughts")
    p = run(*say, "--max-tokens", "40", "--json", code=1)
    check(p.stdout == "" and all(x in p.stderr for x in ("tiny_3x2.png", "40 tokens", "--max-tokens", "--thoughts")), f"{p.stderr!r}")
    many = ("caption", album, "--model", model, "--out", out)
    p = subprocess.run([DAVY, *map(str, many), "--max-tokens", "40", "--sidecar"], capture_output=True, text=True)
    check(p.returncode == 1 and "a.png" in p.stderr and "b.png" in p.stderr and "2 of 2" in p.stderr and not list(album.glob("*.txt")), f"two: {p.stderr!r}")
    run(*many)
    check([json.loads(l)["text"] for l in out.read_text().splitlines()] == ["Yes", "Yes"], "more tokens try them again")


def test_caption_resume():
    """A run continues where the last one stopped: after a kill, with other questions, with unrelated files."""
    model, album, out = tiny_vlm.write(WORK / "tiny-vlm"), WORK / "resume-album", WORK / "resume.jsonl"
    album.mkdir()
    for i, name in enumerate(("png_interlaced.png", "tiny_3x2.png", "photo_lossy.webp")):
        shutil.copy(SMALL / name, album / f"{i}{pathlib.Path(name).suffix}")
    say = ("caption", album, "--model", model, "--max-tokens", "5", "--out", out)
    run(*say)
    first = out.read_text()
    p = run(*say)
    check(out.read_text() == first and "3 of 3" in p.stderr, f"nothing is done twice: {p.stderr!r}")
    lines = first.splitlines(keepends=True)
    out.write_text(lines[0] + lines[1][:25])
    run(*say)
    again = [json.loads(l) for l in out.read_text().splitlines()]
    check(out.read_text().startswith(lines[0]) and [l["text"] for l in again] == [json.loads(l)["text"] for l in lines], "after a cut line")
    run(*say, "--prompt", "What?")
    run(*say, "--ask", "And?")
    run(*say, "--prompt", "What?")
    check(len(out.read_text().splitlines()) == 9, "other questions are other answers")
    run(*say, "--again")
    check(len(out.read_text().splitlines()) == 3, "--again")
    for content in ("not JSON\n", "{}\n", "12", '["file"]\n'):
        (WORK / "other.jsonl").write_text(content)
        p = run("caption", album, "--model", model, "--out", WORK / "other.jsonl", code=1)
        check((WORK / "other.jsonl").read_text() == content and "not changed" in p.stderr, f"an unrelated file: {p.stderr!r}")
    run("caption", album, "--model", model, "--max-tokens", "5", "--out", out, "--sidecar")
    texts = [(album / f"{i}.txt").read_text() for i in range(3)]
    check(texts == [json.loads(l)["text"] + "\n" for l in out.read_text().splitlines()], "--sidecar, from the existing lines")
    (album / "1.txt").unlink()
    (album / "2.txt").write_text("kept")
    p = run("caption", album, "--model", model, "--max-tokens", "5", "--sidecar")
    check((album / "1.txt").read_text() == texts[1] and (album / "2.txt").read_text() == "kept" and p.stdout == "", "--sidecar alone")
    shutil.copy(SMALL / "tiny_3x2.png", album / "0.webp.png")
    shutil.copy(SMALL / "png_interlaced.png", album / "2.png")
    say = [DAVY, "caption", album, "--model", model, "--max-tokens", "5", "--sidecar", "--again"]
    p = subprocess.run(say, capture_output=True, text=True)
    check(p.returncode == 1 and "another picture" in p.stderr and (album / "0.webp.txt").exists(), f"two pictures, one text: {p.stderr!r}")
    check(not leftovers(WORK) and not leftovers(album), "nothing half-written")


def test_caption_shared():
    """Two processes with one file; a disk that is full for a while; names that are not UTF-8."""
    model, album, out = tiny_vlm.write(WORK / "tiny-vlm"), WORK / "shared-album", WORK / "shared.jsonl"
    album.mkdir()
    for i in range(12):
        shutil.copy(SMALL / "tiny_3x2.png", os.fsencode(album) + b"/caf\xe9-%02d.png" % i)
    say = [str(DAVY), "caption", str(album), "--model", str(model), "--max-tokens", "90", "--ask", "And?", "--out", str(out), "--quiet"]

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))

    p = subprocess.Popen(say, stderr=subprocess.PIPE, text=True, preexec_fn=limit)
    first = p.stderr.readline()
    p.send_signal(signal.SIGSTOP)
    check("cannot be written: File too large" in first, f"no room: {first!r}")
    second = subprocess.run(say, capture_output=True, text=True)
    check(second.returncode == 1 and "another davy" in second.stderr, f"a second one: {second.returncode}, {second.stderr!r}")
    resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    p.send_signal(signal.SIGCONT)
    error = p.communicate()[1]
    lines = [json.loads(l) for l in out.read_bytes().decode().splitlines()]
    check(p.returncode == 1 and 0 < len(lines) < 12 and len(error.splitlines()) < 11, f"room again: {len(lines)} lines, {error!r}")
    check(all("/caf\u00e9-" in j["file"] for j in lines), f"names: {[j['file'] for j in lines]}")
    run(*say[1:])
    check(len({json.loads(l)["file"] for l in out.read_text().splitlines()}) == 12 == len(out.read_text().splitlines()), "the rest")
    out.unlink()
    run("caption", WORK / "none.png", *say[3:], code=1)
    check(not out.exists(), "no answer, no file")


def test_caption_stopped():
    """The finished answers of an interrupted call with several pictures are saved, and the next run continues after them."""
    model, album, out = tiny_vlm.write(WORK / "tiny-vlm"), WORK / "stopped-album", WORK / "stopped.jsonl"
    album.mkdir()
    cat = shutil.copy(SMALL / "png_interlaced.png", WORK / "stopped.png")
    for i in range(160):
        os.link(cat, album / f"{i:03}.png")
    say = [DAVY, "caption", album, "--model", model, "--max-tokens", "250", "--out", out, "--threads", "1"]
    p = subprocess.Popen([*map(str, say)], stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    error = p.communicate()[1]
    lines = out.read_text().splitlines() if out.exists() else []
    if p.returncode == 0 or not lines:
        skip(f"stopped too late or too early: {len(lines)} lines, {p.returncode}")
    else:
        check(len(lines) < 160 and len({json.loads(l)["file"] for l in lines}) == len(lines), f"{len(lines)} lines, {error!r}")
    run(*say[1:], "--quiet")
    done = [json.loads(l) for l in out.read_text().splitlines()]
    check([l for l in out.read_text().splitlines()][: len(lines)] == lines and len({j["file"] for j in done}) == len(done) == 160, "the rest")


def test_caption_lookup():
    """Prompt lookup changes no answer on the CPU."""
    say = ("caption", SMALL / "png_interlaced.png", "--model", tiny_vlm.write(WORK / "tiny-vlm"), "--max-tokens", "90")
    texts = [run(*say, *more).stdout for more in ((), ("--lookup",), ("--no-lookup",))]
    check(texts[0] == texts[1] == texts[2], f"--lookup: {texts}")
    run(*say, "--lookup", "--no-lookup", code=1)


def test_caption_video():
    """A folder of frames as one video has other tokens than its pictures."""
    model, frames = tiny_vlm.write_qwen(WORK / "tiny-qwen"), WORK / "frames"
    frames.mkdir()
    for i in range(12):
        shutil.copy(SMALL / "png_palette.png", frames / f"{i:02}.png")
    say = ("caption", frames, "--model", model, "--max-tokens", "5", "--json")
    lines = [json.loads(l) for l in run(*say, "--video").stdout.splitlines()]
    still = [json.loads(l) for l in run(*say).stdout.splitlines()]
    check(len(lines) == 1 and lines[0]["file"] == str(frames) and len(still) == 12, f"one line for a video: {lines}")
    check(lines[0]["image_tokens"] > still[0]["image_tokens"], "a video's tokens")
    slow = json.loads(run(*say, "--video", "--video-fps", "4").stdout)
    check(slow["image_tokens"] < lines[0]["image_tokens"], "--video-fps 4: the model looks at every other frame")
    shutil.copy(SMALL / "tiny_3x2.png", frames / "99.png")
    p = run(*say, "--video", code=1)
    check("99.png" in p.stderr, f"frames of two sizes: {p.stderr!r}")
    for i in range(12):
        (frames / f"{i:02}.png").unlink()
    run(*say, "--video", code=1)
    if not shutil.which("ffmpeg"):
        return skip("ffmpeg")
    clip = WORK / "clip.mp4"
    subprocess.run(["ffmpeg", "-loglevel", "error", "-y", "-f", "lavfi", "-i", "testsrc=size=64x48:rate=10:duration=3", clip], check=True)
    p = subprocess.run([DAVY, "caption", clip, "--model", model, "--max-tokens", "5", "--json"], capture_output=True, text=True)
    if "davy-video.so" in p.stderr:
        return skip(p.stderr)
    check(p.returncode == 0 and json.loads(p.stdout)["image_tokens"] > 0, f"a video file: {p.stderr!r}")
    subprocess.run(["ffmpeg", "-loglevel", "error", "-y", "-i", clip, "-c", "copy", WORK / "clip.ts"], check=True)
    again = json.loads(run("caption", WORK / "clip.ts", "--model", model, "--max-tokens", "5", "--json").stdout)
    check(again["image_tokens"] == json.loads(p.stdout)["image_tokens"], "a video format that only the name shows")


def test_caption_gguf():
    """The same weights in a folder and in a pair of GGUF files give the same answers."""
    album = [SMALL / "png_interlaced.png", SMALL / "photo_lossy.webp"]
    for name, write in ("smol", tiny_vlm.write), ("qwen", tiny_vlm.write_qwen):
        folder, pair = write(WORK / f"gguf-{name}"), WORK / f"gguf-{name}-pair"
        made = subprocess.run([sys.executable, SOURCE / "tests/golden/gguf_pair.py", folder, pair], capture_output=True, text=True)
        check(made.returncode == 0, f"gguf_pair: {made.stderr}")
        say = ("--max-tokens", "12", "--precision", "fp32", "--prompt", "What?", "--ask", "And?", "--json", "--quiet")
        answers = []
        for model in ((folder,), (pair / "text.gguf",), (pair / "text.gguf", "--model", pair / "mmproj.gguf")):
            lines = [json.loads(l) for l in run("caption", *album, "--model", *model, *say).stdout.splitlines()]
            answers.append([(j["text"], j["turns"][0]["text"], j["prompt_tokens"], j["image_tokens"]) for j in lines])
        check(answers[0] == answers[1] == answers[2] and len(answers[0]) == 2, f"{name}: {answers}")
    (pair / "mmproj.gguf").unlink()
    p = run("caption", album[0], "--model", pair / "text.gguf", code=1)
    check("takes no pictures" in p.stderr, f"without its mmproj: {p.stderr!r}")


def test_caption_gpu():
    """Without a driver, --device cuda fails and auto uses the CPU."""
    env = {**os.environ, "DAVY_CUDA_DRIVER": str(WORK / "no-driver"), "DAVY_DEVICE": "auto"}
    say = ("caption", SMALL / "png_interlaced.png", "--model", tiny_vlm.write(WORK / "tiny-vlm"), "--max-tokens", "9")
    p = run(*say, "--device", "cuda", env=env, code=1)
    check("driver" in p.stderr, f"--device cuda: {p.stderr!r}")
    p, q = run(*say, env=env), run(*say, "--device", "cpu")
    check(p.stdout == q.stdout and len(p.stdout) > 1, f"auto: {p.stdout!r}")
    if "DAVY_MOCK_CUDA" not in os.environ:
        return skip("the driver that computes nothing")
    if not has_device_code("hosts.cli_caption: GPUs"):
        return
    album = WORK / "gpu-album"
    album.mkdir()
    for i in range(9):
        shutil.copy(SMALL / "tiny_3x2.png", album / f"{i}.png")
    env["DAVY_CUDA_DRIVER"] = os.environ["DAVY_MOCK_CUDA"]
    for device in "cuda", "cuda:0,cuda:1":  # checks the number of answers, not their words
        say = ("caption", album, "--model", WORK / "tiny-vlm", "--max-tokens", "9", "--json", "--device", device)
        lines = [json.loads(l) for l in run(*say, env=env).stdout.splitlines()]
        check(len(lines) == 9 and all(l["generated_tokens"] == 9 for l in lines), f"{device}: {lines}")


def test_caption_trained():
    """The held-out scenes of the small trained model, with further questions."""
    folder, model = SHARED / "golden/davy-tiny-vlm", SHARED / "models/davy-tiny-vlm"
    if not (folder / "cases.json").exists() or not model.exists():
        return skip("davy-tiny-vlm")
    for case in json.loads((folder / "cases.json").read_text())["cases"]:
        words = [p["text"] for m in case["messages"] if m["role"] == "user" for p in m["content"] if p["type"] == "text"]
        more = [x for q in words[1:] for x in ("--ask", q)] + ([] if case["do_image_splitting"] else ["--max-tiles", "1"])
        j = json.loads(run("caption", folder / case["image"], "--model", model, "--json", "--prompt", words[0], *more).stdout)
        text = j["turns"][-1]["text"] if "turns" in j else j["text"]
        check(text == case["text"], f"{case['id']}: {text!r}, expected {case['text']!r}")


def test_caption_second():
    """A caption with the small trained model takes under a second of CPU time, and on an idle computer under a second by the
    clock."""
    picture, model = SHARED / "golden/davy-tiny-vlm/case00.png", SHARED / "models/davy-tiny-vlm"
    if not picture.exists() or not model.exists():
        return skip("davy-tiny-vlm")
    if QUICK:
        return skip("seconds of a program that sanitizers slow down")
    worked, took = [], []
    for _ in range(5):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        run("caption", picture, "--model", model, "--quiet")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        worked.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        took.append(time.monotonic() - start)
    idle = os.getloadavg()[0] < 0.5 * os.cpu_count()
    check(statistics.median(worked) < 1, f"seconds of processor time: {worked}")
    check(not idle or min(took) < 1, f"seconds: {took}")


if __name__ == "__main__":
    sys.exit(cli_run.main(globals()))
