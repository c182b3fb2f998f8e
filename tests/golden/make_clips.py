#!/usr/bin/env python3
"""Makes the golden cases of video autoencoders in cases/ beside this file. Weights are random, from a manifest. Other
projects' implementations compute the expected numbers in fp32.

    python3 tests/golden/make_clips.py [--taehv FOLDER] [--comfyui FOLDER] [CASE]...

Needs torch, and the reference of each case: diffusers for Wan and Qwen-Image with diffusers' names, a checkout of ComfyUI for
their original names, a folder with taehv.py of github.com/madebyollin/taehv for TAEHV. Cases without a reference are not
changed."""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import weights

CASES = pathlib.Path(__file__).resolve().parent / "cases"
PICTURE = CASES / "taesd" / "input.png"


def rule_of(name, shape):
    if name.endswith("gamma"):
        return ["around", 1.0, 0.1]
    if len(shape) == 1:
        return ["uniform", 0.2]
    inputs = int(np.prod(shape[1:]))
    return ["uniform", round(float(np.sqrt(3.0 / inputs)), 8)]


def frames_of(count, height, width):
    """Frames of a window that moves over a photograph."""
    photo = np.asarray(Image.open(PICTURE).convert("RGB"))
    rows, columns = photo.shape[0] - height, photo.shape[1] - width
    steps = [(i * 3 % (rows + 1), i * 5 % (columns + 1)) for i in range(count)]
    return np.stack([photo[y:y + height, x:x + width] for y, x in steps])


class Case:
    """Writes a case's files; `load` loads the weights into the reference."""

    def __init__(self, name, seed, state, frames, height, width, latent, note, model="model.safetensors", dtype="F32"):
        self.folder = CASES / name
        self.folder.mkdir(exist_ok=True)
        tensors = [{"name": k, "shape": list(v), "dtype": dtype, "rule": rule_of(k, v)} for k, v in sorted(state.items())]
        inputs = [{"name": "latent", "shape": list(latent), "dtype": "F32", "rule": ["uniform", 1.5]}]
        files = [{"path": model, "tensors": tensors}, {"path": "inputs.safetensors", "seed": seed + 1, "tensors": inputs}]
        (self.folder / "manifest.json").write_text(json.dumps({"seed": seed, "files": files}, separators=(",", ":")))
        self.case = {"task": "video-vae", "model": model, "input": "input.png", "frames": frames, "height": height,
                     "width": width, "layout": "input.png stacks the frames top to bottom; tensors are B C T H W",
                     "inputs": "inputs.safetensors", "note": note}
        (self.folder / "case.json").write_text(json.dumps(self.case, indent=1) + "\n")
        pictures = frames_of(frames, height, width)
        Image.fromarray(pictures.reshape(frames * height, width, 3)).save(self.folder / "input.png", optimize=True)
        self.pixels = torch.from_numpy(pictures.astype(np.float32) / 255).permute(3, 0, 1, 2)[None]
        with tempfile.TemporaryDirectory() as out:
            weights.main(self.folder, out)
            self.tensors = {k: v.float() for k, v in load_file(pathlib.Path(out) / model).items()}
            self.latent = load_file(pathlib.Path(out) / "inputs.safetensors")["latent"]

    def expect(self, **tensors):
        save_file({k: v.contiguous() for k, v in tensors.items()}, self.folder / "expected.safetensors")
        print(self.folder.name, {k: (tuple(v.shape), round(float(v.std()), 3)) for k, v in tensors.items()},
              sum(f.stat().st_size for f in self.folder.iterdir()), "bytes")


def shapes(module):
    return {k: tuple(v.shape) for k, v in module.state_dict().items()}


# ---- Wan, Qwen-Image ----

WAN_21 = dict(dim_mult=[1, 2, 4, 4], num_res_blocks=2, attn_scales=[], temperal_downsample=[False, True, True])


