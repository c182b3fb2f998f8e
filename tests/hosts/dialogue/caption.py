"""caption.py FOLDER - captions and dialogues over the ABI, with a random model that the test writes into FOLDER, and with
davy-tiny-vlm if DAVY_SHARED has it. Ends `N passed, N failed`."""

import ctypes
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tiny_vlm  # noqa: E402
from caption_host import ENDLESS, Host, picture
from client import check, raises
import client
from davy import abi
from davy.abi import Result, ref


def test_model(lib, folder):
    h = Host(lib, folder)
    info = abi.ModelInfo()
    lib.check(h.api.model_info(h.model, ref(info)))
    check(info.task == abi.Task.CAPTION and info.arch == b"vlm" and b"SmolVLM" in info.variant, "model_info")
    check(info.features == abi.ModelFeature.CAPTIONS and info.context_tokens == 512, "features")
    check(info.parameters > 10000 and info.weight_bytes == 4 * info.parameters, "sizes")
    check(h.memory().host_weights_bytes == 0, "open loads nothing")
    lib.check(h.api.model_load(h.model, None, None))
    check(h.memory().host_weights_bytes > 100000, "load loads")
    lib.check(h.api.model_unload(h.model, 0))
    check(h.memory().host_weights_bytes == 0, "unload gives back")
    x = picture(20, 20, 1)
    out = abi.Tensor()
    raises(Result.E_UNSUPPORTED, lambda: lib.check(h.api.upscale(h.model, ref(x), ref(out), None, None)), "upscale")
    inspect = lib.extension("davy.inspect/1", abi.Inspect1)
    source = abi.Source(path=abi.text(str(folder / "model.safetensors")))
    desc = abi.ModelDesc(sources=ctypes.pointer(source), n_sources=1)
    t = abi.Handle()
    lib.check(inspect.describe(h.ctx, ref(desc), ref(t)))
    j = json.loads(lib.take_text(t))
    check(j["recognised"] and j["task"] == "caption" and j["family"] == "SmolVLM", f"inspect: {j}")
    h.close()
    raises(Result.E_UNSUPPORTED, lambda: Host(lib, folder, compute=abi.Dtype.F16), "F16", "F32")
    raises(Result.E_NOT_FOUND, lambda: Host(lib, folder / "no", task=abi.Task.CAPTION), "missing")
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    raises(Result.E_ARCH, lambda: Host(lib, empty, task=abi.Task.CAPTION), "empty", "config.json")
    models = pathlib.Path(os.environ["DAVY_MODELS"])
    other = Host(lib, models / "davy-live-x2.safetensors")
    raises(Result.E_UNSUPPORTED, other.dialogue, "an upscaler's dialogue", "is not a captioning model")
    other.close()


