"""An opened model: its weights, the memory of a call, and runs with progress and interrupts."""

import ctypes
import os
import threading
import weakref

from . import engine as engines
from . import errors, host, tensors
from .residency import Resident, acquire
from ..davy import abi
from ..davy.abi import ref

PRECISIONS = {
    "auto": abi.Dtype.AUTO,
    "fp32": abi.Dtype.F32,
    "bf16": abi.Dtype.BF16,
    "fp16": abi.Dtype.F16,
    "fp8": abi.Dtype.FP8,
    "int8": abi.Dtype.INT8,
    "int4": abi.Dtype.INT4,
}
TOGETHER = 4_000_000  # numbers of input or output in one call
POLL_NS = 20_000_000  # interval of the checks for an interrupt

_opened = weakref.WeakValueDictionary()
_lock = threading.Lock()


def stamp(path):
    """A value that changes with a file. For a folder it changes with each file in it, for a GGUF file also with an mmproj file in
    the same folder."""
    if os.path.isdir(path):
        return _stamps_in(path, "")
    found = os.stat(path)
    beside = _stamps_in(os.path.dirname(path), "mmproj") if path.endswith(".gguf") else ()
    return (found.st_mtime_ns, found.st_size, *beside)


def _stamps_in(folder, part):
    """The same for all files with this part in their names."""
    found = (e for e in os.scandir(folder) if e.is_file() and part in e.name.lower())
    return tuple(sorted((e.name, e.stat().st_mtime_ns, e.stat().st_size) for e in found))


def stamps(sources):
    """The same for all sources of a model. A missing file has None."""
    return tuple((s, stamp(s) if os.path.exists(s) else None) for s in sources)


def open(task, sources, precision, device):
    """The model of these sources: paths, or the name of one shipped model. Returns the open model if there is one."""
    engine = engines.of(device)
    key = (engine.name, task, precision, stamps(sources))
    with _lock:
        model = _opened.get(key)
        if model is None:
            model = _opened[key] = Model(engine, task, sources, precision)
        return model


def _release(engine, handle):
    """Releases a model without references, and the memory that the engine keeps for the next run."""
    engine.lib.api.model_release(handle)
    engine.trim(engine.in_use()[0])


