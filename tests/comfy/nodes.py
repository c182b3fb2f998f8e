"""Tests the node pack without ComfyUI and without torch: fake_host.py replaces both with NumPy. Needs only the library.

    python3 nodes.py WORK_FOLDER

Schemas of both APIs, every node, interrupts, progress, memory, errors, follow-ups, sidecars. Ends `N passed, N failed`."""

import importlib.util
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import time
import weakref

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "hosts"), str(HERE)]
sys.dont_write_bytecode = True
import card  # noqa: E402
import checks  # noqa: E402
import fake_host  # noqa: E402
import flux2  # noqa: E402
import shipped  # noqa: E402
import stale  # noqa: E402
import taehv  # noqa: E402
import tiny_vlm  # noqa: E402
from checks import check, sentence  # noqa: E402
from fake_host import BFLOAT16, FLOAT16, Bar, Tensor, to_bf16  # noqa: E402

GOLDEN = fake_host.ROOT / "tests/golden"


def safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    kinds = {"F32": np.float32, "F16": np.float16}
    header = {k: v for k, v in json.loads(raw[8 : 8 + size]).items() if k != "__metadata__"}
    at = {k: [8 + size + o for o in v["data_offsets"]] for k, v in header.items()}
    return {k: np.frombuffer(raw[slice(*at[k])], kinds[v["dtype"]]).reshape(v["shape"]) for k, v in header.items()}


def distance(a, b):
    return np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b)


def node(pack, id, **inputs):
    """The outputs of a V1 class. Missing inputs get their defaults."""
    made = pack.NODE_CLASS_MAPPINGS[id]
    groups = made.INPUT_TYPES()
    for name, (kind, options) in (groups["required"] | groups["optional"]).items():
        if "default" in options:
            inputs.setdefault(name, options["default"])
        elif name not in inputs and isinstance(kind, list):
            inputs[name] = kind[0]
    if made.INPUT_IS_LIST:
        inputs = {k: v if isinstance(v, list) else [v] for k, v in inputs.items()}
    result = getattr(made(), made.FUNCTION)(**inputs)
    return result["result"] if isinstance(result, dict) else result


def image(n=1, h=21, w=34, c=3, seed=1):
    return Tensor(np.random.default_rng(seed).random((n, h, w, c), np.float32))


def folder(base):
    """Writes the models of the golden cases, and a made-up captioning model."""
    shutil.rmtree(base, ignore_errors=True)
    for name in "taesd", "taef1":
        out = base / "made" / name
        out.mkdir(parents=True)
        make = [sys.executable, GOLDEN / "weights.py", GOLDEN / "cases" / name, out]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        (base / "models/vae_approx").mkdir(parents=True, exist_ok=True)
        for half in "encoder", "decoder":
            shutil.move(out / f"{half}.safetensors", base / f"models/vae_approx/{name}_{half}.safetensors")
    shutil.copy(base / "models/vae_approx/taesd_decoder.safetensors", base / "models/vae_approx/half_decoder.safetensors")
    for name in "taehv", "taeh3":  # and TAEHV's weights by two other names
        (base / "made" / name).mkdir()
        make = [sys.executable, GOLDEN / "weights.py", GOLDEN / "cases" / name, base / "made" / name]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        shutil.move(base / "made" / name / "model.safetensors", base / f"models/vae_approx/{name}.safetensors")
    for name in "taew2_1", "lighttaew2_1":
        (base / f"models/vae_approx/{name}.safetensors").symlink_to("taehv.safetensors")
    flux2.write(base / "models/vae")
    (base / "models/upscale_models").mkdir()
    (base / "models/upscale_models/broken.safetensors").write_bytes(b"nothing of any use")
    shutil.copy(fake_host.ROOT / "packaging/models/davy-live-x2.safetensors", base / "models/upscale_models/mine.safetensors")
    tiny_vlm.write(base / "models/LLM/made-up/tiny")
    (base / "input").mkdir()


# ---- nodes ----------------------------------------------------------------------------------------------------------------


