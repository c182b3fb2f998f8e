"""davy for ComfyUI: VAEs, upscalers and captioning models without torch.

Everything is in pack/; davy/ is the binding to the library. Newer versions of ComfyUI ask for comfy_entrypoint (V3), older
ones read NODE_CLASS_MAPPINGS; only one of the two may be there.
"""

from .pack import register as _register

WEB_DIRECTORY = "./web"  # help pages

globals().update(_register.exports())
__all__ = ["WEB_DIRECTORY", *_register.exports()]
