"""A context with a captioning model, for the tests of captions and dialogues over the ABI."""

import ctypes

from client import check
from davy import abi
from davy.abi import Result, ref

ENDLESS = 2**64 - 1


def picture(width, height, seed, channels=3):
    memory = bytearray((x * 7 + y * 13 * seed + c * 50) & 255 for y in range(height) for x in range(width) for c in range(channels))
    t = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3)
    t.data = abi.buffer_address(memory)
    t.shape[0], t.shape[1], t.shape[2] = height, width, channels
    t.keep = memory
    return t


class Host:
    def __init__(self, lib, folder, device=b"cpu", also=(), threads=2, **members):
        self.lib, self.api = lib, lib.api
        self.ctx, self.model = abi.Handle(), abi.Handle()
        lib.check(self.api.context_create(ref(abi.ContextDesc(device=device, n_threads=threads)), ref(self.ctx)))
        files = (folder, *also)
        sources = (abi.Source * len(files))(*[abi.Source(path=abi.text(str(f))) for f in files])
        desc = abi.ModelDesc(sources=sources, n_sources=len(files), **members)
        lib.check(self.api.model_open(self.ctx, ref(desc), ref(self.model)))

    def dialogue(self, **params):
        d = abi.Handle()
        self.lib.check(self.api.dialogue_open(self.model, ref(abi.CaptionParams(**params)), ref(d)))
        return d

    def ask(self, d, image=None, words=None, params=None, job=None, run=None):
        if image is not None:
            self.lib.check(self.api.dialogue_add_image(d, ref(image)))
        if words is not None:
            self.lib.check(self.api.dialogue_add_text(d, abi.Role.USER, words))
        self.lib.check(self.api.dialogue_generate(d, ref(params) if params else None, ref(run) if run else None, job))

    def text(self, d):
        t = abi.Handle()
        self.lib.check(self.api.dialogue_text(d, ref(t)))
        return self.lib.take_text(t)

    def info(self, d):
        i = abi.DialogueInfo()
        self.lib.check(self.api.dialogue_info(d, ref(i)))
        return i

    def events(self, d):
        found, event = [], abi.TokenEvent()
        while (r := self.lib.check(self.api.dialogue_read(d, ref(event), ENDLESS))) == Result.OK:
            found.append((event.kind, event.text, event.index, event.end))
        check(r == Result.END, f"read ended with {r}")
        return found

    def caption(self, images, params=None, job=None, infos=None):
        out = (ctypes.c_void_p * len(images))()
        tensors = (ctypes.POINTER(abi.Tensor) * len(images))(*[ctypes.pointer(i) for i in images])
        p = ref(params) if params else None
        self.lib.check(self.api.caption(self.model, len(images), tensors, p, None, job, out))
        if job is not None:
            return out, tensors
        for answer in out if infos is not None else ():
            infos.append(abi.DialogueInfo())
            self.lib.check(self.api.caption_info(answer, ref(infos[-1])))
        return [self.lib.take_text(ctypes.c_void_p(o)) for o in out]

    def memory(self):
        m = abi.MemoryInfo()
        self.lib.check(self.api.context_memory(self.ctx, ref(m)))
        return m

    def close(self):
        self.api.model_release(self.model)
        self.api.context_release(self.ctx)
