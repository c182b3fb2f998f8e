/* davy.h - the C ABI of libdavy, version 1.0.
 *
 * davy encodes and decodes with VAEs, upscales pictures and captions them, from the weight files people already have,
 * on the CPU or an NVIDIA GPU. Load the library at run time (dlopen, LoadLibrary, ctypes; davy_loader.h does it in one call),
 * ask davy_get_api() for the function table, and call through the table:
 *
 *     const davy_api *api = davy_get_api(DAVY_ABI_1_0);
 *     davy_context_desc cd = {.struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION};
 *     davy_context *ctx;  api->context_create(&cd, &ctx);
 *     davy_source src = {.struct_size = sizeof src, .path = "4x.safetensors"};
 *     davy_model_desc md = {.struct_size = sizeof md, .sources = &src, .n_sources = 1};
 *     davy_model *model;  api->model_open(ctx, &md, &model);
 *     api->upscale(model, &in, &out, NULL, NULL);
 *
 * RULES THAT HOLD EVERYWHERE
 *  structs   Every struct begins with struct_size, set by the caller to sizeof the struct it was compiled with, for
 *            inputs and outputs alike. Zero in any other member means the default. Structs grow at the end only. A
 *            larger struct than the library knows is accepted while the unknown tail is zero, else E_STRUCT.
 *  results   davy_result: 0 success, > 0 a status, < 0 an error. On an error structs and handles that were to be filled
 *            are untouched and nothing needs releasing; last_error() has a sentence naming the file, tensor or argument.
 *            A call that fails in the middle of its work may have written parts of its output tensor's memory.
 *  handles   Opaque. *_release accepts NULL and returns nothing. Release order is free: children keep parents alive.
 *  inputs    Descriptors, strings and arrays are copied during the call. Tensor memory of a call with a job must stay
 *            valid until the job has finished.
 *  text      UTF-8, NUL-terminated; paths too, on every system.
 *  threads   The tag of each function: [any] any thread, concurrently; [pure] no state at all. Releasing a handle must
 *            not race a call that uses the same handle.
 *  process   No output, no signal handlers, no locale change, no abort, no exit handlers. After fork() without exec a
 *            context of the parent answers E_FORKED. The library is never unmapped (linked with -z nodelete).
 *
 * License: MIT. */
#ifndef DAVY_H
#define DAVY_H

#include <stddef.h>
#include <stdint.h>

#define DAVY_VERSION_MAJOR 1
#define DAVY_VERSION_MINOR 0
#define DAVY_VERSION_PATCH 0

#if defined(_WIN32)
#define DAVY_CALL __cdecl
#else
#define DAVY_CALL
#endif

#if defined(DAVY_BUILDING) && defined(__GNUC__)
#define DAVY_EXPORT __attribute__((visibility("default")))
#else
#define DAVY_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* abi_version = major << 16 | minor. Ask davy_get_api for the lowest you can live with. */
enum { DAVY_ABI_1_0 = 0x00010000, DAVY_ABI_VERSION = DAVY_ABI_1_0 };

/* ---- results ---------------------------------------------------------------------------------------------------- */

typedef int32_t davy_result;
enum {
    DAVY_OK = 0,
    DAVY_PENDING = 1,    /* a job has not finished yet */
    DAVY_NEED_INPUT = 2, /* sequence_pull: nothing is on its way, push first */
    DAVY_FULL = 3,       /* sequence_push: results wait to be pulled; the frame was not taken */
    DAVY_END = 4,        /* dialogue_read: the answer has been read; sequence_pull: so has the last frame */
    DAVY_E_INVALID = -1, /* bad argument or enum value */
    DAVY_E_STRUCT = -2,  /* bad struct_size, or a non-zero tail this library does not know */
    DAVY_E_STATE = -3,   /* object not in the right state */
    DAVY_E_BUSY = -4,    /* object entered concurrently */
    DAVY_E_NOMEM_HOST = -5,
    DAVY_E_NOMEM_DEVICE = -6,
    DAVY_E_BUDGET = -7,        /* would exceed the memory budget; nothing was changed */
    DAVY_E_CANCELLED = -8,     /* by job_cancel or by a progress callback */
    DAVY_E_TIMEOUT = -9,       /* timeout_ns is over; the work has stopped */
    DAVY_E_IO = -10,           /* open, read or map failed */
    DAVY_E_NOT_FOUND = -11,    /* file, shipped model, device */
    DAVY_E_FORMAT = -12,       /* malformed file */
    DAVY_E_UNSAFE = -13,       /* a pickle that wants to run code */
    DAVY_E_ARCH = -14,         /* no architecture recognises the weights; the message says what they look like */
    DAVY_E_TENSOR = -15,       /* a required tensor is missing */
    DAVY_E_SHAPE = -16,        /* tensor or picture of the wrong shape */
    DAVY_E_UNSUPPORTED = -17,  /* known, but not on this device, dtype or build */
    DAVY_E_DEVICE = -18,       /* back end unavailable; see davy_device_info.reason */
    DAVY_E_DEVICE_LOST = -19,  /* the context must be created anew */
    DAVY_E_LIBRARY = -20,      /* davy_loader.h: the file that was found is not davy, or is too old */
    DAVY_E_INTEROP = -21,      /* nothing gives it yet */
    DAVY_E_TOKENIZER = -22,    /* a captioning model's tokenizer and weights or prompt do not belong together */
    DAVY_E_CONTEXT_FULL = -23, /* question, pictures and an answer have no room in the model's context */
    DAVY_E_OPTION = -24,       /* unknown or malformed option */
    DAVY_E_FORKED = -25,       /* called in a forked child */
    DAVY_E_INTERNAL = -26      /* an invariant broke; please report */
};

/* Who reported the error (davy_error_info.domain) and what `native` means; it is 0 where nothing is said here. */
enum {
    DAVY_DOMAIN_DAVY = 0,
    DAVY_DOMAIN_OS = 1,       /* native = errno or GetLastError() */
    DAVY_DOMAIN_CUDA = 2,     /* native = CUresult */
    DAVY_DOMAIN_CUDNN = 3,    /* nothing gives it yet */
    DAVY_DOMAIN_CUBLASLT = 4, /* nor this */
    DAVY_DOMAIN_JSON = 5,
    DAVY_DOMAIN_SAFETENSORS = 6,
    DAVY_DOMAIN_PICKLE = 7,
    DAVY_DOMAIN_GGUF = 8
};

typedef struct davy_error_info {
    uint32_t struct_size;
    davy_result code;
    int32_t domain; /* DAVY_DOMAIN_* */
    int32_t native; /* the domain's own code, 0 if none */
    char message[496];
} davy_error_info;

