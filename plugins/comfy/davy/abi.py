"""abi/davy.h, version 1.0, as ctypes: constants, structs, the function table, and a loader.

    from davy import abi
    lib = abi.load()                                  # search order of davy_loader.h
    ctx = abi.Handle()
    lib.check(lib.api.context_create(abi.ref(abi.ContextDesc()), abi.ref(ctx)))

Names follow the header: struct davy_model_desc is ModelDesc, constant DAVY_DTYPE_F32 is Dtype.F32. Every struct sets its
struct_size itself. Strings go in as UTF-8 bytes (`text()`); objects whose address was stored in a struct (strings,
callbacks, arrays) must be kept referenced until the call has returned, callbacks and tensor memory as long as the header
says. Foreign calls release the interpreter lock. A callback must not raise: an exception cannot cross C.
tests/abi/check_layout.py compares this file with the compiler's view of the header.
"""

import ctypes
import enum
import os
import sys
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

ABI_1_0 = 0x00010000
ABI_VERSION = ABI_1_0

Handle = c_void_p  # davy_context *, davy_model *, davy_job *, davy_buffer *, davy_text *, davy_dialogue *
ref = ctypes.byref


# ---- constants ---------------------------------------------------------------------------------------------------


class Result(enum.IntEnum):
    OK = 0
    PENDING = 1
    NEED_INPUT = 2
    FULL = 3
    END = 4
    E_INVALID = -1
    E_STRUCT = -2
    E_STATE = -3
    E_BUSY = -4
    E_NOMEM_HOST = -5
    E_NOMEM_DEVICE = -6
    E_BUDGET = -7
    E_CANCELLED = -8
    E_TIMEOUT = -9
    E_IO = -10
    E_NOT_FOUND = -11
    E_FORMAT = -12
    E_UNSAFE = -13
    E_ARCH = -14
    E_TENSOR = -15
    E_SHAPE = -16
    E_UNSUPPORTED = -17
    E_DEVICE = -18
    E_DEVICE_LOST = -19
    E_LIBRARY = -20
    E_INTEROP = -21
    E_TOKENIZER = -22
    E_CONTEXT_FULL = -23
    E_OPTION = -24
    E_FORKED = -25
    E_INTERNAL = -26


class Domain(enum.IntEnum):
    DAVY = 0
    OS = 1
    CUDA = 2
    CUDNN = 3
    CUBLASLT = 4
    JSON = 5
    SAFETENSORS = 6
    PICKLE = 7
    GGUF = 8


class Log(enum.IntEnum):
    NONE = 0
    ERROR = 1
    MISUSE = 2
    WARN = 3
    INFO = 4
    DEBUG = 5


class DeviceKind(enum.IntEnum):
    CPU = 1
    CUDA = 2


class Feature(enum.IntFlag):
    FP16 = 1
    BF16 = 2
    FP8 = 4
    INT8 = 8


class ContextFlag(enum.IntFlag):
    NO_ENVIRONMENT = 1


class Task(enum.IntEnum):
    UPSCALE = 1
    VAE = 2
    CAPTION = 3


class Dtype(enum.IntEnum):
    AUTO = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    U8 = 4
    U16 = 5
    INT8 = 6
    INT4 = 7
    FP8 = 8


class SourceRole(enum.IntEnum):
    AUTO = 0
    WEIGHTS = 1
    CONFIG = 2
    TOKENIZER = 3
    PREPROCESSOR = 4
    DIRECTORY = 5


class ModelFlag(enum.IntFlag):
    """davy_model_desc.flags"""

    NO_MMAP = 1
    NO_PICKLE = 2


class ModelFeature(enum.IntFlag):
    """davy_model_info.features"""

    ENCODES = 1
    DECODES = 2
    UPSCALES = 4
    MOMENTS = 8
    TILES_EXACT = 16
    CAPTIONS = 32


class Memory(enum.IntEnum):
    HOST = 1
    HOST_PINNED = 2
    CUDA = 3
    CUDA_ARRAY = 4
    BUFFER = 5


class Layout(enum.IntEnum):
    HWC = 1
    CHW = 2
    HW = 3
    NHWC = 4
    NCHW = 5
    NTHWC = 6
    NCTHW = 7


