"""davy for ComfyUI: VAEs, upscalers and captioning models without torch.

pack/ has the nodes, davy/ the binding to the library. Newer versions of ComfyUI call comfy_entrypoint (V3), older ones read
NODE_CLASS_MAPPINGS. This module must export only one of the two.
"""

from .pack import register as _register

WEB_DIRECTORY = "./web"  # help pages

globals().update(_register.exports())
__all__ = ["WEB_DIRECTORY", *_register.exports()]