/* ---- handles ---------------------------------------------------------------------------------------------------- */

typedef struct davy_context davy_context;   /* devices, threads, budgets. [any] after creation */
typedef struct davy_model davy_model;       /* weights of one file; immutable, shareable, runs concurrently. [any] */
typedef struct davy_job davy_job;           /* one asynchronous call. [any] */
typedef struct davy_buffer davy_buffer;     /* memory owned by the library. [any] */
typedef struct davy_text davy_text;         /* a string owned by the library. [any] */
typedef struct davy_dialogue davy_dialogue; /* one conversation about pictures. One call at a time, else E_BUSY */
typedef struct davy_sequence
    davy_sequence; /* frames one after the other. One push and one pull at a time, else E_BUSY */

/* ---- host callbacks --------------------------------------------------------------------------------------------- */

typedef int32_t davy_log_level;
enum {
    DAVY_LOG_NONE = 0, /* nothing is formatted or delivered */
    DAVY_LOG_ERROR = 1,
    DAVY_LOG_MISUSE = 2, /* the host called wrongly */
    DAVY_LOG_WARN = 3,
    DAVY_LOG_INFO = 4,
    DAVY_LOG_DEBUG = 5
};

/* Callbacks may run on library threads, never while a library lock is held and never after the object they were given
 * to is gone. They must not throw or longjmp, and may call only job_cancel, last_error and version. */
typedef void(DAVY_CALL *davy_log_fn)(void *user, davy_log_level level, const char *utf8); /* no trailing newline */
typedef void *(DAVY_CALL *davy_alloc_fn)(void *user, size_t bytes, size_t align);         /* NULL: out of memory */
typedef void(DAVY_CALL *davy_free_fn)(void *user, void *p, size_t bytes);
typedef uint64_t(DAVY_CALL *davy_device_alloc_fn)(void *user, int32_t device, uint64_t bytes, void *stream);
typedef void(DAVY_CALL *davy_device_free_fn)(void *user, int32_t device, uint64_t ptr, uint64_t bytes, void *stream);
/* At most 20 calls a second, on the thread that does the work. done counts towards total; stage is a short English
 * word valid during the call. Return non-zero to cancel: the call ends with E_CANCELLED. */
typedef int32_t(DAVY_CALL *davy_progress_fn)(void *user, const char *stage, uint64_t done, uint64_t total);

typedef struct davy_host {
    uint32_t struct_size;
    davy_log_level log_level;
    void *user; /* first argument of every callback below */
    davy_log_fn log;
    davy_alloc_fn alloc; /* alloc and free: both or neither. Serves weights and workspace */
    davy_free_fn free;
    davy_device_alloc_fn device_alloc; /* both or neither; lends device memory from the host's own allocator; 0: it has
                                          no more. Ready for any stream; `device` as in cuda:N, stream NULL */
    davy_device_free_fn device_free;
} davy_host;

/* Tuning that may come and go. Unknown key: E_OPTION, unless written "?key". Frozen, never grows. */
typedef struct davy_option {
    const char *key;
    const char *value;
} davy_option;

/* ---- devices and contexts --------------------------------------------------------------------------------------- */

typedef int32_t davy_device_kind;
enum { DAVY_DEVICE_CPU = 1, DAVY_DEVICE_CUDA = 2 };

enum { /* davy_device_info.features; of a CPU BF16 alone is told */
       DAVY_FEATURE_FP16 = 1,
       DAVY_FEATURE_BF16 = 2, /* in hardware; bf16 also runs without, more slowly */
       DAVY_FEATURE_FP8 = 4,
       DAVY_FEATURE_INT8 = 8
};

typedef struct davy_device_info {
    uint32_t struct_size;
    davy_device_kind kind;
    int32_t index; /* of a GPU: N of cuda:N, as davy_tensor.device means it; else 0 */
    uint32_t features;
    uint8_t uuid[16]; /* of a GPU */
    char name[128];
    char selector[32]; /* what to write into davy_context_desc.device: "cpu", "cuda:0" */
    char reason[256];  /* why the device cannot be used; empty: it can */
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes; /* of a GPU: 0 while nobody in this process uses it, the driver does not tell then */
    int32_t compute_major;      /* CUDA compute capability */
    int32_t compute_minor;
    int32_t driver_version; /* the newest CUDA that the driver knows: 13000 is 13.0 */
    int32_t cudnn_version;  /* once a context of this process has loaded it (nvidia_libraries); else 0 */
    uint32_t import_mask;   /* 0: nothing yet */
    uint32_t reserved0;
} davy_device_info;

enum {                                 /* davy_context_desc.flags */
       DAVY_CONTEXT_NO_ENVIRONMENT = 1 /* ignore DAVY_* environment variables */
};

/* Environment, read once at context_create: DAVY_DEVICE (where device is NULL or "auto"), DAVY_MODELS (folder of shipped
 * models), DAVY_THREADS (where n_threads is 0), DAVY_CPU (the highest instruction set to use: baseline, avx2, avx512,
 * avx512bf16, amx; for tests), DAVY_NVIDIA_LIBRARIES (0 or 1, where the option nvidia_libraries is not given). A value
 * that means nothing is E_OPTION. DAVY_CUDA_DRIVER (another file than the system's CUDA driver; for tests) is read once
 * in a process, when the driver is first looked for, whatever the flags say.
 *
 * device: "auto" is the first GPU that can be used, else the CPU, and the log says why. Of a GPU: "cuda" (the first that
 * can be used), "cuda:N", "cuda:uuid=GPU-…" (a beginning will do), "cuda:pci=0000:01:00.0"; where it cannot be used
 * context_create answers E_DEVICE with the reason. A list, "cuda:0,cuda:1" (up to 16), spreads the tiles of a picture over
 * several GPUs; its first one is the one whose memory and streams tensors and runs may name.
 *
 * Option nvidia_libraries "1": an installed cuDNN 9 or cuBLASLt computes those convolutions that it is faster at. That is
 * measured when a size is first planned, which takes time and memory, and may come out otherwise in another process or on
 * another GPU: results then differ by rounding. "0", the default: davy's own kernels alone. */
