"""The constants of abi/davy.h: DAVY_DTYPE_F32 is Dtype.F32."""

import enum

ABI_1_0 = 0x00010000
ABI_VERSION = ABI_1_0


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
    UNANSWERED = 4


class CaptionFlag(enum.IntFlag):
    PUBLISHED = 1
    THOUGHTS = 2
    LOOKUP = 4
    NO_LOOKUP = 8
    PARTIAL = 16


# The prefix of each enum's constants in the header.
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
