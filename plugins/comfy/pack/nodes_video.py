"""Video VAE Encode, Video VAE Decode: a batch of pictures is one clip. Latents are those of stock nodes and of the SeedVR2
pack: [1, channels, time, height, width], of SeedVR2 scaled, of others as the network gives them."""

from . import errors, host, tensors
from .nodes_vae import ALIASES, cropped
from .schema import Input, Node, Output
from ..davy import abi

VIDEO = ("video vae", "seedvr2", "wan", "taehv", *ALIASES)


def check(vae, feature, verb):
    vae.needs(feature, verb)
    if vae.model.info.temporal_factor <= 1:
        raise errors.Error(f"{vae.model.label} is a VAE of pictures: use VAE {verb.capitalize()} (davy), or load one of videos")


def whole(clip, opened, layout):
    """How many of a clip's frames make whole latents."""
    two = opened.shape(abi.Op.VAE_ENCODE, tensors.shape_only([1, 2, *clip.shape[1:]], layout))
    first = opened.info.window_frames if two[1] == 1 else 1
    frames = clip.shape[0]
    return frames if frames <= first else frames - (frames - first) % opened.info.temporal_factor


class Encode(Node):
    id = "DavyVideoVAEEncode"
    name = "Video VAE Encode (davy)"
    category, beside = "latent", "VAEEncode"
    description = "Turns the frames of a video into the latents of a video VAE, in as little memory as there is."
    aliases = ("video encode", "vae encode", "video to latent", *VIDEO)
    outputs = [Output("latent", "LATENT", "Latents for samplers and for any VAE Decode.")]

    @staticmethod
    def inputs():
        return [
            Input("pixels", "IMAGE", "The frames in their order; sides are cropped to what the VAE can take."),
            Input("vae", "DAVY_VAE", "A VAE of videos, from Load VAE (davy)."),
            Input("cut", "BOOLEAN", "Where the last frames make no whole latent: leave them out, as stock nodes do with Wan, "
                  "instead of repeating the last one.", default=False),
            Input("sample", "BOOLEAN", "Draw the latents from the VAE's distribution instead of taking its middle.",
                  default=False, advanced=True),
            Input("seed", "INT", "With sample: the same seed draws the same latents.", default=0, min=0, max=(1 << 64) - 1,
                  control_after_generate=False, advanced=True),
        ]

    @staticmethod
    def run(pixels, vae, cut=False, sample=False, seed=0):
        check(vae, abi.ModelFeature.ENCODES, "encode")
        opened = vae.model
        if sample and not opened.info.features & abi.ModelFeature.MOMENTS:
            raise errors.Error(f"{opened.label} has no distribution to draw latents from: turn sample off")
        frames = cropped(tensors.readable(pixels, opened.engine), vae.factor)
        layouts = (abi.Layout.NTHWC, abi.Layout.NCTHW)
        if cut:
            frames = frames[: whole(frames, opened, layouts[0])]
        clip = frames.reshape(1, *frames.shape)
        shape = opened.shape(abi.Op.VAE_ENCODE, tensors.shape_only(clip.shape, layouts[0]))
        shape = [shape[0], shape[4], *shape[1:4]]
        latent = tensors.fresh(clip, shape, host.picture_dtype(clip))
        run = abi.Run(flags=abi.RunFlag.SAMPLE if sample else 0, seed=seed)
        opened.batch(abi.Op.VAE_ENCODE, clip, latent, layouts, run)
        if (vae.scale, vae.shift) != (1.0, 0.0):
            latent = latent.div_(vae.scale).add_(vae.shift)
        return ({"samples": latent if latent.device == pixels.device else latent.to(pixels.device)},)


class Decode(Node):
    id = "DavyVideoVAEDecode"
    name = "Video VAE Decode (davy)"
    category, beside = "latent", "VAEDecode"
    description = "Turns the latents of a video into its frames, in as little memory as there is."
    aliases = ("video decode", "vae decode", "latent to video", *VIDEO)
    outputs = [Output("image", "IMAGE", "The frames.")]

    @staticmethod
    def inputs():
        return [
            Input("samples", "LATENT", "Latents from a sampler or from any VAE Encode, of a video."),
            Input("vae", "DAVY_VAE", "A VAE of videos, from Load VAE (davy)."),
            Input("frames", "INT", "0: all. Else only so many of the first: what the last latent repeats is left out.",
                  default=0, min=0, max=1 << 20),
        ]

    @staticmethod
    def run(samples, vae, frames=0):
        check(vae, abi.ModelFeature.DECODES, "decode")
        given, opened = samples["samples"], vae.model
        if len(given.shape) not in (4, 5):
            raise errors.Error(f"these latents have {len(given.shape)} axes: use the VAE that they are made for")
        latent = tensors.readable(given, opened.engine)
        if (vae.scale, vae.shift) != (1.0, 0.0):
            latent = (latent - vae.shift) * vae.scale
        if len(latent.shape) == 4:  # of pictures: each is a clip of one frame
            latent = latent.reshape(*latent.shape[:2], 1, *latent.shape[2:])
        layouts = (abi.Layout.NCTHW, abi.Layout.NTHWC)
        shape = opened.shape(abi.Op.VAE_DECODE, tensors.shape_only(latent.shape, layouts[0]))
        shape = [shape[0], *shape[2:], shape[1]]
        pictures = tensors.fresh(latent, shape, host.picture_dtype(latent))
        opened.batch(abi.Op.VAE_DECODE, latent, pictures, layouts, abi.Run())
        pictures = pictures.reshape(-1, *shape[2:])
        pictures = pictures[:frames] if 0 < frames < pictures.shape[0] else pictures
        return (pictures if pictures.device == given.device else pictures.to(given.device),)


NODES = [Encode, Decode]