typedef struct davy_context_desc {
    uint32_t struct_size;
    uint32_t abi_version;         /* DAVY_ABI_VERSION of the header compiled with */
    const davy_host *host;        /* NULL: no log, malloc */
    const char *device;           /* "auto" (NULL), "cpu", "cuda:0", "cuda:uuid=…", "cuda:pci=…", "cuda:0,cuda:1" */
    void *cuda_context;           /* the host's CUcontext, of one GPU; NULL: the device's primary context */
    uint64_t device_budget_bytes; /* hard ceiling on each GPU; 0: nine tenths of what it has free. Clips take less of it
                                   * where twice the memory would not save a third of the time */
    uint64_t host_budget_bytes;   /* hard ceiling for weights + workspace in host memory; 0: half of physical memory */
    const char *cache_dir;        /* nothing looks at it yet: davy writes nothing to disk */
    const char *library_dir;      /* where to look for NVIDIA libraries first, the driver's included */
    int32_t n_threads;            /* CPU threads, the caller's included, up to 1024; 0: one per available core */
    uint32_t flags;               /* DAVY_CONTEXT_* */
    const davy_option *options;   /* "models_dir": folder of shipped models, before DAVY_MODELS; "nvidia_libraries" */
    uint32_t n_options;
    uint32_t reserved0;
} davy_context_desc;

/* device_*: all GPUs of the context together, all 0 on the CPU.
 *
 * A call that would pass a budget, or that finds the device full, retreats in this order before it fails with E_BUDGET or
 * E_NOMEM_DEVICE, which leave the context usable: arenas kept for other sizes, smaller tiles, weights of models that are
 * not running, what the memory pool holds. */
typedef struct davy_memory_info {
    uint32_t struct_size;
    uint32_t reserved0;
    uint64_t device_weights_bytes;
    uint64_t device_workspace_bytes;
    uint64_t device_cache_bytes; /* held by the pool for the next allocation */
    uint64_t device_peak_bytes;
    uint64_t host_weights_bytes;
    uint64_t host_workspace_bytes; /* arenas of running and cached plans */
    uint64_t host_peak_bytes;
    uint64_t device_budget_bytes;
    uint64_t host_budget_bytes;
} davy_memory_info;

/* ---- models ----------------------------------------------------------------------------------------------------- */

typedef int32_t davy_task;
enum { DAVY_TASK_UPSCALE = 1, DAVY_TASK_VAE = 2, DAVY_TASK_CAPTION = 3 };

typedef int32_t davy_dtype;
enum {
    DAVY_DTYPE_AUTO = 0,
    DAVY_DTYPE_F32 = 1,
    DAVY_DTYPE_F16 = 2,
    DAVY_DTYPE_BF16 = 3,
    DAVY_DTYPE_U8 = 4,
    DAVY_DTYPE_U16 = 5,
    DAVY_DTYPE_INT8 = 6, /* compute only */
    DAVY_DTYPE_INT4 = 7, /* compute only */
    DAVY_DTYPE_FP8 = 8   /* compute only */
};

typedef int32_t davy_source_role;
enum {
    DAVY_SOURCE_AUTO = 0, /* told from the content */
    DAVY_SOURCE_WEIGHTS = 1,
    DAVY_SOURCE_CONFIG = 2,    /* config.json */
    DAVY_SOURCE_TOKENIZER = 3, /* E_UNSUPPORTED, as the next: these files are taken from beside the weights */
    DAVY_SOURCE_PREPROCESSOR = 4,
    DAVY_SOURCE_DIRECTORY = 5 /* a folder with config.json and weights, or a safetensors index */
};

/* Reads `bytes` bytes at `offset` into dst; returns the number read, fewer means an error. [any] */
typedef uint64_t(DAVY_CALL *davy_read_fn)(void *user, uint64_t offset, void *dst, uint64_t bytes);

/* Where weights come from: exactly one of path, data, read; or only `name`, the name of a shipped model such as
 * "davy-live-x4", looked up in the option models_dir, then DAVY_MODELS, then beside the library. */
typedef struct davy_source {
    uint32_t struct_size;
    davy_source_role role;
    const char *path; /* file or folder */
    const char *name; /* with data or read: the file name to use in messages */
    const void *data; /* must outlive the model */
    uint64_t data_bytes;
    void *user;
    davy_read_fn read; /* must stay callable as long as the model lives */
    uint64_t read_bytes;
} davy_source;

/* A mapped file that somebody truncates while it is in use raises SIGBUS (an exception on Windows) in the process, as any
 * mapped file does; with NO_MMAP the same event is E_IO. */
enum {                          /* davy_model_desc.flags */
       DAVY_MODEL_NO_MMAP = 1,  /* read files instead of mapping them (network drives, files that may change) */
       DAVY_MODEL_NO_PICKLE = 2 /* refuse .pth/.ckpt files */
};

/* Captioning models: one source, the path of a folder as Hugging Face has them (or of a file in it), or of a GGUF text
 * model, whose mmproj lies beside it or is a second source. They compute on the context's GPU, the first of
 * several, or on the CPU.
 * compute: AUTO, on a GPU BF16 (F16 where it has no BF16), on the CPU weights as they are stored and the fastest products;
 * F32, exact; BF16, INT8, INT4, on a GPU F16: weights are brought to that type where they are stored in a wider one, on a
 * GPU what is stored in another 16-bit type too. */
typedef struct davy_model_desc {
    uint32_t struct_size;
    davy_task task;             /* 0: whatever the weights are; E_ARCH where they are for something else */
    const davy_source *sources; /* several: encoder and decoder in files of their own (TAESD), shards */
    uint32_t n_sources;
    uint32_t source_stride;    /* bytes from one source to the next; 0: sources[0].struct_size */
    const char *arch;          /* NULL: detect. Else a name from davy_model_info.arch */
    davy_dtype compute;        /* AUTO: F32 on the CPU; on a GPU F16 for upscalers, BF16 for VAEs (F16 where the GPU has
                                  no BF16) and for upscalers that leave the range of F16 (else F32): transformers, for
                                  one. The CPU has F32, BF16 and INT8, GPUs F32, F16, BF16 (from 8.0 on), INT8 and, from
                                  8.9 on, FP8. FP8 and INT8: what is F16 otherwise (on the CPU F32), with products of
                                  E4M3 or of 8-bit integers in the convolutions that gain from it (INT8: and keep close
                                  to the result without, else none; on the CPU linear layers, too). Others:
                                  E_UNSUPPORTED. Of a captioning model: see above */
    uint32_t flags;            /* DAVY_MODEL_* */
    davy_progress_fn progress; /* "open": after each of several sources */
    void *progress_user;
    const davy_option *options; /* "scaling_factor", "shift_factor": of a VAE's latent, where the file is ambiguous;
                                   "tf32": "1" lets compute F32 multiply in TF32 on a GPU;
                                   "split": "8x16", height and width of a DAT or RGT network's windows, where the file
                                   does not say (8x32 is then assumed);
                                   "blend": "0.5", of two files of one network: each weight is so much of the first
                                   file's and the rest of the second's (Real-ESRGAN's denoising strength) */
    uint32_t n_options;
    uint32_t reserved0;
} davy_model_desc;

