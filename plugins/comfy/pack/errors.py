"""Errors as a node shows them: one sentence with the problem, its reason and the remedy."""

import logging

from . import host
from ..davy import abi

log = logging.getLogger("davy")
R = abi.Result

WHAT_TO_DO = {
    R.E_NOT_FOUND: "refresh the list (R) or put the file back",
    R.E_IO: "check that the file can be read",
    R.E_FORMAT: "the file may be incomplete: fetch it again",
    R.E_UNSAFE: "use the safetensors version of this file",
    R.E_ARCH: "choose a file of an architecture that davy supports",
    R.E_TENSOR: "the file may be incomplete: fetch it again",
    R.E_CONTEXT_FULL: "ask in a new conversation, with a smaller picture or fewer tokens",
    R.E_DEVICE: "set the loader's device to cpu",
    R.E_DEVICE_LOST: "restart ComfyUI",
    R.E_INTERNAL: "please report this as a bug of davy",
}
MEMORY = {R.E_NOMEM_HOST, R.E_NOMEM_DEVICE, R.E_BUDGET}


class Error(Exception):
    """Its text is one sentence for the user."""


Error.__module__ = "davy"  # the heading of ComfyUI's dialog


def sentence(text):
    return " ".join(str(text).split()).rstrip(".") or "no reason was given"


def translated(error):
    """ComfyUI's exception for an error of the library."""
    if error.code == R.E_CANCELLED:
        return host.interrupted()
    text = sentence(error)
    if error.code in MEMORY:
        text = f"{text}: use a smaller picture, batch or tile, or close other programs that use the memory"
        return host.out_of_memory(text) if error.code != R.E_NOMEM_HOST else Error(text)
    advice = WHAT_TO_DO.get(error.code)
    return Error(f"{text}: {advice}" if advice else text)


def guard(run, inputs):
    """run(**inputs). Turns each error into one sentence."""
    try:
        return run(**inputs)
    except abi.DavyError as error:
        problem = translated(error)
    except Exception as error:
        if isinstance(error, Error) or host.is_own(error):
            raise
        log.exception("unexpected error in a davy node")
        problem = Error(f"{type(error).__name__}: {sentence(error)}: please report this as a bug of davy, with ComfyUI's log")
    try:
        raise problem
    finally:
        problem = None  # else it keeps this frame, with its models and pictures, until the next garbage collection
