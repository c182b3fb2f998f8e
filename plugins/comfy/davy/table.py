"""The function table of abi/davy.h, the extensions, and the list of all structs."""

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_uint32, c_uint64, c_void_p

from .structs import (
    CaptionParams,
    ContextDesc,
    DeviceInfo,
    DialogueInfo,
    ErrorInfo,
    Host,
    JobInfo,
    MemoryInfo,
    ModelDesc,
    ModelInfo,
    Option,
    PlanInfo,
    Query,
    Run,
    SequenceDesc,
    SequenceInfo,
    Source,
    Tensor,
    TokenEvent,
)


def _f(result, *parameters):
    return ctypes.CFUNCTYPE(result, *parameters)


_context = _model = _job = _buffer = _text = _dialogue = _sequence = c_void_p
_out = POINTER(c_void_p)
_work = _f(c_int32, _model, POINTER(Tensor), POINTER(Tensor), POINTER(Run), _out)


class Api(ctypes.Structure):
    """Call members like methods. Never use a member beyond the library's own struct_size: see Library.has."""

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
        ("sequence_open", _f(c_int32, _model, POINTER(SequenceDesc), _out)),
        ("sequence_push", _f(c_int32, _sequence, POINTER(Tensor), c_uint64)),
        ("sequence_pull", _f(c_int32, _sequence, POINTER(Tensor), c_uint64)),
        ("sequence_finish", _f(c_int32, _sequence)),
        ("sequence_reset", _f(c_int32, _sequence)),
        ("sequence_info", _f(c_int32, _sequence, POINTER(SequenceInfo))),
        ("sequence_release", _f(None, _sequence)),
        ("caption_info", _f(c_int32, _text, POINTER(DialogueInfo))),
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
    "davy_sequence_desc": SequenceDesc,
    "davy_sequence_info": SequenceInfo,
    "davy_api": Api,
    "davy_inspect_1": Inspect1,
    "davy_profile_1": Profile1,
}