enum { /* davy_model_info.features */
       DAVY_MODEL_ENCODES = 1,
       DAVY_MODEL_DECODES = 2,
       DAVY_MODEL_UPSCALES = 4,
       DAVY_MODEL_MOMENTS = 8,      /* vae_encode can return mean and log-variance */
       DAVY_MODEL_TILES_EXACT = 16, /* tiling does not change the result beyond rounding */
       DAVY_MODEL_CAPTIONS = 32     /* caption and dialogues */
};

typedef struct davy_model_info {
    uint32_t struct_size;
    davy_task task;
    char arch[64];    /* "rrdb", "swinir", "vae_kl", "vlm" and so on: docs/arch */
    char variant[64]; /* human-readable: "64 features, 23 blocks, x4"; of a captioning model its family first */
    davy_dtype compute;
    uint32_t features;     /* DAVY_MODEL_* feature bits */
    uint64_t parameters;   /* those the architecture uses */
    uint64_t weight_bytes; /* as stored */
    int32_t in_channels;   /* of the picture */
    int32_t out_channels;
    int32_t latent_channels; /* 0: not a VAE */
    int32_t spatial_factor;  /* picture pixels per latent pixel, each axis */
    int32_t temporal_factor; /* frames per latent of a clip, but for its first one; 1: pictures only */
    int32_t scale_num;       /* output size = input size * scale_num / scale_den */
    int32_t scale_den;
    int32_t size_multiple; /* picture sides must be multiples of this (VAE encode); 1: any size */
    int32_t size_min;
    int32_t window_frames; /* of a VAE of clips: frames that its encoder takes at a time; else 0 */
    int32_t
        latency_frames; /* of vae_encode in a sequence: frames that may have to follow one until its latent is made */
    int32_t context_tokens; /* of a captioning model: what a dialogue can hold at most */
    float latent_scale;     /* model latent = (raw - shift) * scale; 0: unknown for this file */
    float latent_shift;
} davy_model_info;

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* CUDA is linear memory of the context's (first) GPU: any layout and strides, as in the host's memory. On the CPU it is
 * E_UNSUPPORTED, as CUDA_ARRAY is everywhere. */
typedef int32_t davy_memory;
enum {
    DAVY_MEMORY_HOST = 1,
    DAVY_MEMORY_HOST_PINNED = 2, /* as HOST, copied faster */
    DAVY_MEMORY_CUDA = 3,
    DAVY_MEMORY_CUDA_ARRAY = 4,
    DAVY_MEMORY_BUFFER = 5 /* in `buffer`, at byte_offset */
};

/* What the axes mean, outermost first. ndim is the number of letters. */
typedef int32_t davy_layout;
enum {
    DAVY_LAYOUT_HWC = 1,
    DAVY_LAYOUT_CHW = 2,
    DAVY_LAYOUT_HW = 3, /* one channel */
    DAVY_LAYOUT_NHWC = 4,
    DAVY_LAYOUT_NCHW = 5,
    DAVY_LAYOUT_NTHWC = 6,
    DAVY_LAYOUT_NCTHW = 7
};

typedef int32_t davy_channels;
enum {
    DAVY_CHANNELS_RGB = 1,
    DAVY_CHANNELS_BGR = 2,
    DAVY_CHANNELS_RGBA = 3,
    DAVY_CHANNELS_BGRA = 4,
    DAVY_CHANNELS_GRAY = 5,
    DAVY_CHANNELS_GRAYA = 6,
    DAVY_CHANNELS_LATENT = 7 /* any count; no colour meaning */
};

/* What the numbers mean. Outputs are clamped in every range but RAW. */
typedef int32_t davy_range;
enum {
    DAVY_RANGE_AUTO = 0,        /* integers: FULL; floats: UNIT for pictures, RAW for latents */
    DAVY_RANGE_FULL = 1,        /* U8 0..255, U16 0..65535; stored = round(value * full scale) */
    DAVY_RANGE_UNIT = 2,        /* 0..1 */
    DAVY_RANGE_SIGNED_UNIT = 3, /* -1..1 */
    DAVY_RANGE_RAW = 4          /* the network's own numbers, not converted, not clamped */
};

/* A picture, batch, clip or latent. data and strides are multiples of an element's size. No two elements of an output may
 * share memory, nor may input and output.
 *
 * On output, data == 0 and buffer == NULL ask the library to allocate a buffer of the shape plan_query reports (dtype 0:
 * F32; layout 0: as the input): it fills in everything else, data with the address where the host can read it, and the
 * caller releases the buffer. With memory CUDA and the GPU's `device` it is device memory: memory stays CUDA, data is a
 * device address, and the tensor, buffer included, may be the input of the next call. Otherwise the shape must be exactly
 * the one plan_query reports, its axes in the output's layout. */
typedef struct davy_tensor {
    uint32_t struct_size;
    davy_memory memory; /* 0: HOST, or BUFFER when buffer is set */
    int32_t device;     /* of CUDA memory: N of cuda:N */
    davy_dtype dtype;   /* F32, F16, BF16, U8, U16 */
    davy_layout layout;
    davy_channels channels; /* 0: by the channel count: 1 GRAY, 2 GRAYA, 3 RGB, 4 RGBA; of a latent LATENT */
    davy_range range;
    int32_t ndim;
    uint64_t data;        /* address; ignored where there is a buffer */
    uint64_t byte_offset; /* of element 0, from data or the buffer's beginning */
    davy_buffer *buffer;
    int64_t shape[6];
    int64_t stride_bytes[6]; /* all zero: packed. May be negative or larger than packed */
    int64_t pts;             /* carried through */
} davy_tensor;

/* ---- running ---------------------------------------------------------------------------------------------------- */

enum {                             /* davy_run.flags */
       DAVY_RUN_SCALED_LATENT = 1, /* latents cross the boundary scaled: (raw - shift) * scale. E_UNSUPPORTED where the
                                   model's scale is unknown; no effect on the TAESD family */
       DAVY_RUN_MOMENTS = 2, /* vae_encode returns 2z channels: mean, then log-variance clamped to [-30, 20]; raw, so
                                   neither with SCALED_LATENT nor with SAMPLE. This and SAMPLE are E_UNSUPPORTED for a
                                   model without DAVY_MODEL_MOMENTS */
       DAVY_RUN_SAMPLE = 4,  /* vae_encode draws mean + exp(logvar/2) * n, n ~ N(0,1) from seed: the same numbers for
                                   the same seed and size, whatever the layout, the tiles and the threads */
       DAVY_RUN_STREAM_ORDERED = 8, /* return when the work is enqueued on `stream`; see there */
       DAVY_RUN_FAST = 16,          /* allow results that differ from run to run; nothing makes use of it yet */
       DAVY_RUN_DROP_ALPHA = 32 /* upscale: alpha of the input is ignored; without, it is upscaled as a grey picture */
};

