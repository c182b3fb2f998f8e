"""captions.py FOLDER - caption(n) over the ABI: its answers for many pictures equal those of a dialogue for each. With a
random model that the test writes into FOLDER, and with davy-tiny-vlm if DAVY_SHARED has it. Ends
`N passed, N failed`."""

import ctypes
import os
import pathlib
import struct
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tiny_vlm  # noqa: E402
from caption_host import ENDLESS, Host, picture
from client import check, raises
import client
from davy import abi
from davy.abi import Result, ref


def one_by_one(h, images, params):
    d, texts = h.dialogue(**params), []
    for image in images:
        h.lib.check(h.api.dialogue_rewind(d, 0))
        h.ask(d, image)
        texts.append(h.text(d))
    h.api.dialogue_release(d)
    return texts


def scenes(n):
    return [picture(20 + 13 * i % 61, 18 + 7 * i % 43, i + 1) for i in range(n)]


def test_equal(lib, folder):
    images = scenes(37)
    for compute in abi.Dtype.F32, abi.Dtype.AUTO, abi.Dtype.INT8, abi.Dtype.INT4:
        h = Host(lib, folder, compute=compute)
        for params in (
            {"prompt": b"What?", "max_tokens": 40},
            {"max_tokens": 17, "temperature": 0.8, "top_k": 50, "seed": 7, "repeat_penalty": 1.2},
            {"prompt": b"Say it.", "max_tokens": 60, "stop": (ctypes.c_char_p * 1)(b"a"), "n_stop": 1, "max_tiles": 1},
        ):
            alone = one_by_one(h, images, params)
            check(h.caption(images, abi.CaptionParams(**params)) == alone, f"{compute.name}, {params}")
            check(h.caption(images[:2], abi.CaptionParams(**params)) == alone[:2], "two")
        check(h.memory().host_workspace_bytes == 0, "all given back")
        h.close()


def test_budget(lib, folder):
    """Less and less memory: fewer pictures at once, then one by one, then an error; never more than the budget. Each answer
    equals that of a dialogue with the same memory, or with enough."""
    images = scenes(12)
    h = Host(lib, folder)
    params = {"max_tokens": 30}
    plain = h.caption(images, abi.CaptionParams(**params))
    full = h.memory().host_peak_bytes
    base = h.memory().host_weights_bytes
    step, failures = (full - base) // 24, 0
    for budget in range(full + step, base, -step):
        h.lib.check(h.api.context_budget(h.ctx, 0, budget))
        try:
            texts = h.caption(images, abi.CaptionParams(**params))
            least = one_by_one(h, images, params)
            check(all(t in two for t, *two in zip(texts, plain, least)), f"budget {budget}")
        except abi.DavyError as error:
            failures += 1
            check(error.code in (Result.E_BUDGET, Result.E_CONTEXT_FULL), f"budget {budget}: {error}")
        m = h.memory()
        used = m.host_weights_bytes + m.host_workspace_bytes
        check(used <= budget and m.host_workspace_bytes == 0, f"budget {budget}, used {used}")
    check(0 < failures < 20, f"{failures} budgets were too small")
    h.close()


