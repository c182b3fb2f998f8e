#!/usr/bin/env python3
"""Makes the golden cases of SRFormer, RGT and ATD in cases/ beside this file. Weights are random, from a manifest. spandrel's
own classes compute the expected numbers; they derive their hyper-parameters from the file, as for real files.

    python3 tests/golden/make_upscalers.py [CASE...]

Needs torch, safetensors, Pillow, spandrel and spandrel_extra_arches."""
import json
import pathlib
import shutil
import sys
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from spandrel.architectures.ATD import ATD, ATDArch
from spandrel.architectures.RGT import RGT, RGTArch
from spandrel_extra_arches.architectures.SRFormer import SRFormer, SRFormerArch

import weights

CASES = pathlib.Path(__file__).resolve().parent / "cases"
INPUT = CASES / "hat_x2" / "input.png"

NETWORKS = {  # class, loader, seed, hyper-parameters, buffers that stay in the file, note
    "srformer_x2": (SRFormer, SRFormerArch, 61,
                    {"upscale": 2, "embed_dim": 36, "depths": (2, 2), "num_heads": (3, 3), "window_size": 6, "mlp_ratio": 2,
                     "upsampler": "pixelshuffle"}, (), "windows of 6: an odd shift"),
    "srformer_light_x3": (SRFormer, SRFormerArch, 62,
                          {"upscale": 3, "embed_dim": 24, "depths": (3,), "num_heads": (2,), "window_size": 16, "mlp_ratio": 2,
                           "upsampler": "pixelshuffledirect", "resi_connection": "3conv"}, (), "windows of 16"),
    "rgt_x2": (RGT, RGTArch, 63,
               {"upscale": 2, "embed_dim": 72, "depth": [4, 2], "num_heads": [6, 6], "mlp_ratio": 2, "split_size": [4, 8]},
               ("rpe_biases", "relative_position_index"), "six pixels stand for the whole picture"),
    "rgt_x1": (RGT, RGTArch, 66,
               {"upscale": 1, "embed_dim": 48, "depth": [2], "num_heads": [4], "mlp_ratio": 2, "split_size": [4, 8]},
               ("rpe_biases", "relative_position_index"), "no stage in the tail: a picture of the same size"),
    "atd_x2": (ATD, ATDArch, 64,
               {"upscale": 2, "embed_dim": 40, "depths": (3, 2), "num_heads": (4, 4), "window_size": 8, "category_size": 256,
                "num_tokens": 20, "reducted_dim": 6, "convffn_kernel_size": 5, "mlp_ratio": 2.0, "upsampler": "pixelshuffle"}, (),
               "960 pixels in groups of 256"),
    "atd_light_x2": (ATD, ATDArch, 65,
                     {"upscale": 2, "embed_dim": 48, "depths": (3,), "num_heads": (4,), "window_size": 8, "category_size": 128,
                      "num_tokens": 16, "reducted_dim": 8, "convffn_kernel_size": 7, "mlp_ratio": 1.0,
                      "upsampler": "pixelshuffledirect", "norm": False}, ("no_norm",), "960 pixels in groups of 128; no mean"),
}


SIZES = {RGT: (52, 36), ATD: (37, 21)}


# ATD uses an unstable sort, so its results differ between devices. davy's sort is stable, so the reference gets a stable one.
unstable_sort = torch.sort
torch.sort = lambda x, dim=-1, stable=False: unstable_sort(x, dim=dim, stable=True)


class Margins:
    """The least margin between the most similar token of a pixel and the second. If rounding decides between them, pixels
    change places and two correct results differ."""

    def __init__(self, net):
        self.least = float("inf")
        for module in net.modules():
            if type(module).__name__ == "ATD_CA":
                module.register_forward_hook(self.look)

    def look(self, module, inputs, outputs):
        top = outputs[1].topk(2, dim=-1).values
        self.least = min(self.least, float(((top[..., 0] - top[..., 1]) / top[..., 0]).min()))


def rule(name, shape):
    if name.endswith("relative_position_bias_table"):
        return ["uniform", 1.0]
    if name.endswith(".td"):
        return ["uniform", 1.0]
    if name.endswith(".sigma"):
        return ["uniform", 2.0]
    if name.endswith("attn_atd.scale"):
        return ["around", 0.6, 0.8]
    if name.endswith("logit_scale"):
        return ["around", -0.5, 0.1]
    if name.endswith("attn_aca.proj.weight"):  # a pixel that rounding moves to another group has less effect
        return ["uniform", round(float(np.sqrt(0.2 / shape[1])), 8)]
    if name.endswith(".gamma"):
        return ["around", 0.3, 0.3]
    if name.endswith("weight") and len(shape) == 1:
        return ["around", 1.0, 0.3]
    if name.endswith("bias"):
        return ["uniform", 0.1]
    return ["uniform", round(float(np.sqrt(1.5 / np.prod(shape[1:]))), 8)]


def manifest_of(model, seed, kept):
    tensors = [{"name": n, "shape": list(p.shape), "dtype": "F16", "rule": rule(n, p.shape)} for n, p in model.named_parameters()]
    tensors += [{"name": n, "shape": list(b.shape), "dtype": "F32", "rule": ["values", b.flatten().tolist()]}
                for n, b in model.named_buffers() if n.endswith(tuple(kept) or ("\0",))]
    return {"seed": seed, "files": [{"path": "model.safetensors", "tensors": sorted(tensors, key=lambda t: t["name"])}]}


def make(name):
    build, loader, seed, options, kept, note = NETWORKS[name]
    folder = CASES / name
    folder.mkdir(exist_ok=True)
    model = build(**options).eval()
    (folder / "manifest.json").write_text(json.dumps(manifest_of(model, seed, kept), separators=(",", ":")))
    if build in SIZES:  # a larger picture
        Image.open(INPUT).convert("RGB").resize(SIZES[build], Image.BICUBIC).save(folder / "input.png")
    else:
        shutil.copy(INPUT, folder / "input.png")
    with tempfile.TemporaryDirectory() as out:
        weights.main(folder, out)
        stored = {k: v.float() for k, v in load_file(pathlib.Path(out) / "model.safetensors").items()}
    state = {**model.state_dict(), **{k: v for k, v in stored.items() if not k.endswith(tuple(kept) or ("\0",))}}
    net = loader().load(state).model.eval()
    x = torch.from_numpy(np.array(Image.open(folder / "input.png").convert("RGB"))).permute(2, 0, 1)[None].float() / 255
    margins = Margins(net)
    begin = time.time()
    with torch.no_grad():
        y = net(x)
    if margins.least < 1e-5:
        sys.exit(f"{name}: a margin of {margins.least} is too small; use another seed")
    save_file({"output": y.contiguous()}, folder / "expected.safetensors")
    case = {"task": "upscale", "model": "model.safetensors", "input": "input.png", "scale": options["upscale"],
            "expected": {"output": "float32 NCHW, RGB, unclamped network output for input/255"}, "note": note,
            "reference_seconds": round(time.time() - begin, 2)}
    (folder / "case.json").write_text(json.dumps(case, indent=2) + "\n")
    print(name, tuple(y.shape), float(y.min()), float(y.max()), f"{sum(p.numel() for p in model.parameters())} parameters",
          f"margin {margins.least:.1e}")


if __name__ == "__main__":
    torch.manual_seed(0)
    for case in sys.argv[1:] or NETWORKS:
        make(case)
