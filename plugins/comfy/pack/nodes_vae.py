"""Load VAE, VAE Encode, VAE Decode. Latents are ComfyUI's own, so these nodes mix with stock nodes."""

from . import engine, errors, files, host, latents, model, tensors
from .schema import Input, Node, Output
from ..davy import abi

ALIASES = ("vae", "tiled vae", "low vram vae", "autoencoder", "latent")
PRECISIONS = ["auto", "fp32", "bf16", "fp16"]


class Vae:
    """The value of DAVY_VAE: a model, and the conversion of its latents to ComfyUI's (latents.py)."""

    def __init__(self, opened, scale, shift, fold):
        self.model, self.scale, self.shift, self.fold = opened, scale, shift, fold

    @property
    def factor(self):
        """Pixels for each element of a LATENT, along one side."""
        return self.model.info.spatial_factor * self.fold

    def needs(self, feature, verb):
        if not self.model.info.features & feature:
            raise errors.Error(f"{self.model.label} cannot {verb}: it is one half of a VAE, choose a VAE with both halves")

    def network(self, latent):
        """Converts ComfyUI's latents to the network's. Latents of another VAE stay unchanged: the library reports the error."""
        channels = self.model.info.latent_channels * self.fold**2
        if self.fold > 1 and latent.shape[1] != channels:
            found = f"the latents have {latent.shape[1]} channels, but {self.model.label} needs {channels}"
            raise errors.Error(f"{found}: use the VAE that made them")
        if latent.shape[1] != channels:
            return latent
        if (self.scale, self.shift) != latents.SAME:
            latent = (latent - latents.spread(self.shift, latent)) * latents.spread(self.scale, latent)
        return latents.unfolded(latent) if self.fold > 1 else latent

    def comfy(self, latent):
        """Converts the network's latents to ComfyUI's. Works in place unless they are folded."""
        latent = latents.folded(latent) if self.fold > 1 else latent
        if (self.scale, self.shift) == latents.SAME:
            return latent
        return latent.div_(latents.spread(self.scale, latent)).add_(latents.spread(self.shift, latent))


class LoadVae(Node):
    id = "DavyVAELoader"
    name = "Load VAE (davy)"
    category = "davy/loaders"
    description = "Loads a VAE from ComfyUI's folders vae and vae_approx, or the VAE inside a checkpoint."
    aliases = ("load vae", *ALIASES)
    outputs = [Output("vae", "DAVY_VAE", "The VAE, for VAE Encode (davy) and VAE Decode (davy).")]

    @staticmethod
    def inputs():
        return [
            Input("vae_name", "COMBO", "The VAE: the names of the stock Load VAE, and checkpoints that contain a VAE.",
                  choices=lambda: files.vaes() or ["(put a VAE into models/vae)"]),
            Input("precision", "COMBO", "Number format. auto: bf16 on a GPU, fp32 on the CPU.", choices=lambda: PRECISIONS,
                  default="auto", advanced=True),
            Input("device", "COMBO", "default: ComfyUI's device. cpu: keeps the GPU free.",
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
        Input("tile_size", "INT", f"Side of a tile in pixels{unit}. 0: as large as memory allows, which is best.",
              default=0, min=0, max=8192, step=64, advanced=True),
        Input("overlap", "INT", "Overlap of the tiles in pixels. 0: as much as the network needs.", default=0,
              min=0, max=1024, step=8, advanced=True),
    ]


def as_run(tile_size, overlap, unit=1, **members):
    """A davy_run with tiles. tile_size and overlap are in pixels of the picture; `unit` pixels make one element of the input."""
    side = max(1, tile_size // unit) if tile_size else 0
    reach = -(-overlap // unit) if overlap else 0
    return abi.Run(tile_width=side, tile_height=side, tile_overlap=reach, **members)


def sample_inputs():
    return [
        Input("sample", "BOOLEAN", "Draws the latents from the VAE's distribution instead of taking its mean.", default=False,
              advanced=True),
        Input("seed", "INT", "Only with sample: the same seed draws the same latents.", default=0, min=0, max=(1 << 64) - 1,
              control_after_generate=False, advanced=True),
    ]


def as_given(tensor, given):
    """Moves a result to the device of its input."""
    return tensor if tensor.device == given.device else tensor.to(given.device)


def first_of(samples):
    """The tensor of a LATENT. A nested one (LTX-2's pictures and sound) gives its first tensor, as in stock nodes."""
    given = samples["samples"]
    return given.unbind()[0] if getattr(given, "is_nested", False) else given


def latents_of(samples, vae):
    """The latents of a LATENT, converted to the network's."""
    vae.needs(abi.ModelFeature.DECODES, "decode")
    given = first_of(samples)
    if len(given.shape) not in (4, 5):
        raise errors.Error(f"the latents have {len(given.shape)} axes instead of 4 or 5: use the VAE that made them")
    return vae.network(tensors.readable(given, vae.model.engine))


def decoded(latent, vae, tile_size, overlap):
    """The pictures of latents [n, c, h, w], or all frames of clips [n, c, t, h, w] in one batch."""
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
    description = "Turns latents into pictures. If memory is short it works in tiles, without visible seams."
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
    """Crops the pictures to sides that are multiples of factor, around the middle, as stock nodes do. No copy."""
    for axis in (1, 2):
        side = pixels.shape[axis]
        whole = side // factor * factor
        if whole == 0:
            size, least = f"{pixels.shape[2]}x{pixels.shape[1]}", f"{factor}x{factor}"
            raise errors.Error(f"the picture of {size} is too small for this VAE: use a picture of at least {least}")
        if whole != side:
            pixels = pixels.narrow(axis, side % factor // 2, whole)
    return pixels


class Encode(Node):
    id = "DavyVAEEncode"
    name = "VAE Encode (davy)"
    category, beside = "latent", "VAEEncode"
    description = "Turns pictures into latents: the mean of the VAE's distribution, as in stock nodes, or a sample from it."
    aliases = ("vae encode", "encode", "vae encode tiled", "image to latent", *ALIASES)
    outputs = [Output("latent", "LATENT", "Latents for samplers and for any VAE Decode.")]

    @staticmethod
    def inputs():
        return [
            Input("pixels", "IMAGE", "The pictures. Their sides are cropped to multiples of the VAE's factor. Alpha is ignored."),
            Input("vae", "DAVY_VAE", "From Load VAE (davy)."),
            *sample_inputs(),
            *tile_inputs(""),
        ]

    @staticmethod
    def run(pixels, vae, sample=False, seed=0, tile_size=0, overlap=0):
        vae.needs(abi.ModelFeature.ENCODES, "encode")
        pictures = cropped(tensors.readable(pixels, vae.model.engine), vae.factor)
        latent = encoded(pictures, vae, sample, seed, tile_size, overlap)
        if vae.model.info.temporal_factor > 1:  # each picture is a clip of one frame: Qwen-Image and Wan need the time axis
            latent = latent.reshape(*latent.shape[:2], 1, *latent.shape[2:])
        return ({"samples": as_given(latent, pixels)},)


NODES = [LoadVae, Encode, Decode]