/* stream, on a GPU (on the CPU E_UNSUPPORTED); (void *)1 and 2 are CUDA's legacy and per-thread default streams:
 *   NULL                    a stream of davy's own. Inputs in CUDA memory must be complete; so are outputs on return.
 *   set                     the work comes after what is on the stream; outputs are complete on return.
 *   set, STREAM_ORDERED     the same, but the call returns once the work is enqueued: what is enqueued later sees the
 *                           outputs. Input and output must be CUDA memory and are read and written in the stream's order;
 *                           not with a job (E_INVALID). A first run still waits for the weights. Errors of the device
 *                           show in later calls.
 *   set, with a job         the job starts after what is on the stream at the call, on a stream of its own.
 * A buffer named in a tensor of stream-ordered work may be released at once. */
typedef struct davy_run {
    uint32_t struct_size;
    uint32_t flags; /* DAVY_RUN_* */
    void *stream;   /* CUstream; NULL: none */
    uint64_t seed;
    uint64_t timeout_ns; /* from the call on, of a job the wait for its turn included; then E_TIMEOUT. 0: none */
    int32_t tile_width;  /* input samples (pixels, or latent pixels for vae_decode); 0: automatic, -1: never tile */
    int32_t tile_height;
    int32_t tile_overlap; /* input samples; 0: automatic (the network's reach where that is exact) */
    int32_t tile_frames;  /* of a clip computed at once, rounded to what the network allows; 0: automatic, -1: all */
    int32_t priority;     /* jobs: higher first */
    int32_t reserved0;
    davy_progress_fn progress;
    void *progress_user;
    const davy_option *options; /* none is known yet */
    uint32_t n_options;
    uint32_t reserved1;
} davy_run;

typedef int32_t davy_op;
enum { DAVY_OP_VAE_ENCODE = 1, DAVY_OP_VAE_DECODE = 2, DAVY_OP_UPSCALE = 3 };

typedef struct davy_query {
    uint32_t struct_size;
    davy_op op;
    const davy_tensor *input; /* data may be 0 */
    const davy_run *run;      /* NULL: defaults */
} davy_query;

typedef struct davy_plan_info {
    uint32_t struct_size;
    int32_t ndim;
    int64_t shape[6]; /* of the output, in the input's layout; of several channels for HW in HWC */
    uint64_t workspace_bytes;
    uint64_t flops; /* multiply and add counted apart; convolutions, matrix products, attention; halos included */
    int32_t tiles_x;
    int32_t tiles_y;
    int32_t tiles_t;
    int32_t tile_width; /* input samples, overlap included */
    int32_t tile_height;
    int32_t tile_frames;
} davy_plan_info;

typedef struct davy_job_info {
    uint32_t struct_size;
    davy_result state;   /* PENDING, OK, or the error it ended with */
    uint64_t done;       /* of total, as in davy_progress_fn */
    uint64_t total;      /* 0: not known yet */
    char stage[32];      /* "queued" until its turn comes */
    uint64_t elapsed_ns; /* since the call that made it, until it finished */
} davy_job_info;

/* ---- captions and dialogues ------------------------------------------------------------------------------------- */

/* A NaN, or a number below 0 or outside what is said here, is E_INVALID. Strings are copied; prompt and system may
 * have 1 MiB each. */
typedef struct davy_caption_params {
    uint32_t struct_size;
    uint32_t reserved0;
    const char *prompt;      /* the question where no text was added; NULL: "Describe the image." */
    const char *system;      /* NULL: what the model's chat template says; "": none. Counts for the first turn */
    const char *const *stop; /* the answer ends before the first of these texts */
    uint32_t n_stop;         /* up to 64, of up to 1024 bytes each */
    int32_t max_tokens;      /* of the answer, thoughts included; 0: 256, of a model that thinks first 4096 */
    float temperature;       /* 0: the likeliest token always, top_k, top_p and seed mean nothing; up to 100 */
    float top_p;             /* 0 to 1; 0: 1 */
    int32_t top_k;           /* 0: all */
    float repeat_penalty;    /* 0: 1, none; 0.01 to 100 */
    uint64_t seed;
    int64_t max_pixels;     /* of a picture as the model sees it; 0: the model's own, of Qwen models 1003520 at most */
    int32_t max_tiles;      /* of a picture that the model cuts up, the whole one included; 1: no cutting; 0: its own */
    int32_t context_tokens; /* dialogue_open: room for so many tokens, up to what the model has. 0: that, 8192 at most,
                                and less where memory is short */
    float min_p; /* what is less than so many times as likely as the likeliest is not drawn; 0 to 1; 0: none */
    int32_t no_repeat_ngram; /* so many tokens in a row do not come twice, the question's included; 0: they may */
    uint32_t flags;          /* DAVY_CAPTION_* */
    uint32_t reserved1;
    double video_fps; /* dialogue_open: pictures a second of the videos that are added, up to 10000; 0: as many as the
                         model wants */
} davy_caption_params;

enum { /* davy_caption_params.flags */
       DAVY_CAPTION_PUBLISHED =
           1, /* what is 0 of temperature, top_p, top_k, min_p, repeat_penalty and no_repeat_ngram is
                                      what the model's authors say in generation_config.json */
       DAVY_CAPTION_THOUGHTS = 2, /* a block <think>...</think> that an answer begins with is a part of it; else it is
                                     left out, and a thinking model's answer begins behind it */
       /* Where the likeliest token is taken, those that followed the last ones earlier are tried several at a time. Without
        * these two the CPU does where it is quicker, which changes no answer. */
       DAVY_CAPTION_LOOKUP = 4, /* always: on a GPU, too, where several tokens at once are rounded otherwise than one */
       DAVY_CAPTION_NO_LOOKUP = 8, /* never */
       DAVY_CAPTION_PARTIAL =
           16 /* caption: after an error of the work, cancelled included, out has what was finished, and
                                      NULL for the others */
};

typedef int32_t davy_role;
enum { DAVY_ROLE_USER = 1, DAVY_ROLE_SYSTEM = 2 };