def wan_diffusers(name, seed, vae, frames, height, width, z, factor, note, original=None):
    """original: names and shapes of a checkpoint for diffusers' own converter."""
    latents = 1 + (frames - 1) // 4
    state = original or shapes(vae)
    case = Case(name, seed, state, frames, height, width, (1, z, latents, height // factor, width // factor), note)
    if original:
        from diffusers.loaders.single_file_utils import convert_wan_vae_to_diffusers
        case.tensors = convert_wan_vae_to_diffusers(dict(case.tensors))
    vae.load_state_dict(case.tensors)
    vae.eval()
    clamp, torch.clamp = torch.clamp, lambda x, **_: x  # the network's picture, without the clamp
    decoded = vae.decode(case.latent, return_dict=False)[0]
    torch.clamp = clamp
    posterior = vae.encode(case.pixels * 2 - 1, return_dict=False)[0]
    case.expect(mean=posterior.mean, logvar=posterior.logvar, decoded=decoded)


def diffusers_cases(wanted):
    from diffusers import AutoencoderKLQwenImage, AutoencoderKLWan
    if "wan2_1_diffusers" in wanted:
        wan_diffusers("wan2_1_diffusers", 71, AutoencoderKLWan(base_dim=16, z_dim=4, **WAN_21), 9, 32, 24, 4, 8,
                      "AutoencoderKLWan, reduced; diffusers' names")
    if "qwen_image" in wanted:
        wan_diffusers("qwen_image", 77, AutoencoderKLQwenImage(base_dim=16, z_dim=4, **WAN_21), 1, 48, 40, 4, 8,
                      "AutoencoderKLQwenImage, reduced: one picture")
    if "qwen_image_original" in wanted:
        files = json.loads((CASES / "wan2_1" / "manifest.json").read_text())["files"]
        original = {t["name"]: t["shape"] for t in files[0]["tensors"]}
        wan_diffusers("qwen_image_original", 78, AutoencoderKLQwenImage(base_dim=16, z_dim=4, **WAN_21), 1, 40, 24, 4, 8,
                      "AutoencoderKLQwenImage, reduced: one picture; the original names of Wan 2.1", original)
    if "wan2_2_diffusers" in wanted:
        vae = AutoencoderKLWan(base_dim=8, decoder_base_dim=12, z_dim=6, in_channels=12, out_channels=12, patch_size=2,
                               is_residual=True, scale_factor_spatial=16, **WAN_21)
        wan_diffusers("wan2_2_diffusers", 73, vae, 9, 32, 32, 6, 16, "AutoencoderKLWan of Wan 2.2, reduced; diffusers' names")


def wan_original(name, seed, vae, frames, height, width, z, factor, note):
    latents = 1 + (frames - 1) // 4
    case = Case(name, seed, shapes(vae), frames, height, width, (1, z, latents, height // factor, width // factor), note)
    vae.load_state_dict(case.tensors)
    vae.eval()
    moments = []
    vae.conv1.register_forward_hook(lambda module, given, out: moments.append(out))
    vae.encode(case.pixels * 2 - 1)
    mean, logvar = moments[0].chunk(2, dim=1)
    case.expect(mean=mean, logvar=logvar.clamp(-30, 20), decoded=vae.decode(case.latent))


def comfyui_cases(wanted, folder):
    sys.path.insert(0, str(folder))
    from comfy.cli_args import args
    args.cpu = True
    import comfy.ldm.wan.vae as wan_21
    import comfy.ldm.wan.vae2_2 as wan_22
    if "wan2_1" in wanted:
        vae = wan_21.WanVAE(dim=16, z_dim=4, **WAN_21)
        wan_original("wan2_1", 76, vae, 9, 24, 32, 4, 8, "WanVAE of Wan 2.1, reduced; original names")
    if "wan2_2" in wanted:
        vae = wan_22.WanVAE(dim=8, dec_dim=12, z_dim=6, **WAN_21)
        wan_original("wan2_2", 75, vae, 5, 48, 32, 6, 16, "WanVAE of Wan 2.2, reduced; original names")


# ---- TAEHV ----

TINY = {  # name: (settings of the reference, frames, latents, height, width, model file, activation)
    "taehv": (dict(latent_channels=16), 6, 3, 24, 32, "model.safetensors", None),
    "taew2_2_super": (dict(latent_channels=48, patch_size=2, arch_variant="super"), 4, 2, 32, 48, "model.safetensors", None),
    "taeltx_2": (dict(latent_channels=128, patch_size=4, encoder_time_downscale=(True, True, True),
                      decoder_time_upscale=(True, True, True)), 9, 2, 32, 32, "model.safetensors", None),
    "lighttaehy1_5": (dict(latent_channels=32, patch_size=2), 8, 2, 32, 32, "lighttaehy1_5.safetensors", "leaky"),
    "taeh3": (dict(latent_channels=24, patch_size=2), 39, 12, 16, 32, "model.safetensors", None),
}


def taehv_cases(wanted, folder):
    sys.path.insert(0, str(folder))
    from taehv import TAEHV
    for seed, (name, (settings, frames, latents, height, width, model, act)) in enumerate(TINY.items(), 81):
        if name not in wanted:
            continue
        reference = TAEHV(checkpoint_path=None, **settings)
        f = 8 * reference.patch_size
        shape = (1, reference.latent_channels, latents, height // f, width // f)
        case = Case(name, seed, shapes(reference), frames, height, width, shape, "github.com/madebyollin/taehv" +
                    (", LeakyReLU(0.2) for ReLU" if act else ""), model, dtype="F16")
        reference.load_state_dict(case.tensors)
        for half in (reference.encoder, reference.decoder) if act else ():
            for module in half.modules():
                for key, child in module.named_children():
                    if isinstance(child, torch.nn.ReLU):
                        setattr(module, key, torch.nn.LeakyReLU(0.2))
        reference.is_h3 = name == "taeh3"  # the reference detects it by the file's name
        reference.eval()
        reference.postprocess_output_frames = lambda x, p=reference.patch_size: (  # without its clamp
            torch.nn.functional.pixel_shuffle(x, p) if p > 1 else x)
        encoded = reference.encode_video(case.pixels.transpose(1, 2), show_progress_bar=False).transpose(1, 2)
        decoded = reference.decode_video(case.latent.transpose(1, 2), show_progress_bar=False).transpose(1, 2)
        case.expect(encoded=encoded, decoded=decoded)


def main():
    names = ["wan2_1_diffusers", "qwen_image", "qwen_image_original", "wan2_2_diffusers", "wan2_1", "wan2_2", *TINY]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--taehv", type=pathlib.Path)
    parser.add_argument("--comfyui", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names))
    options = parser.parse_args()
    wanted = options.cases or names
    with torch.no_grad():
        if any(n in wanted for n in names[:4]):
            diffusers_cases(wanted)
        if options.taehv:
            taehv_cases(wanted, options.taehv)
        if options.comfyui:
            comfyui_cases(wanted, options.comfyui)


if __name__ == "__main__":
    main()
