"""Models in ComfyUI's model management: room is asked for before a run, and weights go when others need it.

ComfyUI deals in "patchers"; Resident has what its manager calls, from 0.3.64 on. It holds only weak references to it: the
model owns it. A manager that wants more than this still gets to make room.

Dynamic VRAM (0.16 and newer) leaves the stock nodes' weights on the GPU until somebody needs the place. Only its own
allocator can take that place by itself; the library's cannot, so Resident is not one of the dynamic ones: before each run it
asks for all that the run will take, and the dynamic ones let go of so much.
"""

import logging
import uuid
import weakref

from . import errors, host
from ..davy import abi

log = logging.getLogger("davy")


class DavyModel:
    """What stands for the weights: the manager watches when it dies and names it in its log."""


class Resident:
    parent = None

    def __init__(self, model):
        engine = model.engine
        self._owner = weakref.ref(model)  # it owns us
        self.clone_base_uuid = uuid.uuid4()  # by which managers of several GPUs tell clones
        self.model = DavyModel()
        self.load_device = engine.device if engine.is_gpu else self._cpu()
        self.offload_device = self._cpu()

    @property
    def owner(self):
        return self._owner()

    @staticmethod
    def _cpu():
        torch = host.torch()
        return torch.device("cpu") if torch is not None else "cpu"

    # ---- sizes in bytes; what the engine keeps for its next run is counted here, for it goes with the weights

    def loaded_size(self):
        return self.owner.loaded_bytes + self.owner.kept_bytes() if self.owner.loaded_bytes else 0

    def model_size(self):
        return max(self.owner.info.weight_bytes, self.loaded_size())

    def memory_required(self, input_shape=None):
        return 0

    # ---- coming and going

    def partially_load(self, device_to, extra_memory=0, force_patch_weights=False):
        before = self.loaded_size()
        self.owner.load()
        return self.loaded_size() - before

    def partially_unload(self, device_to, memory_to_free=0, force_patch_weights=False):
        return self.owner.give_back(memory_to_free)

    def partially_unload_ram(self, ram_to_unload):
        return 0

    def detach(self, unpatch_all=True):
        if unpatch_all:  # without, the manager only forgets this entry to make a new one
            self.owner.unload()
        return self.model

    def unpatch_model(self, device_to=None, unpatch_weights=True):
        self.detach(unpatch_weights)

    def model_patches_models(self):
        return []

    def get_nested_additional_models(self):
        return []

    def model_patches_to(self, device_or_dtype):
        pass

    def current_loaded_device(self):
        return self.load_device if self.owner.loaded_bytes else self.offload_device

    def model_dtype(self):
        return getattr(host.torch(), "float32", None)

    def lowvram_patch_counter(self):
        return 0

    def is_dynamic(self):
        return False

    def is_clone(self, other):
        return other is self

    def clone_has_same_weights(self, clone):
        return clone is self

    def cleanup(self):
        pass


def acquire(resident, engine, wanted):
    """Weights in place and, on a GPU, room for so many bytes of work, as far as ComfyUI can make it. What the engine keeps
    of earlier work is room already."""
    mm, wanted = host.management(), max(0, wanted - resident.owner.spare_bytes())
    if mm is None or not hasattr(mm, "load_models_gpu"):
        resident.owner.load()
        return
    try:
        mm.load_models_gpu([resident], memory_required=wanted)
    except Exception as error:
        if isinstance(error, (errors.Error, abi.DavyError)) or host.is_own(error):
            raise
        log.warning("this ComfyUI manages models in a way that davy does not know (%s): it only makes room", error)
        if engine.is_gpu:
            mm.free_memory(wanted + resident.owner.info.weight_bytes, engine.device)
    if engine.is_gpu:
        host.give_up_cached(engine.device, wanted + host.reserved_memory())
        engine.budget(host.free_memory(engine.device) - host.reserved_memory())
    resident.owner.load()
