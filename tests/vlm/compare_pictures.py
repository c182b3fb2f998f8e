#!/usr/bin/env python3
"""compare_pictures.py PROBE [SECONDS] - compares the library's picture preparation, bit for bit, with Pillow (resampling,
alpha) and with transformers' processors and their stored results (patches). If a module cannot be imported, its tests are
skipped with a message."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import zlib

passed = failed = 0


def check(ok, what):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print("FAIL", what, file=sys.stderr)


try:
    import numpy as np
except ImportError:
    print("skipped: no NumPy\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)
try:
    from PIL import Image
    from PIL import __version__ as pillow
except ImportError:
    Image = None

PROBE = sys.argv[1]
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 10
SHARED = pathlib.Path(os.environ.get("DAVY_SHARED", "../shared"))
IMAGES = SHARED / "images"
skipped = []


def probe(args, data):
    done = subprocess.run([PROBE, *map(str, args)], input=data, capture_output=True)
    return done.stdout if done.returncode == 0 else None


def compare_pillow():
    old = tuple(int(v) for v in pillow.split(".")[:2]) < (12, 3)  # resizes very tall pictures differently
    rnd = random.Random(7)
    noise = np.random.default_rng(7)
    end = time.time() + SECONDS

    def side():
        return rnd.randint(1, rnd.choice([9, 60, 300, 1200, 4000]))

    while time.time() < end:
        w, h, to_w, to_h = side(), side(), side(), side()
        to_w, to_h = rnd.choice([(to_w, to_h)] * 6 + [(w, to_h), (to_w, h)])
        if w * h > 2e6 or to_w * to_h > 2e6 or (old and h > 100 * w):
            continue
        a = noise.integers(0, 256, (h, w, 3), dtype=np.uint8)
        if rnd.random() < 0.3:
            a = (a > 127).astype(np.uint8) * 255
        kind = rnd.randint(1, 5)
        box = ()
        if rnd.random() < 0.2:
            x, y = np.float32(rnd.random() * w / 2), np.float32(rnd.random() * h / 2)
            box = tuple(float(v) for v in (x, y, np.float32(x + w / 2.5), np.float32(y + h / 2.5)))
        want = np.asarray(Image.fromarray(a).resize((to_w, to_h), kind, box=box or None))
        got = probe(["resize", kind, w, h, to_w, to_h, *map(repr, box)], a.tobytes())
        check(got == want.tobytes(), f"filter {kind}, {w}x{h} to {to_w}x{to_h}, box {box}")
    alpha = noise.integers(0, 256, (256, 256, 4), dtype=np.uint8)
    alpha[:, :, 3] = np.arange(256)
    alpha[:, :, 0] = np.arange(256)[:, None]
    white = Image.new("RGBA", (256, 256), (255, 255, 255))
    want = np.asarray(Image.alpha_composite(white, Image.fromarray(alpha)).convert("RGB"))
    check(probe(["white", 256, 256], alpha.tobytes()) == want.tobytes(), "RGBA over white")


TEXT = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=2,
            vocab_size=512)


def tower(family, size=0, patch=0):
    """A config.json of the family, with a tower of two layers."""
    vit = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, image_size=size,
               patch_size=patch)
    qwen = dict(depth=2, num_heads=2, patch_size=patch, fullatt_block_indexes=[1], deepstack_visual_indexes=[0])
    if family == "idefics3":
        return dict(model_type=family, text_config=dict(TEXT, model_type="llama"), vision_config=vit, scale_factor=1)
    if family in ("clip", "siglip"):
        return dict(model_type="llava", text_config=dict(TEXT, model_type="llama"),
                    vision_feature_select_strategy="full", vision_config=dict(vit, model_type=f"{family}_vision_model"))
    width = dict(embed_dim=64, hidden_size=64) if family == "qwen2_vl" else dict(hidden_size=64, out_hidden_size=64)
    rope = dict(type="mrope", mrope_section=[4, 6, 6])
    return dict(TEXT, model_type=family, head_dim=32, rope_scaling=rope, vision_config=dict(qwen, **width))


def prepare(folder, picture, tiles=0):
    """The probe's patches [n, values]; None: it failed."""
    got = probe(["prepare", folder, picture.shape[1], picture.shape[0], 0, 0, tiles], picture.tobytes())
    if got is None:
        return None
    line, _, rest = got.partition(b"\n")
    numbers = [int(v) for v in line.split()]
    return np.frombuffer(rest, np.float32).reshape(numbers[6], numbers[7])


def same(got, want, what):
    ok = got is not None and got.shape == want.shape
    worst = np.abs(got - want).max() if ok else "the probe failed" if got is None else (got.shape, want.shape)
    check(ok and np.array_equal(got, want), f"{what}: {worst}")


def tiles_of(values, patch):
    """pixel_values [n, 3, s, s] as patches [n * g * g, 3 * patch * patch]."""
    n, _, h, w = values.shape
    g, v = h // patch, w // patch
    cut = values[:, :, : g * patch, : v * patch].reshape(n, 3, g, patch, v, patch)
    return np.ascontiguousarray(cut.transpose(0, 2, 4, 1, 3, 5)).reshape(n * g * v, 3 * patch * patch)


