"""The parts of ComfyUI that the nodes use. Modules are looked up at each use, so that the pack loads outside of ComfyUI too."""

import contextlib
import sys
import time


def module(name):
    """A module that ComfyUI has loaded. None outside of ComfyUI."""
    return sys.modules.get(name)


def management():
    return module("comfy.model_management")


def torch():
    """ComfyUI's torch. davy itself never imports it."""
    return sys.modules.get("torch")


# ---- which node is running -------------------------------------------------------------------------------------------

_node = None


@contextlib.contextmanager
def running(node_id):
    global _node
    before, _node = _node, node_id
    try:
        yield
    finally:
        _node = before


# ---- interrupts, progress, text ---------------------------------------------------------------------------------------


def check_interrupt():
    """Raises ComfyUI's own exception when the user has pressed Cancel."""
    mm = management()
    if mm is not None:
        mm.throw_exception_if_processing_interrupted()


def interrupted():
    """The same exception, for work that was cancelled in another way."""
    return getattr(management(), "InterruptProcessingException", KeyboardInterrupt)()


def out_of_memory(text):
    """The exception that makes ComfyUI unload all models."""
    kind = getattr(management(), "OOM_EXCEPTION", MemoryError)
    return (MemoryError if kind is Exception else kind)(text)


def is_own(error):
    """Whether ComfyUI handles this exception itself (interrupt, out of memory)."""
    mm = management()
    kinds = [getattr(mm, name, None) for name in ("InterruptProcessingException", "OOM_EXCEPTION")]
    return isinstance(error, tuple(k for k in kinds if isinstance(k, type) and k is not Exception))


class Progress:
    """The progress bar of the running node. total: in any unit. Without effect outside of ComfyUI."""

    def __init__(self, total):
        utils = module("comfy.utils")
        self.bar = utils.ProgressBar(total) if utils else None
        self.shown = -1

    def at(self, value, preview=None):
        value = int(value)
        if self.bar is not None and (value != self.shown or preview is not None):
            self.shown = value
            if preview is None:
                self.bar.update_absolute(value)
            else:
                self.bar.update_absolute(value, preview=preview)


def show_text(text):
    """Shows text on the running node, if this ComfyUI can."""
    server = getattr(getattr(module("server"), "PromptServer", None), "instance", None)
    if _node is not None and hasattr(server, "send_progress_text"):
        server.send_progress_text(text, _node)


_previewed = 0.0


def preview(picture):
    """A preview of one picture [H, W, C] for Progress.at, with sides of at most 512 pixels. None without Pillow, or less than a
    quarter of a second after the last preview."""
    global _previewed
    if time.monotonic() - _previewed < 0.25:
        return None
    try:
        from PIL import Image
    except ImportError:
        return None
    _previewed = time.monotonic()
    step = max(1, -(-max(picture.shape[0], picture.shape[1]) // 512))
    small = picture[::step, ::step, :3]
    if small.shape[-1] != 3:
        small = small[..., :1].expand(-1, -1, 3)
    return ("JPEG", Image.fromarray(small.float().clamp(0, 1).mul(255).byte().cpu().numpy()), 512)


# ---- devices and types -------------------------------------------------------------------------------------------------


def device():
    """ComfyUI's torch.device. None outside of ComfyUI."""
    mm = management()
    return mm.get_torch_device() if mm is not None else None


def stream(device):
    """torch's current CUDA stream as a number. 0, the legacy default stream, is returned as 1."""
    return torch().cuda.current_stream(device).cuda_stream or 1


def picture_dtype(tensor):
    """The dtype for new pictures and latents: ComfyUI's choice, else float32."""
    chosen = getattr(management(), "intermediate_dtype", None)
    if chosen is not None:
        return chosen()
    return getattr(torch(), "float32", tensor.dtype)


def free_memory(device):
    """Free bytes on a GPU, torch's unused cache included."""
    return int(management().get_free_memory(device))


def reserved_memory():
    """Bytes on a GPU that ComfyUI keeps free."""
    reserve = getattr(management(), "extra_reserved_memory", None)
    return int(reserve()) if reserve else 400 << 20


def give_up_cached(device, wanted):
    """Empties torch's unused cache if the driver has less free memory than wanted."""
    if torch().cuda.mem_get_info(device)[0] < wanted:
        management().soft_empty_cache()


def make_room(device, wanted=1 << 60):
    """Makes ComfyUI unload other models until so many bytes are free."""
    management().free_memory(wanted, device)
    management().soft_empty_cache()


def resized(pictures, width, height):
    """Resizes [B, H, W, C] with antialiased bicubic and clamps to 0..1."""
    functional = torch().nn.functional
    planes = pictures.movedim(-1, 1).float()
    scaled = functional.interpolate(planes, size=(height, width), mode="bicubic", antialias=True)
    return scaled.movedim(1, -1).clamp_(0, 1)
