"""Tests latents of the TAEHV family: the same weights under the names of networks for HunyuanVideo and Wan, whose samplers use
different scales."""

import numpy as np
from checks import check, sentence
from fake_host import Tensor, Together

HUNYUAN = np.float32(0.476986)
# Wan 2.1: its sampler subtracts the means from latents and divides them by the deviations.
WAN_MEAN = (-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497,
            0.2503, -0.2921)  # fmt: skip
WAN_STD = (2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251,
           1.9160)  # fmt: skip


def distance(a, b):
    return np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b)


def run(pack, node, own, frames):
    """own: the network's latents. frames: their frames, decoded with taehv.safetensors. The other two files are links to it."""
    mean, std = (np.float32(numbers)[:, None, None, None] for numbers in (WAN_MEAN, WAN_STD))
    (hunyuan,) = node(pack, "DavyVAELoader", vae_name="taehv.safetensors")
    encoded = node(pack, "DavyVideoVAEEncode", vae=hunyuan, pixels=frames)[0]["samples"].array * HUNYUAN
    for name, latent in ("taew2_1", own * std + mean), ("lighttaew2_1", own):
        (vae,) = node(pack, "DavyVAELoader", vae_name=f"{name}.safetensors")
        both = {"samples": Together([Tensor(latent), None]), "type": "video"}  # pictures and sound
        (same,) = node(pack, "DavyVideoVAEDecode", vae=vae, samples=both)
        check(distance(same.array, frames.array) < 1e-4, f"{name}: frames {distance(same.array, frames.array)} away")
        back = node(pack, "DavyVideoVAEEncode", vae=vae, pixels=frames)[0]["samples"].array
        back = (back - mean) / std if name == "taew2_1" else back
        check(distance(back, encoded) < 1e-4, f"{name}: latents {distance(back, encoded)} away")
        few = {"samples": Tensor(latent[:, :4])}
        sentence(lambda: node(pack, "DavyVideoVAEDecode", vae=vae, samples=few), "16 channels", "4")  # noqa: B023
