#!/usr/bin/env python3
"""Compares captions of many pictures at once, and answers with token look-up, with those of single pictures. It is meant for a
device that rounds several rows differently from one row. It uses accuracy.py's scenes and davy-tiny-vlm, and asks every
question in each way.

    DAVY_LIBRARY=... python3 tests/golden/together.py [DEVICE [SCENES [PRECISION...]]]

Ends `N passed, N failed`. Needs NumPy."""
import os
import pathlib
import random
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "hosts"), str(HERE.parent / "hosts/dialogue"), str(HERE.parents[1] / "plugins/comfy")]

from accuracy import draw, scene  # noqa: E402
from caption_host import Host  # noqa: E402
from davy import abi  # noqa: E402

QUESTIONS = ["Describe the image.", "How many circles are there?"]
PRECISIONS = {"fp32": abi.Dtype.F32, "bf16": abi.Dtype.BF16, "fp16": abi.Dtype.F16, "int8": abi.Dtype.INT8, "int4": abi.Dtype.INT4}


def picture(pixels):
    t = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3)
    t.keep = bytearray(pixels.tobytes())
    t.data = abi.buffer_address(t.keep)
    t.shape[0], t.shape[1], t.shape[2] = pixels.shape
    return t


def alone(h, images, **params):
    d, texts = h.dialogue(**params), []
    for image in images:
        h.lib.check(h.api.dialogue_rewind(d, 0))
        h.ask(d, image)
        texts.append(h.text(d))
    h.api.dialogue_release(d)
    return texts


def ways(h, images, params):
    """The expected answers, then the answers of each way."""
    plain = alone(h, images, flags=abi.CaptionFlag.NO_LOOKUP, **params)
    yield "alone", plain, plain
    yield "looked up", alone(h, images, flags=abi.CaptionFlag.LOOKUP, **params), plain
    for width in 8, 16, len(images):
        texts = []
        for at in range(0, len(images), width):
            texts += h.caption(images[at : at + width], abi.CaptionParams(**params))
        yield f"{width} a call", texts, plain


def main(device="cuda", scenes="250", *precisions):
    model = pathlib.Path(os.environ.get("DAVY_SHARED", HERE.parents[2] / "shared")) / "models" / "davy-tiny-vlm"
    if not model.exists():
        print("skipped: davy-tiny-vlm\n0 passed, 0 failed, 1 skipped")
        return 0
    rng = random.Random(1)
    images = [picture(draw(*scene(rng))) for _ in range(int(scenes))]
    lib, failed, passed = abi.load(), 0, 0
    for name in precisions or PRECISIONS:
        h = Host(lib, model, device.encode(), threads=0, compute=PRECISIONS[name])
        for question in QUESTIONS:
            params, begin = {"prompt": question.encode(), "max_tiles": 1, "max_tokens": 96}, time.time()
            for way, texts, plain in ways(h, images, params):
                others = sum(a != b for a, b in zip(texts, plain))
                passed, failed = passed + (others == 0), failed + (others > 0)
                print(f"{name}, {question} {way}: {others} of {len(plain)} differ, {time.time() - begin:.2f} s", flush=True)
                begin = time.time()
        h.close()
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
