"""Caption Batch: lists of pictures and whole folders, with text files beside the pictures."""

import os

from . import errors, files, host, model, talk
from .nodes_caption import ALIASES, answer_inputs, host_pictures, looking_inputs, prompt_inputs, question
from .schema import Input, Node, Output, Shown
from ..davy import abi

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")
TOGETHER = 16  # pictures to one call, which are all in memory for it
SIDECARS = ["write missing", "write all", "do not write"]


def folder_path(folder):
    """A folder as the user wrote it: absolute, or inside of ComfyUI's input folder."""
    path = os.path.expanduser(folder.strip().strip('"'))
    if not os.path.isabs(path):
        path = os.path.join(files.folders().get_input_directory(), path)
    if not os.path.isdir(path):
        raise errors.Error(f"{path}: there is no such folder: write its full path, or a name inside of ComfyUI's input folder")
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
    """A picture of a file as a davy_tensor of bytes, upright, without alpha."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as picture:
            picture = ImageOps.exif_transpose(picture)
            if picture.mode.startswith("I"):  # grey of 16 bits, of which PIL would make white all that is above 255
                picture = picture.convert("I").point(lambda value: value * (1 / 257)).convert("L")
            picture = picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise errors.Error(f"{path} cannot be read as a picture ({errors.sentence(error)}): repair it or take it out") from None
    memory = bytearray(picture.tobytes())
    view = abi.Tensor(dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3, data=abi.buffer_address(memory))
    view.shape[:3] = [picture.height, picture.width, 3]
    view.keep = memory
    return view


def write(path, text):
    """Beside it, then into place: nobody sees half a file."""
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
        "Writes about many pictures: a list of images, or a folder on disk with a .txt file beside each picture, as trainers "
        "read them. Pictures are read a few at a time."
    )
    aliases = ("caption folder", "dataset captions", "lora captions", "sidecar", "tagger", *ALIASES)
    outputs = [
        Output("text", "STRING", "The answers, in the order of the pictures.", listed=True),
        Output("file", "STRING", "The pictures' files; empty for images that came as input.", listed=True),
    ]
    ends = True
    takes_lists = True

    @staticmethod
    def inputs():
        return [
            Input("captioner", "DAVY_CAPTIONER", "From Load Captioner (davy)."),
            *prompt_inputs(),
            Input("folder", "STRING", "A folder of pictures: its full path, or a name inside of ComfyUI's input folder.",
                  default=""),
            Input("subfolders", "BOOLEAN", "Also the pictures in folders inside of it.", default=False),
            Input("sidecars", "COMBO", "write missing: pictures that have a .txt already are left as they are, and its text "
                  "is given. write all: replaces them.", choices=lambda: SIDECARS, default=SIDECARS[0]),
            *answer_inputs(),
            Input("image", "IMAGE", "Images, also a list of batches of different sizes, instead of a folder or beside it.",
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
            raise errors.Error("there are no pictures: connect images or name a folder that has some")
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
        done += ", the others had text" if len(missing) < len(texts) else ""
        return Shown((texts, names), done)

    @staticmethod
    def fingerprint(folder=("",), subfolders=(False,), sidecars=(SIDECARS[0],), **others):
        """The pictures of the folder and their text files as they are now; what these say counts where they are given."""
        name, deep, mode = (i[0] if isinstance(i, (list, tuple)) else i for i in (folder, subfolders, sidecars))
        if not name or not name.strip():
            return ""

        def text(path):
            there = os.path.exists(sidecar(path))
            return model.stamp(sidecar(path)) if there and mode == "write missing" else there

        return repr([(p, model.stamp(p), text(p)) for p in pictures_in(folder_path(name), deep)])


NODES = [CaptionBatch]
