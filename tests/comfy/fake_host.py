"""Stand-ins for ComfyUI and torch in NumPy: tensors, model management, folders, both node APIs."""

import dataclasses
import importlib.util
import math
import os
import pathlib
import sys
import types
import weakref

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACK = pathlib.Path(os.environ.get("DAVY_PACK", ROOT / "plugins" / "comfy"))


class Device:
    def __init__(self, type="cpu", index=None):
        self.type, self.index = type, index

    def __eq__(self, other):
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    __hash__ = object.__hash__


class Dtype:
    def __init__(self, name, stored):
        self.name, self.stored = name, stored

    def __str__(self):
        return "torch." + self.name


FLOAT32, FLOAT64 = Dtype("float32", np.float32), Dtype("float64", np.float64)
FLOAT16, BFLOAT16 = Dtype("float16", np.float16), Dtype("bfloat16", np.uint16)  # stored as the upper 16 bits of a float32


def to_bf16(array):
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Tensor:
    """A NumPy array with the methods of torch.Tensor that the pack may use. It counts copies and allocations."""

    made = 0
    requires_grad = False

    def __init__(self, array, dtype=None):
        named = {np.dtype(d.stored): d for d in (FLOAT32, FLOAT64, FLOAT16)}
        self.array, self.dtype, self.device = array, dtype or named[array.dtype], Device()

    @property
    def shape(self):
        return self.array.shape

    def stride(self):
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def element_size(self):
        return self.array.itemsize

    def numel(self):
        return self.array.size

    def data_ptr(self):
        return self.array.__array_interface__["data"][0]

    def fresh(self, array, dtype=None):
        Tensor.made += 1
        return Tensor(array, dtype or self.dtype)

    def new_empty(self, shape, dtype=None, device=None):
        dtype = dtype or self.dtype
        if math.prod(shape) > 1 << 36:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory")  # torch's text
        return self.fresh(np.full(shape, 7 if dtype is BFLOAT16 else np.nan, dtype.stored), dtype)

    def contiguous(self):
        return self.fresh(np.ascontiguousarray(self.array))

    def float(self):
        if self.dtype is BFLOAT16:
            return self.fresh((self.array.astype(np.uint32) << 16).view(np.float32), FLOAT32)
        return self if self.dtype is FLOAT32 else self.fresh(self.array.astype(np.float32), FLOAT32)

    def view(self, array):
        return Tensor(array, self.dtype)

    def __getitem__(self, key):
        return self.view(self.array[key])

    def narrow(self, axis, start, length):
        return self.view(self.array[(slice(None),) * axis + (slice(start, start + length),)])

    def movedim(self, a, b):
        return self.view(np.moveaxis(self.array, a, b))

    def reshape(self, *shape):
        return self.view(self.array.reshape(shape))

    def new_tensor(self, numbers):
        return Tensor(np.array(numbers, self.array.dtype))

    def __sub__(self, other):
        return self.fresh(self.array - numbers(other))

    def __mul__(self, other):
        return self.fresh(self.array * numbers(other))

    def div_(self, other):
        self.array /= numbers(other)
        return self

    def add_(self, other):
        self.array += numbers(other)
        return self

    def clamp(self, low, high):
        return self.view(self.array.clip(low, high))

    def mul(self, other):
        return self.view(self.array * other)

    def byte(self):
        return types.SimpleNamespace(cpu=lambda: types.SimpleNamespace(numpy=lambda: self.array.astype(np.uint8)))

    def expand(self, *shape):
        return self.view(np.broadcast_to(self.array, [n if s == -1 else s for s, n in zip(shape, self.array.shape)]))

    def clamp_(self, low, high):
        np.clip(self.array, low, high, self.array)
        return self

    def copy_(self, other):
        self.array[...] = other.array


class Together:
    """comfy.nested_tensor.NestedTensor: pictures and sound of a sampler."""

    is_nested = True

    def __init__(self, tensors):
        self.tensors = tensors

    def unbind(self):
        return self.tensors


