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
    description = "Opens an upscaler from ComfyUI's folder upscale_models, or one of the two that come with davy."
    aliases = ("load upscale model", *ALIASES)
    outputs = [Output("upscaler", "DAVY_UPSCALER", "For Upscale with Model (davy) and Upscale to Size (davy).")]

    @staticmethod
    def inputs():
        return [
            Input("model_name", "COMBO", "The upscaler. The built-in ones are small and fast.", choices=files.upscalers),
            Input("precision", "COMBO", "How it computes. auto: fp16 on a GPU, fp32 on the CPU.",
                  choices=lambda: ["auto", "fp32", "bf16", "fp16", "fp8", "int8"], default="auto", advanced=True),
            Input("device", "COMBO", "default: where ComfyUI computes. cpu: leaves the GPU alone.",
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
    """Model.batch, by the way that is fastest for where the pictures lie."""
    if frames.fits(upscaler, pictures, result):
        frames.upscale(upscaler, pictures, result, run, after)
    else:
        upscaler.batch(abi.Op.UPSCALE, pictures, result, LAYOUTS, run, after)


class Upscale(Node):
    id = "DavyUpscaleWithModel"
    name = "Upscale with Model (davy)"
    category = "image/upscaling"
    description = (
        "Enlarges pictures, or the frames of a video, by the model's own factor. Frames go one by one into the result, "
        "so that memory holds nothing but input and output. Transparency is kept."
    )
    aliases = ALIASES
    outputs = [Output("image", "IMAGE", "The enlarged pictures.")]

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
    """(width, height) of the result; a 0 follows from the other side."""
    if not width and not height:
        raise errors.Error("Upscale to Size needs a width or a height: set one of them, 0 lets the other follow")
    if not width or not height or fit == "keep proportions":
        ratio = min(s / side for s, side in ((width, w), (height, h)) if s)
        return max(1, round(w * ratio)), max(1, round(h * ratio))
    return width, height


def filling(pictures, width, height):
    """The middle of the pictures in the proportions of the result. No copy."""
    h, w = pictures.shape[1:3]
    keep_w, keep_h = min(w, max(1, round(h * width / height))), min(h, max(1, round(w * height / width)))
    return pictures.narrow(1, (h - keep_h) // 2, keep_h).narrow(2, (w - keep_w) // 2, keep_w)


class UpscaleToSize(Node):
    id = "DavyUpscaleToSize"
    name = "Upscale to Size (davy)"
    category = "image/upscaling"
    description = (
        "Enlarges pictures with a model and brings them to a size in pixels, one picture after the other: no more than one "
        "of them is ever held at the model's own, larger size. Pictures that are larger already are only scaled down."
    )
    aliases = ("resize", "upscale to resolution", "scale to size", *ALIASES)
    outputs = [Output("image", "IMAGE", "The pictures in their new size.")]

    @staticmethod
    def inputs():
        return [
            Input("upscaler", "DAVY_UPSCALER", "From Load Upscale Model (davy)."),
            Input("image", "IMAGE", "Pictures or video frames."),
            Input("width", "INT", "In pixels; 0 follows from the height.", default=1920, min=0, max=16384, step=1),
            Input("height", "INT", "In pixels; 0 follows from the width.", default=0, min=0, max=16384, step=1),
            Input("fit", "COMBO", "With both sides set. keep proportions: inside of them. crop to fill: cuts what stands out.",
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
