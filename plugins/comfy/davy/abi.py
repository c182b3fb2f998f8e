"""abi/davy.h, version 1.0, in ctypes. It exports constants.py, structs.py and table.py under one name, and has a loader.

    from davy import abi
    lib = abi.load()                                  # search order of davy_loader.h
    ctx = abi.Handle()
    lib.check(lib.api.context_create(abi.ref(abi.ContextDesc()), abi.ref(ctx)))

Strings are passed as UTF-8 bytes (`text()`). If a struct holds the address of a string, a callback or an array, keep a reference
until the call has returned. Keep callbacks and tensor memory as long as the header says. Foreign calls release the interpreter
lock. A callback must not raise: an exception cannot cross C.
tests/abi/check_layout.py compares these files with the compiler's layout of the header.
"""

import ctypes
import os
import sys
from ctypes import POINTER, c_char, c_char_p, c_uint32, c_uint64, c_void_p

from .constants import *  # noqa: F403
from .constants import ABI_1_0, Result
from .structs import *  # noqa: F403
from .structs import ErrorInfo
from .table import *  # noqa: F403
from .table import Api

Handle = c_void_p  # davy_context *, davy_model *, davy_job *, davy_buffer *, davy_text *, davy_dialogue *, davy_sequence *
ref = ctypes.byref


class DavyError(Exception):
    """code: a Result, or a plain int from a newer library. name: such as "E_SHAPE". str(): one sentence for the user."""

    def __init__(self, code, name, message):
        super().__init__(message or name)
        self.code = code
        self.name = name


class Library:
    """An opened library: `api` is the table."""

    def __init__(self, dll, path, min_abi):
        if not hasattr(dll, "davy_get_api") or not hasattr(dll, "davy_version"):
            raise OSError(f"{path} is not davy: it lacks davy_get_api")
        dll.davy_version.restype = c_char_p
        dll.davy_version.argtypes = []
        dll.davy_get_api.restype = POINTER(Api)
        dll.davy_get_api.argtypes = [c_uint32]
        self.dll = dll
        self.path = path
        self.version = dll.davy_version().decode()
        table = dll.davy_get_api(min_abi)
        if not table:
            raise OSError(f"{path}: davy {self.version} does not speak ABI {min_abi >> 16}.{min_abi & 0xFFFF}")
        self.api = table.contents

    def has(self, member):
        """Whether the library's table has this function."""
        field = getattr(Api, member)
        return self.api.struct_size >= field.offset + field.size

    def check(self, result):
        """Returns a status (>= 0) unchanged and raises DavyError for an error."""
        if result >= 0:
            return result
        info = ErrorInfo()
        self.api.last_error(ref(info))
        raise self._error(result, info)

    def check_job(self, job, result):
        """The same for a result of job_wait. The message comes from the job."""
        if result >= 0:
            return result
        info = ErrorInfo()
        self.api.job_error(job, ref(info))
        raise self._error(result, info)

    def _error(self, result, info):
        code = Result(result) if result in Result._value2member_map_ else result
        return DavyError(code, self.api.result_name(result).decode(), info.message.decode("utf-8", "replace"))

    def extension(self, identifier, struct):
        """The function struct of an extension, or None."""
        address = self.api.get_extension(text(identifier))
        return ctypes.cast(address, POINTER(struct)).contents if address else None

    def take_text(self, handle):
        """Returns the string of a davy_text handle and releases the handle."""
        utf8, length = c_char_p(), c_uint64()
        try:
            self.check(self.api.text_get(handle, ref(utf8), ref(length)))
            return utf8.value.decode()
        finally:
            self.api.text_release(handle)


def file_name():
    """The library's file name on this system."""
    return "davy-1.dll" if sys.platform == "win32" else "libdavy.so.1"


def candidates(path=None):
    """The places to search, in order: the given path alone, else DAVY_LIBRARY alone. Without both: the folder of this file, the
    pack's bin/, and the system's search path. Never the current directory."""
    if path or os.environ.get("DAVY_LIBRARY"):
        return [os.path.abspath(path or os.environ["DAVY_LIBRARY"])]
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [here, os.path.join(os.path.dirname(here), "bin")]
    beside = [os.path.join(f, file_name()) for f in folders]
    return [f for f in beside if os.path.exists(f)] + [file_name()]


def load(path=None, min_abi=ABI_1_0):
    """Opens the library. OSError lists the attempts. min_abi: the lowest version that the caller accepts."""
    reasons = []
    for candidate in candidates(path):
        try:
            dll = ctypes.CDLL(candidate)
        except OSError as error:
            reasons.append(str(error))
            continue
        return Library(dll, candidate, min_abi)  # a file that opens ends the search, even if it is unusable
    raise OSError("davy's library was not found: " + "; ".join(reasons))


def text(string):
    """UTF-8 bytes for a char pointer. None stays None."""
    return None if string is None else os.fsencode(string) if isinstance(string, os.PathLike) else string.encode()


def buffer_address(writable):
    """Address of a writable buffer (bytearray, array.array, memoryview). Keep a reference and do not resize the buffer."""
    return ctypes.addressof((c_char * 0).from_buffer(writable))