class Model:
    def __init__(self, engine, task, sources, precision):
        self.engine, self.lib = engine, engine.lib
        self.label = os.path.basename(sources[0])
        named = len(sources) == 1 and not os.path.isabs(sources[0])
        table = (abi.Source * len(sources))()
        for i, source in enumerate(sources):
            table[i] = abi.Source(name=abi.text(source)) if named else abi.Source(path=abi.text(source))
        desc = abi.ModelDesc(task=task, sources=table, n_sources=len(sources), compute=PRECISIONS[precision])
        self.handle = abi.Handle()
        self.lib.check(self.lib.api.model_open(engine.handle, ref(desc), ref(self.handle)))
        weakref.finalize(self, _release, engine, self.handle).atexit = False
        self.info = abi.ModelInfo()
        self.lib.check(self.lib.api.model_info(self.handle, ref(self.info)))
        self.loaded_bytes = 0
        self.resident = Resident(self)
        self.pool = None  # a captioning model's dialogues (talk.py)

    # ---- weights

    def load(self):
        if self.loaded_bytes:
            return
        before = self.engine.in_use()[0]
        job = abi.Handle()
        self.lib.check(self.lib.api.model_load(self.handle, None, ref(job)))
        self.finish(job)
        self.loaded_bytes = max(self.engine.in_use()[0] - before, 1)

    def unload(self):
        if self.pool is not None:
            self.pool.clear()
        if self.loaded_bytes:
            self.lib.api.model_unload(self.handle, 0)
            self.loaded_bytes = 0
            weights, rest = self.engine.in_use()
            if rest:
                self.engine.trim(weights)

    def kept_bytes(self):
        return self.engine.in_use()[1]

    def spare_bytes(self):
        """The part of kept_bytes() that the next run can use: none while dialogues are open, because they hold it."""
        talking = any(m.pool and m.pool.lives for m in list(_opened.values()) if m.engine is self.engine)
        return 0 if talking else self.kept_bytes()

    def give_back(self, wanted):
        """Frees the engine's kept memory, then the weights, until so many bytes are freed. Returns the number of freed bytes."""
        freed = self.engine.trim(self.engine.in_use()[0])
        if freed < wanted and self.loaded_bytes:
            freed += self.loaded_bytes
            self.unload()
        return freed

    # ---- work

    def plan(self, op, source, run=None):
        info = abi.PlanInfo()
        query = abi.Query(op=op, input=ctypes.pointer(source))
        if run is not None:
            query.run = ctypes.pointer(run)
        self.lib.check(self.lib.api.plan_query(self.handle, ref(query), ref(info)))
        return info

    def shape(self, op, source):
        """The output's shape, with the axes in the source's order."""
        info = self.plan(op, source)
        return list(info.shape[: info.ndim])

    def finish(self, job, on_progress=None):
        """Waits for a job and releases it. An interrupt or an exception here cancels the job."""
        api = self.lib.api
        try:
            info = abi.JobInfo()
            while True:
                result = api.job_wait(job, POLL_NS)
                if result != abi.Result.PENDING:
                    break
                host.check_interrupt()
                if on_progress is not None and api.job_info(job, ref(info)) >= 0 and info.total:
                    on_progress(info.done / info.total)
            self.lib.check_job(job, result)
        finally:
            api.job_release(job)

    def work(self, call, source, target, run, on_progress=None):
        job = abi.Handle()
        self.lib.check(call(self.handle, ref(source), ref(target), ref(run), ref(job)))
        self.finish(job, on_progress)

    def prepare(self, op, source, run):
        """Loads the weights and makes room for a run of this shape."""
        self.engine.budget()
        acquire(self.resident, self.engine, self.plan(op, source, run).workspace_bytes)

    def batch(self, op, inputs, outputs, layouts, run, after=None):
        """Runs the pictures of a batch (axis 0) from one tensor into another. If `outputs` holds one picture only, each result
        replaces the one before. after(i): called when result i is complete; returns a preview or None."""
        calls = {abi.Op.VAE_ENCODE: "vae_encode", abi.Op.VAE_DECODE: "vae_decode", abi.Op.UPSCALE: "upscale"}
        call = getattr(self.lib.api, calls[op])
        n, alone = inputs.shape[0], outputs.shape[0] != inputs.shape[0]
        together = 1 if after else max(1, min(n, TOGETHER * n // max(1, inputs.numel(), outputs.numel())))
        if run.flags & abi.RunFlag.SAMPLE:
            together = n  # random numbers depend on a picture's index in its call: separate calls would repeat them
        run.stream = self.engine.stream(inputs, outputs)
        self.get_ready(op, tensors.view(inputs[:1], layouts[0]), run)
        bar = host.Progress(100 * n)
        for first in range(0, n, together):
            host.check_interrupt()
            count = min(together, n - first)
            source = tensors.view(inputs[first : first + count], layouts[0])
            target = tensors.view(outputs if alone else outputs[first : first + count], layouts[1])
            step = lambda part: bar.at(100 * (first + count * part))  # noqa: E731, B023
            try:
                self.work(call, source, target, run, step)
            except abi.DavyError as error:
                if error.code not in errors.MEMORY or not self.engine.is_gpu:
                    raise
                self.start_over(op, source, run)
                self.work(call, source, target, run, step)
            bar.at(100 * (first + count), after(first) if after else None)

    def get_ready(self, op, source, run):
        """prepare(), and once more with an emptied GPU if the GPU is full."""
        try:
            self.prepare(op, source, run)
        except abi.DavyError as error:
            if error.code not in errors.MEMORY or not self.engine.is_gpu:
                raise
            self.start_over(op, source, run)

    def start_over(self, op, source, run):
        """After the GPU was full: unloads all models, then prepares again."""
        self.engine.trim()
        self.loaded_bytes = 0
        host.make_room(self.engine.device)
        self.prepare(op, source, run)