def test_turns(lib, folder, device=b"cpu"):
    """Returns the first answer."""
    h = Host(lib, folder, device, compute=abi.Dtype.F32)
    d = h.dialogue(max_tokens=12)
    raises(Result.E_STATE, lambda: h.ask(d), "nothing added")
    raises(Result.E_STATE, lambda: h.text(d), "no turn yet")
    check(lib.api.dialogue_read(d, ref(abi.TokenEvent()), 0) == Result.END, "nothing to read")
    h.ask(d, picture(40, 24, 1), b"What?")
    first = h.text(d)
    events = h.events(d)
    check(events[0][0] == abi.TokenKind.IMAGE_DONE and events[-1][0] == abi.TokenKind.END_OF_TURN, "order of events")
    check(b"".join(e[1] for e in events[1:-1]).decode() == first and len(first) > 0, f"pieces make the answer {first!r}")
    i = h.info(d)
    check(i.turns == 1 and i.generated_tokens <= 12 and i.image_tokens > 0 and i.prompt_tokens > i.image_tokens, "info")
    check(i.end == events[-1][3] and i.tokens_max == 512 and i.kv_bytes > 0 and i.tokens_used > i.prompt_tokens, "info")
    used = i.tokens_used
    h.ask(d, words=b"And then?")
    second = h.text(d)
    i = h.info(d)
    check(i.turns == 2 and i.image_tokens == 0 and i.prompt_tokens < used, "a further question costs its own tokens")
    lib.check(h.api.dialogue_rewind(d, 1))
    check(h.text(d) == first and h.info(d).tokens_used == used, "rewound")
    h.ask(d, words=b"And then?")
    check(h.text(d) == second, "again the same")
    lib.check(h.api.dialogue_rewind(d, 0))
    h.ask(d, picture(40, 24, 1), b"What?")
    check(h.text(d) == first, "from the start the same")
    raises(Result.E_INVALID, lambda: lib.check(h.api.dialogue_rewind(d, 2)), "rewind ahead", "0 to 1")
    raises(Result.E_STATE, lambda: lib.check(h.api.dialogue_add_text(d, abi.Role.SYSTEM, b"x")), "system late")
    sampled = abi.CaptionParams(temperature=0.9, seed=5, max_tokens=12)
    texts = []
    for _ in range(2):
        lib.check(h.api.dialogue_rewind(d, 0))
        h.ask(d, picture(40, 24, 1), b"What?", sampled)
        texts.append(h.text(d))
    check(texts[0] == texts[1] != first, "a seed repeats itself")
    answers = h.caption([picture(40, 24, 1), picture(30, 50, 2)], abi.CaptionParams(prompt=b"What?", max_tokens=12))
    check(answers[0] == first and answers[1] != first, f"caption {answers}")
    h.api.dialogue_release(d)
    m = h.memory()
    check((m.host_workspace_bytes if device == b"cpu" else m.device_workspace_bytes) == 0, "all given back")
    h.close()
    return first


def test_misuse(lib, folder):
    h = Host(lib, folder)
    api = h.api
    d = h.dialogue()
    for name, value in ("temperature", math.nan), ("top_p", 1.5), ("repeat_penalty", -1), ("repeat_penalty", 0.009), ("max_tokens", -1), ("max_tiles", -2):
        raises(Result.E_INVALID, lambda: h.dialogue(**{name: value}), name, name)
    raises(Result.E_INVALID, lambda: h.dialogue(context_tokens=513), "context", "512")
    raises(Result.E_INVALID, lambda: h.dialogue(prompt=b"\xff"), "prompt", "UTF-8")
    long = (ctypes.c_char_p * 1)(b"x" * 1025)
    raises(Result.E_INVALID, lambda: h.dialogue(stop=long, n_stop=1), "stop 0", "1024")
    api.dialogue_release(h.dialogue(repeat_penalty=0.01))
    bad = abi.CaptionParams()
    bad.struct_size = 12
    raises(Result.E_STRUCT, lambda: lib.check(api.dialogue_open(h.model, ref(bad), ref(abi.Handle()))), "size")
    raises(Result.E_INVALID, lambda: lib.check(api.dialogue_open(None, None, ref(abi.Handle()))), "no model")
    raises(Result.E_INVALID, lambda: lib.check(api.dialogue_add_image(d, None)), "no image")
    raises(Result.E_INVALID, lambda: lib.check(api.dialogue_add_text(d, 7, b"x")), "role", "role")
    raises(Result.E_INVALID, lambda: lib.check(api.dialogue_add_text(d, 1, None)), "no text")
    raises(Result.E_INVALID, lambda: lib.check(api.dialogue_info(None, None)), "no dialogue")
    raises(Result.E_INVALID, lambda: h.ask(d, words=b"x", run=abi.Run(tile_width=64)), "tiles")
    lib.check(api.dialogue_rewind(d, 0))
    raises(Result.E_INVALID, lambda: lib.check(api.caption(h.model, 0, None, None, None, None, None)), "caption")
    many = abi.Tensor(memory=1, dtype=abi.Dtype.U8, layout=abi.Layout.NHWC, ndim=4)
    memory = bytearray(2 * 8 * 8 * 3)
    many.data = abi.buffer_address(memory)
    many.shape[0], many.shape[1], many.shape[2], many.shape[3] = 2, 8, 8, 3
    raises(Result.E_SHAPE, lambda: lib.check(api.dialogue_add_image(d, ref(many))), "two pictures", "one picture")
    small = h.dialogue(context_tokens=40, max_tokens=500)
    raises(Result.E_CONTEXT_FULL, lambda: h.ask(small, words=b"a" * 60), "too long", "40 tokens")
    tight = h.dialogue(context_tokens=16)
    raises(Result.E_CONTEXT_FULL, lambda: h.ask(tight, image=picture(64, 48, 1)), "a picture too large", "pictures of 20 tokens after 0 tokens")
    check(not h.events(tight), "a picture that there is no room for is not looked at")
    api.dialogue_release(tight)
    check(h.info(small).turns == 0 and h.info(small).tokens_used == 0, "nothing of it stays")
    h.ask(small, words=b"a")
    i = h.info(small)
    check(i.end == abi.TurnEnd.STOP or i.tokens_used >= 39, "the answer ends with the context")
    raises(Result.E_TIMEOUT, lambda: h.ask(d, words=b"x", run=abi.Run(timeout_ns=1)), "time")
    api.dialogue_release(small)
    api.dialogue_release(d)
    api.dialogue_release(None)
    h.close()