class Channels(enum.IntEnum):
    RGB = 1
    BGR = 2
    RGBA = 3
    BGRA = 4
    GRAY = 5
    GRAYA = 6
    LATENT = 7


class Range(enum.IntEnum):
    AUTO = 0
    FULL = 1
    UNIT = 2
    SIGNED_UNIT = 3
    RAW = 4


class RunFlag(enum.IntFlag):
    SCALED_LATENT = 1
    MOMENTS = 2
    SAMPLE = 4
    STREAM_ORDERED = 8
    FAST = 16
    DROP_ALPHA = 32


class Op(enum.IntEnum):
    VAE_ENCODE = 1
    VAE_DECODE = 2
    UPSCALE = 3


class Role(enum.IntEnum):
    USER = 1
    SYSTEM = 2


class TokenKind(enum.IntEnum):
    TEXT = 1
    IMAGE_DONE = 2
    END_OF_TURN = 3


class TurnEnd(enum.IntEnum):
    STOP = 1
    LENGTH = 2


class DialogueFlag(enum.IntFlag):
    SMALLER = 1
    SHORTER = 2


class CaptionFlag(enum.IntFlag):
    PUBLISHED = 1
    THOUGHTS = 2


# What stands before a member's name in the header.
CONSTANT_PREFIX = {
    Result: "DAVY_",
    Domain: "DAVY_DOMAIN_",
    Log: "DAVY_LOG_",
    DeviceKind: "DAVY_DEVICE_",
    Feature: "DAVY_FEATURE_",
    ContextFlag: "DAVY_CONTEXT_",
    Task: "DAVY_TASK_",
    Dtype: "DAVY_DTYPE_",
    SourceRole: "DAVY_SOURCE_",
    ModelFlag: "DAVY_MODEL_",
    ModelFeature: "DAVY_MODEL_",
    Memory: "DAVY_MEMORY_",
    Layout: "DAVY_LAYOUT_",
    Channels: "DAVY_CHANNELS_",
    Range: "DAVY_RANGE_",
    RunFlag: "DAVY_RUN_",
    Op: "DAVY_OP_",
    Role: "DAVY_ROLE_",
    TokenKind: "DAVY_TOKEN_",
    TurnEnd: "DAVY_TURN_",
    DialogueFlag: "DAVY_DIALOGUE_",
    CaptionFlag: "DAVY_CAPTION_",
}

# ---- callbacks: user comes first and arrives as an int or None ------------------------------------------------------

LogFn = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
AllocFn = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
FreeFn = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
DeviceAllocFn = ctypes.CFUNCTYPE(c_uint64, c_void_p, c_int32, c_uint64, c_void_p)
DeviceFreeFn = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_uint64, c_uint64, c_void_p)
ProgressFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_uint64, c_uint64)
ReadFn = ctypes.CFUNCTYPE(c_uint64, c_void_p, c_uint64, c_void_p, c_uint64)


# ---- structs -----------------------------------------------------------------------------------------------------


class Sized(ctypes.Structure):
    """A struct that begins with struct_size, which is filled in here and never needs to be written."""

    def __init__(self, **members):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)


class ErrorInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("code", c_int32),
        ("domain", c_int32),
        ("native", c_int32),
        ("message", c_char * 496),
    ]


class Host(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("log_level", c_int32),
        ("user", c_void_p),
        ("log", LogFn),
        ("alloc", AllocFn),
        ("free", FreeFn),
        ("device_alloc", DeviceAllocFn),
        ("device_free", DeviceFreeFn),
    ]


class Option(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class DeviceInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("index", c_int32),
        ("features", c_uint32),
        ("uuid", c_uint8 * 16),
        ("name", c_char * 128),
        ("selector", c_char * 32),
        ("reason", c_char * 256),
        ("memory_total_bytes", c_uint64),
        ("memory_free_bytes", c_uint64),
        ("compute_major", c_int32),
        ("compute_minor", c_int32),
        ("driver_version", c_int32),
        ("cudnn_version", c_int32),
        ("import_mask", c_uint32),
        ("reserved0", c_uint32),
    ]