typedef int32_t davy_token_kind;
enum {
    DAVY_TOKEN_TEXT = 1,       /* a piece of the answer, whole characters */
    DAVY_TOKEN_IMAGE_DONE = 2, /* picture `index` of this turn has been looked at */
    DAVY_TOKEN_END_OF_TURN = 3
};

typedef int32_t davy_turn_end; /* how an answer ended */
enum {
    DAVY_TURN_STOP = 1,  /* by itself or at a stop text */
    DAVY_TURN_LENGTH = 2 /* at max_tokens or the end of the context */
};

typedef struct davy_token_event {
    uint32_t struct_size;
    davy_token_kind kind;
    const char *text;    /* TEXT: NUL-terminated, until the next dialogue_read or dialogue_generate of this dialogue */
    uint64_t text_bytes; /* without the NUL */
    int32_t index;       /* TEXT: 0, 1, 2 ...; IMAGE_DONE: which picture */
    davy_turn_end end;   /* END_OF_TURN */
} davy_token_event;

enum {                            /* davy_dialogue_info.flags */
       DAVY_DIALOGUE_SMALLER = 1, /* last turn: memory was short, a picture was looked at with fewer tiles or pixels */
       DAVY_DIALOGUE_SHORTER = 2, /* memory was short: the context is smaller than the model's */
       DAVY_DIALOGUE_UNANSWERED = 4 /* last turn: it ended inside the model's thoughts, which are left out: no text;
                                       more max_tokens (of the context, too) let it answer, THOUGHTS shows them */
};

typedef struct davy_dialogue_info {
    uint32_t struct_size;
    int32_t turns;       /* complete ones */
    int32_t tokens_used; /* of the context */
    int32_t tokens_max;  /* 0 before the first turn: memory is taken then */
    /* of the last turn: */
    int32_t prompt_tokens; /* pictures included */
    int32_t image_tokens;
    int32_t generated_tokens;
    davy_turn_end end;
    uint64_t kv_bytes; /* of the cache and its workspace */
    uint32_t flags;    /* DAVY_DIALOGUE_* */
    uint32_t reserved0;
    double seconds_to_first_token; /* from the beginning of the work, weights included where they had to be loaded */
    double tokens_per_second;      /* from the first token to the last */
} davy_dialogue_info;

/* ---- sequences -------------------------------------------------------------------------------------------------- */

/* A video, or pictures of one kind: frame after frame is pushed, and pulled in the same order. Every frame comes out as
 * the one-shot call gives it, bit for bit; but while one is computed the next ones are copied in and finished ones out, on
 * a GPU on streams of their own. What is on its way is bounded, and so is the memory: a host that reads, works and writes
 * in three threads goes as fast as the slowest of them.
 *
 * With a VAE of clips all that is pushed is one clip: fewer latents come out than frames go in, and more frames than
 * latents, with the numbers of one call for all of it (where that has T above 1, and the same tiles), in the memory of some
 * frames and of what the network keeps of those before. A result has the pts of the first frame, or the latent, that it is
 * made of. finish makes a last latent of what is left, its last frame repeated, or leaves it out where vae_encode and
 * vae_decode do. */
typedef struct davy_sequence_desc {
    uint32_t struct_size;
    davy_op op;
    const davy_tensor *input; /* what every frame is like: dtype, layout, channels, range, shape; data is not looked at.
                                  One picture, in host memory */
    const davy_tensor
        *output;           /* what every result is to be like: dtype, layout, channels, range, each as of an output that
                                  the library allocates. NULL: the input's dtype, layout, channels and range; of a
                                  VAE the input's dtype (F32 for U8 and U16) and layout */
    const davy_run *run;   /* for every frame: flags and tiles. NULL: defaults. A stream, STREAM_ORDERED,
                                  timeout_ns, priority or a progress callback are E_INVALID */
    int32_t max_in_flight; /* frames pushed and not yet pulled; of a clip, not yet computed, raised to what the network
                              takes at a time. 0: 4. At most 64 */
    uint32_t flags;        /* 0 */
} davy_sequence_desc;

typedef struct davy_sequence_info {
    uint32_t struct_size;
    int32_t max_in_flight;
    uint64_t frames_in; /* since open or reset */
    uint64_t frames_out;
    int32_t in_flight; /* frames_in - frames_out; of a clip frames not computed, and results not pulled */
    int32_t ready;     /* of these, how many can be pulled without waiting */
    int32_t
        latency_frames;    /* how many frames may have to follow one until its result is made: 0 but of clips encoded */
    int32_t finished;      /* sequence_finish was called */
    uint64_t memory_bytes; /* of frames, both sides; at most max_in_flight of each, of a clip some more */
} davy_sequence_info;

/* ---- the table -------------------------------------------------------------------------------------------------- */