def test_jobs(lib, folder, device=b"cpu"):
    h = Host(lib, folder, device)
    api = h.api
    d = h.dialogue(max_tokens=400)
    h.ask(d, words=b"one", params=abi.CaptionParams(max_tokens=5))
    used = h.info(d).tokens_used
    seen = []

    def on_progress(user, stage, done, total):
        seen.append((stage, done, total))
        return 0

    callback = abi.ProgressFn(on_progress)
    job, other = abi.Handle(), abi.Handle()
    h.ask(d, picture(40, 24, 3), b"two", job=ref(job), run=abi.Run(progress=callback))
    event = abi.TokenEvent()
    check(lib.check(api.dialogue_read(d, ref(event), ENDLESS)) == Result.OK, "an event")
    if api.job_wait(job, 0) == Result.PENDING:
        raises(Result.E_BUSY, lambda: h.info(d), "busy")
        raises(Result.E_BUSY, lambda: lib.check(api.dialogue_rewind(d, 0)), "busy")
    api.job_cancel(job)
    r = api.job_wait(job, ENDLESS)
    h.events(d)
    check(r in (Result.E_CANCELLED, Result.OK), f"cancelled: {r}")
    i = h.info(d)
    check(r == Result.OK or (i.turns == 1 and i.tokens_used == used), "as after the last complete turn")
    check(len(seen) > 0 and all(0 <= done <= total for _, done, total in seen), "progress")
    api.job_release(job)
    # a job that is cancelled in the queue
    e = h.dialogue(max_tokens=300)
    h.ask(e, words=b"long", job=ref(job))
    h.ask(d, words=b"three", job=ref(other))
    api.job_cancel(other)
    api.job_wait(other, ENDLESS)
    check(h.info(d).turns == i.turns, "the dialogue is free again")
    raises(Result.E_STATE, lambda: h.ask(d), "what was added is gone")
    # all objects are released while the first job runs
    api.job_release(other)
    api.dialogue_release(d)
    api.dialogue_release(e)
    out = abi.Handle()
    images = [picture(20, 20, 1), picture(30, 20, 2)]
    texts, keep = h.caption(images, abi.CaptionParams(max_tokens=4), ref(out))
    h.close()
    check(api.job_wait(out, ENDLESS) == Result.OK, "caption as a job")
    for t in texts:
        lib.take_text(ctypes.c_void_p(t))
    api.job_release(out)
    api.job_release(job)
    del keep


