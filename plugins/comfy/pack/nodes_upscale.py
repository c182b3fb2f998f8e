"""Load Upscale Model, Upscale with Model, Upscale to Size."""

from . import engine, errors, files, frames, host, model, tensors
from .nodes_vae import as_run, tile_inputs
from .schema import Input, Node, Output
from ..davy import abi

ALIASES = ("upscale", "upscaler", "esrgan", "super resolution", "superres", "enlarge", "hires", "upscale image")
LAYOUTS = (abi.Layout.NHWC, abi.Layout.NHWC)
FITS = ["keep proportions", "crop to fill", "stretch"]


class LoadUpscaler(Node):
    id = "DavyUpscaleModelLoader"
    name = "Load Upscale Model (davy)"
    category = "davy/loaders"
    description = "Loads an upscale model from ComfyUI's folder upscale_models, or one of the two models that come with davy."
    aliases = ("load upscale model", *ALIASES)
    outputs = [Output("upscaler", "DAVY_UPSCALER", "For Upscale with Model (davy) and Upscale to Size (davy).")]

    @staticmethod
    def inputs():
        return [
            Input("model_name", "COMBO", "The upscale model. The built-in models are small and fast.", choices=files.upscalers),
            Input("precision", "COMBO", "Number format. auto: fp16 on a GPU, fp32 on the CPU.",
                  choices=lambda: ["auto", "fp32", "bf16", "fp16", "fp8", "int8"], default="auto", advanced=True),
            Input("device", "COMBO", "default: ComfyUI's device. cpu: keeps the GPU free.",
                  choices=lambda: engine.CHOICES, default="default", advanced=True),
        ]

    @staticmethod
    def run(model_name, precision="auto", device="default"):
        return (model.open(abi.Task.UPSCALE, files.upscaler(model_name), precision, device),)

    @staticmethod
    def fingerprint(model_name, **others):
        return repr((model.stamps(files.upscaler(model_name)), sorted(others.items())))


def scaled(upscaler, side):
    return side * upscaler.info.scale_num // upscaler.info.scale_den


def upscaled(upscaler, pictures, result, run, after):
    """Model.batch, in the fastest way for the pictures' device."""
    if frames.fits(upscaler, pictures, result):
        frames.upscale(upscaler, pictures, result, run, after)
    else:
        upscaler.batch(abi.Op.UPSCALE, pictures, result, LAYOUTS, run, after)


class Upscale(Node):
    id = "DavyUpscaleWithModel"
    name = "Upscale with Model (davy)"
    category = "image/upscaling"
    description = (
        "Upscales pictures or video frames by the model's own factor. Each frame is written directly to the result, so memory "
        "holds only input, output and one frame of work. Transparency is kept."
    )
    aliases = ALIASES
    outputs = [Output("image", "IMAGE", "The upscaled pictures.")]

    @staticmethod
    def inputs():
        return [
            Input("upscaler", "DAVY_UPSCALER", "From Load Upscale Model (davy)."),
            Input("image", "IMAGE", "Pictures or video frames: grey, RGB or RGBA."),
            *tile_inputs(" of the input"),
        ]

    @staticmethod
    def run(upscaler, image, tile_size=0, overlap=0):
        pictures = tensors.readable(image, upscaler.engine)
        n, h, w, c = pictures.shape
        result = tensors.fresh(pictures, [n, scaled(upscaler, h), scaled(upscaler, w), c])
        after = (lambda i: host.preview(result[i])) if n > 1 else None
        upscaled(upscaler, pictures, result, as_run(tile_size, overlap), after)
        return (result if result.device == image.device else result.to(image.device),)


def target_size(width, height, w, h, fit):
    """(width, height) of the result. A 0 is computed from the other side."""
    if not width and not height:
        raise errors.Error("Upscale to Size needs a width or a height: set one of them above 0")
    if not width or not height or fit == "keep proportions":
        ratio = min(s / side for s, side in ((width, w), (height, h)) if s)
        return max(1, round(w * ratio)), max(1, round(h * ratio))
    return width, height


def filling(pictures, width, height):
    """The middle of the pictures in the proportions of the result, without a copy."""
    h, w = pictures.shape[1:3]
    keep_w, keep_h = min(w, max(1, round(h * width / height))), min(h, max(1, round(w * height / width)))
    return pictures.narrow(1, (h - keep_h) // 2, keep_h).narrow(2, (w - keep_w) // 2, keep_w)


class UpscaleToSize(Node):
    id = "DavyUpscaleToSize"
    name = "Upscale to Size (davy)"
    category = "image/upscaling"
    description = (
        "Upscales pictures with a model and resizes them to a size in pixels. It works on one picture at a time, so memory "
        "holds only one picture in the model's own size. Pictures that are already large enough are only resized."
    )
    aliases = ("resize", "upscale to resolution", "scale to size", *ALIASES)
    outputs = [Output("image", "IMAGE", "The pictures in their new size.")]

    @staticmethod
    def inputs():
        return [
            Input("upscaler", "DAVY_UPSCALER", "From Load Upscale Model (davy)."),
            Input("image", "IMAGE", "Pictures or video frames."),
            Input("width", "INT", "Width in pixels. 0: computed from the height.", default=1920, min=0, max=16384, step=1),
            Input("height", "INT", "Height in pixels. 0: computed from the width.", default=0, min=0, max=16384, step=1),
            Input("fit", "COMBO", "If both sides are set: keep proportions fits into them, crop to fill cuts the edges.",
                  choices=lambda: FITS, default=FITS[0]),
            *tile_inputs(" of the input"),
        ]

    @staticmethod
    def run(upscaler, image, width=1920, height=0, fit=FITS[0], tile_size=0, overlap=0):
        pictures = tensors.readable(image, upscaler.engine)
        n, h, w, c = pictures.shape
        width, height = target_size(width, height, w, h, fit)
        if fit == "crop to fill":
            pictures = filling(pictures, width, height)
            h, w = pictures.shape[1:3]
        result = tensors.fresh(pictures, [n, height, width, c])
        if width <= w and height <= h:  # nothing to enlarge
            for i in range(n):
                host.check_interrupt()
                result[i : i + 1].copy_(host.resized(pictures[i : i + 1], width, height))
            return (result if result.device == image.device else result.to(image.device),)
        large = tensors.fresh(pictures, [1, scaled(upscaler, h), scaled(upscaler, w), c], host.picture_dtype(pictures))
        run = as_run(tile_size, overlap)

        def put(i):
            result[i : i + 1].copy_(host.resized(large, width, height))
            return host.preview(result[i]) if n > 1 else None

        upscaled(upscaler, pictures, large, run, put)
        return (result if result.device == image.device else result.to(image.device),)


NODES = [LoadUpscaler, Upscale, UpscaleToSize]
