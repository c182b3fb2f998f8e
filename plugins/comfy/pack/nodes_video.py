"""Video VAE Encode, Video VAE Decode: a batch of pictures is one clip. Latents equal those of stock nodes and of the SeedVR2 pack:
[1, channels, time, height, width], converted as latents.py says."""

from . import errors, tensors
from .nodes_vae import ALIASES, as_given, cropped, decoded, encoded, first_of, latents_of, sample_inputs, tile_inputs
from .schema import Input, Node, Output
from ..davy import abi

VIDEO = ("video vae", "seedvr2", "wan", "taehv", *ALIASES)


def check(vae, feature, verb):
    vae.needs(feature, verb)
    if vae.model.info.temporal_factor <= 1:
        raise errors.Error(f"{vae.model.label} is a VAE of pictures: use VAE {verb.capitalize()} (davy), or load a video VAE")


def whole(clip, opened, layout):
    """The number of a clip's frames that fill whole latents."""
    side = opened.info.spatial_factor  # the smallest picture: planning many frames of a large one takes long

    def latents(frames):
        return opened.shape(abi.Op.VAE_ENCODE, tensors.shape_only([1, frames, side, side, clip.shape[-1]], layout))[1]

    factor, window = opened.info.temporal_factor, opened.info.window_frames
    together = -(-window // factor)  # latents in a window
    blank = together * factor - window  # frames of a window's latents beyond the clip's frames
    begins = 1 if blank == 0 and latents(2) > 1 else factor  # frames in the first latent

    def filled(count):
        return begins + (count - 1) * factor - blank * -(-count // together)

    frames = clip.shape[0]
    count = latents(frames)
    if filled(count) > frames and count > together:  # the last window has repeated frames
        count -= together
    return min(frames, filled(count))


class Encode(Node):
    id = "DavyVideoVAEEncode"
    name = "Video VAE Encode (davy)"
    category, beside = "latent", "VAEEncode"
    description = "Turns the frames of a video into latents. It adapts to the free memory."
    aliases = ("video encode", "vae encode", "video to latent", *VIDEO)
    outputs = [Output("latent", "LATENT", "Latents for samplers and for any VAE Decode.")]

    @staticmethod
    def inputs():
        return [
            Input("pixels", "IMAGE", "The frames in order. Their sides are cropped to multiples of the VAE's factor."),
            Input("vae", "DAVY_VAE", "A video VAE from Load VAE (davy)."),
            Input("cut", "BOOLEAN", "Drops the last frames if they do not fill a latent, as stock nodes do with Wan. Off: repeats "
                  "the last frame instead.", default=False),
            *sample_inputs(),
            *tile_inputs(""),
        ]

    @staticmethod
    def run(pixels, vae, cut=False, sample=False, seed=0, tile_size=0, overlap=0):
        check(vae, abi.ModelFeature.ENCODES, "encode")
        frames = cropped(tensors.readable(pixels, vae.model.engine), vae.factor)
        if cut:
            frames = frames[: whole(frames, vae.model, abi.Layout.NTHWC)]
        latent = encoded(frames.reshape(1, *frames.shape), vae, sample, seed, tile_size, overlap)
        return ({"samples": as_given(latent, pixels)},)


class Decode(Node):
    id = "DavyVideoVAEDecode"
    name = "Video VAE Decode (davy)"
    category, beside = "latent", "VAEDecode"
    description = "Turns the latents of a video into frames. It adapts to the free memory."
    aliases = ("video decode", "vae decode", "latent to video", *VIDEO)
    outputs = [Output("image", "IMAGE", "The frames.")]

    @staticmethod
    def inputs():
        return [
            Input("samples", "LATENT", "Latents of a video, from a sampler or from any VAE Encode."),
            Input("vae", "DAVY_VAE", "A video VAE from Load VAE (davy)."),
            Input("frames", "INT", "Number of frames to keep, without frames that the encoder repeated. 0: all frames.",
                  default=0, min=0, max=1 << 20),
            *tile_inputs(" of the frames"),
        ]

    @staticmethod
    def run(samples, vae, frames=0, tile_size=0, overlap=0):
        check(vae, abi.ModelFeature.DECODES, "decode")
        latent = latents_of(samples, vae)
        if len(latent.shape) == 4:  # latents of pictures: each is a clip of one frame
            latent = latent.reshape(*latent.shape[:2], 1, *latent.shape[2:])
        pictures = decoded(latent, vae, tile_size, overlap)
        pictures = pictures[:frames] if 0 < frames < pictures.shape[0] else pictures
        return (as_given(pictures, first_of(samples)),)


NODES = [Encode, Decode]
