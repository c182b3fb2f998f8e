"""The structs and callbacks of abi/davy.h: struct davy_model_desc is ModelDesc. Every struct sets its struct_size itself."""

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

from .constants import ABI_VERSION

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
    """A struct that begins with struct_size. The constructor sets it."""

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
    """The constructor sets abi_version too."""

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


class SequenceDesc(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("op", c_int32),
        ("input", POINTER(Tensor)),
        ("output", POINTER(Tensor)),
        ("run", POINTER(Run)),
        ("max_in_flight", c_int32),
        ("flags", c_uint32),
    ]


class SequenceInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("max_in_flight", c_int32),
        ("frames_in", c_uint64),
        ("frames_out", c_uint64),
        ("in_flight", c_int32),
        ("ready", c_int32),
        ("latency_frames", c_int32),
        ("finished", c_int32),
        ("memory_bytes", c_uint64),
    ]
