"""The files that the loaders offer, from ComfyUI's own folders, and their paths."""

import os

from . import errors, host

WEIGHTS = (".safetensors", ".sft", ".pth", ".pt", ".ckpt", ".bin", ".pkl")
SHIPPED = {"davy-live x4 (built in)": "davy-live-x4", "davy-live x2 (built in)": "davy-live-x2"}
CHECKPOINT = "checkpoint: "
# Names of tiny video VAEs in vae_approx, one file each. The other files there are halves of tiny image VAEs.
TINY_VIDEO = ("taehv", "taew", "lighttae", "taeltx", "taecvx", "taeos", "taeh3")
SEEDVR2 = "seedvr2"  # the folder of the SeedVR2 nodes
CAPTIONERS = ("LLM", "davy")  # folders in models/; extra_model_paths.yaml may name more


def folders():
    found = host.module("folder_paths")
    if found is None:
        raise errors.Error("ComfyUI's folders are unknown outside of ComfyUI: run the node in ComfyUI")
    return found


def listed(kind):
    """The names that ComfyUI lists for a kind of model. Empty if it does not have the kind."""
    try:
        return list(folders().get_filename_list(kind))
    except (KeyError, errors.Error):
        return []


def full_path(kind, name):
    path = folders().get_full_path(kind, name)
    if path is None:
        raise errors.Error(f"{name} is not in ComfyUI's folders for {kind}: refresh the list (R) or put the file there")
    return os.path.abspath(path)


# ---- upscalers --------------------------------------------------------------------------------------------------------


def upscalers():
    return [*SHIPPED, *listed("upscale_models")]


def upscaler(name):
    """Sources for model.open."""
    return [SHIPPED[name]] if name in SHIPPED else [full_path("upscale_models", name)]


# ---- VAEs --------------------------------------------------------------------------------------------------------------


def tiny_pairs():
    """{name: [encoder file, decoder file]} of the folder vae_approx. One of the two may be None."""
    pairs = {}
    for file in sorted(listed("vae_approx")):
        stem, kind = os.path.splitext(os.path.basename(file))
        for i, part in enumerate(("_encoder", "_decoder")):
            if stem.endswith(part) and kind in WEIGHTS:
                pair = pairs.setdefault(stem[: -len(part)], [None, None])
                pair[i] = pair[i] or file
    return pairs


def video_vaes():
    """{name: kind of folder} of video VAEs in other folders than vae."""
    found = {f: "vae_approx" for f in listed("vae_approx") if os.path.basename(f).lower().startswith(TINY_VIDEO)}
    return found | {f: SEEDVR2 for f in listed(SEEDVR2) if "vae" in os.path.basename(f).lower()}


def vaes():
    return [*listed("vae"), *tiny_pairs(), *video_vaes(), *(CHECKPOINT + name for name in listed("checkpoints"))]


def vae(name):
    """Sources for model.open."""
    if name.startswith(CHECKPOINT):
        return [full_path("checkpoints", name[len(CHECKPOINT) :])]
    if name not in listed("vae"):
        pair = tiny_pairs().get(name)
        if pair:
            return [full_path("vae_approx", file) for file in pair if file]
        if name in video_vaes():
            return [full_path(video_vaes()[name], name)]
    return [full_path("vae", name)]


# ---- captioning models ---------------------------------------------------------------------------------------------------


def caption_roots():
    """The folders with captioning models: models/LLM, models/davy and the folders of extra_model_paths.yaml."""
    known, roots = folders(), []
    for kind in CAPTIONERS:
        own = os.path.join(known.models_dir, kind)
        try:
            roots += known.get_folder_paths(kind)
        except KeyError:
            pass
        roots.append(own)
    return list(dict.fromkeys(os.path.abspath(r) for r in roots if os.path.isdir(r)))


def _is_model(files):
    return "config.json" in files and any(f.endswith((".safetensors", ".safetensors.index.json")) for f in files)


def caption_models():
    """{name: path} of folders with config.json and weights, and of GGUF files other than mmproj files."""
    found = {}
    for root in caption_roots():
        for folder, inner, files in os.walk(root, followlinks=True):
            name = os.path.relpath(folder, root).replace(os.sep, "/")
            whole = _is_model(files) and name != "."  # files directly in models/LLM must not hide the folders there
            inner[:] = sorted(d for d in inner if not d.startswith(".")) if not whole else []
            if whole:
                found.setdefault(name, folder)
            for file in sorted(files):
                if file.endswith(".gguf") and "mmproj" not in file.lower():
                    path = os.path.join(folder, file)
                    found.setdefault(os.path.relpath(path, root).replace(os.sep, "/"), path)
    return found


def caption_model(name):
    path = caption_models().get(name)
    if path is None:
        places = " or ".join(os.path.join("models", kind) for kind in CAPTIONERS)
        raise errors.Error(f"{name} is not in {places}: refresh the list (R) or put the model there")
    return [os.path.abspath(path)]
