"""davy's part of cpu_peers.py: opens a model through the ABI and returns a function from picture to picture."""
import ctypes
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "plugins" / "comfy"))
from davy import abi  # noqa: E402


def tensor(array, channels):
    """A [C, H, W] float32 array as the network's own numbers."""
    t = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.F32, layout=abi.Layout.CHW, channels=channels,
                   range=abi.Range.RAW, ndim=3, data=array.ctypes.data)
    for axis, size in enumerate(array.shape):
        t.shape[axis] = size
    return t


def open_model(build, path, precision, threads, task):
    """-> (version, [run]) where run(x) maps a [C, H, W] array to the network's output."""
    library = abi.load(str(pathlib.Path(build) / abi.file_name()))
    api, check, ref = library.api, library.check, ctypes.byref
    context, model, info = ctypes.c_void_p(), ctypes.c_void_p(), abi.ModelInfo()
    check(api.context_create(ref(abi.ContextDesc(device=b"cpu", n_threads=threads)), ref(context)))
    source = abi.Source(path=abi.text(str(path)))
    compute = abi.Dtype.BF16 if precision == "bf16" else abi.Dtype.F32
    desc = abi.ModelDesc(sources=ctypes.pointer(source), n_sources=1, compute=compute)
    check(api.model_open(context, ref(desc), ref(model)))
    check(api.model_info(model, ref(info)))
    upscale = task == "upscale"
    scale = info.scale_num // info.scale_den if upscale else info.spatial_factor
    call = api.upscale if upscale else api.vae_decode
    out = {}

    def run(x):
        if not out:
            out["y"] = np.empty((3, x.shape[1] * scale, x.shape[2] * scale), "f")
        given = tensor(x, abi.Channels.RGB if upscale else abi.Channels.LATENT)
        check(call(model, ref(given), ref(tensor(out["y"], abi.Channels.RGB)), None, None))
        return out["y"]

    return library.version, [run]