def test_vae(pack, base):
    for name, scale, shift in ("taesd", 0.18215, 0.0), ("taef1", 0.3611, 0.1159):
        case = safetensors(GOLDEN / f"cases/{name}/expected.safetensors")
        given = safetensors(base / f"made/{name}/inputs.safetensors")
        (vae,) = node(pack, "DavyVAELoader", vae_name=name)
        latent = Tensor((given["latent"] / np.float32(scale) + np.float32(shift)).astype(np.float32))
        (got,) = node(pack, "DavyVAEDecode", vae=vae, samples={"samples": latent, "batch_index": [0]})
        want = np.moveaxis(case["decoded"].clip(0, 1), 1, -1)
        check(got.shape == want.shape and distance(got.array, want) < 1e-4, f"{name} decode")
    (vae,) = node(pack, "DavyVAELoader", vae_name="taesd")
    pixels = image(2, 53, 70)
    before = Tensor.made
    latent = node(pack, "DavyVAEEncode", vae=vae, pixels=pixels)[0]["samples"]
    check(Tensor.made == before + 1, "encoding made more than its result")
    check(latent.shape == (2, 4, 6, 8), f"{latent.shape}")
    cut = Tensor(np.ascontiguousarray(pixels.array[:, 2:50, 3:67]))
    same = node(pack, "DavyVAEEncode", vae=vae, pixels=cut)[0]["samples"]
    check(np.array_equal(latent.array, same.array), "the crop is not the middle")
    turned = Tensor(np.moveaxis(np.ascontiguousarray(np.moveaxis(cut.array, -1, 1)), 1, -1))
    check(np.array_equal(node(pack, "DavyVAEEncode", vae=vae, pixels=turned)[0]["samples"].array, same.array), "strides")
    alpha = Tensor(np.concatenate([cut.array, np.zeros_like(cut.array[..., :1])], -1))
    check(np.array_equal(node(pack, "DavyVAEEncode", vae=vae, pixels=alpha)[0]["samples"].array, same.array), "alpha")
    for dtype, array in (FLOAT16, cut.array.astype(np.float16)), (BFLOAT16, to_bf16(cut.array)):
        off = distance(node(pack, "DavyVAEEncode", vae=vae, pixels=Tensor(array, dtype))[0]["samples"].array, same.array)
        check(off < (2e-3 if dtype is FLOAT16 else 2e-2), f"{dtype}: {off}")
    moving = Tensor(np.stack([same.array, same.array[::-1]], 2))
    (frames,) = node(pack, "DavyVAEDecode", vae=vae, samples={"samples": moving})
    (stills,) = node(pack, "DavyVAEDecode", vae=vae, samples={"samples": same})
    check(frames.shape == (4, 48, 64, 3) and np.array_equal(frames.array[[0, 3]], stills.array[[0, 0]]), "5 axes")
    sentence(lambda: node(pack, "DavyVAEEncode", vae=vae, pixels=pixels, sample=True), "turn sample off")
    sentence(lambda: node(pack, "DavyVAEEncode", vae=vae, pixels=image(1, 5, 70)), "70x5", "too small")
    sentence(lambda: node(pack, "DavyVAEDecode", vae=vae, samples={"samples": image(1, 9, 4, 4)}), "4 channels", "9")
    (half,) = node(pack, "DavyVAELoader", vae_name="half")
    sentence(lambda: node(pack, "DavyVAEEncode", vae=half, pixels=pixels), "half_decoder", "cannot encode")
    flux2.run(pack, node, safetensors, base / "models/vae")