def test_gpu(lib, folder, expected):
    """The same conversations on a GPU; in f32 the answers equal the CPU's."""
    try:
        h = Host(lib, folder, b"cuda")
    except abi.DavyError as error:
        check(error.code == Result.E_DEVICE, f"no GPU: {error.name}")
        print(f"skipped: captions on a GPU ({error})")
        return
    lib.check(h.api.model_load(h.model, None, None))
    m = h.memory()
    check(m.device_weights_bytes > 100000 and m.host_weights_bytes < 20000, "weights are the GPU's")
    lib.check(h.api.model_unload(h.model, 0))
    check(h.memory().device_weights_bytes == 0, "unload gives back")
    h.close()
    check(test_turns(lib, folder, b"cuda") == expected, "the CPU's answer")
    test_jobs(lib, folder, b"cuda")
    for compute in abi.Dtype.BF16, abi.Dtype.F16, abi.Dtype.INT8, abi.Dtype.INT4:
        h = Host(lib, folder, b"cuda", compute=compute)
        answers = h.caption([picture(40, 24, 1)], abi.CaptionParams(prompt=b"What?", max_tokens=8))
        check(len(answers) == 1, f"{compute.name} speaks")
        h.close()
    raises(Result.E_UNSUPPORTED, lambda: Host(lib, folder, b"cuda", compute=abi.Dtype.FP8), "FP8", "F16")


def test_loading(lib, folder):
    """Loading the weights reports progress and can be cancelled."""
    seen = []

    def stop_at(done_least):
        def on_progress(user, stage, done, total):
            seen.append((stage, done, total))
            return int(done >= done_least)
        return abi.ProgressFn(on_progress)

    h = Host(lib, folder)
    never, soon = stop_at(10**9), stop_at(0)
    lib.check(h.api.model_load(h.model, ref(abi.Run(progress=never)), None))
    check(seen[-1] == (b"load", 1000, 1000) and all(a[1] <= b[1] for a, b in zip(seen, seen[1:])), f"model_load tells: {seen}")
    lib.check(h.api.model_unload(h.model, 0))
    d = h.dialogue(max_tokens=2)
    raises(Result.E_CANCELLED, lambda: h.ask(d, words=b"x", run=abi.Run(progress=soon)), "cancelled")
    check(h.memory().host_weights_bytes == 0, "a cancelled loading leaves nothing")
    seen.clear()
    h.ask(d, words=b"x", run=abi.Run(progress=never))
    check(seen[0][0] == b"load" and all(a[1] <= b[1] <= 1000 for a, b in zip(seen, seen[1:])), f"progress rises: {seen}")
    h.api.dialogue_release(d)
    h.close()


def test_gguf(lib, folder):
    """A pair of GGUF files: the mmproj is found beside the text model, or both are named."""
    pair = folder.parent / "pair"
    script = pathlib.Path(__file__).parents[2] / "golden" / "gguf_pair.py"
    made = subprocess.run([sys.executable, script, folder, pair], capture_output=True, text=True)
    if "numpy" in made.stderr:
        print("skipped: NumPy is not installed")
        return
    check(made.returncode == 0, made.stderr)
    x, texts = picture(40, 24, 1), []
    for sources in (folder,), (pair / "text.gguf",), (pair / "text.gguf", pair / "mmproj.gguf"):
        h = Host(lib, sources[0], also=sources[1:], compute=abi.Dtype.F32)
        texts += h.caption([x], abi.CaptionParams(prompt=b"What?", max_tokens=12))
        h.close()
    check(texts[0] == texts[1] == texts[2] != "", f"folder, file, two files: {texts}")


def video(frames, width, height):
    """Pictures along T; the tensor NTHWC."""
    t = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.U8, layout=abi.Layout.NTHWC, ndim=5)
    t.keep = bytearray(b"".join(bytes(f.keep) for f in frames))
    t.data = abi.buffer_address(t.keep)
    t.shape[0], t.shape[1], t.shape[2], t.shape[3], t.shape[4] = 1, len(frames), height, width, 3
    return t


