"""Caption Batch: captions for lists of pictures and for whole folders, with a text file beside each picture."""

import os

from . import errors, files, host, model, talk
from .nodes_caption import ALIASES, answer_inputs, host_pictures, looking_inputs, prompt_inputs, question
from .schema import Input, Node, Output, Shown
from ..davy import abi

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")
TOGETHER = 16  # pictures in one call; all of them are in memory
SIDECARS = ["write missing", "write all", "do not write"]


def folder_path(folder):
    """The path of the user's folder: a full path, or a name in ComfyUI's input folder."""
    path = os.path.expanduser(folder.strip().strip('"'))
    if not os.path.isabs(path):
        path = os.path.join(files.folders().get_input_directory(), path)
    if not os.path.isdir(path):
        raise errors.Error(f"{path}: no such folder: write a full path, or the name of a folder in ComfyUI's input folder")
    return path


def pictures_in(path, deep):
    found = []
    for folder, inner, names in os.walk(path):
        inner[:] = sorted(inner) if deep else []
        found += [os.path.join(folder, n) for n in sorted(names) if n.lower().endswith(PICTURES)]
    return found


def sidecar(path):
    return os.path.splitext(path)[0] + ".txt"


def opened(path):
    """Reads a picture file into a davy_tensor of bytes, upright, without alpha."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as picture:
            picture = ImageOps.exif_transpose(picture)
            if picture.mode.startswith("I"):  # 16-bit grey: PIL's own conversion would clip at 255
                picture = picture.convert("I").point(lambda value: value * (1 / 257)).convert("L")
            picture = picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise errors.Error(f"{path} cannot be read as a picture ({errors.sentence(error)}): replace or remove the file") from None
    memory = bytearray(picture.tobytes())
    view = abi.Tensor(dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3, data=abi.buffer_address(memory))
    view.shape[:3] = [picture.height, picture.width, 3]
    view.keep = memory
    return view


def write(path, text):
    """Writes a file under another name and renames it, so that a reader never sees an incomplete file."""
    part = path + ".part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except OSError as error:
        raise errors.Error(f"{path} cannot be written ({error.strerror}): check the folder's permissions") from None


class CaptionBatch(Node):
    id = "DavyCaptionBatch"
    name = "Caption Batch (davy)"
    category = "davy/caption"
    description = (
        "Captions many pictures: a list of images, or a folder on disk. For a folder it writes a .txt file beside each picture, "
        "as training programs expect. It reads a few pictures at a time."
    )
    aliases = ("caption folder", "dataset captions", "lora captions", "sidecar", "tagger", *ALIASES)
    outputs = [
        Output("text", "STRING", "The answers, in the order of the pictures.", listed=True),
        Output("file", "STRING", "The files of the pictures. Empty for images from the input.", listed=True),
    ]
    ends = True
    takes_lists = True

    @staticmethod
    def inputs():
        return [
            Input("captioner", "DAVY_CAPTIONER", "From Load Captioner (davy)."),
            *prompt_inputs(),
            Input("folder", "STRING", "A folder of pictures: a full path, or the name of a folder in ComfyUI's input folder.",
                  default=""),
            Input("subfolders", "BOOLEAN", "Also captions the pictures in the folder's subfolders.", default=False),
            Input("sidecars", "COMBO", "write missing: skips pictures that have a .txt file and outputs the file's text. write "
                  "all: replaces these files.", choices=lambda: SIDECARS, default=SIDECARS[0]),
            *answer_inputs(),
            Input("image", "IMAGE", "Images or a list of batches of different sizes. A folder can be used as well.",
                  optional=True),
            *looking_inputs(),
        ]  # fmt: skip

    @staticmethod
    def run(captioner, task, prompt, folder, subfolders, sidecars, image=(), system_prompt=("",), **settings):
        asked = question(task[0], prompt[0])
        how = talk.Settings(system=system_prompt[0].strip(), **{name: value[0] for name, value in settings.items()})
        images = [picture for batch in image if batch is not None for picture in host_pictures(batch)]
        paths = pictures_in(folder_path(folder[0]), subfolders[0]) if folder[0].strip() else []
        if not images and not paths:
            raise errors.Error("there are no pictures: connect images or choose a folder with pictures")
        texts = [None] * (len(images) + len(paths))
        for i, path in enumerate(paths):
            if sidecars[0] == "write missing" and os.path.exists(sidecar(path)):
                with open(sidecar(path), encoding="utf-8", errors="replace") as file:
                    texts[len(images) + i] = file.read().strip()
        missing = [i for i, text in enumerate(texts) if text is None]
        bar = host.Progress(100 * max(1, len(missing)))
        for first in range(0, len(missing), TOGETHER):
            part = missing[first : first + TOGETHER]
            views = [talk.picture_view(images[i]) if i < len(images) else opened(paths[i - len(images)]) for i in part]
            step = lambda done: bar.at(100 * (first + len(part) * done))  # noqa: E731, B023
            for i, text in zip(part, talk.captions(captioner[0], views, asked, how, step)):
                texts[i] = text
                if i >= len(images) and sidecars[0] != "do not write":
                    write(sidecar(paths[i - len(images)]), text)
        names = [""] * len(images) + paths
        done = f"{len(missing)} of {len(texts)} pictures captioned"
        done += ", the others have a text file" if len(missing) < len(texts) else ""
        return Shown((texts, names), done)

    @staticmethod
    def fingerprint(folder=("",), subfolders=(False,), sidecars=(SIDECARS[0],), **others):
        """Dates and sizes of the folder's pictures and of their text files. In the mode `write missing` the contents of text files
        count; in other modes only their presence."""
        name, deep, mode = (i[0] if isinstance(i, (list, tuple)) else i for i in (folder, subfolders, sidecars))
        if not name or not name.strip():
            return ""

        def text(path):
            there = os.path.exists(sidecar(path))
            return model.stamp(sidecar(path)) if there and mode == "write missing" else there

        return repr([(p, model.stamp(p), text(p)) for p in pictures_in(folder_path(name), deep)])


NODES = [CaptionBatch]