class ContextDesc(Sized):
    """abi_version is filled in as well."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("abi_version", c_uint32),
        ("host", POINTER(Host)),
        ("device", c_char_p),
        ("cuda_context", c_void_p),
        ("device_budget_bytes", c_uint64),
        ("host_budget_bytes", c_uint64),
        ("cache_dir", c_char_p),
        ("library_dir", c_char_p),
        ("n_threads", c_int32),
        ("flags", c_uint32),
        ("options", POINTER(Option)),
        ("n_options", c_uint32),
        ("reserved0", c_uint32),
    ]

    def __init__(self, **members):
        super().__init__(**{"abi_version": ABI_VERSION, **members})


class MemoryInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("device_weights_bytes", c_uint64),
        ("device_workspace_bytes", c_uint64),
        ("device_cache_bytes", c_uint64),
        ("device_peak_bytes", c_uint64),
        ("host_weights_bytes", c_uint64),
        ("host_workspace_bytes", c_uint64),
        ("host_peak_bytes", c_uint64),
        ("device_budget_bytes", c_uint64),
        ("host_budget_bytes", c_uint64),
    ]


class Source(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("role", c_int32),
        ("path", c_char_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("data_bytes", c_uint64),
        ("user", c_void_p),
        ("read", ReadFn),
        ("read_bytes", c_uint64),
    ]


class ModelDesc(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("task", c_int32),
        ("sources", POINTER(Source)),
        ("n_sources", c_uint32),
        ("source_stride", c_uint32),
        ("arch", c_char_p),
        ("compute", c_int32),
        ("flags", c_uint32),
        ("progress", ProgressFn),
        ("progress_user", c_void_p),
        ("options", POINTER(Option)),
        ("n_options", c_uint32),
        ("reserved0", c_uint32),
    ]


class ModelInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("task", c_int32),
        ("arch", c_char * 64),
        ("variant", c_char * 64),
        ("compute", c_int32),
        ("features", c_uint32),
        ("parameters", c_uint64),
        ("weight_bytes", c_uint64),
        ("in_channels", c_int32),
        ("out_channels", c_int32),
        ("latent_channels", c_int32),
        ("spatial_factor", c_int32),
        ("temporal_factor", c_int32),
        ("scale_num", c_int32),
        ("scale_den", c_int32),
        ("size_multiple", c_int32),
        ("size_min", c_int32),
        ("window_frames", c_int32),
        ("latency_frames", c_int32),
        ("context_tokens", c_int32),
        ("latent_scale", c_float),
        ("latent_shift", c_float),
    ]


class Tensor(Sized):
    """`data` is an address (numpy: a.ctypes.data, torch: t.data_ptr(), bytearray: buffer_address())."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("memory", c_int32),
        ("device", c_int32),
        ("dtype", c_int32),
        ("layout", c_int32),
        ("channels", c_int32),
        ("range", c_int32),
        ("ndim", c_int32),
        ("data", c_uint64),
        ("byte_offset", c_uint64),
        ("buffer", c_void_p),
        ("shape", c_int64 * 6),
        ("stride_bytes", c_int64 * 6),
        ("pts", c_int64),
    ]


class Run(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("stream", c_void_p),
        ("seed", c_uint64),
        ("timeout_ns", c_uint64),
        ("tile_width", c_int32),
        ("tile_height", c_int32),
        ("tile_overlap", c_int32),
        ("tile_frames", c_int32),
        ("priority", c_int32),
        ("reserved0", c_int32),
        ("progress", ProgressFn),
        ("progress_user", c_void_p),
        ("options", POINTER(Option)),
        ("n_options", c_uint32),
        ("reserved1", c_uint32),
    ]


class Query(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("op", c_int32),
        ("input", POINTER(Tensor)),
        ("run", POINTER(Run)),
    ]


class PlanInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("ndim", c_int32),
        ("shape", c_int64 * 6),
        ("workspace_bytes", c_uint64),
        ("flops", c_uint64),
        ("tiles_x", c_int32),
        ("tiles_y", c_int32),
        ("tiles_t", c_int32),
        ("tile_width", c_int32),
        ("tile_height", c_int32),
        ("tile_frames", c_int32),
    ]


class JobInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("state", c_int32),
        ("done", c_uint64),
        ("total", c_uint64),
        ("stage", c_char * 32),
        ("elapsed_ns", c_uint64),
    ]