def test_video(pack, base):
    case = safetensors(GOLDEN / "cases/taehv/expected.safetensors")
    own = safetensors(base / "made/taehv/inputs.safetensors")["latent"]  # HunyuanVideo's; a LATENT has them divided by its scale
    given = own / taehv.HUNYUAN
    (vae,) = node(pack, "DavyVAELoader", vae_name="taehv.safetensors")
    (frames,) = node(pack, "DavyVideoVAEDecode", vae=vae, samples={"samples": Tensor(given), "type": "video"})
    want = np.moveaxis(case["decoded"].clip(0, 1), 1, -1).reshape(-1, *frames.shape[1:])
    check(frames.shape == want.shape and distance(frames.array, want) < 1e-4, f"video decode: {frames.shape} {want.shape}")
    (some,) = node(pack, "DavyVideoVAEDecode", vae=vae, samples={"samples": Tensor(given)}, frames=5)
    check(np.array_equal(some.array, frames.array[:5]), "video decode: the first frames")
    (one,) = node(pack, "DavyVideoVAEDecode", vae=vae, samples={"samples": Tensor(given[:, :, 0])})
    check(one.shape[0] == 1 and distance(one.array, want[:1]) < 1e-4, "video decode: one latent")
    stills = node(pack, "DavyVAEEncode", vae=vae, pixels=frames[:2])[0]["samples"]
    check(stills.shape == (2, 16, 1, *given.shape[3:]), f"pictures by a VAE of videos have an axis of time: {stills.shape}")
    check(node(pack, "DavyVAEDecode", vae=vae, samples={"samples": stills})[0].shape == frames[:2].shape, "and come back")
    encode = lambda n, **more: node(pack, "DavyVideoVAEEncode", vae=vae, pixels=frames[:n], **more)[0]["samples"].array  # noqa: E731
    check(encode(9).shape == (1, 16, 3, *given.shape[3:]), f"video encode: {encode(9).shape}")
    check(np.array_equal(encode(9, cut=True), encode(8)) and encode(3, cut=True).shape[2] == 1, "video encode: cut")
    check(distance(encode(8)[:, :, :1], encode(4)) < 1e-5, "video encode: later frames say nothing of earlier ones")
    taehv.run(pack, node, own, frames)
    (pieces,) = node(pack, "DavyVAELoader", vae_name="taeh3.safetensors")
    long = Tensor(np.resize(np.pad(frames.array, ((0, 0), (0, 8), (0, 0), (0, 0))), (24, 32, 32, 3)))
    short = Tensor(long.array[:20])
    kept, cut = (node(pack, "DavyVideoVAEEncode", vae=pieces, pixels=long, cut=c)[0]["samples"].array for c in (False, True))
    check(cut.shape[2] == 7 and np.array_equal(kept, cut), f"pieces of 24 frames: {kept.shape} {cut.shape}")
    kept, cut = (node(pack, "DavyVideoVAEEncode", vae=pieces, pixels=short, cut=c)[0]["samples"].array for c in (False, True))
    check(kept.shape[2] == 7 and cut.shape[2] == 2 and np.array_equal(kept[:, :, :2], cut), f"pieces of 20: {kept.shape} {cut.shape}")
    full = Tensor(frames.array[[0, 1, 2, 3, 4, 5, 5, 5]])
    same = node(pack, "DavyVideoVAEEncode", vae=vae, pixels=full)[0]["samples"].array
    check(np.array_equal(encode(6), same), "video encode: the last frame is repeated")
    wide = Tensor(np.pad(frames.array, ((0, 0), (3, 4), (2, 3), (0, 0))))
    check(np.array_equal(node(pack, "DavyVideoVAEEncode", vae=vae, pixels=wide)[0]["samples"].array, encode(9)), "cropped")
    large = {"samples": Tensor(np.tile(given, (1, 1, 1, 8, 6)))}
    (whole,), (same,), (tiled,) = (node(pack, "DavyVideoVAEDecode", vae=vae, samples=large, tile_size=t, overlap=o)
                                   for t, o in ((0, 0), (4096, 0), (128, 64)))
    check(np.array_equal(whole.array, same.array), "video decode: a tile as large as the frames")
    check(0 < distance(tiled.array, whole.array) < 0.1, f"video decode: tiles, {distance(tiled.array, whole.array)} away")
    latents = [node(pack, "DavyVideoVAEEncode", vae=vae, pixels=whole[:5], tile_size=t, overlap=64)[0]["samples"].array
               for t in (0, 128)]
    check(0 < distance(latents[1], latents[0]) < 0.1, f"video encode: tiles, {distance(*latents)} away")
    sentence(lambda: node(pack, "DavyVideoVAEDecode", vae=vae, samples=large, tile_size=16, overlap=64), "tile of 2", "too small")
    sentence(lambda: encode(8, sample=True), "turn sample off")
    (still,) = node(pack, "DavyVAELoader", vae_name="taesd")
    sentence(lambda: node(pack, "DavyVideoVAEEncode", vae=still, pixels=image(2, 16, 16)), "VAE of pictures")


