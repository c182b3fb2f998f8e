"""Tests changes between runs: files of models, a GPU that is full for a moment, results larger than the memory."""

import sys
import types

from checks import check, sentence


def test_models(pack, base):
    """Fingerprints and the list of captioning models."""
    loader, place = pack.NODE_CLASS_MAPPINGS["DavyCaptionModelLoader"], base / "models/LLM"
    for name in "pair.gguf", "mmproj-pair.gguf", "config.json", "lost.safetensors":
        (place / name).write_bytes(b"nothing")
    names = loader.INPUT_TYPES()["required"]["model_name"][0]
    check(names == ["made-up/tiny", "pair.gguf"], f"files beside the folders hide them: {names}")
    before = loader.IS_CHANGED(model_name="pair.gguf", unique_id="1")
    check(before and before == loader.IS_CHANGED(model_name="pair.gguf", unique_id="2"), "the fingerprint of the same pair")
    (place / "mmproj-pair.gguf").write_bytes(b"something else")
    check(before != loader.IS_CHANGED(model_name="pair.gguf", unique_id="1"), "the fingerprint of another mmproj file")
    info = pack.NODE_CLASS_MAPPINGS["DavyInfo"].IS_CHANGED(unique_id="1")
    check(info != info, f"Info is always new: {info!r}")
    for name in "pair.gguf", "mmproj-pair.gguf", "config.json", "lost.safetensors":
        (place / name).unlink()


def test_full_gpu():
    """A GPU that is full at its first use is tried again. A GPU that cannot be used is not."""
    engine, host = (sys.modules[f"davy_pack.pack.{name}"] for name in ("engine", "host"))
    abi = engine.abi
    real, fails = (engine.on, host.device, host.make_room), []

    def on(name, device=None):
        if name != "cpu" and fails:
            raise fails[0]
        return name

    engine.on, host.device = on, lambda: types.SimpleNamespace(type="cuda", index=0)
    host.make_room = lambda device: fails.clear()
    try:
        fails.append(abi.DavyError(abi.Result.E_NOMEM_DEVICE, "E_NOMEM_DEVICE", "cuda:0 has no memory left"))
        check(engine.of("default") == "cuda:0" and not engine.known()[1], "a GPU that was full is not used any longer")
        fails.append(abi.DavyError(abi.Result.E_DEVICE, "E_DEVICE", "its driver is old"))
        check(engine.of("default") == "cpu" and engine.known()[1] == {"cuda:0": "its driver is old"}, "an unusable GPU")
    finally:
        engine.on, host.device, host.make_room = real
        engine._refused.clear()


def test_no_memory(pack, node, image):
    """A result that does not fit the host memory is not reported as a bug of davy."""
    (model,) = node(pack, "DavyUpscaleModelLoader", model_name="davy-live x2 (built in)")
    run = lambda: node(pack, "DavyUpscaleToSize", upscaler=model, image=image(1, 8000, 2), width=16384)  # noqa: E731
    sentence(run, "1x65536000x16384x3", "12000 GiB", "fewer")
