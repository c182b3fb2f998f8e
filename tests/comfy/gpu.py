"""Tests the node pack on a GPU in a real ComfyUI: streams, types, freed memory, short memory, interrupts.

    python3 gpu.py --comfyui DIR --models DIR [--packages DIR] [--dynamic]      (as tests/bench/gpu_comfy.py)

Needs torch with CUDA. --dynamic: in dynamic VRAM mode, which ComfyUI 0.16 and newer have with comfy-aimdo. Prints `N passed,
N failed` last."""

import argparse
import asyncio
import gc
import pathlib
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/bench")]
import gpu_comfy as bench  # noqa: E402

passed = failed = 0
vram = None  # called after each node in dynamic mode


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    print("ok  " if ok else "FAIL", what, flush=True)


def node(nodes, id, **inputs):
    """Runs a node as ComfyUI's executor does."""
    try:
        return bench.node(nodes, id, **inputs)
    finally:
        if vram is not None:
            vram()


def start_dynamic():
    """Turns dynamic VRAM on as ComfyUI's main.py does, after the import of ComfyUI's modules."""
    global vram
    import comfy.memory_management
    import comfy.model_management as mm
    import comfy.model_patcher
    import comfy.model_prefetch
    import comfy_aimdo.control
    import comfy_aimdo.model_vbar

    check(comfy_aimdo.control.init_devices([(0, 0)]), "dynamic VRAM is on")
    comfy_aimdo.control.set_log_warning()
    comfy.model_patcher.CoreModelPatcher = comfy.model_patcher.ModelPatcherDynamic
    comfy.memory_management.aimdo_enabled = True

    def tidy():
        mm.reset_cast_buffers()
        comfy.model_prefetch.cleanup_prefetch_queues()
        comfy_aimdo.model_vbar.vbars_reset_watermark_limits()

    vram = tidy


def free(torch):
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def types(nodes, torch):
    """Pictures in GPU and host memory, of every type, strided, and on a stream of torch."""
    (model,) = node(nodes, "DavyUpscaleModelLoader", model_name="compact.safetensors", precision="fp32")
    run = lambda x: node(nodes, "DavyUpscaleWithModel", upscaler=model, image=x)[0]  # noqa: E731
    image = torch.rand(3, 150, 200, 3)
    host = run(image)
    there = run(image.cuda())
    check(there.is_cuda and not host.is_cuda, "results are on the pictures' device")
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
    check(torch.equal(again, host * 2), "work is ordered with torch's stream")


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
    check(vae.model.loaded_bytes == 0 and left < used - size // 2, f"evicted by free_memory: {left >> 20} MiB remain")
    (again,) = node(nodes, "DavyVAEDecode", vae=vae, samples=latent)
    check(torch.equal(again, want), "and comes back")
    mm.unload_all_models()
    check(vae.model.loaded_bytes == 0, "Unload Models")


def little(nodes, torch):
    """Another program uses nearly all of the GPU: davy works in tiles, without an error, and ComfyUI's reserve stays free."""
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


def dynamic(nodes, torch):
    """Stock weights on the GPU make room for davy's work and load again. davy makes room for stock nodes."""
    import comfy.model_management as mm

    mm.unload_all_models()
    (stock,) = node(nodes, "VAELoader", vae_name="made.safetensors")
    (ours,) = node(nodes, "DavyVAELoader", vae_name="made.safetensors")
    latent, large = ({"samples": torch.randn(1, 4, side, side)} for side in (64, 256))
    decode = lambda: node(nodes, "VAEDecode", vae=stock, samples=latent)[0]  # noqa: E731
    want = decode()
    stays = stock.patcher.loaded_size()
    check(stock.patcher.is_dynamic() and stays > 0, f"a stock VAE is dynamic and leaves {stays >> 20} MiB on the GPU")
    (same,) = node(nodes, "DavyVAEDecode", vae=ours, samples=latent)
    off = float((same - want).norm() / want.norm())
    check(off < 0.03 and stock.patcher.loaded_size() == stays, f"there is room for both: {off:.2g} apart")
    taken = torch.empty(free(torch) - (2 << 30), dtype=torch.uint8, device="cuda")
    node(nodes, "DavyVAEDecode", vae=ours, samples=large)
    check(stock.patcher.loaded_size() < stays, f"{stock.patcher.loaded_size() >> 20} MiB are left of it when room is short")
    mm.free_memory(1 << 60, mm.get_torch_device(), for_dynamic=True)
    check(ours.model.loaded_bytes == 0 and ours.model.kept_bytes() < 64 << 20, "davy makes room for dynamic models")
    off = float((decode() - want).norm() / want.norm())
    check(off < 0.03 and stock.patcher.loaded_size() > 0, f"which work as before: {off:.2g}")
    (again,) = node(nodes, "DavyVAEDecode", vae=ours, samples=latent)
    check(float((again - same).norm() / same.norm()) < 0.01, "and davy with them")
    del taken
    mm.unload_all_models()


def host_memory(nodes, torch):
    """Results in host memory, where the first write takes most of the time: with huge pages and with small ones."""
    inside = nodes.NODE_CLASS_MAPPINGS["DavyUpscaleWithModel"].__module__.rpartition(".")[0]
    tensors = sys.modules[inside + ".tensors"]
    (model,) = node(nodes, "DavyUpscaleModelLoader", model_name="compact.safetensors")
    run = lambda x: node(nodes, "DavyUpscaleWithModel", upscaler=model, image=x)[0]  # noqa: E731
    image = torch.rand(6, 720, 1280, 3)
    want = run(image[:1].cuda()).cpu()
    for advice, pages in (tensors.ADVISE_HUGE, "huge"), (tensors.ADVISE_HUGE + 1, "small"):
        tensors.ADVISE_HUGE, taken = advice, []
        for count in 1, 6:
            times = []
            for _ in range(3):
                begun = time.monotonic()
                got = run(image[:count])
                times.append(time.monotonic() - begun)
            taken.append(1000 * min(times) / count)
        check(torch.equal(got[:1], want), f"to 5120x2880 in {pages} pages: {taken[0]:.0f} ms, of six {taken[1]:.0f} ms each")
    tensors.ADVISE_HUGE -= 1


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
    parse.add_argument("--dynamic", action="store_true")
    options = parse.parse_args()
    sys.path += [str(options.packages.resolve())] if options.packages else []
    sys.meta_path.append(bench.Absent())
    if options.dynamic:  # before torch, as in main.py
        import comfy_aimdo.control

        comfy_aimdo.control.init(nvml_pressure=True)
    import torch

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        base = pathlib.Path(folder)
        bench.folders(base, options.models)
        nodes = bench.start(options.comfyui.resolve(), base)
        check(asyncio.run(nodes.load_custom_node(str(ROOT / "plugins/comfy"))), "the pack loads")
        if options.dynamic:
            start_dynamic()
        for part in types, memory, little, *([dynamic] if options.dynamic else []), host_memory, interrupts, talk:
            try:
                part(nodes, torch)
            except Exception as error:
                check(False, f"{part.__name__}: {type(error).__name__}: {error}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
