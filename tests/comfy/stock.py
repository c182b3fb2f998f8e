"""Compares the nodes with the stock nodes on the same weights, in one process with a real ComfyUI on the CPU.

    DAVY_COMFYUI=/path/to/ComfyUI DAVY_LIBRARY=... python stock.py WORK_FOLDER

Python needs ComfyUI's requirements. Weights come from DAVY_SHARED (golden cases and small models); those of Wan and FLUX.2 are made
here. Bounds: VAE 1e-3 in fp32 and 2e-2 in bf16 of the stock node's result, pictures 1/255, equal texts. Prints `N passed, N failed`
last.
"""

import asyncio
import json
import logging
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("DAVY_SHARED", ROOT.parent / "shared"))
PACK = pathlib.Path(os.environ.get("DAVY_PACK", ROOT / "plugins" / "comfy"))
COMFYUI = pathlib.Path(os.environ["DAVY_COMFYUI"])
sys.dont_write_bytecode = True
VAES = "vae_sdxl", "vae_flux_ldm", "vae_sd15_ldm", "taesd", "taef1"
SEEDVR2 = "seedvr2_vae_5f"  # stock since ComfyUI 0.33
UPSCALERS = "span_x2", "esrgan_x2_unshuffle", "realplksr_x4", "omnisr_x4"
EVEN = "unshuffle", "omnisr"  # the stock loader pads odd sizes of these differently
passed = failed = 0


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    print("ok  " if ok else "FAIL", what, flush=True)


def link(target, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def models(base):
    """Fills ComfyUI's folders with made-up VAEs and small real models."""
    for case in *VAES, SEEDVR2, *UPSCALERS:
        out = base / "weights" / case
        if not (out / "inputs.safetensors").exists():
            out.mkdir(parents=True, exist_ok=True)
            make = [sys.executable, "weights.py", case, out]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd=SHARED / "golden")
    made = base / "weights"
    link(made / "vae_sdxl/model.safetensors", base / "models/vae/sdxl_vae.safetensors")
    link(made / "vae_flux_ldm/model.safetensors", base / "models/vae/ae.safetensors")
    link(made / SEEDVR2 / "model.safetensors", base / "models/vae/seedvr2.safetensors")
    link(made / "vae_sd15_ldm/model.safetensors", base / "models/checkpoints/sd15.safetensors")
    for name in "taesd", "taef1":
        for half in "encoder", "decoder":
            link(made / name / f"{half}.safetensors", base / f"models/vae_approx/{name}_{half}.safetensors")
    for name in UPSCALERS:
        link(made / name / "model.safetensors", base / f"models/upscale_models/{name}.safetensors")
    for name in "rrdb/RealESRGAN_x4plus_anime_6B", "compact/realesr-general-x4v3":
        source = SHARED / "models" / f"{name}.safetensors"
        link(source, base / "models/upscale_models" / source.name)
    link(SHARED / "models/davy-tiny-vlm", base / "models/LLM/davy-tiny-vlm")
    for folder in "input", "output", "custom_nodes":
        (base / folder).mkdir(exist_ok=True)
    link(PACK, base / "custom_nodes/davy")


def start(base):
    """Imports ComfyUI and loads the pack."""
    sys.argv = ["main.py", "--cpu", "--base-directory", str(base)]
    sys.path.insert(0, str(COMFYUI))
    import comfy.options

    comfy.options.enable_args_parsing()
    import nodes

    logging.getLogger().setLevel(logging.ERROR)
    begun = time.monotonic()
    loaded = asyncio.run(nodes.load_custom_node(str(base / "custom_nodes/davy")))
    check(loaded, f"the pack loads, in {1000 * (time.monotonic() - begun):.0f} ms")
    asyncio.run(nodes.load_custom_node(str(COMFYUI / "comfy_extras/nodes_upscale_model.py"), module_parent="comfy_extras"))
    return nodes


def node(nodes, id, **inputs):
    """The outputs of a node of either API."""
    made = nodes.NODE_CLASS_MAPPINGS[id]
    if hasattr(made, "EXECUTE_NORMALIZED"):
        return made.EXECUTE_NORMALIZED(**inputs).args
    return getattr(made(), made.FUNCTION)(**inputs)


def distance(a, b):
    return float((a.float() - b.float()).norm() / b.float().norm())


