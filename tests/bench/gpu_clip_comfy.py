"""ComfyUI's own module for SeedVR2's video autoencoder, from a checkout that has comfy/ldm/seedvr. It is set up as ComfyUI's VAE
object does it: slices of four frames, convolutions and norms in parts of half a GiB. Modules that ComfyUI imports but that are
not needed here are replaced by empty ones, as in gpu_comfy.py. psutil and einops must be installed (PYTHONPATH)."""
import sys

import gpu_comfy


def load(directory, state):
    """ComfyUI's network with these weights, and its functions of a clip, by task."""
    sys.path.insert(0, str(directory))
    gpu_comfy.UNNEEDED += ("comfy_aimdo", "torchvision", "torchaudio", "scipy", "yaml", "PIL")
    sys.meta_path.append(gpu_comfy.Absent())
    import comfy.ldm.seedvr.vae as vae

    net = vae.VideoAutoencoderKLWrapper().eval()
    net.load_state_dict(state)
    net = net.cuda().bfloat16()
    net.device = "cuda"
    return net, {"encode": lambda x: vae.VideoAutoencoderKL.encode(net, x), "decode": net.decode_}