typedef struct davy_api {
    uint32_t struct_size; /* of this library's table: test for newer functions with it */
    uint32_t abi_version; /* the newest this library speaks */

    /* base. [pure], but last_error reads the calling thread's record */
    const char *(DAVY_CALL *version)(void);                   /* "1.0.0" */
    const char *(DAVY_CALL *result_name)(davy_result r);      /* "E_SHAPE"; "?" for an unknown number */
    davy_result(DAVY_CALL *last_error)(davy_error_info *out); /* of this thread's last failing call */
    const void *(DAVY_CALL *get_extension)(const char *id);   /* "davy.inspect/1"; NULL: not here */

    /* devices. [any] Usable before any context; of desc (may be NULL) only library_dir counts. The CPU is always index 0;
     * devices that cannot be used are listed with a reason. An index that is not below the count is E_NOT_FOUND. */
    davy_result(DAVY_CALL *device_count)(const davy_context_desc *desc, int32_t *out);
    davy_result(DAVY_CALL *device_info)(const davy_context_desc *desc, int32_t index, davy_device_info *out);

    /* context. [any] */
    davy_result(DAVY_CALL *context_create)(const davy_context_desc *desc, davy_context **out);
    void(DAVY_CALL *context_release)(davy_context *ctx); /* joins the threads once the last child is gone too */
    davy_result(DAVY_CALL *context_memory)(davy_context *ctx, davy_memory_info *out);
    /* 0: the default again. What is in use stays; caches that no longer fit go */
    davy_result(DAVY_CALL *context_budget)(davy_context *ctx, uint64_t device_bytes, uint64_t host_bytes);
    /* Gives memory back until at most so much is in use: caches first, then weights of models that are not running, which
     * load again when needed. (0, 0): everything that can be spared. */
    davy_result(DAVY_CALL *context_trim)(davy_context *ctx, uint64_t keep_device_bytes, uint64_t keep_host_bytes);

    /* model. [any] model_open reads headers and JSON only and detects the architecture; with the option blend it mixes the
     * files, with compute INT8 it tries out the layers on a test picture, which takes seconds on a CPU. model_load prepares
     * the weights (else done by the first run); of its run only timeout_ns, priority and progress count. model_unload gives
     * their memory back and keeps the model usable; runs and dialogues that go on keep the weights until they end. Its
     * flags are 0. */
    davy_result(DAVY_CALL *model_open)(davy_context *ctx, const davy_model_desc *desc, davy_model **out);
    void(DAVY_CALL *model_release)(davy_model *model);
    davy_result(DAVY_CALL *model_info)(davy_model *model, davy_model_info *out);
    davy_result(DAVY_CALL *model_load)(davy_model *model, const davy_run *run, davy_job **job);
    davy_result(DAVY_CALL *model_unload)(davy_model *model, uint32_t flags);

    /* plan. [any] Output shape, workspace and tiling of a call, without running it. Where the call would have to make room,
     * this does: caches and weights of models that are not running go. It refuses what the call would refuse of run and
     * input. */
    davy_result(DAVY_CALL *plan_query)(davy_model *model, const davy_query *query, davy_plan_info *out);

    /* one-shot work. [any] run may be NULL. job NULL: the call blocks and the output is complete on return. job set: the
     * call returns at once with a job in *job, and an output that the library allocates is filled in already; jobs of a
     * context run one after the other, each on all its threads. Layouts with N or T run picture by picture.
     *   vae_encode  picture -> latent [.., H/f, W/f, z]; sides must be multiples of the spatial factor; alpha is ignored,
     *               grey stands for three equal colours
     *   vae_decode  latent  -> picture
     *   A VAE of clips (temporal_factor above 1) sees the frames of a T axis above 1 one after the other, each clip of N by
     *   itself, in slices that what memory there is allows: their lengths change nothing, STREAM_ORDERED is
     *   E_UNSUPPORTED. Where not even the shortest slice of whole frames fits, or tile_width and tile_height ask for it,
     *   frames are cut into tiles, each the same in all frames. vae_encode makes 1 + ceil((T - first) / temporal_factor)
     *   latents, first being 1, of the TAEHV family temporal_factor; where that is no whole number of frames the last one
     *   is repeated. vae_decode makes 1 + temporal_factor * (T - 1) frames: what was repeated is for the caller to drop.
     *   With MiniMax H3's pieces of 17 frames (taeh3) these are 5 * ceil(T / 17) - 3 latents and 17 * ceil(T / 5) - 12
     *   frames: what of the last piece is behind its fifth frame, or its second latent, is left out, and the log says so.
     *   A T of 1 and pictures without T are pictures, computed as such.
     *   upscale     picture -> picture with the same channels: grey gives grey; alpha goes through the network too unless
     *               RUN_DROP_ALPHA, but alpha that is constant stays exactly that. Alpha is straight: where it is 0 the
     *               network sees the colour of what is visible within 8 pixels, so that hidden colours make no edges */
    davy_result(DAVY_CALL *vae_encode)(davy_model *model, const davy_tensor *pixels, davy_tensor *latent,
                                       const davy_run *run, davy_job **job);
    davy_result(DAVY_CALL *vae_decode)(davy_model *model, const davy_tensor *latent, davy_tensor *pixels,
                                       const davy_run *run, davy_job **job);
    davy_result(DAVY_CALL *upscale)(davy_model *model, const davy_tensor *in, davy_tensor *out, const davy_run *run,
                                    davy_job **job);

    /* text. [any] The string lives as long as the text; bytes (may be NULL) do not count its NUL. */
    davy_result(DAVY_CALL *text_get)(davy_text *text, const char **utf8, uint64_t *bytes);
    void(DAVY_CALL *text_release)(davy_text *text);

    /* job. [any], concurrently too; job_cancel never waits. timeout_ns 0: only look; UINT64_MAX: for ever. */
    davy_result(DAVY_CALL *job_wait)(davy_job *job, uint64_t timeout_ns); /* PENDING, or the result of the work */
    davy_result(DAVY_CALL *job_info)(davy_job *job, davy_job_info *out);
    davy_result(DAVY_CALL *job_cancel)(davy_job *job);
    davy_result(DAVY_CALL *job_error)(davy_job *job,
                                      davy_error_info *out); /* PENDING: nothing written; code OK: it worked */
    void(DAVY_CALL *job_release)(davy_job *job); /* unfinished: cancels, then waits until no caller memory is touched */

    /* buffers. [any] alloc: HOST (or 0), in a context on a GPU also CUDA, memory of its first one; other memory is
     * E_UNSUPPORTED, 0 bytes are E_INVALID. buffer_tensor describes the memory: the tensor the library filled, or U8 [bytes]
     * after alloc. */
    davy_result(DAVY_CALL *buffer_alloc)(davy_context *ctx, davy_memory memory, uint64_t bytes, davy_buffer **out);
    davy_result(DAVY_CALL *buffer_tensor)(davy_buffer *buffer, davy_tensor *out);
    void(DAVY_CALL *buffer_release)(davy_buffer *buffer);

    /* caption. [any] Asks params->prompt about each of n pictures, each in a conversation of its own; several of them are
     * worked on at once as far as memory goes, on all GPUs of the context. The CPU says of each what it says of it alone; a
     * GPU rounds many rows otherwise than one, whatever the others are. Answers go to out[n], texts that the caller
     * releases. All or none: one picture that fails ends the call, and out is untouched, but see PARTIAL. images[i] is one
     * picture in host memory, read when its turn comes: with a job it, and out, must stay valid until the job has finished.
     * n is 1 to 1048576. params may be NULL. Of run only timeout_ns, priority and progress count: stages "load", "look",
     * "read", "answer"; tiles, flags, options or a stream are E_INVALID, and so they are of dialogue_generate. */
    davy_result(DAVY_CALL *caption)(davy_model *model, uint32_t n, const davy_tensor *const *images,
                                    const davy_caption_params *params, const davy_run *run, davy_job **job,
                                    davy_text **out);

    /* dialogue. One call at a time, of any thread; a call while another one, or the job of dialogue_generate, goes on is
     * E_BUSY, but dialogue_read and the job's own functions are for just that time. A turn is what was added since the last
     * one, and the answer to it. What was said stays in the cache: a further question costs its own tokens only, and
     * pictures are looked at once.
     *   open       takes no memory yet; params (may be NULL) hold for all turns
     *   add_image  copies one picture in host memory, for the next turn; pictures come before the turn's words. A tensor
     *              with T above 1 is a video of so many pictures, for models that take videos (E_UNSUPPORTED): those of
     *              them are kept that the model looks at. A turn has 1024 pictures at most
     *   add_text   words for the next turn, on a line of their own after earlier ones, 1 MiB in all; SYSTEM before the
     *              first turn only, else E_STATE
     *   generate   the turn. params NULL: those of open. Loads the weights where need be. With nothing added it is E_STATE.
     *              What does not fit the context is E_CONTEXT_FULL. After an error of the work, cancelled included (which
     *              takes no longer than a token), the dialogue is as after its last complete turn, and nothing is added
     *              any more; after one of the arguments (E_INVALID, E_STRUCT, E_STATE, E_BUSY) all is as before
     *   read       the next event of the turn, waiting up to timeout_ns: PENDING, none yet; END, all have been read and
     *              the dialogue is free again, also after a failed turn, whose error the job has. The next generate
     *              forgets the events of the turn before
     *   text       the last complete turn's answer, for the caller to release; E_STATE: there is none
     *   rewind     drops turns behind the first keep_turns, 0 to as many as there are, and what was added; nothing is
     *              computed again
     *   release    an unfinished job goes on and keeps what it needs */
    davy_result(DAVY_CALL *dialogue_open)(davy_model *model, const davy_caption_params *params, davy_dialogue **out);
    davy_result(DAVY_CALL *dialogue_add_image)(davy_dialogue *dialogue, const davy_tensor *image);
    davy_result(DAVY_CALL *dialogue_add_text)(davy_dialogue *dialogue, davy_role role, const char *utf8);
    davy_result(DAVY_CALL *dialogue_generate)(davy_dialogue *dialogue, const davy_caption_params *params,
                                              const davy_run *run, davy_job **job);
    davy_result(DAVY_CALL *dialogue_read)(davy_dialogue *dialogue, davy_token_event *out, uint64_t timeout_ns);
    davy_result(DAVY_CALL *dialogue_text)(davy_dialogue *dialogue, davy_text **out);
    davy_result(DAVY_CALL *dialogue_rewind)(davy_dialogue *dialogue, int32_t keep_turns);
    davy_result(DAVY_CALL *dialogue_info)(davy_dialogue *dialogue, davy_dialogue_info *out);
    void(DAVY_CALL *dialogue_release)(davy_dialogue *dialogue);

    /* sequence. [any] One push (or finish) and one pull at a time, of any threads, also at once; info and reset any time.
     *   open     checks what the frames are to be; takes no memory, loads nothing: the first frame does
     *   push     copies a frame, like desc->input but with strides of its own, and returns; work begins by itself. FULL:
     *            no room within timeout_ns (0: at once; UINT64_MAX: for ever), nothing was taken. After finish: E_STATE
     *   pull     the next result in the order of the pushes, with its frame's pts, waiting up to timeout_ns for it:
     *            PENDING, not yet; NEED_INPUT, at once, nothing is on its way, or less than the network takes at a time;
     *            END, at once, finished and all pulled. With
     *            data 0 and no buffer the result's own buffer is handed over, which the caller releases (and the sequence
     *            takes a new one); else it is copied to the memory given, whose dtype, layout, channels, range and shape
     *            are those asked for at open, the strides any
     *   finish   no more frames: what is on its way is computed, and pull ends in END. Waits for nothing
     *   reset    as after open, whatever state it was in: cancels what is on its way (which takes no longer than a tile),
     *            wakes calls that wait, which answer E_CANCELLED, and keeps frames' memory
     *   release  cancels, waits until nothing is computed any more
     * A frame that fails (E_BUDGET, E_DEVICE_LOST ...) fails the sequence: results before it can still be pulled, then
     * every pull, and every push from then on, gives its error, until reset. */
    davy_result(DAVY_CALL *sequence_open)(davy_model *model, const davy_sequence_desc *desc, davy_sequence **out);
    davy_result(DAVY_CALL *sequence_push)(davy_sequence *sequence, const davy_tensor *in, uint64_t timeout_ns);
    davy_result(DAVY_CALL *sequence_pull)(davy_sequence *sequence, davy_tensor *out, uint64_t timeout_ns);
    davy_result(DAVY_CALL *sequence_finish)(davy_sequence *sequence);
    davy_result(DAVY_CALL *sequence_reset)(davy_sequence *sequence);
    davy_result(DAVY_CALL *sequence_info)(davy_sequence *sequence, davy_sequence_info *out);
    void(DAVY_CALL *sequence_release)(davy_sequence *sequence);

    /* Of a text that caption made: what dialogue_info says after such a turn (times: of work shared with the others;
     * kv_bytes: of all that were worked on together). Other texts are E_UNSUPPORTED. */
    davy_result(DAVY_CALL *caption_info)(davy_text *text, davy_dialogue_info *out);
    /* ---- end of 1.0: append below, never above ---- */
} davy_api;