def test_upscale(pack, manager):
    (model,) = node(pack, "DavyUpscaleModelLoader", model_name="davy-live x2 (built in)")
    (file,) = node(pack, "DavyUpscaleModelLoader", model_name="mine.safetensors")
    pictures = image(3)
    before = Tensor.made
    (got,) = node(pack, "DavyUpscaleWithModel", upscaler=model, image=pictures)
    check(Tensor.made == before + 1 and got.shape == (3, 42, 68, 3), "the result alone is new")
    check(Bar.last.total == 300 and Bar.last.seen[-1] == 300 and Bar.last.seen == sorted(Bar.last.seen), f"{Bar.last.seen}")
    if importlib.util.find_spec("PIL"):
        check(Bar.last.previews >= 1, "no preview of a batch")
    again = node(pack, "DavyUpscaleWithModel", upscaler=file, image=pictures)[0]
    check(np.array_equal(again.array, got.array), "the same file")
    alone = node(pack, "DavyUpscaleWithModel", upscaler=model, image=pictures[1:2])[0]
    check(np.array_equal(alone.array[0], got.array[1]), "a batch differs from its pictures")
    wide = image(1, 100, 130)
    whole, tiled = (node(pack, "DavyUpscaleWithModel", upscaler=model, image=wide, tile_size=t)[0].array for t in (0, 64))
    check(np.abs(tiled - whole).max() < 1e-5, "tiles")
    sentence(lambda: node(pack, "DavyUpscaleWithModel", upscaler=model, image=wide, tile_size=16), "tile of 16", "too small")
    for dtype, array in (FLOAT16, pictures.array.astype(np.float16)), (BFLOAT16, to_bf16(pictures.array)):
        (other,) = node(pack, "DavyUpscaleWithModel", upscaler=model, image=Tensor(array, dtype))
        check(other.dtype is dtype and np.abs(other.float().array - got.array).max() < 2e-2, f"{dtype}")
    doubled = Tensor(pictures.array.astype(np.float64))
    check(np.array_equal(node(pack, "DavyUpscaleWithModel", upscaler=model, image=doubled)[0].array, got.array), "float64")
    spread = Tensor(np.broadcast_to(pictures.array[:1], pictures.array.shape))
    check(np.array_equal(node(pack, "DavyUpscaleWithModel", upscaler=model, image=spread)[0].array[2], got.array[0]), "stride 0")
    for c in 1, 4:
        check(node(pack, "DavyUpscaleWithModel", upscaler=model, image=image(c=c))[0].shape == (1, 42, 68, c), f"{c} channels")
    for width, height, fit, want in (
        (50, 0, "keep proportions", (31, 50)), (0, 40, "stretch", (40, 65)), (60, 40, "keep proportions", (37, 60)),
        (60, 60, "crop to fill", (60, 60)), (100, 30, "stretch", (30, 100)), (17, 0, "stretch", (10, 17)),
    ):  # fmt: skip
        (sized,) = node(pack, "DavyUpscaleToSize", upscaler=model, image=pictures, width=width, height=height, fit=fit)
        check(sized.shape == (3, *want, 3) and np.isfinite(sized.array).all(), f"{width}x{height} {fit}: {sized.shape}")
    sentence(lambda: node(pack, "DavyUpscaleToSize", upscaler=model, image=pictures, width=0), "width or a height")
    frames, fits = sys.modules["davy_pack.pack.frames"], sys.modules["davy_pack.pack.frames"].fits
    frames.fits = lambda model, inputs, outputs: inputs.shape[0] > 1  # as on a GPU
    many = Tensor(np.concatenate([pictures.array] * 4))
    (streamed,) = node(pack, "DavyUpscaleWithModel", upscaler=model, image=many)
    check(np.array_equal(streamed.array, np.concatenate([got.array] * 4)), "frames one after the other")
    check(Bar.last.seen == list(range(1, 13)), f"{Bar.last.seen}")
    sized = [node(pack, "DavyUpscaleToSize", upscaler=model, image=pictures, width=50)[0].array]
    manager.looks, manager.stop_at = 0, 6
    try:
        node(pack, "DavyUpscaleWithModel", upscaler=model, image=many)
        check(False, "frames were not stopped")
    except fake_host.Interrupted:
        check(True, "stopped")
    frames.fits = fits
    sized.append(node(pack, "DavyUpscaleToSize", upscaler=model, image=pictures, width=50)[0].array)
    check(np.array_equal(*sized), "frames to a size")
    large = image(1, 700, 900)
    manager.looks, manager.stop_at = 0, 4
    begun = time.monotonic()
    try:
        node(pack, "DavyUpscaleWithModel", upscaler=model, image=large)
        check(False, "it was not stopped")
    except fake_host.Interrupted:
        taken = time.monotonic() - begun
        check(taken < 2 * float(os.environ.get("DAVY_SLOW", "1")), f"stopped after {taken:.2f} s")
    check(np.array_equal(node(pack, "DavyUpscaleWithModel", upscaler=model, image=pictures)[0].array, got.array), "after a stop")
    sentence(lambda: node(pack, "DavyUpscaleModelLoader", model_name="broken.safetensors"), "broken.safetensors", "fetch it again")
    sentence(lambda: node(pack, "DavyUpscaleModelLoader", model_name="gone.safetensors"), "gone.safetensors", "refresh")
    sentence(lambda: node(pack, "DavyUpscaleModelLoader", model_name="mine.safetensors", precision="fp8"), "fp8")


