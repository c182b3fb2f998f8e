"""davy's part of gpu_peers.py: models through the ABI, on torch's tensors without a copy, on torch's stream."""
import ctypes
import json
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "plugins" / "comfy"))
from davy import abi  # noqa: E402

ref = ctypes.byref
DTYPES = {torch.float32: abi.Dtype.F32, torch.float16: abi.Dtype.F16, torch.bfloat16: abi.Dtype.BF16, torch.uint8: abi.Dtype.U8}


def describe(t, channels):
    """davy's view of a channels-last [N, C, H, W] torch tensor; floats are the network's own numbers."""
    view = t.permute(0, 2, 3, 1)
    assert view.is_contiguous()
    view = view[0] if view.shape[0] == 1 else view
    memory = abi.Memory.CUDA if t.is_cuda else abi.Memory.HOST_PINNED if t.is_pinned() else abi.Memory.HOST
    out = abi.Tensor(memory=memory, device=t.device.index or 0, dtype=DTYPES[t.dtype], channels=channels,
                     layout=abi.Layout.HWC if view.dim() == 3 else abi.Layout.NHWC, ndim=view.dim(), data=t.data_ptr(),
                     range=abi.Range.FULL if t.dtype == torch.uint8 else abi.Range.RAW)
    for axis, size in enumerate(view.shape):
        out.shape[axis] = size
    return out


class Davy:
    """A context. device may name several GPUs, as in davy_context_desc."""

    def __init__(self, library, device):
        self.library = abi.load(library)
        self.api, self.check = self.library.api, self.library.check
        self.context = ctypes.c_void_p()
        self.check(self.api.context_create(ref(abi.ContextDesc(device=device.encode())), ref(self.context)))

    def close(self):
        self.api.context_release(self.context)

    def model(self, path, dtype):
        model = ctypes.c_void_p()
        source = abi.Source(path=abi.text(str(path)))
        desc = abi.ModelDesc(sources=ctypes.pointer(source), n_sources=1, compute=DTYPES[dtype])
        self.check(self.api.model_open(self.context, ref(desc), ref(model)))
        return model

    def release(self, model):
        self.api.model_release(model)

    def call(self, model, task, x, y, stream=None):
        """A function that runs the model from x to y: enqueues on a torch stream, or waits for the result without one."""
        picture, latent = abi.Channels.RGB, abi.Channels.LATENT
        work, given, wanted = {"upscale": (self.api.upscale, picture, picture), "decode": (self.api.vae_decode, latent, picture),
                               "encode": (self.api.vae_encode, picture, latent)}[task]
        run = abi.Run(flags=abi.RunFlag.MOMENTS if task == "encode" else 0)
        if stream is not None:
            run.stream = stream.cuda_stream
            run.flags |= abi.RunFlag.STREAM_ORDERED
        given, wanted = describe(x, given), describe(y, wanted)
        arguments = (model, ref(given), ref(wanted), ref(run), None)

        def once(keep=(given, wanted, run, x, y)):
            self.check(work(*arguments))

        return once

    def plan(self, model, task, x):
        op = {"upscale": abi.Op.UPSCALE, "decode": abi.Op.VAE_DECODE, "encode": abi.Op.VAE_ENCODE}[task]
        given = describe(x, abi.Channels.LATENT if task == "decode" else abi.Channels.RGB)
        plan = abi.PlanInfo()
        self.check(self.api.plan_query(model, ref(abi.Query(op=op, input=ctypes.pointer(given))), ref(plan)))
        return plan

    def memory(self):
        m = abi.MemoryInfo()
        self.check(self.api.context_memory(self.context, ref(m)))
        return m

    def profile(self, once, runs=3):
        """[{step, kernel, calls, ms, flops, bytes}] of one run."""
        extension = self.library.extension("davy.profile/1", abi.Profile1)
        handle = ctypes.c_void_p()
        self.check(extension.start(self.context))
        for _ in range(runs):
            once()
        self.check(extension.stop(self.context, ref(handle)))
        rows = json.loads(self.library.take_text(handle))
        return [{k: v / runs if isinstance(v, (int, float)) else v for k, v in row.items()} for row in rows]