/* ---- extensions ------------------------------------------------------------------------------------------------- */

/* "davy.inspect/1": what a weight file is, as JSON, a text for the caller to release. describe succeeds for files davy can
 * parse but not run: "recognised": false with "why" and "looks_like". */
typedef struct davy_inspect_1 {
    uint32_t struct_size;
    uint32_t reserved0;
    davy_result(DAVY_CALL *describe)(davy_context *ctx, const davy_model_desc *desc, davy_text **json);
} davy_inspect_1;

/* "davy.profile/1": times of the steps of all runs of a context between start and stop, as JSON (a text for the caller to
 * release): an array of {"step", "kernel", "calls", "ms", "flops", "bytes"}, on a GPU with "peak_gflops" and "peak_gbs",
 * what it could do at that precision (estimates from its clocks). Profiling slows nothing down while it is off. */
typedef struct davy_profile_1 {
    uint32_t struct_size;
    uint32_t reserved0;
    davy_result(DAVY_CALL *start)(davy_context *ctx);
    davy_result(DAVY_CALL *stop)(davy_context *ctx, davy_text **json);
} davy_profile_1;

/* ---- the two exports -------------------------------------------------------------------------------------------- */

/* [pure] The table, or NULL when abi_version's major is not 1 or its minor is newer than the library. */
DAVY_EXPORT const davy_api *DAVY_CALL davy_get_api(uint32_t abi_version);
/* [pure] Never fails: "1.0.0". */
DAVY_EXPORT const char *DAVY_CALL davy_version(void);

typedef const davy_api *(DAVY_CALL *davy_get_api_fn)(uint32_t abi_version);
typedef const char *(DAVY_CALL *davy_version_fn)(void);

#ifdef __cplusplus
}
#endif
#endif /* DAVY_H */
