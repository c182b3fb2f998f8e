"""Tests FLUX.2's latents: the network's latents, folded and normalised. The same made-up weights without the normalisation give the
network's own latents."""

import json
import struct
import sys

import numpy as np
from checks import check, sentence
from fake_host import Tensor, to_bf16

Z, WIDTH = 32, 32


def _resnets(put, name, count, width):
    for i in range(count):
        for part in "norm1", "norm2":
            put(f"{name}.{i}.{part}", width)
        for part in "conv1", "conv2":
            put(f"{name}.{i}.{part}", width, width, 3, 3)


def write(folder):
    """Writes VAEs with two levels and the tensor names of diffusers."""
    random, tensors = np.random.default_rng(1), {}

    def put(name, *shape):
        if len(shape) == 1:
            tensors[name + ".weight"] = 1 + 0.1 * random.standard_normal(shape)
        else:
            tensors[name + ".weight"] = random.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        tensors[name + ".bias"] = 0.1 * random.standard_normal(shape[0])

    for side, blocks, sampler, given, made in (
        ("encoder", "down_blocks", "downsamplers", 3, 2 * Z), ("decoder", "up_blocks", "upsamplers", Z, 3)):  # fmt: skip
        put(f"{side}.conv_in", WIDTH, given, 3, 3)
        _resnets(put, f"{side}.mid_block.resnets", 2, WIDTH)
        put(f"{side}.mid_block.attentions.0.group_norm", WIDTH)
        for part in "to_q", "to_k", "to_v", "to_out.0":
            put(f"{side}.mid_block.attentions.0.{part}", WIDTH, WIDTH)
        for level in range(2):
            _resnets(put, f"{side}.{blocks}.{level}.resnets", 2, WIDTH)
        put(f"{side}.{blocks}.0.{sampler}.0.conv", WIDTH, WIDTH, 3, 3)
        put(f"{side}.conv_norm_out", WIDTH)
        put(f"{side}.conv_out", made, WIDTH, 3, 3)
    put("quant_conv", 2 * Z, 2 * Z, 1, 1)
    put("post_quant_conv", Z, Z, 1, 1)
    _store(folder / "raw32.safetensors", tensors, "F32")
    tensors["bn.running_mean"] = random.standard_normal(4 * Z)
    tensors["bn.running_var"] = random.random(4 * Z) + 0.5
    for kind in "F32", "BF16":
        _store(folder / f"flux2_{kind}.safetensors", tensors, kind)


def _store(path, tensors, kind):
    data, header = b"", {}
    for name, t in tensors.items():
        stats = kind == "BF16" and name.startswith("bn.")
        stored = to_bf16(t) if stats else t.astype(np.float32)
        header[name] = {"dtype": "BF16" if stats else "F32", "shape": t.shape, "data_offsets": [len(data), len(data) + stored.nbytes]}
        data += stored.tobytes()
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def distance(a, b):
    return np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b)


def run(pack, node, safetensors, folder):
    (raw,) = node(pack, "DavyVAELoader", vae_name="raw32.safetensors")
    stats = safetensors(folder / "flux2_F32.safetensors")
    mean, deviation = (x[None, :, None, None] for x in (stats["bn.running_mean"], np.sqrt(stats["bn.running_var"] + 1e-4)))
    pixels = Tensor(np.random.default_rng(2).random((2, 23, 34, 3), np.float32))
    middle = Tensor(np.ascontiguousarray(pixels.array[:, 1:21, 1:33]))  # sides are multiples of twice the network's factor
    own = node(pack, "DavyVAEEncode", vae=raw, pixels=middle)[0]["samples"].array  # of 10x16
    want = own.reshape(2, Z, 5, 2, 8, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 4 * Z, 5, 8)
    (frames,) = node(pack, "DavyVAEDecode", vae=raw, samples={"samples": Tensor(own)})
    for kind, bound in ("F32", 1e-5), ("BF16", 1e-2):
        (vae,) = node(pack, "DavyVAELoader", vae_name=f"flux2_{kind}.safetensors")
        got = node(pack, "DavyVAEEncode", vae=vae, pixels=pixels)[0]["samples"]
        off = distance(got.array * deviation + mean, want) if got.shape == want.shape else got.shape
        check(got.shape == want.shape and off < bound, f"FLUX.2 {kind}: latents {off}")
        for given in got.array, np.stack([got.array[:1], got.array[1:]], 2):  # pictures, or frames
            (back,) = node(pack, "DavyVAEDecode", vae=vae, samples={"samples": Tensor(given)})
            off = distance(back.array, frames.array) if back.shape == frames.shape else back.shape
            check(back.shape == frames.shape and off < bound, f"FLUX.2 {kind}: pictures {off}")
        sentence(lambda: node(pack, "DavyVAEDecode", vae=vae, samples={"samples": Tensor(own)}), "32 channels", "128")  # noqa: B023
    calls = sys.modules["davy_pack.pack.model"]
    together, calls.TOGETHER = calls.TOGETHER, 1  # as of large pictures
    twice = Tensor(np.repeat(pixels.array[:1], 2, 0))
    drawn = node(pack, "DavyVAEEncode", vae=raw, pixels=twice, sample=True)[0]["samples"].array
    calls.TOGETHER = together
    check(distance(drawn[0], drawn[1]) > 0.01, "pictures of one batch are drawn with numbers of their own")