def vaes(nodes, torch):
    import comfy.sd
    import comfy.utils
    import folder_paths

    torch.manual_seed(1)
    pixels = torch.rand(2, 75, 107, 3)
    full = ("sdxl_vae.safetensors", 4), ("ae.safetensors", 16), ("checkpoint: sd15.safetensors", 4)
    for name, channels in *full, ("taesd", 4), ("taef1", 16):
        if name.startswith("checkpoint"):
            file = folder_paths.get_full_path("checkpoints", name.split(": ")[1])
            weights = comfy.utils.load_torch_file(file)
            stock = comfy.sd.VAE(sd={k.removeprefix("first_stage_model."): v for k, v in weights.items()})
        else:
            (stock,) = node(nodes, "VAELoader", vae_name=name)
        latent = torch.randn(2, channels, 9, 13)
        want = node(nodes, "VAEDecode", vae=stock, samples={"samples": latent})[0].detach()
        stock_latent = node(nodes, "VAEEncode", vae=stock, pixels=pixels)[0]["samples"].detach()
        for precision, bound in ("fp32", 1e-3), ("bf16", 2e-2):
            (vae,) = node(nodes, "DavyVAELoader", vae_name=name, precision=precision)
            (got,) = node(nodes, "DavyVAEDecode", vae=vae, samples={"samples": latent})
            same = got.shape == want.shape and got.dtype == want.dtype and got.device == want.device
            check(same and distance(got, want) <= bound, f"{name} decode {precision}: {distance(got, want):.2g}")
            got = node(nodes, "DavyVAEEncode", vae=vae, pixels=pixels)[0]["samples"]
            same = got.shape == stock_latent.shape and got.dtype == stock_latent.dtype
            check(same and distance(got, stock_latent) <= bound, f"{name} encode {precision}: {distance(got, stock_latent):.2g}")


def random_weights(shapes, seed, torch):
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for key, t in shapes.items():
        x = torch.rand(t.shape, generator=random) * 2 - 1
        inputs = t[0].numel() if t.dim() > 1 else 1
        ones = key.endswith(("gamma", "running_var")) or "norm" in key and key.endswith("weight")
        weights[key] = (1 + 0.1 * x if ones else x * 0.1 if inputs == 1 else x * (3 / inputs) ** 0.5).half()
    return weights


def flux2(base, nodes, torch):
    """FLUX.2: latents that are folded and normalised."""
    import comfy.ldm.models.autoencoder
    import comfy.utils

    if "batch_norm_latent" not in pathlib.Path(comfy.ldm.models.autoencoder.__file__).read_text():
        return
    file = base / "models/vae/flux2.safetensors"
    config = dict(double_z=True, z_channels=32, resolution=256, in_channels=3, out_ch=3, ch=128, ch_mult=[1, 2, 4, 4],
                  num_res_blocks=2, attn_resolutions=[], dropout=0.0, batch_norm_latent=True)  # fmt: skip
    if not file.exists():
        with torch.device("meta"):
            made = comfy.ldm.models.autoencoder.AutoencoderKL(ddconfig=config, embed_dim=32)
        shapes = {k: t for k, t in made.state_dict().items() if t.dim()}
        comfy.utils.save_torch_file(random_weights(shapes, 2, torch), str(file))
    pixels = torch.rand(2, 53, 70, 3)
    (stock,) = node(nodes, "VAELoader", vae_name=file.name)
    latent = node(nodes, "VAEEncode", vae=stock, pixels=pixels)[0]["samples"].detach()
    want = node(nodes, "VAEDecode", vae=stock, samples={"samples": latent})[0].detach()
    for precision, bound in ("fp32", 1e-3), ("bf16", 2e-2):
        (vae,) = node(nodes, "DavyVAELoader", vae_name=file.name, precision=precision)
        ours = node(nodes, "DavyVAEEncode", vae=vae, pixels=pixels)[0]["samples"]
        off = distance(ours, latent) if ours.shape == latent.shape else 9
        check(off <= bound, f"{file.name} encode {precision}: {off:.2g}")
        (got,) = node(nodes, "DavyVAEDecode", vae=vae, samples={"samples": latent})
        check(got.shape == want.shape and distance(got, want) <= bound, f"{file.name} decode {precision}: {distance(got, want):.2g}")


def wan(base, torch):
    """Writes Wan's VAEs in sizes that ComfyUI accepts: 2.1 of any width, 2.2 of the released width."""
    import comfy.ldm.wan.vae
    import comfy.ldm.wan.vae2_2
    import comfy.utils

    more = dict(dim_mult=[1, 2, 4, 4], num_res_blocks=2, attn_scales=[], temperal_downsample=[False, True, True])
    for name, made, width, latents in ("wan2_1", comfy.ldm.wan.vae, 32, 16), ("wan2_2", comfy.ldm.wan.vae2_2, 160, 48):
        file = base / f"models/vae/{name}.safetensors"
        if file.exists():
            continue
        with torch.device("meta"):
            shapes = made.WanVAE(dim=width, z_dim=latents, **more).state_dict()
        comfy.utils.save_torch_file(random_weights(shapes, latents, torch), str(file))


