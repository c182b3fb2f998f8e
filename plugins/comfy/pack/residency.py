"""davy's models in ComfyUI's model management: a run reserves room first, and other models can evict davy's weights.

ComfyUI's manager handles "patchers". Resident has the members of a patcher that managers from 0.3.64 on use. The manager holds it
weakly; the model owns it. If a newer manager needs other members, davy only asks it to make room.

Dynamic VRAM (0.16 and newer) keeps the stock nodes' weights on the GPU until the memory is needed. Only ComfyUI's own allocator can
take that memory without asking. The library's allocator cannot, so Resident is not dynamic. Before each run it requests the memory
of the whole run, and the dynamic patchers free that much.
"""

import logging
import uuid
import weakref

from . import errors, host
from ..davy import abi

log = logging.getLogger("davy")


class DavyModel:
    """Stands for the weights. The manager observes its lifetime and logs its class name."""


class Resident:
    parent = None

    def __init__(self, model):
        engine = model.engine
        self._owner = weakref.ref(model)  # the model owns this object
        self.clone_base_uuid = uuid.uuid4()  # identifies clones in managers of several GPUs
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

    # ---- sizes in bytes, with the engine's kept memory, which is freed together with the weights

    def loaded_size(self):
        return self.owner.loaded_bytes + self.owner.kept_bytes() if self.owner.loaded_bytes else 0

    def model_size(self):
        return max(self.owner.info.weight_bytes, self.loaded_size())

    def memory_required(self, input_shape=None):
        return 0

    # ---- loading and unloading

    def partially_load(self, device_to, extra_memory=0, force_patch_weights=False):
        before = self.loaded_size()
        self.owner.load()
        return self.loaded_size() - before

    def partially_unload(self, device_to, memory_to_free=0, force_patch_weights=False):
        return self.owner.give_back(memory_to_free)

    def partially_unload_ram(self, ram_to_unload):
        return 0

    def detach(self, unpatch_all=True):
        if unpatch_all:  # if False, the manager only replaces its entry for this model
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
    """Loads the weights. On a GPU it lets ComfyUI make room for so many bytes of work; the engine's kept memory counts as room."""
    mm, wanted = host.management(), max(0, wanted - resident.owner.spare_bytes())
    if mm is None or not hasattr(mm, "load_models_gpu"):
        resident.owner.load()
        return
    try:
        mm.load_models_gpu([resident], memory_required=wanted)
    except Exception as error:
        if isinstance(error, (errors.Error, abi.DavyError)) or host.is_own(error):
            raise
        log.warning("unknown model management of this ComfyUI (%s): davy only asks it to make room", error)
        if engine.is_gpu:
            mm.free_memory(wanted + resident.owner.info.weight_bytes, engine.device)
    if engine.is_gpu:
        host.give_up_cached(engine.device, wanted + host.reserved_memory())
        engine.budget(host.free_memory(engine.device) - host.reserved_memory())
    resident.owner.load()