class CaptionParams(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("prompt", c_char_p),
        ("system", c_char_p),
        ("stop", POINTER(c_char_p)),
        ("n_stop", c_uint32),
        ("max_tokens", c_int32),
        ("temperature", c_float),
        ("top_p", c_float),
        ("top_k", c_int32),
        ("repeat_penalty", c_float),
        ("seed", c_uint64),
        ("max_pixels", c_int64),
        ("max_tiles", c_int32),
        ("context_tokens", c_int32),
        ("min_p", c_float),
        ("no_repeat_ngram", c_int32),
        ("flags", c_uint32),
        ("reserved1", c_uint32),
        ("video_fps", c_double),
    ]


class TokenEvent(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("text", c_char_p),
        ("text_bytes", c_uint64),
        ("index", c_int32),
        ("end", c_int32),
    ]


class DialogueInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("turns", c_int32),
        ("tokens_used", c_int32),
        ("tokens_max", c_int32),
        ("prompt_tokens", c_int32),
        ("image_tokens", c_int32),
        ("generated_tokens", c_int32),
        ("end", c_int32),
        ("kv_bytes", c_uint64),
        ("flags", c_uint32),
        ("reserved0", c_uint32),
        ("seconds_to_first_token", c_double),
        ("tokens_per_second", c_double),
    ]


# ---- the table ---------------------------------------------------------------------------------------------------


def _f(result, *parameters):
    return ctypes.CFUNCTYPE(result, *parameters)


_context = _model = _job = _buffer = _text = _dialogue = c_void_p
_out = POINTER(c_void_p)
_work = _f(c_int32, _model, POINTER(Tensor), POINTER(Tensor), POINTER(Run), _out)


class Api(ctypes.Structure):
    """Call members like methods. A member beyond the library's own struct_size must not be touched: see Library.has."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("abi_version", c_uint32),
        ("version", _f(c_char_p)),
        ("result_name", _f(c_char_p, c_int32)),
        ("last_error", _f(c_int32, POINTER(ErrorInfo))),
        ("get_extension", _f(c_void_p, c_char_p)),
        ("device_count", _f(c_int32, POINTER(ContextDesc), POINTER(c_int32))),
        ("device_info", _f(c_int32, POINTER(ContextDesc), c_int32, POINTER(DeviceInfo))),
        ("context_create", _f(c_int32, POINTER(ContextDesc), _out)),
        ("context_release", _f(None, _context)),
        ("context_memory", _f(c_int32, _context, POINTER(MemoryInfo))),
        ("context_budget", _f(c_int32, _context, c_uint64, c_uint64)),
        ("context_trim", _f(c_int32, _context, c_uint64, c_uint64)),
        ("model_open", _f(c_int32, _context, POINTER(ModelDesc), _out)),
        ("model_release", _f(None, _model)),
        ("model_info", _f(c_int32, _model, POINTER(ModelInfo))),
        ("model_load", _f(c_int32, _model, POINTER(Run), _out)),
        ("model_unload", _f(c_int32, _model, c_uint32)),
        ("plan_query", _f(c_int32, _model, POINTER(Query), POINTER(PlanInfo))),
        ("vae_encode", _work),
        ("vae_decode", _work),
        ("upscale", _work),
        ("text_get", _f(c_int32, _text, POINTER(c_char_p), POINTER(c_uint64))),
        ("text_release", _f(None, _text)),
        ("job_wait", _f(c_int32, _job, c_uint64)),
        ("job_info", _f(c_int32, _job, POINTER(JobInfo))),
        ("job_cancel", _f(c_int32, _job)),
        ("job_error", _f(c_int32, _job, POINTER(ErrorInfo))),
        ("job_release", _f(None, _job)),
        ("buffer_alloc", _f(c_int32, _context, c_int32, c_uint64, _out)),
        ("buffer_tensor", _f(c_int32, _buffer, POINTER(Tensor))),
        ("buffer_release", _f(None, _buffer)),
        (
            "caption",
            _f(c_int32, _model, c_uint32, POINTER(POINTER(Tensor)), POINTER(CaptionParams), POINTER(Run), _out, _out),
        ),
        ("dialogue_open", _f(c_int32, _model, POINTER(CaptionParams), _out)),
        ("dialogue_add_image", _f(c_int32, _dialogue, POINTER(Tensor))),
        ("dialogue_add_text", _f(c_int32, _dialogue, c_int32, c_char_p)),
        ("dialogue_generate", _f(c_int32, _dialogue, POINTER(CaptionParams), POINTER(Run), _out)),
        ("dialogue_read", _f(c_int32, _dialogue, POINTER(TokenEvent), c_uint64)),
        ("dialogue_text", _f(c_int32, _dialogue, _out)),
        ("dialogue_rewind", _f(c_int32, _dialogue, c_int32)),
        ("dialogue_info", _f(c_int32, _dialogue, POINTER(DialogueInfo))),
        ("dialogue_release", _f(None, _dialogue)),
    ]


class Inspect1(ctypes.Structure):
    """Extension "davy.inspect/1"."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("describe", _f(c_int32, _context, POINTER(ModelDesc), _out)),
    ]


