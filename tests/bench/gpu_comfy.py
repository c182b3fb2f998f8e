#!/usr/bin/env python3
"""Compares ComfyUI's stock nodes with davy's, in one process of a real ComfyUI: VAE, upscaling, captions, first use after start.

    python3 tests/bench/gpu_comfy.py --comfyui DIR --models DIR [--library F] [--packages DIR] [--rounds N] [--small] [--save F]

The folder of --models must have davy-tiny-vlm. The VAE has SDXL's shape; the upscalers are RRDBNet with 23 blocks and
Real-ESRGAN's general x4v3. Their weights are random. Pictures for captions are case*.png of --pictures.
Stock nodes run with the defaults, and again with cuDNN's autotuner (ComfyUI's --fast autotune). The peer for captions is
transformers, which node packs use: one picture at a time as they do, and all together. Every figure is the median time of a
node's execution, with a wait for the GPU before and after. "gpu": pictures stay on the GPU (--gpu-only); "host": in host
memory, ComfyUI's default. Modules that ComfyUI imports but that are neither needed nor installed are replaced by empty ones.
--small: sizes for a trial on a CPU."""

import argparse
import asyncio
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
import traceback
import types

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
UNNEEDED = ("av", "torchsde", "trampoline", "kornia", "pydantic", "pydantic_settings", "sentencepiece")
QUESTION = "Describe the image."


class Empty(type):
    """An empty class; each of its attributes is an empty class, too."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Empty(name, (), {})


class Nothing(types.ModuleType):
    """A module in which every attribute is an empty class."""

    __path__ = ()
    __getattr__ = Empty.__getattr__


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last import finder: gives empty modules for UNNEEDED ones that are not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in UNNEEDED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Nothing(spec.name)

    def exec_module(self, module):
        pass


def make(path, dtype, *parts):
    """Writes one weight file with random numbers for these networks."""
    import gpu_nets as nets

    state = {key: tensor for part in parts for key, tensor in nets.randomise(part).state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    nets.write(path, state, dtype)


def folders(base, models):
    import gpu_nets as nets
    import torch

    torch.manual_seed(1)
    make(base / "models/vae/made.safetensors", torch.bfloat16, nets.KlEncoder(), nets.KlDecoder())
    make(base / "models/upscale_models/rrdb.safetensors", torch.float16, nets.RrdbNet())
    make(base / "models/upscale_models/compact.safetensors", torch.float16, nets.Compact(32))
    for folder in "input", "output", "custom_nodes", "models/LLM":
        (base / folder).mkdir(exist_ok=True)
    (base / "models/LLM/davy-tiny-vlm").symlink_to((models / "davy-tiny-vlm").resolve())


def start(comfyui, base):
    """ComfyUI's nodes module. Tokenizers that this version of transformers lacks are not needed."""
    import torch
    import transformers

    for name in "CLIPTokenizer T5TokenizerFast LlamaTokenizerFast BertTokenizer ByT5Tokenizer Qwen2Tokenizer".split():
        if not hasattr(transformers, name):
            setattr(transformers, name, type(name, (), {}))
    sys.argv = ["main.py", "--base-directory", str(base)] + ([] if torch.cuda.is_available() else ["--cpu"])
    sys.path.insert(0, str(comfyui))
    import comfy.options

    comfy.options.enable_args_parsing()
    import nodes

    asyncio.run(nodes.load_custom_node(str(comfyui / "comfy_extras/nodes_upscale_model.py"), module_parent="comfy_extras"))
    return nodes


def node(nodes, id, **inputs):
    made = nodes.NODE_CLASS_MAPPINGS[id]
    if hasattr(made, "EXECUTE_NORMALIZED"):
        return made.EXECUTE_NORMALIZED(**inputs).args
    return getattr(made(), made.FUNCTION)(**inputs)


def finished():
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(call):
    """(milliseconds, result)"""
    finished()
    begun = time.perf_counter()
    result = call()
    finished()
    return 1000 * (time.perf_counter() - begun), result