def test_memory(pack, manager):
    (model,) = node(pack, "DavyUpscaleModelLoader", model_name="davy-live x2 (built in)")
    (same,) = node(pack, "DavyUpscaleModelLoader", model_name="davy-live x2 (built in)")
    check(model is same, "opened twice")
    (want,) = node(pack, "DavyUpscaleWithModel", upscaler=model, image=image())
    check(model.resident in manager.loaded_models() and manager.asked[-1] > 0 and model.loaded_bytes > 1, "not registered")
    check(model.resident.loaded_size() >= model.loaded_bytes, "sizes")
    manager.unload_all_models()
    check(model.loaded_bytes == 0 and model.resident.loaded_size() == 0, "weights are still there")
    weights = sum(e.in_use()[0] for e in [model.engine])
    check(weights == 0, f"{weights} bytes of weights after unloading")
    (again,) = node(pack, "DavyUpscaleWithModel", upscaler=model, image=image())
    check(np.array_equal(again.array, want.array), "after unloading")
    check(model.resident.partially_unload(None, 1 << 40) > 0 and model.loaded_bytes == 0, "partially_unload")
    (again,) = node(pack, "DavyUpscaleWithModel", upscaler=model, image=image())
    gone = weakref.ref(model)
    del model, same
    check(gone() is None and not manager.loaded_models(), "a model that nobody holds is kept")
    inside = pack.NODE_CLASS_MAPPINGS["DavyUpscaleModelLoader"]
    path = pathlib.Path(sys.modules["folder_paths"].get_full_path("upscale_models", "mine.safetensors"))
    before = inside.IS_CHANGED(model_name="mine.safetensors")
    check(before == inside.IS_CHANGED(model_name="mine.safetensors"), "the fingerprint of the same file")
    os.utime(path, ns=(1, 1))
    check(before != inside.IS_CHANGED(model_name="mine.safetensors"), "the fingerprint of another file")
    check(inside.IS_CHANGED(model_name="gone.safetensors") == "", "the fingerprint of no file")