class Profile1(ctypes.Structure):
    """Extension "davy.profile/1"."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("start", _f(c_int32, _context)),
        ("stop", _f(c_int32, _context, _out)),
    ]


# The header's struct names, in its order.
STRUCTS = {
    "davy_error_info": ErrorInfo,
    "davy_host": Host,
    "davy_option": Option,
    "davy_device_info": DeviceInfo,
    "davy_context_desc": ContextDesc,
    "davy_memory_info": MemoryInfo,
    "davy_source": Source,
    "davy_model_desc": ModelDesc,
    "davy_model_info": ModelInfo,
    "davy_tensor": Tensor,
    "davy_run": Run,
    "davy_query": Query,
    "davy_plan_info": PlanInfo,
    "davy_job_info": JobInfo,
    "davy_caption_params": CaptionParams,
    "davy_token_event": TokenEvent,
    "davy_dialogue_info": DialogueInfo,
    "davy_api": Api,
    "davy_inspect_1": Inspect1,
    "davy_profile_1": Profile1,
}


# ---- the library -------------------------------------------------------------------------------------------------


class DavyError(Exception):
    """code: a Result (or a plain int from a newer library); name: "E_SHAPE"; str(): one sentence for the user."""

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
        """Whether the library's table reaches as far as this function."""
        field = getattr(Api, member)
        return self.api.struct_size >= field.offset + field.size

    def check(self, result):
        """Returns a status (>= 0) as it is, raises DavyError for an error."""
        if result >= 0:
            return result
        info = ErrorInfo()
        self.api.last_error(ref(info))
        raise self._error(result, info)

    def check_job(self, job, result):
        """The same for a result of job_wait: the message is the job's own."""
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
        """The string of a davy_text handle, which is released."""
        utf8, length = c_char_p(), c_uint64()
        try:
            self.check(self.api.text_get(handle, ref(utf8), ref(length)))
            return utf8.value.decode()
        finally:
            self.api.text_release(handle)


def file_name():
    """The file name hosts look for."""
    return "davy-1.dll" if sys.platform == "win32" else "libdavy.so.1"


def candidates(path=None):
    """Where to look, in order: the given path alone, else DAVY_LIBRARY alone, else beside this file (and the pack's bin/),
    else the system's search. Never the current directory."""
    if path or os.environ.get("DAVY_LIBRARY"):
        return [os.path.abspath(path or os.environ["DAVY_LIBRARY"])]
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [here, os.path.join(os.path.dirname(here), "bin")]
    beside = [os.path.join(f, file_name()) for f in folders]
    return [f for f in beside if os.path.exists(f)] + [file_name()]


def load(path=None, min_abi=ABI_1_0):
    """Opens the library; OSError says what was tried. min_abi: the lowest version the caller can live with."""
    reasons = []
    for candidate in candidates(path):
        try:
            dll = ctypes.CDLL(candidate)
        except OSError as error:
            reasons.append(str(error))
            continue
        return Library(dll, candidate, min_abi)  # there, but unusable: saying so beats finding another one
    raise OSError("davy's library was not found: " + "; ".join(reasons))


def text(string):
    """UTF-8 for a char pointer; None stays None."""
    return None if string is None else os.fsencode(string) if isinstance(string, os.PathLike) else string.encode()


def buffer_address(writable):
    """Address of a writable buffer (bytearray, array.array, memoryview), which must stay referenced and unresized."""
    return ctypes.addressof((c_char * 0).from_buffer(writable))
