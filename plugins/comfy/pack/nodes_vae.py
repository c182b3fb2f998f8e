"""Load VAE, VAE Encode, VAE Decode. Latents are ComfyUI's own, so that stock nodes and these can be mixed."""

from . import engine, errors, files, host, latents, model, tensors
from .schema import Input, Node, Output
from ..davy import abi

ALIASES = ("vae", "tiled vae", "low vram vae", "autoencoder", "latent")
PRECISIONS = ["auto", "fp32", "bf16", "fp16"]


class Vae:
    """What DAVY_VAE carries: a model, and what its latents are of ComfyUI's (latents.py)."""

    def __init__(self, opened, scale, shift, fold):
        self.model, self.scale, self.shift, self.fold = opened, scale, shift, fold

    @property
    def factor(self):
        """Pixels to one of a LATENT's."""
        return self.model.info.spatial_factor * self.fold

    def needs(self, feature, verb):
        if not self.model.info.features & feature:
            raise errors.Error(f"{self.model.label} cannot {verb}: it is the other half of a VAE, choose one with both")

    def network(self, latent):
        """ComfyUI's latents as the network takes them. Those of another VAE stay as they are: the library says what is wrong."""
        channels = self.model.info.latent_channels * self.fold**2
        if self.fold > 1 and latent.shape[1] != channels:
            found = f"these latents have {latent.shape[1]} channels, those of {self.model.label} have {channels}"
            raise errors.Error(f"{found}: use the VAE that they are made for")
        if latent.shape[1] != channels:
            return latent
        if (self.scale, self.shift) != latents.SAME:
            latent = (latent - latents.spread(self.shift, latent)) * latents.spread(self.scale, latent)
        return latents.unfolded(latent) if self.fold > 1 else latent

    def comfy(self, latent):
        """The network's latents as ComfyUI has them, in their place where they are not folded."""
        latent = latents.folded(latent) if self.fold > 1 else latent
        if (self.scale, self.shift) == latents.SAME:
            return latent
        return latent.div_(latents.spread(self.scale, latent)).add_(latents.spread(self.shift, latent))


class LoadVae(Node):
    id = "DavyVAELoader"
    name = "Load VAE (davy)"
    category = "davy/loaders"
    description = "Opens a VAE from ComfyUI's folders vae and vae_approx, or the one inside a checkpoint."
    aliases = ("load vae", *ALIASES)
    outputs = [Output("vae", "DAVY_VAE", "The VAE, for VAE Encode (davy) and VAE Decode (davy).")]

    @staticmethod
    def inputs():
        return [
            Input("vae_name", "COMBO", "The VAE: the same names as in the stock Load VAE, and checkpoints with a VAE inside.",
                  choices=lambda: files.vaes() or ["(put a VAE into models/vae)"]),
            Input("precision", "COMBO", "How it computes. auto: bf16 on a GPU, fp32 on the CPU.", choices=lambda: PRECISIONS,
                  default="auto", advanced=True),
            Input("device", "COMBO", "default: where ComfyUI computes. cpu: leaves the GPU alone.",
                  choices=lambda: engine.CHOICES, default="default", advanced=True),
        ]

    @staticmethod
    def run(vae_name, precision="auto", device="default"):
        opened = model.open(abi.Task.VAE, files.vae(vae_name), precision, device)
        return (Vae(opened, *latents.of(vae_name, opened.info, files.vae(vae_name))),)

    @staticmethod
    def fingerprint(vae_name, **others):
        return repr((model.stamps(files.vae(vae_name)), sorted(others.items())))


def tile_inputs(unit):
    return [
        Input("tile_size", "INT", f"0: as large as memory allows, which is best. Else the side of a tile in pixels{unit}.",
              default=0, min=0, max=8192, step=64, advanced=True),
        Input("overlap", "INT", "0: what the network needs. Else how far tiles reach into each other, in pixels.", default=0,
              min=0, max=1024, step=8, advanced=True),
    ]