def cases():
    """name, config.json, preprocessor's arguments, its class, picture -> patches."""
    import transformers

    def find(name):
        return getattr(transformers, name + "Pil", None) or getattr(transformers, name)

    def fixed(patch):
        return lambda p, a: tiles_of(np.stack(p(Image.fromarray(a), return_tensors="np")["pixel_values"]), patch)

    def split(patch):
        return lambda p, a: tiles_of(p([[Image.fromarray(a)]], return_tensors="np")["pixel_values"][0], patch)

    def qwen(p, a):
        return p(Image.fromarray(a), return_tensors="np")["pixel_values"]

    half = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)
    for tile, patch, most in ((512, 16, 2048), (384, 14, 1536), (256, 16, 512)):
        for on in (True, False):
            args = dict(size=dict(longest_edge=most), max_image_size=dict(longest_edge=tile), do_image_splitting=on,
                        resample=1, **half)
            yield (f"tiles of {tile}, {'split' if on else 'whole'}", tower("idefics3", tile, patch), args,
                   find("Idefics3ImageProcessor"), split(patch))
    for low, high in ((3136, 12845056), (3136, 1003520), (200704, 501760)):
        args = dict(min_pixels=low, max_pixels=high)
        yield f"Qwen2 {low}..{high}", tower("qwen2_vl", 0, 14), args, find("Qwen2VLImageProcessor"), qwen
    args = dict(size=dict(shortest_edge=65536, longest_edge=4194304), min_pixels=65536, max_pixels=4194304,
                patch_size=16, **half)
    yield "Qwen3", tower("qwen3_vl", 0, 16), args, find("Qwen2VLImageProcessor"), qwen
    args = dict(size=dict(shortest_edge=336), crop_size=dict(height=336, width=336))
    yield "CLIP", tower("clip", 336, 14), args, find("CLIPImageProcessor"), fixed(14)
    args = dict(size=dict(height=384, width=384), resample=3, **half)
    yield "SigLIP", tower("siglip", 384, 14), args, find("SiglipImageProcessor"), fixed(14)
    if hasattr(transformers, "LlavaImageProcessor"):
        args = dict(size=dict(shortest_edge=336), crop_size=dict(height=336, width=336), do_pad=True)
        yield "LLaVA, padded", tower("clip", 336, 14), args, find("LlavaImageProcessor"), fixed(14)


def pictures():
    noise = np.random.default_rng(3)
    for w, h in ((640, 480), (70, 98), (20, 20), (7, 5), (1200, 300), (300, 1200), (33, 501), (513, 512)):
        yield f"noise {w}x{h}", noise.integers(0, 256, (h, w, 3), dtype=np.uint8)
    for name in ("photo_cat.png", "text_ui.png", "photo_kitten.jpg", "grey_camera.png"):
        if (IMAGES / name).exists():
            yield name, np.asarray(Image.open(IMAGES / name).convert("RGB"))


def compare_transformers():
    for name, config, args, cls, run in cases():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "config.json").write_text(json.dumps(config))
            kind = dict(image_processor_type=cls.__name__)
            (root / "preprocessor_config.json").write_text(json.dumps(dict(args, **kind)))
            processor = cls(**args)
            for what, a in pictures():
                want = np.asarray(run(processor, np.ascontiguousarray(a)), np.float32)
                same(prepare(folder, a), want, f"{name}, {what}")


def read_png(path):
    """An 8-bit RGB picture, not interlaced."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if kind == b"IHDR":
            w, h = (int.from_bytes(data[at + 8 + i : at + 12 + i], "big") for i in (0, 4))
            assert data[at + 16 : at + 21] == b"\x08\x02\x00\x00\x00", path
        packed += data[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(h, 1 + 3 * w)
    out = np.zeros((h + 1, 3 * w + 3), np.int64)  # a row above and a pixel on the left, both zero
    for y in range(h):
        up, line, kind = out[y], out[y + 1], rows[y, 0]
        for x in range(3, 3 * w + 3):
            a, b, c = line[x - 3], up[x], up[x - 3]
            near = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            line[x] = (int(rows[y, x - 2]) + (0, a, b, (a + b) // 2, near)[kind]) % 256
    return np.ascontiguousarray(out[1:, 3:].astype(np.uint8).reshape(h, w, 3))


def compare_golden():
    """Compares with davy-tiny-vlm's stored pixel_values, or with stored sums."""
    golden, model = SHARED / "golden" / "davy-tiny-vlm", SHARED / "models" / "davy-tiny-vlm"
    if not (golden.exists() and model.exists()):
        skipped.append("no davy-tiny-vlm")
        return
    stages = (golden / "stages.safetensors").read_bytes()
    size = int.from_bytes(stages[:8], "little")
    header = json.loads(stages[8 : 8 + size])
    for case in json.loads((golden / "cases.json").read_text())["cases"]:
        picture = read_png(golden / case["image"])
        got = prepare(model, picture, 0 if case["do_image_splitting"] else 1)
        total = np.abs(got).sum(dtype=np.float64) if got is not None else 0
        check(abs(total - case["pixel_abs_sum"]) < 1e-6 * total, f"{case['id']}: {total}, not {case['pixel_abs_sum']}")
        stored = header.get(case["id"] + ".pixel_values")
        if stored:
            begin, end = stored["data_offsets"]
            values = np.frombuffer(stages[8 + size + begin : 8 + size + end], np.float32).reshape(stored["shape"])
            same(got, tiles_of(values[0], 16), f"{case['id']}, stored pixels")


compare_golden()
if Image is None:
    skipped.append("no Pillow")
elif int(pillow.split(".")[0]) >= 13:
    skipped.append(f"Pillow {pillow} orders its passes anew")
else:
    compare_pillow()
    try:
        import transformers  # noqa: F401
    except ImportError:
        skipped.append("no transformers")
    else:
        compare_transformers()
for why in skipped:
    print("skipped:", why)
print(f"{passed} passed, {failed} failed" + (f", {len(skipped)} skipped" if skipped else ""))
sys.exit(failed != 0)
