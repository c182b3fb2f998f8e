"""Batches in host memory, computed on a GPU. Uploads, computation and downloads of different pictures overlap."""

import ctypes

from . import errors, host, tensors
from .model import POLL_NS
from ..davy import abi
from ..davy.abi import ref

IN_FLIGHT = 3  # one in upload, one in computation, one in download


def fits(model, inputs, outputs):
    """Whether a batch gains from this. Older libraries have no sequences."""
    there = model.lib.has("sequence_open") and model.engine.is_gpu
    return there and inputs.shape[0] > 1 and inputs.device.type == outputs.device.type == "cpu"


def upscale(model, inputs, outputs, run, after):
    """The same as Model.batch."""
    n = inputs.shape[0]
    first = tensors.view(inputs[:1], abi.Layout.NHWC)
    model.get_ready(abi.Op.UPSCALE, first, run)
    bar = host.Progress(n)
    done = 0
    try:
        for done in _some(model, inputs, outputs, run, after, bar, 0):
            pass
    except abi.DavyError as error:
        if error.code not in errors.MEMORY:
            raise
        model.start_over(abi.Op.UPSCALE, first, run)
        for done in _some(model, inputs, outputs, run, after, bar, done):
            pass


def _some(model, inputs, outputs, run, after, bar, done):
    """Computes the frames from index `done` on. Yields the number of finished frames."""
    lib, n, alone = model.lib, inputs.shape[0], outputs.shape[0] != inputs.shape[0]
    like, result = (tensors.view(t[0], abi.Layout.HWC) for t in (inputs, outputs))
    desc = abi.SequenceDesc(op=abi.Op.UPSCALE, max_in_flight=IN_FLIGHT, run=ctypes.pointer(run))
    desc.input, desc.output = ctypes.pointer(like), ctypes.pointer(result)
    sequence = abi.Handle()
    lib.check(lib.api.sequence_open(model.handle, ref(desc), ref(sequence)))
    try:
        pushed = done
        while done < n:
            while pushed < n:
                frame = tensors.view(inputs[pushed], abi.Layout.HWC)
                if lib.check(lib.api.sequence_push(sequence, ref(frame), 0)) == abi.Result.FULL:
                    break
                pushed += 1
            target = tensors.view(outputs[0 if alone else done], abi.Layout.HWC)
            state = lib.check(lib.api.sequence_pull(sequence, ref(target), POLL_NS))
            host.check_interrupt()
            if state == abi.Result.OK:
                bar.at(done + 1, after(done) if after else None)
                done += 1
                yield done
    finally:
        lib.api.sequence_release(sequence)