def clips(nodes, torch):
    """Videos: latents of both packs, and frames of each pack from both packs' latents."""
    torch.manual_seed(3)
    names = ["wan2_1", "wan2_2"]
    if (COMFYUI / "comfy/ldm/seedvr").exists():
        names.append("seedvr2")
    for name in names:
        side = 32 if name == "wan2_2" else 24
        video = torch.rand(1, 3, 9, side, side + 16).movedim(1, -1)[0]
        (stock,) = node(nodes, "VAELoader", vae_name=f"{name}.safetensors")
        for frames in 9, 1:
            pixels = video[:frames]
            latent = node(nodes, "VAEEncode", vae=stock, pixels=pixels)[0]["samples"].detach()
            want = node(nodes, "VAEDecode", vae=stock, samples={"samples": latent})[0].detach()
            for precision, bound in ("fp32", 1e-3), ("bf16", 2e-2):
                what = f"{name}, {frames} frames, {precision}"
                (vae,) = node(nodes, "DavyVAELoader", vae_name=f"{name}.safetensors", precision=precision)
                ours = node(nodes, "DavyVideoVAEEncode", vae=vae, pixels=pixels)[0]
                off = distance(ours["samples"], latent)
                check(ours["samples"].shape == latent.shape and off <= bound, f"{what}: latents {off:.2g}")
                (got,) = node(nodes, "DavyVideoVAEDecode", vae=vae, samples={"samples": latent})
                off = distance(got, want)
                check(got.shape == want.shape and off <= bound, f"{what}: frames of stock latents {off:.2g}")
                off = distance(node(nodes, "VAEDecode", vae=stock, samples=ours)[0].detach(), want)
                check(off <= bound, f"{what}: stock frames of our latents {off:.2g}")
                if frames == 1:
                    ours = node(nodes, "DavyVAEEncode", vae=vae, pixels=pixels)[0]
                    off = distance(ours["samples"], latent) if ours["samples"].shape == latent.shape else 9
                    check(off <= bound, f"{what}: VAE Encode {off:.2g}")


def upscalers(nodes, torch):
    torch.manual_seed(2)
    for name in sorted(os.listdir(os.path.join(sys.argv[3], "models/upscale_models"))):
        image = torch.rand(2, 32, 48, 3) if any(part in name for part in EVEN) else torch.rand(2, 33, 47, 3)
        (stock,) = node(nodes, "UpscaleModelLoader", model_name=name)
        want = node(nodes, "ImageUpscaleWithModel", upscale_model=stock, image=image)[0].detach()
        (ours,) = node(nodes, "DavyUpscaleModelLoader", model_name=name)
        (got,) = node(nodes, "DavyUpscaleWithModel", upscaler=ours, image=image)
        off = float((got - want).abs().max()) * 255 if got.shape == want.shape else 999
        check(off <= 1, f"{name}: {off:.3f} of a 255th")


def captions(nodes, torch):
    """The texts must equal those of transformers for the same weights, with follow-up questions."""
    import numpy
    from PIL import Image

    cases = SHARED / "golden/davy-tiny-vlm"
    (model,) = node(nodes, "DavyCaptionModelLoader", model_name="davy-tiny-vlm")
    for case in json.loads((cases / "cases.json").read_text())["cases"]:
        picture = numpy.asarray(Image.open(cases / case["image"]).convert("RGB"), dtype=numpy.float32) / 255
        said = [part["content"][-1]["text"] for part in case["messages"]]
        said.append(case["text"])
        tiles = 0 if case["do_image_splitting"] else 1
        settings = dict(max_tokens=96, temperature=0.0, top_p=1.0, repeat_penalty=1.0, seed=0)
        (text,), (talk,) = node(nodes, "DavyCaptionImage", captioner=model, image=torch.from_numpy(picture)[None],
                                task="own prompt", prompt=said[0], max_tiles=tiles, **settings)  # fmt: skip
        right = text == said[1]
        for asked, answer in zip(said[2::2], said[3::2]):
            text, talk = node(nodes, "DavyCaptionAsk", conversation=talk, question=asked, **settings)
            right = right and text == answer
        check(right, f"{case['id']}, {len(said) // 2} turns: {text}")


def memory(base, torch):
    """Evictions in this ComfyUI's model management, on a simulated GPU (card.py)."""
    import card
    import checks
    import comfy.model_management as mm

    real, before = mm.get_free_memory, list(mm.current_loaded_models)
    card.run(mm, str(base / "custom_nodes/davy").replace(".", "_x_"), torch.device("cuda", 0))
    mm.get_free_memory, mm.current_loaded_models[:] = real, before
    check(not checks.failed, f"model management: {checks.passed} checks")


def main(work):
    base = pathlib.Path(work).resolve()
    models(base)
    nodes = start(base)
    import torch

    with torch.no_grad():
        memory(base, torch)
        upscalers(nodes, torch)
        captions(nodes, torch)
        vaes(nodes, torch)
        flux2(base, nodes, torch)
        wan(base, torch)
        clips(nodes, torch)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