def test_video(lib, folder, other):
    h = Host(lib, folder, compute=abi.Dtype.F32)
    frames = [picture(48, 32, seed) for seed in range(1, 9)]
    d = h.dialogue(max_tokens=10, context_tokens=512)

    def told(tensors, **params):
        lib.check(h.api.dialogue_rewind(d, 0))
        for t in tensors:
            lib.check(h.api.dialogue_add_image(d, ref(t)))
        h.ask(d, words=b"What?", params=abi.CaptionParams(max_tokens=10, **params))
        return h.text(d), h.info(d).image_tokens, h.info(d).prompt_tokens

    still, tokens, prompt = told([frames[0]])
    twice = told([video([frames[0]] * 2, 48, 32)])
    check(twice == (still, tokens, prompt), f"two equal frames are a still: {twice} and {still!r}, {tokens}, {prompt}")
    text, more, _ = told([video(frames, 48, 32)])
    check(more == 4 * tokens and text != still, f"eight frames are four steps of two: {more} tokens for {tokens}")
    both = told([frames[1], video(frames[:4], 48, 32), frames[2]])
    check(both[1] == 4 * tokens, f"two stills and a video of two steps: {both[1]}")
    kinds = [e[0] for e in h.events(d)]
    check(kinds.count(abi.TokenKind.IMAGE_DONE) == 3, "an event for each of them")
    fast = h.dialogue(video_fps=8.0)
    lib.check(h.api.dialogue_add_image(fast, ref(video(frames * 3, 48, 32))))
    h.ask(fast, words=b"x", params=abi.CaptionParams(max_tokens=2))
    check(h.info(fast).image_tokens == 3 * tokens, f"of 24 frames at 8 a second 6 are looked at: {h.info(fast).image_tokens}")
    small = told([video(frames, 48, 32)], max_pixels=8 * 256)
    check(small[1] < more, "max_pixels is for all frames together")
    raises(Result.E_SHAPE, lambda: h.caption([video(frames, 48, 32)]), "caption of a video", "one picture")
    for name, value in ("min_p", 1.5), ("no_repeat_ngram", -1), ("video_fps", -1.0), ("flags", 64), ("reserved1", 1):
        raises(Result.E_INVALID, lambda: h.dialogue(**{name: value}), name, name)
    published = abi.CaptionFlag.PUBLISHED
    drawn = [told([frames[0]], flags=published, seed=seed)[0] for seed in (1, 1, 2)]
    check(drawn[0] == drawn[1] != drawn[2], f"as published: sampled, {drawn}")
    check(told([frames[0]], flags=published, temperature=5.0, seed=1)[0] == drawn[0], "what the caller leaves out is as published")
    check(told([frames[0]], flags=published, top_k=1)[0] == told([frames[0]], repeat_penalty=1.3)[0], "the caller's own go first")
    once = told([frames[0]], no_repeat_ngram=1)[0]
    letters = once.replace("\ufffd", "")
    check(len(set(letters)) == len(letters), f"no letter twice: {once!r}")
    h.api.dialogue_release(fast)
    h.api.dialogue_release(d)
    check(h.memory().host_workspace_bytes == 0, "all given back")
    h.close()
    h = Host(lib, other)
    d = h.dialogue(max_tokens=5)
    h.ask(d, image=video(frames[:3], 48, 32), words=b"x")
    check(h.info(d).image_tokens > 0, "SmolVLM takes videos, too")
    h.api.dialogue_release(d)
    h.close()