def test_captions(pack, manager):
    names = pack.NODE_CLASS_MAPPINGS["DavyCaptionModelLoader"].INPUT_TYPES()["required"]["model_name"][0]
    check(names == ["made-up/tiny"], f"{names}")
    (model,) = node(pack, "DavyCaptionModelLoader")
    fixed = dict(captioner=model, max_tokens=12)
    ask = lambda pictures, **more: node(pack, "DavyCaptionImage", image=pictures, **fixed, **more)  # noqa: E731
    pictures = image(5, 40, 50)
    texts, talks = ask(pictures)
    alone = [ask(pictures[i : i + 1]) for i in range(5)]
    check(texts == [t[0] for t, _ in alone] and len(talks) == 5, "a list differs from its pictures")
    check(ask(pictures[:1], temperature=3.0, seed=1)[0] == ask(pictures[:1], temperature=3.0, seed=1)[0], "a seed")
    check(ask(pictures[:1], temperature=3.0, seed=1)[0] != ask(pictures[:1], temperature=3.0, seed=2)[0], "another seed")
    check(ask(pictures[:1], task="own prompt", prompt="Why?")[0] != texts[:1], "another question")
    sentence(lambda: ask(pictures[:1], task="own prompt"), "prompt is empty")

    follow = lambda talk, question: node(pack, "DavyCaptionAsk", conversation=talk, question=question, max_tokens=6)  # noqa: E731
    _, (first,) = ask(pictures[:1])
    root = first.root
    live = root.live
    said = lambda: len(root.live.said) if root.live is live else None  # noqa: E731
    one, second = follow(first, "What colour?")
    check(said() == 2, "the dialogue was not used again")
    two, _ = follow(second, "Where?")
    check(said() == 3, "nor the third time")
    other, branch = follow(first, "How many?")
    check(said() == 2, "another way from the first answer")
    check(follow(second, "Where?")[0] == two and follow(branch, "Where?")[1].turns[1][0] == "How many?", "branches mix")
    for i in range(1, 4):
        ask(pictures[i : i + 1])
    check(root.live is None and len(model.pool.lives) == 2, "dialogues are not passed on")
    check(follow(second, "Where?")[0] == two and len(root.live.said) == 3, "asked again after another picture")
    manager.unload_all_models()
    check(root.live is None and not model.pool.lives, "a dialogue outlived its weights")
    check(follow(second, "Where?")[0] == two and len(root.live.said) == 3, "asked again after unloading")
    check(follow(talks[0], "What colour?")[0] == one, "a list's conversation")
    manager.looks, manager.stop_at = 0, 2
    try:
        ask(pictures[:1], task="own prompt", prompt="Say a lot.", max_tiles=1)
        check(False, "a caption was not stopped")
    except fake_host.Interrupted:
        check(True, "stopped")
    check(ask(pictures[:1])[0] == texts[:1] and follow(first, "What colour?")[0] == one, "after a stop")
    sentence(lambda: follow(first, " "), "no question")


def test_thoughts(pack, base):
    """A model that ends inside its thoughts gives an error."""
    tiny_vlm.write_thinking(base / "models/LLM/thinking")
    (model,) = node(pack, "DavyCaptionModelLoader", model_name="thinking")
    ask = lambda n, **more: node(pack, "DavyCaptionImage", captioner=model, image=image(n, 20, 20), **more)[0]  # noqa: E731
    sentence(lambda: ask(1), "inside the model's thoughts after 256 tokens", "raise max_tokens")
    sentence(lambda: ask(2), "picture 1 of 2", "raise max_tokens")
    check(ask(1, max_tokens=400) == ["Yes"], "behind its thoughts")
    shutil.rmtree(base / "models/LLM/thinking")


