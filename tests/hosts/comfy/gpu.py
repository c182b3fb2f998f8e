"""The node pack as a guest on a GPU, in a real ComfyUI: streams, types, memory that is given back, little memory, interrupts.

    python3 gpu.py --comfyui DIR --models DIR [--packages DIR]      (as tests/bench/gpu_comfy.py)

Needs torch with CUDA. Ends `N passed, N failed`."""

import argparse
import asyncio
import gc
import pathlib
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "tests/bench")]
import gpu_comfy as bench  # noqa: E402
from gpu_comfy import node  # noqa: E402

passed = failed = 0


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    print("ok  " if ok else "FAIL", what, flush=True)


def free(torch):
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def types(nodes, torch):
    """Pictures on the GPU and off it, of every type, strided, on a stream of the host's."""
    (model,) = node(nodes, "DavyUpscaleModelLoader", model_name="compact.safetensors", precision="fp32")
    run = lambda x: node(nodes, "DavyUpscaleWithModel", upscaler=model, image=x)[0]  # noqa: E731
    image = torch.rand(3, 150, 200, 3)
    host = run(image)
    there = run(image.cuda())
    check(there.is_cuda and not host.is_cuda, "results lie where the pictures lie")
    check(torch.equal(there.cpu(), host), "and are the same")
    for dtype in torch.float16, torch.bfloat16:
        other = run(image.cuda().to(dtype))
        off = float((other.cpu().float() - host).abs().max())
        check(other.dtype == dtype and off < 0.02, f"{dtype}: {off:.2g}")
    planes = image.cuda().movedim(-1, 1).contiguous().movedim(1, -1)
    check(torch.equal(run(planes).cpu(), host), "planes")
    side = torch.cuda.Stream()
    big = torch.rand(6000, 6000, device="cuda")
    with torch.cuda.stream(side):
        for _ in range(20):
            big = big @ big * 1e-4
        late = image.cuda() + 0 * big.flatten()[0].nan_to_num(0, 0, 0)
        got = run(late)
        again = (got * 2).cpu()
    check(torch.equal(again, host * 2), "work on a stream of the host's is waited for, and waits")


def memory(nodes, torch):
    import comfy.model_management as mm

    before = free(torch)
    (vae,) = node(nodes, "DavyVAELoader", vae_name="made.safetensors")
    latent = {"samples": torch.randn(1, 4, 128, 128)}
    (want,) = node(nodes, "DavyVAEDecode", vae=vae, samples=latent)
    used = before - free(torch)
    size = vae.model.info.weight_bytes
    check(vae.model.resident in mm.loaded_models() and used > size // 2, f"loaded: {used >> 20} MiB of the GPU")
    mm.free_memory(1 << 60, mm.get_torch_device())
    left = before - free(torch)
    check(vae.model.loaded_bytes == 0 and left < used - size // 2, f"evicted by free_memory: {left >> 20} MiB stay")
    (again,) = node(nodes, "DavyVAEDecode", vae=vae, samples=latent)
    check(torch.equal(again, want), "and comes back")
    mm.unload_all_models()
    check(vae.model.loaded_bytes == 0, "Unload Models")


def little(nodes, torch):
    """Another program has nearly all of the GPU: tiles, no error, and ComfyUI's reserve stays free."""
    import comfy.model_management as mm

    (vae,) = node(nodes, "DavyVAELoader", vae_name="made.safetensors")
    latent = {"samples": torch.randn(1, 4, 256, 256)}
    (want,) = node(nodes, "DavyVAEDecode", vae=vae, samples=latent)
    mm.unload_all_models()
    taken = torch.empty(free(torch) - (3 << 30), dtype=torch.uint8, device="cuda")
    lowest = [1 << 60]
    over = threading.Event()

    def watch():
        while not over.wait(0.002):
            lowest[0] = min(lowest[0], torch.cuda.mem_get_info()[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.monotonic()
    (got,) = node(nodes, "DavyVAEDecode", vae=vae, samples=latent)
    seconds = time.monotonic() - begun
    over.set()
    watcher.join()
    off = float((got - want).norm() / want.norm())
    check(off < 0.05, f"2048x2048 in 3 GiB: {seconds:.2f} s, {off:.2g} from the whole, at least {lowest[0] >> 20} MiB stay free")
    check(lowest[0] > 200 << 20, "the reserve stays free")
    del taken
    mm.unload_all_models()


def interrupts(nodes, torch):
    import comfy.model_management as mm

    (model,) = node(nodes, "DavyUpscaleModelLoader", model_name="rrdb.safetensors")
    image = torch.rand(40, 512, 512, 3)
    node(nodes, "DavyUpscaleWithModel", upscaler=model, image=image[:1])
    waits = []
    for after in 0.1, 0.2, 0.33:
        asked = []
        timer = threading.Timer(after, lambda: (asked.append(time.monotonic()), mm.interrupt_current_processing()))
        timer.start()
        try:
            node(nodes, "DavyUpscaleWithModel", upscaler=model, image=image)
            check(False, "it was not stopped")
        except mm.InterruptProcessingException:
            waits.append(time.monotonic() - asked[0])
        timer.join()
    check(waits and max(waits) < 0.1, "interrupts take " + ", ".join(f"{1000 * w:.0f}" for w in waits) + " ms")


def talk(nodes, torch):
    (model,) = node(nodes, "DavyCaptionModelLoader", model_name="davy-tiny-vlm")
    settings = dict(max_tokens=32, temperature=0.0, top_p=1.0, repeat_penalty=1.0, seed=0)
    image = torch.rand(1, 256, 256, 3, device="cuda")
    _, (first,) = node(nodes, "DavyCaptionImage", captioner=model, image=image, **settings)
    ask = lambda: node(nodes, "DavyCaptionAsk", conversation=first, question="What colour?", **settings)[0]  # noqa: E731
    one = ask()
    begun = time.monotonic()
    check(ask() == one, f"a follow-up again: {1000 * (time.monotonic() - begun):.0f} ms")
    import comfy.model_management as mm

    mm.unload_all_models()
    check(not model.pool.lives and ask() == one, "and after Unload Models")


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--comfyui", type=pathlib.Path, required=True)
    parse.add_argument("--models", type=pathlib.Path, default=ROOT.parent / "shared/models")
    parse.add_argument("--packages", type=pathlib.Path)
    options = parse.parse_args()
    sys.path += [str(options.packages.resolve())] if options.packages else []
    sys.meta_path.append(bench.Absent())
    import torch

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        base = pathlib.Path(folder)
        bench.folders(base, options.models)
        nodes = bench.start(options.comfyui.resolve(), base)
        check(asyncio.run(nodes.load_custom_node(str(ROOT / "plugins/comfy"))), "the pack loads")
        for part in types, memory, little, interrupts, talk:
            try:
                part(nodes, torch)
            except Exception as error:
                check(False, f"{part.__name__}: {type(error).__name__}: {error}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