def compare(case, contenders, rounds, report):
    """Times contenders in turns. The first one's result is the reference of the others."""
    import torch

    results, times = {}, {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, call in contenders.items():
            torch.backends.cudnn.benchmark = name.endswith("autotuned")
            ms, results[name] = timed(call)
            times[name].append(ms)
    torch.backends.cudnn.benchmark = False
    want = next(iter(results.values())).float()
    for name, taken in times.items():
        got = results[name].float().to(want.device)
        off, most = float((got - want).norm() / want.norm()), float((got - want).abs().max()) * 255
        line = dict(case=case, node=name, ms=round(statistics.median(taken[1:]), 2), first_ms=round(taken[0], 1))
        report(line | dict(relative=float(f"{off:.2g}"), largest_255ths=float(f"{most:.2g}")))


def attempt(report, call, *arguments):
    """Runs one part. If it fails, the error is reported and the next part runs."""
    try:
        call(*arguments)
    except Exception as error:
        traceback.print_exc()
        report(dict(case=call.__name__, error=f"{type(error).__name__}: {error}"))


def stages(nodes, report, pack):
    """First use: from loading the pack to the first picture. The weight file is in the page cache."""
    import torch

    latent = {"samples": torch.randn(1, 4, SIDE // 8, SIDE // 8, device=DEVICE)}
    ms, loaded = timed(lambda: asyncio.run(nodes.load_custom_node(str(pack))))
    assert loaded, "the pack does not load"
    first = lambda load, decode: node(  # noqa: E731
        nodes, decode, vae=node(nodes, load, vae_name="made.safetensors")[0], samples=latent
    )
    use, _ = timed(lambda: first("DavyVAELoader", "DavyVAEDecode"))
    report(dict(case=f"first picture after start, VAE decode {SIDE}", node="davy", ms=round(ms + use, 1), pack_ms=round(ms, 1)))
    stock, _ = timed(lambda: first("VAELoader", "VAEDecode"))
    report(dict(case=f"first picture after start, VAE decode {SIDE}", node="stock", ms=round(stock, 1)))


def vaes(nodes, place, device, rounds, report):
    import torch

    (stock,), (ours,) = (node(nodes, load, vae_name="made.safetensors") for load in ("VAELoader", "DavyVAELoader"))
    torch.manual_seed(2)
    latent = {"samples": torch.randn(1, 4, SIDE // 8, SIDE // 8, device=device)}
    pixels = torch.rand(1, SIDE, SIDE, 3, device=device)
    decode = lambda: node(nodes, "VAEDecode", vae=stock, samples=latent)[0]  # noqa: E731
    encode = lambda: node(nodes, "VAEEncode", vae=stock, pixels=pixels)[0]["samples"]  # noqa: E731
    mine = dict(davy=lambda: node(nodes, "DavyVAEDecode", vae=ours, samples=latent)[0])
    compare(f"VAE decode {SIDE}, {place}", {"stock": decode, "stock autotuned": decode, **mine}, rounds, report)
    mine = dict(davy=lambda: node(nodes, "DavyVAEEncode", vae=ours, pixels=pixels)[0]["samples"])
    compare(f"VAE encode {SIDE}, {place}", {"stock": encode, "stock autotuned": encode, **mine}, rounds, report)


def upscalers(nodes, place, device, rounds, report):
    import torch

    torch.manual_seed(3)
    for name, (h, w) in ("rrdb", UPSCALE[0]), ("compact", UPSCALE[1]):
        image = torch.rand(1, h, w, 3, device=device)
        (stock,) = node(nodes, "UpscaleModelLoader", model_name=f"{name}.safetensors")
        (ours,) = node(nodes, "DavyUpscaleModelLoader", model_name=f"{name}.safetensors")
        theirs = lambda: node(nodes, "ImageUpscaleWithModel", upscale_model=stock, image=image)[0]  # noqa: B023, E731
        mine = dict(davy=lambda: node(nodes, "DavyUpscaleWithModel", upscaler=ours, image=image)[0])  # noqa: B023
        compare(f"upscale x4 {name} {w}x{h}, {place}", {"stock": theirs, "stock autotuned": theirs, **mine}, rounds, report)


def frames(nodes, rounds, report):
    """A video's frames in host memory."""
    import torch

    (h, w), count = UPSCALE[1], 6
    image = torch.rand(count, h, w, 3)
    (stock,) = node(nodes, "UpscaleModelLoader", model_name="compact.safetensors")
    (ours,) = node(nodes, "DavyUpscaleModelLoader", model_name="compact.safetensors")
    theirs = lambda: node(nodes, "ImageUpscaleWithModel", upscale_model=stock, image=image)[0]  # noqa: E731
    mine = lambda: node(nodes, "DavyUpscaleWithModel", upscaler=ours, image=image)[0]  # noqa: E731
    compare(f"upscale x4 compact {w}x{h}, host, {count} frames", {"stock": theirs, "davy": mine}, rounds, report)


def networks(nodes, rounds, report):
    from comfy.cli_args import args

    for place, args.gpu_only in (("gpu", True), ("host", False)) if DEVICE == "cuda" else (("host", False),):
        where = DEVICE if args.gpu_only else "cpu"
        attempt(report, vaes, nodes, place, where, rounds, report)
        attempt(report, upscalers, nodes, place, where, rounds, report)


def captions(nodes, models, pictures, rounds, report):
    import numpy
    import torch
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    count, alone, tokens = (32, 4, 64) if torch.cuda.is_available() else (2, 1, 16)
    files = sorted(pictures.glob("case*.png"))
    shown = [Image.open(files[i % len(files)]).convert("RGB") for i in range(count)]
    images = [torch.from_numpy(numpy.asarray(p).astype(numpy.float32) / 255)[None] for p in shown]
    folder = models / "davy-tiny-vlm"
    processor = AutoProcessor.from_pretrained(folder)
    processor.tokenizer.padding_side = "left"
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = AutoModelForImageTextToText.from_pretrained(folder).to(DEVICE, dtype).eval()
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}]
    prompt = processor.apply_chat_template(chat, add_generation_prompt=True)

    @torch.inference_mode()
    def theirs(part):
        given = processor(text=[prompt] * len(part), images=[[p] for p in part], padding=True, do_image_splitting=False,
                          return_tensors="pt").to(DEVICE, dtype)  # fmt: skip
        said = model.generate(**given, max_new_tokens=tokens, do_sample=False)
        return processor.batch_decode(said[:, given["input_ids"].shape[1] :], skip_special_tokens=True)

    (ours,) = node(nodes, "DavyCaptionModelLoader", model_name="davy-tiny-vlm")
    asked = dict(captioner=ours, task="own prompt", prompt=QUESTION, max_tokens=tokens, max_tiles=1)
    listed = {name: [value] for name, value in asked.items()} | dict(folder=[""], subfolders=[False], sidecars=["do not write"])
    contenders = {
        "transformers, together": lambda: theirs(shown),
        "davy, together": lambda: node(nodes, "DavyCaptionBatch", image=images, **listed)[0],
        "transformers, one by one": lambda: [theirs([p])[0] for p in shown[:alone]],
        "davy, one by one": lambda: [node(nodes, "DavyCaptionImage", image=i, **asked)[0][0] for i in images[:alone]],
    }
    texts, times = {}, {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, call in contenders.items():
            ms, texts[name] = timed(call)
            times[name].append(ms)
    want = [t.strip() for t in texts["transformers, together"]]
    for name, taken in times.items():
        done = len(texts[name])
        same = sum(a == b.strip() for a, b in zip(want, texts[name]))
        per_second = round(1000 * done / statistics.median(taken[1:]), 1)
        report(dict(case=f"captions, {tokens} tokens at most", node=name, captions_per_second=per_second, equal=f"{same}/{done}"))


def main():
    global SIDE, UPSCALE, DEVICE
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--comfyui", type=pathlib.Path, required=True)
    parse.add_argument("--models", type=pathlib.Path, default=ROOT.parent / "shared/models")
    parse.add_argument("--pictures", type=pathlib.Path, default=ROOT.parent / "shared/golden/davy-tiny-vlm")
    parse.add_argument("--only", choices=["captions", "frames"], help="skip most other parts")
    parse.add_argument("--library", default=os.environ.get("DAVY_LIBRARY"))
    parse.add_argument("--packages", type=pathlib.Path)
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--small", action="store_true")
    parse.add_argument("--save", type=pathlib.Path)
    options = parse.parse_args()
    if options.library:
        os.environ["DAVY_LIBRARY"] = os.path.abspath(options.library)
    os.environ.setdefault("DAVY_MODELS", str(ROOT / "packaging/models"))
    sys.path[:0] = [str(HERE)]
    sys.path += [str(options.packages.resolve())] if options.packages else []
    sys.meta_path.append(Absent())
    import torch

    SIDE, UPSCALE = (128, [(32, 32), (36, 64)]) if options.small else (1024, [(512, 512), (720, 1280)])
    DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
    lines = []

    def report(line):
        lines.append(line)
        print(json.dumps(line), flush=True)

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        base = pathlib.Path(folder)
        folders(base, options.models)
        nodes = start(options.comfyui.resolve(), base)
        torch.zeros(1, device=DEVICE)
        attempt(report, stages, nodes, report, ROOT / "plugins/comfy")
        if not options.only:
            networks(nodes, options.rounds, report)
        if options.only != "captions":
            attempt(report, frames, nodes, 2, report)
        if options.only != "frames":
            attempt(report, captions, nodes, options.models, options.pictures, 2, report)
        if options.save:
            options.save.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