def test_folder(pack, base):
    model = node(pack, "DavyCaptionModelLoader")[0]
    run = lambda **more: node(pack, "DavyCaptionBatch", captioner=model, max_tokens=8, **more)  # noqa: E731
    images = [image(2, 30, 40), image(1, 50, 20, seed=2)]
    texts, names = run(image=images)
    one = node(pack, "DavyCaptionImage", captioner=model, image=images[1], max_tokens=8)[0]
    check(len(texts) == 3 and names == [""] * 3 and texts[2:] == one, "a list of batches")
    sentence(run, "no pictures")
    sentence(lambda: run(folder="not there"), "not there", "no such folder")
    try:
        from PIL import Image
    except ImportError:
        checks.skipped += 1
        return
    place = base / "input/set"
    (place / "deeper").mkdir(parents=True)
    for name in "b.png", "a.jpg", "deeper/c.webp":
        Image.fromarray(np.random.default_rng(len(name)).integers(0, 255, (32, 48, 3), np.uint8)).save(place / name)
    deep = np.arange(48 * 32, dtype=np.uint16).reshape(32, 48) * 42
    Image.fromarray(deep).save(base / "deep.png")
    seen = sys.modules["davy_pack.pack.nodes_folder"].opened(str(base / "deep.png"))
    grey = np.frombuffer(seen.keep, np.uint8).reshape(32, 48, 3)
    check(np.abs(grey - deep[..., None] / 257).max() <= 1, "a grey picture of 16 bits")
    (place / "a.txt").write_text("by hand\n")
    texts, names = run(folder="set")
    check([os.path.basename(n) for n in names] == ["a.jpg", "b.png"] and texts[0] == "by hand", f"{names} {texts}")
    check((place / "b.txt").read_text() == texts[1] and (place / "a.txt").read_text() == "by hand\n", "sidecars")
    check(not list(place.glob("*.part")), "half files are left")
    changed = pack.NODE_CLASS_MAPPINGS["DavyCaptionBatch"].IS_CHANGED
    before, all_anew = (changed(folder="set", sidecars=how) for how in ("write missing", "write all"))
    texts, names = run(folder=str(place), subfolders=True, sidecars="write all")
    check(len(texts) == 3 and (place / "a.txt").read_text() == texts[0] != "by hand", "write all")
    check(texts[2] == (place / "deeper/c.txt").read_text(), "a folder inside")
    check(before != changed(folder="set") == changed(folder="set"), "the fingerprint of other texts")
    check(all_anew == changed(folder="set", sidecars="write all"), "texts that are written anew change nothing")
    (place / "d.png").write_bytes(b"no picture")
    check(all_anew != changed(folder="set", sidecars="write all"), "the fingerprint of a new file")
    sentence(lambda: run(folder="set"), "d.png", "cannot be read")


def test_missing_library():
    """Without the library the nodes load. Running one gives the reason."""
    code = (
        "import fake_host; fake_host.install('/nowhere'); pack = fake_host.load()\n"
        "try: pack.NODE_CLASS_MAPPINGS['DavyInfo']().execute()\n"
        "except Exception as error: print(type(error).__qualname__, error)"
    )
    nowhere = dict(os.environ, DAVY_LIBRARY="/nowhere/libdavy.so")
    run = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, env=nowhere)
    said = [word in run.stdout for word in ("Error", "/nowhere/libdavy.so", "make install-comfy")]
    check(all(said), run.stdout + run.stderr)


def main(work):
    base = pathlib.Path(work).resolve()
    folder(base)
    manager, _ = fake_host.install(base)
    shipped.test_schemas()
    pack = fake_host.load()
    test_vae(pack, base)
    test_video(pack, base)
    test_upscale(pack, manager)
    test_memory(pack, manager)
    card.run(manager, "davy_pack", fake_host.Device("cuda", 0))
    del manager.get_free_memory  # it was the card's
    test_captions(pack, manager)
    test_thoughts(pack, base)
    test_folder(pack, base)
    stale.test_models(pack, base)
    stale.test_full_gpu()
    stale.test_no_memory(pack, node, image)
    test_missing_library()
    shipped.test_workflows(pack)
    shipped.test_package()
    return checks.end()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