def test_thoughts(lib, folder):
    """Without max_tokens a reasoning model has room for its thoughts and an answer. If max_tokens is too small, the info
    reports it, for a turn and for each of several pictures."""
    h = Host(lib, folder, compute=abi.Dtype.F32)
    for params, text, tokens, end, flags in (
        ({}, "Yes", 312, abi.TurnEnd.STOP, 0),
        ({"max_tokens": 256}, "", 256, abi.TurnEnd.LENGTH, abi.DialogueFlag.UNANSWERED),
        ({"max_tokens": 308}, "", 308, abi.TurnEnd.LENGTH, abi.DialogueFlag.UNANSWERED),
        ({"max_tokens": 309}, "Y", 309, abi.TurnEnd.LENGTH, 0),
        ({"max_tokens": 2, "flags": abi.CaptionFlag.THOUGHTS}, "t0t1", 2, abi.TurnEnd.LENGTH, 0),
    ):
        expected = [(text, tokens, end, flags)]
        told = lambda text, i: (text, i.generated_tokens, i.end, i.flags)  # noqa: E731
        d = h.dialogue(**params)
        h.ask(d, picture(20, 20, 1))
        found = [told(h.text(d), h.info(d))]
        check(found == expected, f"{params}: {found}")
        if flags:
            h.ask(d, words=b"And?", params=abi.CaptionParams())
            check(told(h.text(d), h.info(d)) == ("Yes", 312, abi.TurnEnd.STOP, 0), "the next turn has its own")
        h.api.dialogue_release(d)
        infos = []
        texts = h.caption([picture(20, 20, 1), picture(20, 20, 2)], abi.CaptionParams(**params), infos=infos)
        check([told(*x) for x in zip(texts, infos)] == 2 * expected, f"two, {params}: {texts}")
    h.close()


def test_first_token(lib, folder):
    """A further question costs only its own tokens: at most half of the first one's tokens, and a third of its time. The test
    takes medians of alternating turns, so other load on the machine affects both equally."""
    h, rounds = Host(lib, folder), 9
    d, times, tokens = h.dialogue(max_tokens=1), ([], []), [0, 0]
    image = picture(320, 240, 1)
    for _ in range(rounds):
        lib.check(h.api.dialogue_rewind(d, 0))
        for turn, words in enumerate((b"What is to be seen?", b"Where?")):
            h.ask(d, image if turn == 0 else None, words)
            i = h.info(d)
            times[turn].append(i.seconds_to_first_token)
            tokens[turn] = i.prompt_tokens
            check((i.image_tokens > 0) == (turn == 0), f"turn {turn}: {i.image_tokens} tokens of the picture")
    first, further = (statistics.median(t) for t in times)
    check(0 < 2 * tokens[1] <= tokens[0], f"tokens of the first and a further question: {tokens}")
    check(0 < 3 * further <= first, f"seconds to the first token: {first:.4f} and {further:.4f}")
    h.api.dialogue_release(d)
    h.close()


def test_trained(lib):
    shared = pathlib.Path(os.environ.get("DAVY_SHARED", ""))
    model = shared / "models" / "davy-tiny-vlm"
    if not os.environ.get("DAVY_SHARED") or not model.exists():
        print("skipped: the trained model (DAVY_SHARED)")
        return
    h = Host(lib, model)
    d = h.dialogue()
    h.ask(d, words=b"Hello")
    check(len(h.text(d)) >= 0, "the trained model speaks")
    api = h.api
    api.dialogue_release(d)
    h.close()
    test_first_token(lib, model)


def main():
    folder = tiny_vlm.write(pathlib.Path(sys.argv[1]) / "tiny")
    lib = abi.load()
    test_model(lib, folder)
    answer = test_turns(lib, folder)
    test_misuse(lib, folder)
    test_jobs(lib, folder)
    test_gpu(lib, folder, answer)
    test_loading(lib, folder)
    test_first_token(lib, folder)
    test_gguf(lib, folder)
    test_video(lib, tiny_vlm.write_qwen(pathlib.Path(sys.argv[1]) / "tiny-qwen"), folder)
    test_thoughts(lib, tiny_vlm.write_thinking(pathlib.Path(sys.argv[1]) / "tiny-thinking"))
    test_trained(lib)
    print(f"{client.passed} passed, {client.failed} failed")
    return client.failed != 0


if __name__ == "__main__":
    sys.exit(main())
