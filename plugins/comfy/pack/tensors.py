"""ComfyUI's tensors as davy_tensor, without a copy. It works with any object that has torch's shape, stride, dtype, device and
data_ptr."""

import ctypes
import math
import sys

from . import errors, host
from ..davy import abi

DTYPES = {
    "torch.float32": abi.Dtype.F32,
    "torch.float16": abi.Dtype.F16,
    "torch.bfloat16": abi.Dtype.BF16,
    "torch.uint8": abi.Dtype.U8,
}


def readable(tensor, engine):
    """The tensor itself if the library can read it in place, else a copy that the library can read."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not engine.reaches(tensor.device):
        tensor = tensor.cpu()
    if str(tensor.dtype) not in DTYPES:
        tensor = tensor.float()
    if any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride())):
        tensor = tensor.contiguous()  # a stride of 0 repeats one number over many elements
    return tensor


HUGE_PAGE, ADVISE_HUGE = 1 << 21, 14


def fresh(like, shape, dtype=None):
    """Memory for a result on the device of `like`. Large host memory is advised to use huge pages on Linux: with small pages the
    first write takes longer than the computation."""
    try:
        made = like.new_empty(shape, dtype=dtype or like.dtype)
    except (RuntimeError, MemoryError) as error:  # torch raises a plain RuntimeError if host memory is short
        if host.is_own(error):
            raise
        size = math.prod(shape) * like.element_size() / (1 << 30)
        what = f"a result of {'x'.join(map(str, shape))} needs {size:.0f} GiB of memory, more than is free"
        raise errors.Error(f"{what}: use fewer or smaller pictures, or a smaller size") from None
    first = -(-made.data_ptr() // HUGE_PAGE) * HUGE_PAGE
    room = made.data_ptr() + made.numel() * made.element_size() - first
    if made.device.type == "cpu" and sys.platform == "linux" and room >= 16 * HUGE_PAGE:
        advise = ctypes.CDLL(None).madvise  # a hint: its result does not matter
        advise(ctypes.c_void_p(first), ctypes.c_size_t(room // HUGE_PAGE * HUGE_PAGE), ADVISE_HUGE)
    return made


def view(tensor, layout, **members):
    """A davy_tensor over the tensor's memory. It keeps the tensor alive."""
    size = tensor.element_size()
    seen = abi.Tensor(
        memory=abi.Memory.HOST if tensor.device.type == "cpu" else abi.Memory.CUDA,
        device=(tensor.device.index or 0) if tensor.device.type != "cpu" else 0,
        dtype=DTYPES[str(tensor.dtype)],
        layout=layout,
        ndim=len(tensor.shape),
        data=tensor.data_ptr(),
        **members,
    )
    seen.shape[: seen.ndim] = list(tensor.shape)
    seen.stride_bytes[: seen.ndim] = [s * size for s in tensor.stride()]
    seen.keep = tensor
    return seen


def shape_only(shape, layout, **members):
    """A davy_tensor without data, for plans of pictures that do not exist yet."""
    seen = abi.Tensor(dtype=abi.Dtype.F32, layout=layout, ndim=len(shape), **members)
    seen.shape[: len(shape)] = list(shape)
    return seen