def as_run(tile_size, overlap, unit=1, **members):
    """A davy_run whose tiles are given in pixels of the picture, `unit` of them to one sample of the input."""
    side = max(1, tile_size // unit) if tile_size else 0
    reach = -(-overlap // unit) if overlap else 0
    return abi.Run(tile_width=side, tile_height=side, tile_overlap=reach, **members)


def sample_inputs():
    return [
        Input("sample", "BOOLEAN", "Draw the latents from the VAE's distribution instead of taking its middle.", default=False,
              advanced=True),
        Input("seed", "INT", "With sample: the same seed draws the same latents.", default=0, min=0, max=(1 << 64) - 1,
              control_after_generate=False, advanced=True),
    ]


def as_given(tensor, given):
    """A result where the host has what it is made of."""
    return tensor if tensor.device == given.device else tensor.to(given.device)


def first_of(samples):
    """The tensor of a LATENT; of several together (LTX-2's pictures and sound) the first, as stock nodes take it."""
    given = samples["samples"]
    return given.unbind()[0] if getattr(given, "is_nested", False) else given


def latents_of(samples, vae):
    """The latents of a LATENT, as the network takes them."""
    vae.needs(abi.ModelFeature.DECODES, "decode")
    given = first_of(samples)
    if len(given.shape) not in (4, 5):
        raise errors.Error(f"these latents have {len(given.shape)} axes: use the VAE that they are made for")
    return vae.network(tensors.readable(given, vae.model.engine))


def decoded(latent, vae, tile_size, overlap):
    """The pictures of [n, c, h, w], or the frames of clips [n, c, t, h, w] one behind the other."""
    clips, opened = len(latent.shape) == 5, vae.model
    layouts = (abi.Layout.NCTHW, abi.Layout.NTHWC) if clips else (abi.Layout.NCHW, abi.Layout.NHWC)
    shape = opened.shape(abi.Op.VAE_DECODE, tensors.shape_only(latent.shape, layouts[0]))
    shape = [shape[0], *shape[2:], shape[1]]
    pictures = tensors.fresh(latent, shape, host.picture_dtype(latent))
    opened.batch(abi.Op.VAE_DECODE, latent, pictures, layouts, as_run(tile_size, overlap, opened.info.spatial_factor))
    return pictures.reshape(-1, *shape[2:]) if clips else pictures


def encoded(pictures, vae, sample, seed, tile_size, overlap):
    """The latents of pictures [n, h, w, c], or of clips [n, t, h, w, c]."""
    clips, opened = len(pictures.shape) == 5, vae.model
    if sample and not opened.info.features & abi.ModelFeature.MOMENTS:
        raise errors.Error(f"{opened.label} has no distribution to draw latents from: turn sample off")
    layouts = (abi.Layout.NTHWC, abi.Layout.NCTHW) if clips else (abi.Layout.NHWC, abi.Layout.NCHW)
    shape = opened.shape(abi.Op.VAE_ENCODE, tensors.shape_only(pictures.shape, layouts[0]))
    shape = [shape[0], shape[-1], *shape[1:-1]]
    latent = tensors.fresh(pictures, shape, host.picture_dtype(pictures))
    run = as_run(tile_size, overlap, flags=abi.RunFlag.SAMPLE if sample else 0, seed=seed)
    opened.batch(abi.Op.VAE_ENCODE, pictures, latent, layouts, run)
    return vae.comfy(latent)


class Decode(Node):
    id = "DavyVAEDecode"
    name = "VAE Decode (davy)"
    category, beside = "latent", "VAEDecode"
    description = "Turns latents into pictures. Tiles by itself where memory is short; the result has no seams."
    aliases = ("vae decode", "decode", "vae decode tiled", *ALIASES)
    outputs = [Output("image", "IMAGE", "The pictures.")]

    @staticmethod
    def inputs():
        return [
            Input("samples", "LATENT", "Latents from a sampler or from any VAE Encode."),
            Input("vae", "DAVY_VAE", "From Load VAE (davy)."),
            *tile_inputs(" of the picture"),
        ]

    @staticmethod
    def run(samples, vae, tile_size=0, overlap=0):
        pictures = decoded(latents_of(samples, vae), vae, tile_size, overlap)
        return (as_given(pictures, first_of(samples)),)


def cropped(pixels, factor):
    """The middle of the pictures, in sides that are multiples of factor, as stock nodes crop. No copy."""
    for axis in (1, 2):
        side = pixels.shape[axis]
        whole = side // factor * factor
        if whole == 0:
            size, least = f"{pixels.shape[2]}x{pixels.shape[1]}", f"{factor}x{factor}"
            raise errors.Error(f"a picture of {size} is too small for this VAE: make it at least {least}")
        if whole != side:
            pixels = pixels.narrow(axis, side % factor // 2, whole)
    return pixels


class Encode(Node):
    id = "DavyVAEEncode"
    name = "VAE Encode (davy)"
    category, beside = "latent", "VAEEncode"
    description = "Turns pictures into latents: the middle of the distribution, as stock nodes do, or drawn from it."
    aliases = ("vae encode", "encode", "vae encode tiled", "image to latent", *ALIASES)
    outputs = [Output("latent", "LATENT", "Latents for samplers and for any VAE Decode.")]

    @staticmethod
    def inputs():
        return [
            Input("pixels", "IMAGE", "Pictures; their sides are cropped to what the VAE can take. Alpha is left out."),
            Input("vae", "DAVY_VAE", "From Load VAE (davy)."),
            *sample_inputs(),
            *tile_inputs(""),
        ]

    @staticmethod
    def run(pixels, vae, sample=False, seed=0, tile_size=0, overlap=0):
        vae.needs(abi.ModelFeature.ENCODES, "encode")
        pictures = cropped(tensors.readable(pixels, vae.model.engine), vae.factor)
        latent = encoded(pictures, vae, sample, seed, tile_size, overlap)
        if vae.model.info.temporal_factor > 1:  # each is a clip of one frame: models of Qwen-Image and Wan want the axis of time
            latent = latent.reshape(*latent.shape[:2], 1, *latent.shape[2:])
        return ({"samples": as_given(latent, pixels)},)


NODES = [LoadVae, Encode, Decode]
