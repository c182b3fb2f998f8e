"""Conversion between ComfyUI's latents and a network's: network = (comfy - shift) * scale. Both are numbers, or one number for each
channel.

A LATENT of ComfyUI has the values of a full VAE; the sampler converts them to the diffusion model's. Distilled VAEs take the
diffusion model's values. Their files do not name the diffusion model, so the file name decides, as in stock nodes. FLUX.2's
LATENTs are folded: 2x2 of the network's pixels become one with four times the channels. They are normalised with numbers from the
VAE's file."""

import json
import math
import os
import struct

from . import errors

SAME = (1.0, 0.0)
# Image VAEs: pairs of files in vae_approx.
TINY = {"taesd": (0.18215, 0.0), "taesdxl": (0.13025, 0.0), "taesd3": (1.5305, 0.0609), "taef1": (0.3611, 0.1159)}
# Video VAEs of the TAEHV family: one scale for HunyuanVideo and for 1.5; Wan's deviations and means by number of channels.
HUNYUAN, HUNYUAN_15 = (0.476986, 0.0), (1.03682, 0.0)
WAN_STD = {
    16: (2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251,
         1.9160),
    48: (0.4765, 1.0364, 0.4514, 1.1677, 0.5313, 0.4990, 0.4818, 0.5013, 0.8158, 1.0344, 0.5894, 1.0901, 0.6885, 0.6165, 0.8454,
         0.4978, 0.5759, 0.3523, 0.7135, 0.6804, 0.5833, 1.4146, 0.8986, 0.5659, 0.7069, 0.5338, 0.4889, 0.4917, 0.4069, 0.4999,
         0.6866, 0.4093, 0.5709, 0.6065, 0.6415, 0.4944, 0.5726, 1.2042, 0.5458, 1.6887, 0.3971, 1.0600, 0.3943, 0.5537, 0.5444,
         0.4089, 0.7468, 0.7744),
}  # fmt: skip
WAN_MEAN = {
    16: (-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497,
         0.2503, -0.2921),
    48: (-0.2289, -0.0052, -0.1323, -0.2339, -0.2799, 0.0174, 0.1838, 0.1557, -0.1382, 0.0542, 0.2813, 0.0891, 0.1570, -0.0098,
         0.0375, -0.1825, -0.2246, -0.1207, -0.0698, 0.5109, 0.2665, -0.2108, -0.2158, 0.2502, -0.2055, -0.0322, 0.1109, 0.1567,
         -0.0729, 0.0899, -0.2799, -0.1230, -0.0313, -0.1649, 0.0117, 0.0723, -0.2839, -0.2083, -0.0520, 0.3748, 0.0152, 0.1957,
         0.1433, -0.2944, 0.3573, -0.0548, -0.1681, -0.0667),
}  # fmt: skip
BN_EPS = 1e-4  # of FLUX.2's batch norm


def of(name, info, sources):
    """(scale, shift, fold) of a VAE. name: in the loader's list. info: its davy_model_info."""
    if info.arch == b"vae_seedvr2":  # stock nodes scale its LATENTs too
        return 1.0 / info.latent_scale, 0.0, 1
    if info.arch == b"vae_kl" and info.variant.startswith(b"FLUX.2"):
        mean, deviation = _normalisation(sources[0])
        return deviation, tuple(-m / d for m, d in zip(mean, deviation)), 2
    if info.arch == b"vae_tae" and b"pooled" in info.variant:  # taef2
        return *SAME, 2
    return *(_of_videos(name, info.latent_channels) if info.arch == b"vae_taehv" else TINY.get(name, SAME)), 1


def _normalisation(path):
    """FLUX.2's means and deviations."""
    mean, variance = _numbers(path, "bn.running_mean"), _numbers(path, "bn.running_var")
    if not mean or len(mean) != len(variance):
        raise errors.Error(f"{os.path.basename(path)} has no normalisation for FLUX.2's latents: use the VAE's .safetensors file")
    return mean, tuple(math.sqrt(v + BN_EPS) for v in variance)


def _numbers(path, name):
    """A vector from a safetensors file. The library has already opened the file, so a plausible header is enough here."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > 1 << 26:
            return ()
        header = json.loads(file.read(size))
        found = next((header[p + name] for p in ("", "vae.", "first_stage_model.") if p + name in header), None)
        if found is None or found["dtype"] not in ("F32", "F16", "BF16"):
            return ()
        begin, end = found["data_offsets"]
        file.seek(8 + size + begin)
        data = file.read(end - begin)
    if found["dtype"] == "BF16":  # the upper two bytes of a float32
        data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
    kind = "e" if found["dtype"] == "F16" else "f"
    return struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data)


def folded(latent):
    """Folds [n, c, 2h, 2w] to [n, 4c, h, w]."""
    n, c, h, w = latent.shape
    cells = latent.reshape(n, c, h // 2, 2, w // 2, 2)
    return cells.movedim(4, 5).movedim(2, 4).reshape(n, 4 * c, h // 2, w // 2)


def unfolded(latent):
    """The inverse of folded(). Frames become pictures."""
    if len(latent.shape) == 5:
        latent = latent.movedim(2, 1).reshape(-1, latent.shape[1], *latent.shape[3:])
    n, c, h, w = latent.shape
    return latent.reshape(n, c // 4, 2, 2, h, w).movedim(4, 2).movedim(5, 4).reshape(n, c // 4, 2 * h, 2 * w)


def _of_videos(name, channels):
    """(scale, shift) of a file of the TAEHV family. Files for LTX-2 and MiniMax H3, and lighttae files for Wan, take ComfyUI's
    latents unchanged."""
    stem = os.path.basename(name).lower()
    if channels == 32:
        return HUNYUAN_15
    if "taew" in stem:
        raw = "lighttae" in stem or channels not in WAN_STD
        return SAME if raw else (tuple(1.0 / s for s in WAN_STD[channels]), WAN_MEAN[channels])
    return HUNYUAN if channels == 16 and "taehv" in stem else SAME


def spread(number, latent):
    """A scale or shift in a shape that broadcasts to latents [n, c, ...]."""
    if isinstance(number, tuple):
        return latent.new_tensor(number).reshape(-1, *[1] * (len(latent.shape) - 2))
    return number
