"""ComfyUI's own module for SeedVR2's video autoencoder, from a checkout that has it (comfy/ldm/seedvr), as its VAE object makes it:
slices of four frames, convolutions and norms in parts of half a GiB. What ComfyUI imports and this does not need is
replaced by nothing, as in gpu_comfy.py; psutil and einops have to be there (PYTHONPATH)."""
import sys

import gpu_comfy


def load(directory, state):
    """Its network with these weights, and its functions of a clip by task."""
    sys.path.insert(0, str(directory))
    gpu_comfy.UNNEEDED += ("comfy_aimdo", "torchvision", "torchaudio", "scipy", "yaml", "PIL")
    sys.meta_path.append(gpu_comfy.Absent())
    import comfy.ldm.seedvr.vae as vae

    net = vae.VideoAutoencoderKLWrapper().eval()
    net.load_state_dict(state)
    net = net.cuda().bfloat16()
    net.device = "cuda"
    return net, {"encode": lambda x: vae.VideoAutoencoderKL.encode(net, x), "decode": net.decode_}