def numbers(other):
    return other.array if isinstance(other, Tensor) else np.float32(other)


class Interrupted(BaseException):
    """Not an Exception, as in ComfyUI since 0.33, so that `except Exception` does not catch it."""


class OutOfMemory(Exception):
    pass


class Entry:
    """A model in the manager's list. The list holds patchers weakly."""

    def __init__(self, patcher):
        self.patcher, self.model, self.device = weakref.ref(patcher), weakref.ref(patcher.model), patcher.load_device

    def unload(self, wanted):
        """Frees memory of the patcher. True: the patcher leaves the list."""
        patcher = self.patcher()
        if wanted < patcher.loaded_size() and patcher.partially_unload(patcher.offload_device, wanted) >= wanted:
            return False
        patcher.detach(True)
        return True


class Manager(types.ModuleType):
    """comfy.model_management: the calls of patchers, in the order of ComfyUI 0.33."""

    InterruptProcessingException, OOM_EXCEPTION = Interrupted, OutOfMemory

    def __init__(self):
        super().__init__("comfy.model_management")
        self.looks, self.stop_at, self.current_loaded_models, self.asked = 0, None, [], []

    def get_torch_device(self):
        return Device()

    def get_free_memory(self, device):
        return 1 << 40

    def extra_reserved_memory(self):
        return 400 << 20

    def soft_empty_cache(self):
        pass

    def throw_exception_if_processing_interrupted(self):
        self.looks += 1
        if self.stop_at is not None and self.looks >= self.stop_at:
            self.stop_at = None
            raise Interrupted

    def load_models_gpu(self, models, memory_required=0):
        self.asked.append(memory_required)
        self.loaded_models()
        for patcher in models:
            known = [e for e in self.current_loaded_models if patcher.is_clone(e.patcher())]
            for entry in known:
                self.current_loaded_models.remove(entry)
                patcher.detach(unpatch_all=False)
            assert patcher.model_size() >= patcher.loaded_size() >= 0 and patcher.parent is None
            assert patcher.model_patches_models() == [] and hash(patcher)
            missing = patcher.model_size()
            if patcher.current_loaded_device() == patcher.load_device:
                missing -= patcher.loaded_size()
            if patcher.load_device.type != "cpu":
                spare = max(memory_required + self.extra_reserved_memory(), int(0.8 * 2**30) + self.extra_reserved_memory())
                self.free_memory(missing * 1.1 + spare, patcher.load_device, for_dynamic=patcher.is_dynamic())
            patcher.model_patches_to(patcher.model_dtype())
            patcher.partially_load(patcher.load_device, 1e32, force_patch_weights=False)
            self.current_loaded_models.insert(0, Entry(patcher))

    def free_memory(self, memory_required, device, keep_loaded=(), for_dynamic=False):
        self.loaded_models()
        there = [e for e in self.current_loaded_models if e.device == device]
        for entry in sorted(there, key=lambda e: e.patcher().loaded_size() - e.patcher().model_size()):
            wanted = memory_required - self.get_free_memory(device)
            if for_dynamic and entry.patcher().is_dynamic():
                memory_required -= entry.patcher().loaded_size()
            elif wanted > 0 and entry.unload(wanted):
                self.current_loaded_models.remove(entry)

    def loaded_models(self):
        self.current_loaded_models[:] = [e for e in self.current_loaded_models if e.patcher() is not None]
        return [e.patcher() for e in self.current_loaded_models]

    def unload_all_models(self):
        for device in {e.device for e in self.current_loaded_models}:
            self.free_memory(1e30, device)
        assert not self.loaded_models()


class Bar:
    """comfy.utils.ProgressBar. Bar.last is the last one created."""

    last = None

    def __init__(self, total):
        self.total, self.seen, self.previews = total, [], 0
        Bar.last = self

    def update_absolute(self, value, total=None, preview=None):
        assert 0 <= value <= self.total
        self.seen.append(value)
        self.previews += preview is not None and preview[0] == "JPEG" and max(preview[1].size) <= preview[2]


