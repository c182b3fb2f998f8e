"""A simulated GPU that only counts bytes, for tests of which model evicts which.

The pack's Model runs on a Card in place of an engine. Theirs and Dynamic stand for stock models without and with dynamic VRAM. The
manager is the stand-in of fake_host.py or, in stock.py, a real ComfyUI's."""

import sys
import types

from checks import check

GIB = 1 << 30
RESERVED = 400 << 20  # bytes that ComfyUI keeps free by default


class Card:
    """An engine of the pack on a GPU with so much memory."""

    name, is_gpu = "cuda:0", True

    def __init__(self, device, total):
        self.device, self.total = device, total
        self.weights = self.kept = 0
        self.others, self.allowed = [], None
        answers = dict(model_load=self._load, model_unload=self._unload, job_wait=lambda *_: 0, job_release=lambda *_: None)
        self.lib = types.SimpleNamespace(
            api=types.SimpleNamespace(**answers), check=lambda result: result, check_job=lambda job, result: result
        )

    def _load(self, model, options, job):
        self.weights += model.size
        return 0

    def _unload(self, model, flags):
        self.weights -= model.size
        return 0

    def in_use(self):
        return self.weights, self.kept

    def trim(self, keep=0):
        before = self.kept
        self.kept = max(0, min(self.kept, keep - self.weights))
        return before - self.kept

    def budget(self, extra=None):
        self.allowed = extra

    def free(self, device=None, torch_free_too=False):
        there = self.total - self.weights - self.kept - sum(o.held for o in self.others)
        return (there, 0) if torch_free_too else there


def opened(pack, card, size):
    """A model of the pack on a card, with `size` bytes of weights."""
    Model = sys.modules[f"{pack}.pack.model"].Model
    made = object.__new__(Model)
    made.engine, made.lib, made.label = card, card.lib, "made up"
    made.handle = types.SimpleNamespace(size=size)
    made.info = types.SimpleNamespace(weight_bytes=size)
    made.loaded_bytes, made.pool = 0, None
    made.resident = sys.modules[f"{pack}.pack.residency"].Resident(made)
    return made


class Weights:
    """A patcher's model. The manager observes its lifetime."""

    def __init__(self, device):
        self.dynamic_pins = {device: {"active": False, "current_prompt": False}}


class Theirs:
    """A stock model that is on the GPU completely or not at all."""

    parent, dynamic = None, False

    def __init__(self, card, size):
        self.card, self.size, self.held = card, size, 0
        self.load_device, self.offload_device = card.device, "cpu"
        self.model, self.clone_base_uuid = Weights(card.device), object()
        card.others.append(self)

    def model_size(self):
        return self.size

    def loaded_size(self):
        return self.held

    def partially_load(self, device, extra_memory=0, force_patch_weights=False):
        self.held = self.size

    def partially_unload(self, device, memory_to_free=0, force_patch_weights=False):
        return 0

    def partially_unload_ram(self, size, subsets=()):
        return 0

    def unregister_inactive_pins(self, size, subsets=()):
        return 0

    def loaded_ram_size(self):
        return 0

    def detach(self, unpatch_all=True):
        if unpatch_all:
            self.held = 0

    def is_dynamic(self):
        return self.dynamic

    def current_loaded_device(self):
        return self.load_device if self.held else self.offload_device

    def is_clone(self, other):
        return other is self

    def model_patches_models(self):
        return []

    def get_nested_additional_models(self):
        return []

    def model_patches_to(self, what):
        pass

    def model_dtype(self):
        return None

    def lowvram_patch_counter(self):
        return 0


class Dynamic(Theirs):
    """A stock model whose weights stay until the memory is needed, and are freed piece by piece."""

    dynamic = True

    def partially_load(self, device, extra_memory=0, force_patch_weights=False):
        self.held = max(0, min(self.size, self.held + self.card.free()))  # weights load as they are used

    def partially_unload(self, device, memory_to_free=0, force_patch_weights=False):
        freed = min(self.held, int(memory_to_free) + 1)
        self.held -= freed
        return freed


def run(mm, pack, device):
    """All scenes. mm: the manager. Its get_free_memory reads the current card."""
    host, residency = (sys.modules[f"{pack}.pack.{name}"] for name in ("host", "residency"))
    host.give_up_cached = lambda device, wanted: None  # torch has no cache on this card

    def card(total):
        mm.current_loaded_models[:] = []
        made = Card(device, total)
        mm.get_free_memory = made.free
        return made

    def work(model, wanted):
        residency.acquire(model.resident, model.engine, wanted)
        got = model.engine.free() >= wanted - model.engine.kept + RESERVED // 2
        model.engine.kept = max(model.engine.kept, wanted)
        return got

    def listed(patcher):
        return any(m is patcher for m in mm.loaded_models())

    gpu = card(24 * GIB)
    ours = opened(pack, gpu, 2 * GIB)
    check(work(ours, 5 * GIB) and gpu.weights == 2 * GIB and listed(ours.resident), "an empty GPU")
    check(gpu.allowed == 22 * GIB - RESERVED, f"the engine may have {gpu.allowed}")

    for kind in Dynamic, Theirs:
        gpu = card(24 * GIB)
        theirs, ours = kind(gpu, 40 * GIB if kind is Dynamic else 22 * GIB), opened(pack, gpu, 2 * GIB)
        mm.load_models_gpu([theirs])
        full = theirs.held
        check(full >= 20 * GIB, f"{kind.__name__}: {full}")
        check(work(ours, 5 * GIB), f"{kind.__name__}: no room was made")
        stays = theirs.held
        least = 14 * GIB if kind is Dynamic else 0
        check(least <= stays < full and listed(theirs) == (kind is Dynamic), f"{kind.__name__}: {stays} of {full} stay")
        again = work(ours, 5 * GIB) and theirs.held > stays - GIB  # ComfyUI frees 0.8 GiB for any work
        check(again, f"{kind.__name__}: room was requested although it was free: {theirs.held} of {stays}")
        if hasattr(mm, "unload_model_and_clones"):
            mm.unload_model_and_clones(Theirs(gpu, GIB))  # nodes for several GPUs do this, with davy's model in the list

    gpu = card(24 * GIB)
    ours, theirs = opened(pack, gpu, 2 * GIB), Dynamic(gpu, 12 * GIB)
    work(ours, 8 * GIB)
    mm.load_models_gpu([theirs], memory_required=2 * GIB)
    check(gpu.weights == 2 * GIB and gpu.kept < 8 * GIB and listed(ours.resident), f"kept memory is freed first: {gpu.in_use()}")
    mm.load_models_gpu([Dynamic(gpu, 20 * GIB)], memory_required=2 * GIB)
    check(gpu.in_use() == (0, 0) and not listed(ours.resident) and not ours.loaded_bytes, f"then the weights: {gpu.in_use()}")
    check(work(ours, GIB) and gpu.weights == 2 * GIB, "and they load again")
    mm.free_memory(1e30, device)
    check(gpu.in_use() == (0, 0) and not mm.loaded_models(), "Unload Models")