def test_shorter(lib, folder):
    """Less and less memory for one dialogue: a smaller picture, then a shorter cache if the picture does not fit beside it.
    The flags report both. A requested context is not shortened."""
    h = Host(lib, folder)
    tall = picture(64, 64, 3)
    found, least = [], None

    def told(**params):
        d = h.dialogue(max_tokens=8, **params)
        try:
            h.ask(d, tall, b"What?")
            h.ask(d, words=b"And?")
            return h.info(d)
        finally:
            h.api.dialogue_release(d)

    whole = told()
    check(whole.flags == 0 and whole.tokens_max == 8192, f"enough of it: {whole.flags}, {whole.tokens_max}")
    base, full = h.memory().host_weights_bytes, h.memory().host_peak_bytes
    for budget in range(full, base, -((full - base) // 96)):
        h.lib.check(h.api.context_budget(h.ctx, 0, budget))
        try:
            i = told()
            short = bool(i.flags & abi.DialogueFlag.SHORTER)
            check(short == (i.tokens_max < 8192), f"{budget}: {i.flags}, {i.tokens_max} tokens")
            check(i.turns == 2 and i.image_tokens == 0, "two answers")
            found.append((i.tokens_max, budget))
            least = budget
        except abi.DavyError as error:
            check(error.code == Result.E_BUDGET and i.tokens_max <= 1024, f"{budget}: {error} after {i.tokens_max} tokens")
            break
    sizes = [n for n, _ in found]
    check(sizes == sorted(sizes, reverse=True) and set(sizes) == {8192, 4096, 2048, 1024}, f"cache after cache: {sorted(set(sizes))}")
    h.lib.check(h.api.context_budget(h.ctx, 0, least))
    raises(Result.E_BUDGET, lambda: told(context_tokens=8192), "the context that was asked for")
    check(h.memory().host_workspace_bytes == 0, "all given back")
    h.close()


def test_end(lib, folder):
    """Cancel, timeout, a question that does not fit: all answers or none, and soon."""
    images = scenes(20)
    h = Host(lib, folder)
    seen = []
    out = (ctypes.c_void_p * len(images))()
    tensors = (ctypes.POINTER(abi.Tensor) * len(images))(*[ctypes.pointer(i) for i in images])
    p = abi.CaptionParams(max_tokens=60)

    def run(how, n=len(images), given=p):
        return lib.check(h.api.caption(h.model, n, tensors, ref(given), ref(how), None, out))

    run(abi.Run(progress=abi.ProgressFn(lambda user, stage, done, total: seen.append((stage, done, total)) or 0)))
    parts = [done for _, done, _ in seen]
    check(parts == sorted(parts) and parts[-1] == seen[-1][2] == 20000, f"progress {parts}")
    check({stage for stage, _, _ in seen} <= {b"load", b"look", b"read", b"answer"}, "stages")
    for i in range(len(images)):
        lib.take_text(ctypes.c_void_p(out[i]))
        out[i] = None
    job = abi.Handle()
    lib.check(h.api.caption(h.model, len(images), tensors, ref(abi.CaptionParams(max_tokens=400)), None, ref(job), out))
    h.api.job_cancel(job)
    r = h.api.job_wait(job, ENDLESS)
    check(r == Result.E_CANCELLED and not any(out), f"a cancelled job: {r}")
    h.api.job_release(job)
    raises(Result.E_TIMEOUT, lambda: run(abi.Run(timeout_ns=2_000_000), given=abi.CaptionParams(max_tokens=400)), "time")
    long = abi.CaptionParams(prompt=b"a" * 600, max_tokens=4)
    raises(Result.E_CONTEXT_FULL, lambda: run(abi.Run(), given=long), "a question that is too long", "picture 1 of 20")
    check(not any(out), "out is untouched")
    check(h.memory().host_workspace_bytes == 0, "all given back")
    h.close()


def test_info(lib, folder):
    """The info of each answer equals that of a dialogue with the same answer."""
    images = scenes(9)
    h = Host(lib, folder)
    params = {"prompt": b"What?", "max_tokens": 12}
    d, infos = h.dialogue(**params), []
    for image in images:
        h.lib.check(h.api.dialogue_rewind(d, 0))
        h.ask(d, image)
        infos.append(h.info(d))
    names = ("turns", "tokens_used", "prompt_tokens", "image_tokens", "generated_tokens", "end", "flags")
    for n in 1, 2, len(images):
        out = (ctypes.c_void_p * n)()
        tensors = (ctypes.POINTER(abi.Tensor) * n)(*[ctypes.pointer(i) for i in images[:n]])
        lib.check(h.api.caption(h.model, n, tensors, ref(abi.CaptionParams(**params)), None, None, out))
        for i in range(n):
            found = abi.DialogueInfo()
            lib.check(h.api.caption_info(out[i], ref(found)))
            numbers = [[getattr(x, m) for m in names] for x in (found, infos[i])]
            check(numbers[0] == numbers[1], f"picture {i} of {n}: {numbers}")
            check(found.seconds_to_first_token > 0 and found.tokens_per_second > 0 and found.kv_bytes > 0, "times, memory")
            lib.take_text(ctypes.c_void_p(out[i]))
    text = abi.Handle()
    lib.check(h.api.dialogue_text(d, ref(text)))
    raises(Result.E_UNSUPPORTED, lambda: lib.check(h.api.caption_info(text, ref(abi.DialogueInfo()))), "another text")
    raises(Result.E_INVALID, lambda: lib.check(h.api.caption_info(None, ref(abi.DialogueInfo()))), "no text")
    lib.take_text(text)
    h.api.dialogue_release(d)
    h.close()


def test_partial(lib, folder):
    """With PARTIAL, a cancelled call returns the finished answers."""
    images = scenes(24)
    h = Host(lib, folder)
    params = {"max_tokens": 30}
    plain = h.caption(images, abi.CaptionParams(**params))
    tensors = (ctypes.POINTER(abi.Tensor) * len(images))(*[ctypes.pointer(i) for i in images])
    for flags in 0, abi.CaptionFlag.PARTIAL:
        out = (ctypes.c_void_p * len(images))()
        how = abi.Run(progress=abi.ProgressFn(lambda user, stage, done, total: done > total // 2))
        given = abi.CaptionParams(flags=flags, **params)
        call = lambda: lib.check(h.api.caption(h.model, len(images), tensors, ref(given), ref(how), None, out))
        raises(Result.E_CANCELLED, call, "cancelled")
        done = [o is not None for o in out]
        check(any(done) if flags else not any(done), f"flags {flags}: {sum(done)} texts")
        texts = [lib.take_text(ctypes.c_void_p(o)) if o else p for o, p in zip(out, plain)]
        check(texts == plain, "what is there is right")
    both = abi.CaptionParams(flags=abi.CaptionFlag.LOOKUP | abi.CaptionFlag.NO_LOOKUP)
    raises(Result.E_INVALID, lambda: h.caption(images, both), "looked up and not")
    looked_up = h.caption(images[:1], abi.CaptionParams(flags=abi.CaptionFlag.LOOKUP, **params))
    check(looked_up == plain[:1], "looked up")
    check(h.memory().host_workspace_bytes == 0, "all given back")
    h.close()


def read_png(path):
    """8-bit RGB, not interlaced."""
    data, at, idat = path.read_bytes(), 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IHDR":
            width, height = struct.unpack(">II", data[at + 8 : at + 16])
        idat += data[at + 8 : at + 8 + n] if kind == b"IDAT" else b""
        at += n + 12
    raw, rows, above = zlib.decompress(idat), [], bytearray(3 * width)
    for y in range(height):
        kind, row = raw[y * (3 * width + 1)], bytearray(raw[y * (3 * width + 1) + 1 : (y + 1) * (3 * width + 1)])
        for x in range(3 * width):
            a, b, c = (row[x - 3], above[x], above[x - 3]) if x >= 3 else (0, above[x], 0)
            nearest = min((a, b, c), key=lambda v: abs(a + b - c - v))
            row[x] = (row[x] + (0, a, b, (a + b) // 2, nearest)[kind]) & 255
        rows.append(row)
        above = row
    return width, height, rows


def tensor(width, height, rows):
    memory = bytearray(b"".join(bytes(r) for r in rows))
    t = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3)
    t.data = abi.buffer_address(memory)
    t.shape[0], t.shape[1], t.shape[2] = height, width, 3
    t.keep = memory
    return t


def test_trained(lib):
    shared = os.environ.get("DAVY_SHARED", "")
    model = pathlib.Path(shared) / "models" / "davy-tiny-vlm"
    cases = sorted((pathlib.Path(shared) / "golden" / "davy-tiny-vlm").glob("case*.png"))
    if not shared or not model.exists() or not cases:
        print("skipped: the trained model (DAVY_SHARED)")
        return
    images = []
    for path in cases:
        width, height, rows = read_png(path)
        mirrored = [bytearray(b"".join(bytes(r[3 * x : 3 * x + 3]) for x in reversed(range(width)))) for r in rows]
        images += [tensor(width, height, rows), tensor(width, height, mirrored), tensor(width, height, rows[::-1])]
    questions = {"max_tokens": 64}, {"prompt": b"What is at the top left?", "max_tiles": 1}
    for compute in abi.Dtype.F32, abi.Dtype.AUTO, abi.Dtype.INT8:
        h = Host(lib, model, compute=compute)
        for params in questions if compute == abi.Dtype.AUTO else questions[1:]:
            alone = one_by_one(h, images, params)
            together = h.caption(images, abi.CaptionParams(**params))
            check(together == alone, f"{len(images)} scenes, {compute.name}, {params}")
            check(len(set(alone)) > 1, f"they say {set(alone)}")
        h.close()


def main():
    folder = tiny_vlm.write(pathlib.Path(sys.argv[1]) / "tiny-many")
    lib = abi.load()
    test_equal(lib, folder)
    test_budget(lib, folder)
    test_shorter(lib, tiny_vlm.write(pathlib.Path(sys.argv[1]) / "tiny-long", 8192))
    test_end(lib, folder)
    test_info(lib, folder)
    test_partial(lib, folder)
    test_trained(lib)
    print(f"{client.passed} passed, {client.failed} failed")
    return client.failed != 0


if __name__ == "__main__":
    sys.exit(main())