class Folders(types.ModuleType):
    """folder_paths over one folder of models."""

    def __init__(self, base):
        super().__init__("folder_paths")
        self.base, self.models_dir = pathlib.Path(base), str(pathlib.Path(base) / "models")

    def get_folder_paths(self, kind):
        if kind not in ("vae", "vae_approx", "upscale_models", "checkpoints"):
            raise KeyError(kind)
        return [os.path.join(self.models_dir, kind)]

    def get_filename_list(self, kind):
        folder = self.get_folder_paths(kind)[0]
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def get_full_path(self, kind, name):
        path = os.path.join(self.get_folder_paths(kind)[0], name)
        return path if os.path.isfile(path) else None

    def get_input_directory(self):
        return str(self.base / "input")


def resize(planes, size, mode, antialias):
    """A rough torch.nn.functional.interpolate: the nearest pixel."""
    assert mode == "bicubic" and antialias
    h, w = planes.array.shape[-2:]
    rows, columns = np.arange(size[0]) * h // size[0], np.arange(size[1]) * w // size[1]
    return planes.fresh(planes.array[..., rows, :][..., columns].copy())


def install(base):
    """Puts the stand-ins into sys.modules. Returns (manager, folders)."""
    manager, folders = Manager(), Folders(base)
    comfy, utils, torch = (types.ModuleType(name) for name in ("comfy", "comfy.utils", "torch"))
    comfy.model_management, comfy.utils, utils.ProgressBar = manager, utils, Bar
    torch.float32, torch.device = FLOAT32, Device
    torch.nn = types.SimpleNamespace(functional=types.SimpleNamespace(interpolate=resize))
    sys.modules |= {m.__name__: m for m in (comfy, utils, manager, folders, torch)}
    return manager, folders


# ---- both APIs ------------------------------------------------------------------------------------------------------------


class _Typed:
    class Input:
        def __init__(self, id, display_name=None, optional=False, tooltip=None, default=None, min=None, max=None, step=None,
                     options=None, multiline=False):  # fmt: skip
            self.id, self.optional, self.tooltip, self.default, self.options = id, optional, tooltip, default, options

    class Output:
        def __init__(self, id=None, display_name=None, tooltip=None, is_output_list=False):
            self.display_name, self.tooltip, self.is_output_list = display_name, tooltip, is_output_list


class NodeOutput:
    def __init__(self, *args, ui=None):
        self.args, self.ui = args, ui


def api(fields):
    """comfy_api.latest. Its Schema has these fields besides those of all versions."""
    always = "node_id display_name category description inputs outputs hidden is_input_list is_output_node".split()
    io = types.SimpleNamespace(
        Schema=dataclasses.make_dataclass("Schema", [(f, object, None) for f in (*always, *fields)]),
        ComfyNode=type("ComfyNode", (), {"hidden": types.SimpleNamespace(unique_id="7")}),
        NodeOutput=NodeOutput,
        Hidden=types.SimpleNamespace(unique_id="UNIQUE_ID"),
        Custom=lambda kind: type(kind, (_Typed,), {}),
        **{name: type(name, (_Typed,), {}) for name in ("Int", "Float", "String", "Boolean", "Combo", "Image", "Latent")},
    )
    latest = types.ModuleType("comfy_api.latest")
    latest.io, latest.ComfyExtension = io, type("ComfyExtension", (), {})
    return latest


def load(latest=None):
    """The pack's module, loaded as ComfyUI does it: with V3 if `latest` is given, else with V1."""
    sys.modules |= {"comfy_api": types.ModuleType("comfy_api"), "comfy_api.latest": latest}
    for name in [n for n in sys.modules if n == "davy_pack" or n.startswith("davy_pack.")]:
        del sys.modules[name]
    spec = importlib.util.spec_from_file_location("davy_pack", PACK / "__init__.py", submodule_search_locations=[str(PACK)])
    module = sys.modules["davy_pack"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
