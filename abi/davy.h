/** @mainpage davy: the C ABI of libdavy, version 1.0
 *
 * davy encodes and decodes with VAEs, upscales pictures and writes captions. It reads the weight files that people already
 * have, and computes on the CPU or on NVIDIA GPUs. This header is the manual. License: MIT.
 *
 * ## The first call
 *
 * A host opens the library at run time and calls it through one table of functions. davy_loader.h does the opening.
 * This program doubles a picture of 64 x 64 pixels with a model that is shipped with davy:
 *
 * @code{.c}
 * #include <stdio.h>
 * #include "davy_loader.h"
 *
 * int main(void) {
 *     static unsigned char pixels[64 * 64 * 3]; // RGB, row after row
 *     davy_library lib;
 *     if (davy_load(&lib, NULL, DAVY_ABI_1_0) != DAVY_OK) {
 *         puts(lib.error);
 *         return 1;
 *     }
 *     const davy_api *api = lib.api;
 *     davy_context_desc cd = {.struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION};
 *     davy_source source = {.struct_size = sizeof source, .name = "davy-live-x2"};
 *     davy_model_desc md = {.struct_size = sizeof md, .sources = &source, .n_sources = 1};
 *     davy_tensor in = {.struct_size = sizeof in, .dtype = DAVY_DTYPE_U8, .layout = DAVY_LAYOUT_HWC, .ndim = 3,
 *                       .shape = {64, 64, 3}, .data = (uint64_t)(uintptr_t)pixels};
 *     davy_tensor out = {.struct_size = sizeof out, .dtype = DAVY_DTYPE_U8};
 *     davy_context *ctx = NULL;
 *     davy_model *model = NULL;
 *     davy_result r = api->context_create(&cd, &ctx);
 *     r = r < 0 ? r : api->model_open(ctx, &md, &model);
 *     r = r < 0 ? r : api->upscale(model, &in, &out, NULL, NULL);
 *     if (r < 0) {
 *         davy_error_info e = {.struct_size = sizeof e};
 *         api->last_error(&e);
 *         puts(e.message);
 *     } else {
 *         printf("%d x %d\n", (int)out.shape[1], (int)out.shape[0]); // 128 x 128, the pixels are at out.data
 *     }
 *     api->buffer_release(out.buffer);
 *     api->model_release(model);
 *     api->context_release(ctx);
 *     return r < 0;
 * }
 * @endcode
 *
 * ## Where to read on
 *
 * davy_api lists all functions by subject. Structs and numbers:
 * - @ref base, @ref handles, @ref host
 * - @ref devices, @ref models, @ref tensors, @ref runs
 * - @ref captions, @ref sequences, @ref extensions, @ref loader
 *
 * ## Rules that hold everywhere
 *
 * **Structs.** Every struct begins with `struct_size`. The caller sets it to `sizeof` the struct, for inputs and outputs alike.
 * Zero in any other member means the default. Reserved members must be 0.
 * davy_option has no `struct_size` and never grows.
 *
 * **Larger structs.** A host may be compiled with a newer header than the library.
 * In an input, or in a davy_tensor, the tail that the library does not contain must be zero, else ::DAVY_E_STRUCT.
 * The tail of an output is ignored: the library leaves it as it was.
 *
 * **Results.** Every davy_result is 0 (success), positive (a status) or negative (an error).
 * davy_api::last_error has a sentence that names the file, tensor or argument.
 *
 * **Failure.** After an error, out-parameters and output structs are untouched, and nothing needs releasing. Three exceptions:
 * - The memory that an output tensor describes may hold parts of the result.
 * - A job that fails leaves the output that the library allocated for it, and the caller still releases that buffer.
 * - ::DAVY_CAPTION_PARTIAL asks for the captions that were finished.
 *
 * **Common errors.** These can come from every function that returns davy_result. Functions list only their other errors.
 * - ::DAVY_E_INVALID: a pointer is NULL that must not be, or a number or flag has no meaning.
 * - ::DAVY_E_STRUCT: a `struct_size` is too small, larger than 4096, or its unknown tail is not zero.
 * - ::DAVY_E_FORKED: the handle was created before fork().
 * - ::DAVY_E_NOMEM_HOST: memory for a small object ran out.
 *
 * **Work errors.** These can come from every function that loads weights or computes:
 * ::DAVY_E_NOMEM_HOST, ::DAVY_E_NOMEM_DEVICE, ::DAVY_E_BUDGET, ::DAVY_E_CANCELLED, ::DAVY_E_TIMEOUT, ::DAVY_E_IO,
 * ::DAVY_E_FORMAT, ::DAVY_E_UNSUPPORTED, ::DAVY_E_DEVICE, ::DAVY_E_DEVICE_LOST, ::DAVY_E_INTERNAL.
 *
 * **Handles.** Handles are opaque. A release function accepts NULL and returns nothing.
 * Handles may be released in any order: a child keeps its parents alive.
 * A text or a buffer outlives the call, the job and the model that made it.
 *
 * **Inputs.** Descriptors, strings and arrays are copied during the call. The host keeps the memory of a job's tensors valid until
 * the job has finished, and davy_source::data, callbacks and their `user` pointers as long as the object that uses them exists.
 *
 * **Text.** Text is UTF-8 and ends with NUL. Paths too, on every system.
 *
 * **Threads.** Each function names its threads. "Any": every thread may call it, also several at once with the same handle.
 * "One at a time": every thread may call it, but a second call at the same moment fails with ::DAVY_E_BUSY.
 * A release must not overlap another call that uses the same handle.
 *
 * | Handle | Calls at the same time |
 * |---|---|
 * | davy_context, davy_model, davy_job, davy_buffer, davy_text | any number |
 * | davy_dialogue | one; davy_api::dialogue_read and the job's functions may run beside davy_api::dialogue_generate |
 * | davy_sequence | one push (or finish) and one pull; davy_api::sequence_info and davy_api::sequence_reset at any time |
 *
 * **Stack.** On the CPU, davy uses less than 64 KiB of the calling thread's stack.
 * Callbacks of the host and the GPU driver use the same stack and need room of their own.
 * Threads of davy's own have a stack of 2 MiB.
 *
 * **Process.** davy writes no output, installs no signal or exit handlers, never aborts and leaves the locale alone.
 * After fork() without exec, a handle of the parent answers ::DAVY_E_FORKED; the child may still release it.
 * The library is never unmapped.
 *
 * **Growth.** Within major version 1, nothing that was released changes its place or meaning.
 * Functions are appended to davy_api, members to the ends of structs, and numbers to enums.
 * A host must therefore accept unknown statuses, error codes, enum values and feature bits. */
#ifndef DAVY_H
#define DAVY_H

#include <stddef.h>
#include <stdint.h>

/** @file
 * The C ABI of libdavy: types, numbers and the table of functions. */

/** @defgroup base Versions and results
 *
 * Version numbers, results and error messages.
 *
 * Functions: davy_api::version, davy_api::result_name, davy_api::last_error, davy_api::get_extension.
 * @{ */

/** Major version of this header. Another major version is another ABI. */
#define DAVY_VERSION_MAJOR 1
/** Minor version of this header. It grows with every addition. */
#define DAVY_VERSION_MINOR 0
/** Patch version of this header. The ABI does not depend on it. */
#define DAVY_VERSION_PATCH 0

/** Calling convention of every function and callback. */
#if defined(_WIN32)
#define DAVY_CALL __cdecl
#else
#define DAVY_CALL
#endif

/** Marks the two functions that the library exports. */
#if defined(DAVY_BUILDING) && defined(__GNUC__)
#define DAVY_EXPORT __attribute__((visibility("default")))
#else
#define DAVY_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** ABI versions, as `major << 16 | minor`. Pass the oldest version you support to davy_get_api. */
enum {
    DAVY_ABI_1_0 = 0x00010000,      /**< Version 1.0. */
    DAVY_ABI_VERSION = DAVY_ABI_1_0 /**< The version of this header. */
};

/** A result: 0 success, positive a status, negative an error. Later versions may add numbers. */
typedef int32_t davy_result;
/** Numbers of davy_result. */
enum {
    DAVY_OK = 0,               /**< Success. */
    DAVY_PENDING = 1,          /**< Not finished yet: a job, an event of a dialogue, a result of a sequence. */
    DAVY_NEED_INPUT = 2,       /**< sequence_pull: no result is on its way; push first. */
    DAVY_FULL = 3,             /**< sequence_push: there is no room; the frame was not taken. */
    DAVY_END = 4,              /**< dialogue_read: the answer was read. sequence_pull: the last result was pulled. */
    DAVY_E_INVALID = -1,       /**< Bad argument or enum value. */
    DAVY_E_STRUCT = -2,        /**< Bad `struct_size`, or a non-zero tail that this library does not contain. */
    DAVY_E_STATE = -3,         /**< The object is not in the right state for the call. */
    DAVY_E_BUSY = -4,          /**< Another call uses the object. */
    DAVY_E_NOMEM_HOST = -5,    /**< Host memory ran out. */
    DAVY_E_NOMEM_DEVICE = -6,  /**< GPU memory ran out. */
    DAVY_E_BUDGET = -7,        /**< The work needs more than the memory budget. The context stays usable. */
    DAVY_E_CANCELLED = -8,     /**< Stopped by job_cancel, sequence_reset or a progress callback. */
    DAVY_E_TIMEOUT = -9,       /**< davy_run::timeout_ns passed; the work has stopped. */
    DAVY_E_IO = -10,           /**< A file could not be opened, read or mapped. */
    DAVY_E_NOT_FOUND = -11,    /**< There is no such file, shipped model or device. */
    DAVY_E_FORMAT = -12,       /**< Malformed file. */
    DAVY_E_UNSAFE = -13,       /**< A pickle file that would run code, or any pickle under ::DAVY_MODEL_NO_PICKLE. */
    DAVY_E_ARCH = -14,         /**< The weights fit no known architecture, or another one than the caller named. */
    DAVY_E_TENSOR = -15,       /**< A required tensor is missing in the file. */
    DAVY_E_SHAPE = -16,        /**< A tensor or picture has the wrong shape. */
    DAVY_E_UNSUPPORTED = -17,  /**< Valid, but not offered for this model, device, dtype, memory or build. */
    DAVY_E_DEVICE = -18,       /**< The device cannot be used; see davy_device_info::reason. */
    DAVY_E_DEVICE_LOST = -19,  /**< The GPU failed. Release the context and create another one. */
    DAVY_E_LIBRARY = -20,      /**< davy_loader.h only: the file is not davy, or is too old. */
    DAVY_E_INTEROP = -21,      /**< Reserved; never returned by 1.0. */
    DAVY_E_TOKENIZER = -22,    /**< A captioning model's tokenizer does not fit its weights or prompt. */
    DAVY_E_CONTEXT_FULL = -23, /**< The question, pictures and an answer do not fit the context. */
    DAVY_E_OPTION = -24,       /**< Unknown or malformed option or environment variable. */
    DAVY_E_FORKED = -25,       /**< Called in a forked child with a handle of the parent. */
    DAVY_E_INTERNAL = -26      /**< An invariant of davy broke. Please report it. */
};

/** The origin of an error (davy_error_info::domain). It says what davy_error_info::native means. */
enum {
    DAVY_DOMAIN_DAVY = 0,        /**< davy; native is 0. */
    DAVY_DOMAIN_OS = 1,          /**< The operating system; native is errno or GetLastError(). */
    DAVY_DOMAIN_CUDA = 2,        /**< The CUDA driver; native is a CUresult. */
    DAVY_DOMAIN_CUDNN = 3,       /**< Reserved; never reported by 1.0. */
    DAVY_DOMAIN_CUBLASLT = 4,    /**< Reserved; never reported by 1.0. */
    DAVY_DOMAIN_JSON = 5,        /**< A JSON file; native is 0. */
    DAVY_DOMAIN_SAFETENSORS = 6, /**< A safetensors file; native is 0. */
    DAVY_DOMAIN_PICKLE = 7,      /**< A PyTorch file; native is 0. */
    DAVY_DOMAIN_GGUF = 8         /**< A GGUF file; native is 0. */
};

/** An error in full. */
typedef struct davy_error_info {
    uint32_t struct_size; /**< sizeof(davy_error_info). */
    davy_result code;     /**< The error; DAVY_OK: no call failed. */
    int32_t domain;       /**< Origin: DAVY_DOMAIN_*. */
    int32_t native;       /**< The origin's own code; 0: none. */
    char message[496];    /**< One sentence in English, UTF-8, cut at the end of a character. */
} davy_error_info;

/** @} */

/** @defgroup handles Handles
 *
 * Opaque objects of the library. The main page says which calls may run at the same time, and how to release them.
 * @{ */

/** Devices, threads and memory budgets. */
typedef struct davy_context davy_context;
/** The weights of one network. It never changes, and any number of calls may use it at once. */
typedef struct davy_model davy_model;
/** One asynchronous call. */
typedef struct davy_job davy_job;
/** Memory that the library owns. */
typedef struct davy_buffer davy_buffer;
/** A string that the library owns. It belongs to no context. */
typedef struct davy_text davy_text;
/** One conversation about pictures. */
typedef struct davy_dialogue davy_dialogue;
/** Frames of a video, one after the other. */
typedef struct davy_sequence davy_sequence;

/** @} */

/** @defgroup host Callbacks of the host
 *
 * davy calls these functions on the threads of its callers and on its own, several at once.
 * It holds no lock meanwhile, and it makes no call after the object that got the callback is gone.
 *
 * A callback must not throw or longjmp. It may call davy_api::job_cancel, davy_api::last_error and davy_api::version.
 * Anything else may deadlock; davy_api::job_release of the callback's own job always does.
 * @{ */

/** How much the log holds. A message is delivered if its level is at most davy_host::log_level. */
typedef int32_t davy_log_level;
/** Numbers of davy_log_level. */
enum {
    DAVY_LOG_NONE = 0,   /**< No message is formatted or delivered. */
    DAVY_LOG_ERROR = 1,  /**< A call failed. */
    DAVY_LOG_MISUSE = 2, /**< The host made a wrong call. */
    DAVY_LOG_WARN = 3,   /**< The result differs from the request, for example because memory was short. */
    DAVY_LOG_INFO = 4,   /**< Devices, models and cancelled calls. */
    DAVY_LOG_DEBUG = 5   /**< Details for developers of davy. */
};

/** Receives one message of the log.
 *
 * @param user   davy_host::user.
 * @param level  Level of the message.
 * @param utf8   The message, without a newline at the end. Valid during the call.
 * @threads Any, several at once. */
typedef void(DAVY_CALL *davy_log_fn)(void *user, davy_log_level level, const char *utf8);

/** Allocates host memory for weights and workspace.
 *
 * @param user   davy_host::user.
 * @param bytes  Size.
 * @param align  Alignment in bytes, a power of two; at present 64.
 * @return The memory, aligned to `align`; NULL: out of memory.
 * @threads Any, several at once. */
typedef void *(DAVY_CALL *davy_alloc_fn)(void *user, size_t bytes, size_t align);

/** Frees memory of davy_alloc_fn.
 *
 * @param user   davy_host::user.
 * @param p      The memory.
 * @param bytes  Size, as at the allocation.
 * @threads Any, several at once. */
typedef void(DAVY_CALL *davy_free_fn)(void *user, void *p, size_t bytes);

/** Lends GPU memory of the host's own allocator.
 *
 * @param user    davy_host::user.
 * @param device  N of "cuda:N".
 * @param bytes   Size.
 * @param stream  A CUstream of davy. The memory must be ready for work on this stream. davy waits for the stream after the call.
 * @return Device address, aligned to 256 bytes. The memory must be usable on every stream. 0: out of memory.
 * @threads Any, several at once. */
typedef uint64_t(DAVY_CALL *davy_device_alloc_fn)(void *user, int32_t device, uint64_t bytes, void *stream);

/** Takes back memory of davy_device_alloc_fn.
 *
 * @param user    davy_host::user.
 * @param device  N of "cuda:N".
 * @param ptr     Device address.
 * @param bytes   Size, as at the allocation.
 * @param stream  A CUstream of davy. No work of davy uses the memory after the work on this stream.
 * @threads Any, several at once. */
typedef void(DAVY_CALL *davy_device_free_fn)(void *user, int32_t device, uint64_t ptr, uint64_t bytes, void *stream);

/** Reports progress, at most 20 times a second.
 *
 * @param user   The `progress_user` beside the callback.
 * @param stage  A short English word, such as "load" or "upscale". Valid during the call.
 * @param done   Work that is done, of `total`. The unit differs from call to call.
 * @param total  All work.
 * @return 0 to go on; else the call ends with ::DAVY_E_CANCELLED.
 * @threads The thread that does the work. */
typedef int32_t(DAVY_CALL *davy_progress_fn)(void *user, const char *stage, uint64_t done, uint64_t total);

/** Services of the host for a context. Copied by davy_api::context_create. */
typedef struct davy_host {
    uint32_t struct_size;              /**< sizeof(davy_host). */
    davy_log_level log_level;          /**< Highest level to deliver. 0: none. */
    void *user;                        /**< First argument of every callback below. */
    davy_log_fn log;                   /**< Receives the log. NULL: none. */
    davy_alloc_fn alloc;               /**< Host memory, together with `free`. NULL: the C library's. */
    davy_free_fn free;                 /**< Frees memory of `alloc`. Both or neither, else ::DAVY_E_INVALID. */
    davy_device_alloc_fn device_alloc; /**< GPU memory, together with `device_free`. NULL: the driver's. */
    davy_device_free_fn device_free;   /**< Frees memory of `device_alloc`. Both or neither, else ::DAVY_E_INVALID. */
} davy_host;

/** A setting by name. This struct never grows. Options may appear and disappear between versions.
 *
 * An unknown key is ::DAVY_E_OPTION. A key that begins with "?" ("?tf32") is skipped if it is unknown.
 * If a key occurs twice, the last value counts. */
typedef struct davy_option {
    const char *key;   /**< Name. */
    const char *value; /**< Value as text. A number has the form of JSON. */
} davy_option;

/** @} */

/** @defgroup devices Devices and contexts
 *
 * Where davy computes, with how many threads and how much memory.
 *
 * Functions: davy_api::device_count, davy_api::device_info, davy_api::context_create, davy_api::context_release,
 * davy_api::context_memory, davy_api::context_budget, davy_api::context_trim.
 *
 * Environment variables, read once by davy_api::context_create unless ::DAVY_CONTEXT_NO_ENVIRONMENT is set:
 *
 * | Variable | Meaning | Counts if |
 * |---|---|---|
 * | DAVY_DEVICE | as davy_context_desc::device | `device` is NULL or "auto" |
 * | DAVY_MODELS | a folder of shipped models | always |
 * | DAVY_THREADS | 1 to 1024 | `n_threads` is 0 |
 * | DAVY_CPU | highest instruction set: baseline, avx2, avx512, avx512bf16, amx; for tests | always |
 * | DAVY_NVIDIA_LIBRARIES | 0 or 1 | the option nvidia_libraries is not given |
 *
 * A value without a meaning is ::DAVY_E_OPTION. DAVY_CUDA_DRIVER names another file than the system's CUDA driver, for tests.
 * It is read once in a process, when davy first looks for the driver, whatever the flags are.
 * @{ */

/** Kind of a device. */
typedef int32_t davy_device_kind;
/** Numbers of davy_device_kind. */
enum {
    DAVY_DEVICE_CPU = 1, /**< The processor. */
    DAVY_DEVICE_CUDA = 2 /**< An NVIDIA GPU. */
};

/** Bits of davy_device_info::features. A CPU reports ::DAVY_FEATURE_BF16 only. */
enum {
    DAVY_FEATURE_FP16 = 1, /**< Products of F16; GPUs of compute capability 7.5 and later. */
    DAVY_FEATURE_BF16 = 2, /**< Products of BF16 in hardware. A CPU without them computes BF16 too, more slowly. */
    DAVY_FEATURE_FP8 = 4,  /**< Products of FP8; GPUs of compute capability 8.9 and later. */
    DAVY_FEATURE_INT8 = 8  /**< Products of 8-bit integers; GPUs of compute capability 7.5 and later. */
};

/** A device, filled by davy_api::device_info. */
typedef struct davy_device_info {
    uint32_t struct_size;        /**< sizeof(davy_device_info). */
    davy_device_kind kind;       /**< CPU or GPU. */
    int32_t index;               /**< GPU: N of "cuda:N", as in davy_tensor::device. CPU: 0. */
    uint32_t features;           /**< DAVY_FEATURE_* bits. */
    uint8_t uuid[16];            /**< GPU: its UUID. CPU: zeros. */
    char name[128];              /**< Name by the maker. */
    char selector[32];           /**< Text for davy_context_desc::device: "cpu", "cuda:0". */
    char reason[256];            /**< Why the device cannot be used. Empty: it can. */
    uint64_t memory_total_bytes; /**< All memory, in bytes. */
    /** Free memory, in bytes. GPU: 0 while no code in this process uses the GPU, because the driver does not report it then. */
    uint64_t memory_free_bytes;
    int32_t compute_major;  /**< GPU: major part of the compute capability. CPU: 0. */
    int32_t compute_minor;  /**< GPU: minor part of the compute capability. CPU: 0. */
    int32_t driver_version; /**< GPU: newest CUDA version that the driver supports; 13000 is 13.0. CPU: 0. */
    int32_t cudnn_version;  /**< GPU: version of cuDNN if a context of this process has loaded it; else 0. */
    uint32_t import_mask;   /**< Reserved; 0 in 1.0. */
    uint32_t reserved0;     /**< Reserved; 0. */
} davy_device_info;

/** Bits of davy_context_desc::flags. */
enum {
    DAVY_CONTEXT_NO_ENVIRONMENT = 1 /**< Ignore the environment variables. */
};

/** Describes a context for davy_api::context_create. */
typedef struct davy_context_desc {
    uint32_t struct_size;  /**< sizeof(davy_context_desc). */
    uint32_t abi_version;  /**< ::DAVY_ABI_VERSION. Another major version is ::DAVY_E_INVALID. */
    const davy_host *host; /**< Callbacks. NULL: no log, memory of the C library and the driver. */
    /** The device to compute on. NULL means "auto".
     *
     * | Text | Device |
     * |---|---|
     * | "auto" | the first usable GPU, else the CPU; the log gives the reason |
     * | "cpu" | the CPU |
     * | "cuda" | the first usable GPU |
     * | "cuda:N" | the GPU with this index |
     * | "cuda:uuid=GPU-..." | the GPU with this UUID; its beginning is enough |
     * | "cuda:pci=0000:01:00.0" | the GPU at this PCI address |
     * | "cuda:0,cuda:1" | up to 16 different GPUs |
     *
     * A GPU that is named and cannot be used is ::DAVY_E_DEVICE. Several GPUs share the tiles of a picture, and the pictures
     * of a batch. Tensors and streams of the host belong to the first one. */
    const char *device;
    void *cuda_context; /**< The host's CUcontext, of one GPU. NULL: the GPU's primary context. */
    /** Most memory on each GPU, in bytes. 0: nine tenths of the memory that is free at the creation of the context.
     * A clip uses less if more memory would save little time. */
    uint64_t device_budget_bytes;
    /** Most host memory for weights and workspace, in bytes. 0: half of physical memory. */
    uint64_t host_budget_bytes;
    const char *cache_dir;   /**< Reserved; ignored by 1.0, which writes no files. */
    const char *library_dir; /**< Folder to search first for NVIDIA's libraries and driver. NULL: none. */
    int32_t n_threads;       /**< CPU threads, the caller's included, 1 to 1024. 0: one for each available core. */
    uint32_t flags;          /**< DAVY_CONTEXT_* bits. */
    /** Options:
     *
     * | Key | Value |
     * |---|---|
     * | "models_dir" | folder of shipped models, searched before DAVY_MODELS |
     * | "nvidia_libraries" | "1": an installed cuDNN 9 or cuBLASLt computes convolutions if it is faster; "0" (default): never |
     *
     * With "nvidia_libraries", davy measures both when it first plans a size. That takes time and memory, and the choice may
     * differ in another process or on another GPU. Results then differ by rounding. */
    const davy_option *options;
    uint32_t n_options; /**< Number of options. */
    uint32_t reserved0; /**< Reserved; 0. */
} davy_context_desc;

/** Memory of a context, in bytes, filled by davy_api::context_memory.
 *
 * `device_*` are sums over all GPUs of the context, and 0 on the CPU. A budget limits weights and workspace together.
 *
 * Before a call fails with ::DAVY_E_BUDGET or ::DAVY_E_NOMEM_DEVICE, davy saves memory in this order: it frees arenas
 * (workspace) kept for other sizes, uses smaller tiles, unloads models that no call uses, and empties the memory pool. */
typedef struct davy_memory_info {
    uint32_t struct_size;            /**< sizeof(davy_memory_info). */
    uint32_t reserved0;              /**< Reserved; 0. */
    uint64_t device_weights_bytes;   /**< Weights in GPU memory. */
    uint64_t device_workspace_bytes; /**< Arenas of running and kept plans, and buffers. */
    uint64_t device_cache_bytes;     /**< Memory that the pool holds for the next allocation. */
    uint64_t device_peak_bytes;      /**< Most weights and workspace since the creation of the context. */
    uint64_t host_weights_bytes;     /**< Weights in host memory. */
    uint64_t host_workspace_bytes;   /**< Arenas of running and kept plans, buffers, and pictures added to dialogues. */
    uint64_t host_peak_bytes;        /**< Most weights and workspace since the creation of the context. */
    uint64_t device_budget_bytes;    /**< The budget, summed over the GPUs. */
    uint64_t host_budget_bytes;      /**< The budget. 0: none, because physical memory is unknown. */
} davy_memory_info;

/** @} */

/** @defgroup models Models
 *
 * Weight files, how to open them, and what a model offers.
 *
 * Functions: davy_api::model_open, davy_api::model_release, davy_api::model_info, davy_api::model_load,
 * davy_api::model_unload. The extension davy_inspect_1 describes files, also those that davy cannot run.
 * @{ */

/** What a model is for. */
typedef int32_t davy_task;
/** Numbers of davy_task. */
enum {
    DAVY_TASK_UPSCALE = 1, /**< Enlarges or restores pictures. */
    DAVY_TASK_VAE = 2,     /**< Encodes pictures or clips to latents, decodes latents, or both. */
    DAVY_TASK_CAPTION = 3  /**< Answers questions about pictures. */
};

/** Type of a number. */
typedef int32_t davy_dtype;
/** Numbers of davy_dtype. */
enum {
    DAVY_DTYPE_AUTO = 0, /**< The default of the place where it stands. */
    DAVY_DTYPE_F32 = 1,  /**< 32-bit floating point. */
    DAVY_DTYPE_F16 = 2,  /**< IEEE half precision. */
    DAVY_DTYPE_BF16 = 3, /**< bfloat16. */
    DAVY_DTYPE_U8 = 4,   /**< 0 to 255; tensors only. */
    DAVY_DTYPE_U16 = 5,  /**< 0 to 65535; tensors only. */
    DAVY_DTYPE_INT8 = 6, /**< 8-bit integers; davy_model_desc::compute only. */
    DAVY_DTYPE_INT4 = 7, /**< 4-bit integers; davy_model_desc::compute only. */
    DAVY_DTYPE_FP8 = 8   /**< 8-bit floating point, E4M3; davy_model_desc::compute only. */
};

/** What a source holds. */
typedef int32_t davy_source_role;
/** Numbers of davy_source_role. */
enum {
    DAVY_SOURCE_AUTO = 0,         /**< davy recognises the content. */
    DAVY_SOURCE_WEIGHTS = 1,      /**< Weights. */
    DAVY_SOURCE_CONFIG = 2,       /**< A config.json. */
    DAVY_SOURCE_TOKENIZER = 3,    /**< ::DAVY_E_UNSUPPORTED: davy reads the tokenizer in the weights' folder. */
    DAVY_SOURCE_PREPROCESSOR = 4, /**< ::DAVY_E_UNSUPPORTED, for the same reason. */
    DAVY_SOURCE_DIRECTORY = 5     /**< A folder with config.json and weights, or with a safetensors index. */
};

/** Reads a part of a file for davy.
 *
 * @param user    davy_source::user.
 * @param offset  First byte.
 * @param dst     Receives the bytes.
 * @param bytes   How many.
 * @return The number of bytes read; fewer than `bytes` is ::DAVY_E_IO.
 * @threads Any, several at once. */
typedef uint64_t(DAVY_CALL *davy_read_fn)(void *user, uint64_t offset, void *dst, uint64_t bytes);

/** Where weights come from: exactly one of `path`, `data` and `read`, or `name` alone.
 *
 * `name` alone is the name of a shipped model, such as "davy-live-x4". It contains no "/", "\" or ":" and does not begin with
 * a dot. davy looks for the file NAME, then NAME.safetensors, in these folders:
 * 1. the option "models_dir" of the context
 * 2. the environment variable DAVY_MODELS
 * 3. relative to the library's folder: models, ../share/davy/models, ../../share/davy/models, ../packaging/models */
typedef struct davy_source {
    uint32_t struct_size;  /**< sizeof(davy_source). */
    davy_source_role role; /**< What the source holds. 0: recognised. */
    /** File or folder. If the path of a captioning model is relative, do not change the current folder while the model is open. */
    const char *path;
    const char *name; /**< Beside `data` or `read`: file name for messages. Alone: a shipped model. */
    /** A file in memory. The caller keeps it until the model is released and its last call has ended. */
    const void *data;
    uint64_t data_bytes; /**< Size of `data`. */
    void *user;          /**< First argument of `read`. */
    davy_read_fn read;   /**< Reads the file. It must stay callable as long as `data` would have to stay. */
    uint64_t read_bytes; /**< Size of the file behind `read`. */
} davy_source;

/** Bits of davy_model_desc::flags.
 *
 * If another program truncates a mapped file while davy uses it, the process gets SIGBUS (Windows: an exception), as with any
 * mapped file. With ::DAVY_MODEL_NO_MMAP the same event is ::DAVY_E_IO. */
enum {
    DAVY_MODEL_NO_MMAP = 1,  /**< Read files instead of mapping them: network drives, files that may change. */
    DAVY_MODEL_NO_PICKLE = 2 /**< Refuse PyTorch files (.pth, .pt, .ckpt) with ::DAVY_E_UNSAFE. */
};

/** Describes a model for davy_api::model_open.
 *
 * **Captioning models** have one source: the path of a folder as Hugging Face lays it out, or of a file in it. Or the path of
 * a GGUF text model; its mmproj file lies beside it or is a second source. They compute on the first GPU of the context, or
 * on the CPU. davy_api::caption uses all GPUs. */
typedef struct davy_model_desc {
    uint32_t struct_size; /**< sizeof(davy_model_desc). */
    davy_task task;       /**< Expected task; another one is ::DAVY_E_ARCH. 0: any. */
    /** Sources. Several: shards, the encoder and decoder of a TAESD, two files to blend. */
    const davy_source *sources;
    uint32_t n_sources; /**< Number of sources, 1 to 1024. */
    /** Bytes from one source to the next, a multiple of 8. 0: the first one's `struct_size`. */
    uint32_t source_stride;
    const char *arch; /**< Architecture, a name as in davy_model_info::arch. NULL: detected. */
    /** Precision of the work. 0: AUTO.
     *
     * Upscalers and VAEs ("8.0" is a compute capability; "wide" networks have numbers beyond the range of F16):
     *
     * | compute | CPU | GPU |
     * |---|---|---|
     * | AUTO | F32 | upscalers F16, VAEs BF16 (F16 below 8.0), wide networks BF16 (F32 below 8.0) |
     * | F32 | yes | yes; see option "tf32" |
     * | F16 | no | yes |
     * | BF16 | yes | from 8.0 |
     * | INT8 | yes | from 7.5; wide networks from 8.0 |
     * | FP8 | no | from 8.9 |
     * | INT4 | no | no |
     *
     * INT8 and FP8 apply to the convolutions that gain from them, on the CPU also to linear layers. The other layers use F16
     * or BF16, on the CPU F32. INT8 applies only if the result keeps close to the result without it, else to no layer.
     *
     * Captioning models:
     *
     * | compute | CPU | GPU |
     * |---|---|---|
     * | AUTO | weights as stored, fastest products | BF16 (F16 below 8.0) |
     * | F32 | exact products | exact products |
     * | BF16, INT8, INT4 | converts weights that are stored in a wider type | the same; it also converts another 16-bit type |
     * | F16 | no | yes |
     * | FP8 | no | no |
     *
     * "No" is ::DAVY_E_UNSUPPORTED. */
    davy_dtype compute;
    uint32_t flags;            /**< DAVY_MODEL_* bits. */
    davy_progress_fn progress; /**< Called with stage "open" after each of several sources. NULL: none. */
    void *progress_user;       /**< First argument of `progress`. */
    /** Options. Captioning models have none.
     *
     * | Key | Value |
     * |---|---|
     * | "scaling_factor" | VAE: scale of the latent, above 0, if the file does not determine it |
     * | "shift_factor" | VAE: shift of the latent, if the file does not determine it |
     * | "tf32" | "1": compute F32 on a GPU may multiply in TF32 |
     * | "split" | DAT, RGT: height and width of a window, "8x16"; default: from the file, else 8x32 |
     * | "blend" | 0 to 1: the first file's share of each weight; the second file of the same network has the rest |
     *
     * "blend" gives Real-ESRGAN's denoising strength. */
    const davy_option *options;
    uint32_t n_options; /**< Number of options. */
    uint32_t reserved0; /**< Reserved; 0. */
} davy_model_desc;

/** Bits of davy_model_info::features. */
enum {
    DAVY_MODEL_ENCODES = 1,      /**< The model can vae_encode. */
    DAVY_MODEL_DECODES = 2,      /**< The model can vae_decode. */
    DAVY_MODEL_UPSCALES = 4,     /**< The model can upscale. */
    DAVY_MODEL_MOMENTS = 8,      /**< vae_encode accepts ::DAVY_RUN_MOMENTS and ::DAVY_RUN_SAMPLE. */
    DAVY_MODEL_TILES_EXACT = 16, /**< Tiles change the result by rounding only. */
    DAVY_MODEL_CAPTIONS = 32     /**< The model can caption, and has dialogues. */
};

/** A model, filled by davy_api::model_info. */
typedef struct davy_model_info {
    uint32_t struct_size; /**< sizeof(davy_model_info). */
    davy_task task;       /**< What the model is for. */
    char arch[64];        /**< Architecture: "rrdb", "swinir", "vae_kl", "vlm" and so on; pages in docs/arch. */
    char variant[64];     /**< For people: "64 features, 23 blocks, x4". A captioning model's begins with its family. */
    davy_dtype compute;   /**< Precision in use. */
    uint32_t features;    /**< DAVY_MODEL_* feature bits. */
    uint64_t parameters;  /**< Number of parameters that the architecture uses. */
    uint64_t weight_bytes;   /**< Their size in the file, in bytes. */
    int32_t in_channels;     /**< Channels of the picture that goes in. */
    int32_t out_channels;    /**< Channels of the picture that comes out. */
    int32_t latent_channels; /**< VAE: channels of the latent. Others: 0. */
    int32_t spatial_factor;  /**< VAE: pixels for each latent pixel, along each axis. */
    int32_t temporal_factor; /**< VAE of clips: frames for each latent but the first. Others: 1. */
    int32_t scale_num;       /**< Output size is input size * scale_num / scale_den. */
    int32_t scale_den;       /**< See `scale_num`. */
    int32_t size_multiple;   /**< Picture sides must be multiples of this, in pixels (vae_encode). 1: any. */
    int32_t size_min;        /**< Least side of a picture, in pixels. */
    int32_t window_frames;   /**< VAE of clips: frames that its encoder takes at a time. Others: 0. */
    /** vae_encode in a sequence: frames that may have to follow a frame before its latent is ready. */
    int32_t latency_frames;
    int32_t context_tokens; /**< Captioning model: most tokens of a dialogue. Others: 0. */
    float latent_scale; /**< The latent that diffusion models use is (raw - shift) * scale. 0: unknown for this file. */
    float latent_shift; /**< See `latent_scale`. */
} davy_model_info;

/** @} */

/** @defgroup tensors Tensors and buffers
 *
 * Pictures, clips and latents, in memory of the host or of the library.
 *
 * Functions: davy_api::buffer_alloc, davy_api::buffer_tensor, davy_api::buffer_release, davy_api::text_get,
 * davy_api::text_release.
 * @{ */

/** Where the numbers of a tensor lie. */
typedef int32_t davy_memory;
/** Numbers of davy_memory. Any dtype, layout and strides may lie in each of them. */
enum {
    DAVY_MEMORY_HOST = 1,        /**< Memory of the process. */
    DAVY_MEMORY_HOST_PINNED = 2, /**< Page-locked memory of the process. As HOST; copies to the GPU are faster. */
    DAVY_MEMORY_CUDA = 3,        /**< Linear memory of the context's first GPU. CPU: ::DAVY_E_UNSUPPORTED. */
    DAVY_MEMORY_CUDA_ARRAY = 4,  /**< Reserved; ::DAVY_E_UNSUPPORTED in 1.0. */
    DAVY_MEMORY_BUFFER = 5       /**< In davy_tensor::buffer, at davy_tensor::byte_offset. */
};

/** What the axes mean, outermost first. davy_tensor::ndim is the number of letters. */
typedef int32_t davy_layout;
/** Numbers of davy_layout: N pictures or clips, T frames, H rows, W columns, C channels. */
enum {
    DAVY_LAYOUT_HWC = 1,   /**< A picture, interleaved. */
    DAVY_LAYOUT_CHW = 2,   /**< A picture, planar. */
    DAVY_LAYOUT_HW = 3,    /**< A picture of one channel. */
    DAVY_LAYOUT_NHWC = 4,  /**< Pictures, interleaved. */
    DAVY_LAYOUT_NCHW = 5,  /**< Pictures, planar. */
    DAVY_LAYOUT_NTHWC = 6, /**< Clips, interleaved. */
    DAVY_LAYOUT_NCTHW = 7  /**< Clips, planar. */
};

/** What the channels mean. */
typedef int32_t davy_channels;
/** Numbers of davy_channels. Alpha is straight, not premultiplied. */
enum {
    DAVY_CHANNELS_RGB = 1,   /**< Red, green, blue. */
    DAVY_CHANNELS_BGR = 2,   /**< Blue, green, red. */
    DAVY_CHANNELS_RGBA = 3,  /**< Red, green, blue, alpha. */
    DAVY_CHANNELS_BGRA = 4,  /**< Blue, green, red, alpha. */
    DAVY_CHANNELS_GRAY = 5,  /**< Grey. */
    DAVY_CHANNELS_GRAYA = 6, /**< Grey, alpha. */
    DAVY_CHANNELS_LATENT = 7 /**< A latent: any number of channels, without colours. */
};

/** What the numbers mean. */
typedef int32_t davy_range;
/** Numbers of davy_range.
 *
 * Outputs are clamped in every range but RAW. NaN passes through in floats, and becomes 0 in integers. */
enum {
    DAVY_RANGE_AUTO = 0,        /**< Integers: FULL. Floats: UNIT for pictures, RAW for latents. */
    DAVY_RANGE_FULL = 1,        /**< U8 0 to 255, U16 0 to 65535 stand for 0 to 1. Rounded to nearest, ties to even. */
    DAVY_RANGE_UNIT = 2,        /**< Floats only: 0 to 1. */
    DAVY_RANGE_SIGNED_UNIT = 3, /**< Floats only: -1 to 1. */
    DAVY_RANGE_RAW = 4          /**< Floats only: the network's own numbers, neither converted nor clamped. */
};

/** A picture, a batch, a clip or a latent.
 *
 * **Rules.** Each side is 1 to 2147483647, and a tensor has at most 2^46 elements. The address and the strides are multiples of
 * an element's size. No two elements of an output may share memory. Input and output may not overlap.
 * A violation is ::DAVY_E_SHAPE or ::DAVY_E_INVALID.
 *
 * **An output in the caller's memory** has the shape that davy_api::plan_query reports, with the axes of its own layout.
 *
 * **An output in the library's memory**: set `data` to 0 and `buffer` to NULL. davy fills in all members and sets `buffer`,
 * which the caller releases. `data` is the address where the host reads the result.
 * `dtype` 0 means F32. `layout` 0 means the input's layout; HW input with several output channels is reported as HWC.
 * With `memory` CUDA and the GPU's `device`, the buffer lies on the GPU and `data` is a device address.
 * The filled tensor, buffer included, may be the input of the next call. */
typedef struct davy_tensor {
    uint32_t struct_size; /**< sizeof(davy_tensor). */
    davy_memory memory;   /**< Where the numbers lie. 0: HOST, or in `buffer` if that is set. */
    int32_t device;       /**< CUDA memory: N of "cuda:N". Ignored if `buffer` is set. */
    davy_dtype dtype;     /**< F32, F16, BF16, U8 or U16; a latent only the first three. 0: see above. */
    davy_layout layout;   /**< The axes. 0: see above. */
    /** The channels. 0: by their number, for outputs too: 1 GRAY, 2 GRAYA, 3 RGB, 4 RGBA. A latent's are LATENT.
     * For BGR results, set it in the output as well. */
    davy_channels channels;
    davy_range range;        /**< Meaning of the numbers. 0: by dtype. */
    int32_t ndim;            /**< Number of axes: 2 to 5, by the layout. */
    uint64_t data;           /**< Address of the memory. Ignored if `buffer` is set. */
    uint64_t byte_offset;    /**< Bytes from `data`, or from the buffer's beginning, to element 0. */
    davy_buffer *buffer;     /**< The buffer that holds the numbers. NULL: `data`. The caller keeps its reference. */
    int64_t shape[6];        /**< Size of each axis, in the order of the layout. */
    int64_t stride_bytes[6]; /**< Bytes between neighbours along each axis; may be negative or large. All 0: packed. */
    int64_t pts;             /**< Time stamp in any unit, copied from input to output. */
} davy_tensor;

/** @} */

/** @defgroup runs Runs, plans and jobs
 *
 * One call: its options, its plan, and its progress as a job.
 *
 * Functions: davy_api::vae_encode, davy_api::vae_decode, davy_api::upscale, davy_api::plan_query, davy_api::job_wait,
 * davy_api::job_info, davy_api::job_cancel, davy_api::job_error, davy_api::job_release.
 * @{ */

/** Bits of davy_run::flags. */
enum {
    /** Latents go in and come out scaled: (raw - shift) * scale. ::DAVY_E_UNSUPPORTED if davy_model_info::latent_scale is 0.
     * Without effect on the TAESD family, whose latents are scaled. */
    DAVY_RUN_SCALED_LATENT = 1,
    /** vae_encode returns 2 * latent_channels channels: mean, then log-variance clamped to -30..20. They are raw:
     * neither SCALED_LATENT nor SAMPLE may be set. ::DAVY_E_UNSUPPORTED without ::DAVY_MODEL_MOMENTS. */
    DAVY_RUN_MOMENTS = 2,
    /** vae_encode returns mean + exp(logvar / 2) * n, with n drawn from N(0, 1) by davy_run::seed. The same seed and size give
     * the same n, whatever the layout, tiles and threads. ::DAVY_E_UNSUPPORTED without ::DAVY_MODEL_MOMENTS. */
    DAVY_RUN_SAMPLE = 4,
    DAVY_RUN_STREAM_ORDERED = 8, /**< Return when the work is enqueued; see davy_run::stream. */
    DAVY_RUN_FAST = 16,          /**< Allow results that differ from run to run. Without effect in 1.0. */
    DAVY_RUN_DROP_ALPHA = 32 /**< upscale: ignore the input's alpha. Without it, alpha is upscaled as a grey picture. */
};

/** How a call is to run. All members may be 0. */
typedef struct davy_run {
    uint32_t struct_size; /**< sizeof(davy_run). */
    uint32_t flags;       /**< DAVY_RUN_* bits. */
    /** A CUstream of the host. `(void *)1` is CUDA's legacy default stream, `(void *)2` its per-thread default stream.
     * On the CPU: ::DAVY_E_UNSUPPORTED.
     *
     * | stream | Meaning |
     * |---|---|
     * | NULL | A stream of davy. Inputs in CUDA memory must be complete; outputs are complete on return. |
     * | set | The work comes after the work on the stream. Outputs are complete on return. |
     * | set, STREAM_ORDERED | The same, but the call returns once the work is enqueued on the stream. |
     * | set, with a job | The job starts after the work that is on the stream at the call, on a stream of its own. |
     *
     * With ::DAVY_RUN_STREAM_ORDERED:
     * - Work that the host enqueues later sees the outputs.
     * - Input and output must be CUDA memory (else ::DAVY_E_UNSUPPORTED), and the call cannot be a job (::DAVY_E_INVALID).
     * - Clips of a VAE of clips are ::DAVY_E_UNSUPPORTED.
     * - The first run still waits until the weights are loaded.
     * - A later call may report an error of the GPU.
     * - Buffers named in the tensors may be released at once. */
    void *stream;
    uint64_t seed;        /**< For ::DAVY_RUN_SAMPLE. */
    uint64_t timeout_ns;  /**< Nanoseconds from the call, a job's time in the queue included. 0: no limit. */
    int32_t tile_width;   /**< Tile width in input samples (pixels, or latent pixels). 0: automatic, -1: never tile. */
    int32_t tile_height;  /**< Tile height, as `tile_width`. */
    int32_t tile_overlap; /**< Overlap of tiles in input samples. 0: automatic, the network's reach if that is exact. */
    int32_t tile_frames;  /**< Frames of a clip at a time, rounded to the network's step. 0: automatic, -1: all. */
    int32_t priority;     /**< Jobs: a higher number runs first; equal ones run in the order of the calls. */
    int32_t reserved0;    /**< Reserved; 0. */
    davy_progress_fn progress;  /**< Progress and cancellation. NULL: none. */
    void *progress_user;        /**< First argument of `progress`. */
    const davy_option *options; /**< Options; 1.0 has none. */
    uint32_t n_options;         /**< Number of options. */
    uint32_t reserved1;         /**< Reserved; 0. */
} davy_run;

/** An operation. */
typedef int32_t davy_op;
/** Numbers of davy_op. */
enum {
    DAVY_OP_VAE_ENCODE = 1, /**< davy_api::vae_encode. */
    DAVY_OP_VAE_DECODE = 2, /**< davy_api::vae_decode. */
    DAVY_OP_UPSCALE = 3     /**< davy_api::upscale. */
};

/** A question for davy_api::plan_query. */
typedef struct davy_query {
    uint32_t struct_size;     /**< sizeof(davy_query). */
    davy_op op;               /**< The operation. */
    const davy_tensor *input; /**< Its input. `data` and `buffer` may be 0. */
    const davy_run *run;      /**< Its run. NULL: defaults. */
} davy_query;

/** A plan, filled by davy_api::plan_query. */
typedef struct davy_plan_info {
    uint32_t struct_size; /**< sizeof(davy_plan_info). */
    int32_t ndim;         /**< Number of axes of the output. */
    int64_t shape[6];     /**< Shape of the output, in the input's layout. HW with several output channels is HWC. */
    uint64_t workspace_bytes; /**< Memory beside the weights and the tensors, in bytes. */
    uint64_t flops;      /**< Multiplications plus additions of the large operations, overlaps of tiles included. */
    int32_t tiles_x;     /**< Tiles from left to right. */
    int32_t tiles_y;     /**< Tiles from top to bottom. */
    int32_t tiles_t;     /**< Slices of a clip. */
    int32_t tile_width;  /**< Width of a tile in input samples, overlap included. */
    int32_t tile_height; /**< Height of a tile in input samples, overlap included. */
    int32_t tile_frames; /**< Frames of a slice. */
} davy_plan_info;

/** State of a job, filled by davy_api::job_info. */
typedef struct davy_job_info {
    uint32_t struct_size; /**< sizeof(davy_job_info). */
    davy_result state;    /**< ::DAVY_PENDING, ::DAVY_OK or the error that ended the job. */
    uint64_t done;        /**< Work that is done, of `total`, as in davy_progress_fn. */
    uint64_t total;       /**< All work. 0: not known yet. */
    char stage[32];       /**< "queued" until the job starts; then as in davy_progress_fn. */
    uint64_t elapsed_ns;  /**< Nanoseconds since the call that made the job, until it finished. */
} davy_job_info;

/** @} */

/** @defgroup captions Captions and dialogues
 *
 * Questions about pictures, and answers.
 *
 * Functions: davy_api::caption, davy_api::caption_info, and davy_api::dialogue_open to davy_api::dialogue_release.
 *
 * A turn is the pictures and words that were added since the last turn, and the answer. The context keeps earlier turns: a further
 * question costs only its own tokens, and davy looks at each picture once.
 * @{ */

/** How to ask and answer. All members may be 0. A NaN or a number out of range is ::DAVY_E_INVALID. */
typedef struct davy_caption_params {
    uint32_t struct_size; /**< sizeof(davy_caption_params). */
    uint32_t reserved0;   /**< Reserved; 0. */
    const char *prompt;   /**< The question if no text was added, at most 1 MiB. NULL: "Describe the image." */
    const char *system;   /**< The system prompt of the first turn, at most 1 MiB. NULL: the model's own; "": none. */
    const char *const *stop; /**< Texts that end an answer. The answer ends before the first of them. */
    uint32_t n_stop;         /**< Number of stop texts, at most 64, of 1 to 1024 bytes each. */
    /** Most tokens of an answer, thoughts included. 0: 256, or 4096 for a model that thinks first. */
    int32_t max_tokens;
    float temperature;    /**< 0 to 100. 0: greedy; top_k, top_p and seed are ignored. */
    float top_p;          /**< Draw from the best tokens that have this share of probability, 0 to 1. 0: 1, all. */
    int32_t top_k;        /**< Draw from so many best tokens. 0: all. */
    float repeat_penalty; /**< Penalty on tokens that occurred, 0.01 to 100. 0: 1, none. */
    uint64_t seed;        /**< Seed of the random numbers. */
    int64_t max_pixels; /**< Most pixels of a picture. 0: the model's own limit; for stills of Qwen at most 1003520. */
    int32_t max_tiles;  /**< Most tiles of a picture, the whole one included. 1: no tiles. 0: the model's own limit. */
    /** dialogue_open, caption: size of the context in tokens. 0: the model's, at most 8192, fewer if memory is short. */
    int32_t context_tokens;
    float min_p;             /**< Drop tokens below min_p x the best token's probability, 0 to 1. 0: none. */
    int32_t no_repeat_ngram; /**< No run of so many tokens occurs twice, the question's included. 0: allowed. */
    uint32_t flags;          /**< DAVY_CAPTION_* bits. */
    uint32_t reserved1;      /**< Reserved; 0. */
    double video_fps; /**< dialogue_open: frames per second of added videos, at most 10000. 0: the model's rate. */
} davy_caption_params;

/** Bits of davy_caption_params::flags. */
enum {
    /** Take temperature, top_p, top_k, min_p, repeat_penalty and no_repeat_ngram from the model's generation_config.json if
     * they are 0. */
    DAVY_CAPTION_PUBLISHED = 1,
    /** Keep the block `<think>...</think>` that an answer begins with. Else it is left out. */
    DAVY_CAPTION_THOUGHTS = 2,
    /** Always use prompt-lookup speculative decoding: davy tries several tokens at once that followed the same words earlier.
     * It applies to greedy answers. On a GPU, several tokens at once are rounded differently from one. Without this bit and
     * NO_LOOKUP, the CPU uses it where it is faster, which changes no answer. */
    DAVY_CAPTION_LOOKUP = 4,
    DAVY_CAPTION_NO_LOOKUP = 8, /**< Never use it. With LOOKUP: ::DAVY_E_INVALID. */
    /** caption: after an error of the work (cancellation included), `out` has the finished captions, and NULL for the others. */
    DAVY_CAPTION_PARTIAL = 16
};

/** Who says a text. */
typedef int32_t davy_role;
/** Numbers of davy_role. */
enum {
    DAVY_ROLE_USER = 1,  /**< The user's question. */
    DAVY_ROLE_SYSTEM = 2 /**< The system's words, before the first turn. */
};

/** Kind of an event. */
typedef int32_t davy_token_kind;
/** Numbers of davy_token_kind. */
enum {
    DAVY_TOKEN_TEXT = 1,       /**< A piece of the answer, of whole characters. */
    DAVY_TOKEN_IMAGE_DONE = 2, /**< A picture or video of this turn was encoded. */
    DAVY_TOKEN_END_OF_TURN = 3 /**< The answer is complete. */
};

/** How an answer ended. */
typedef int32_t davy_turn_end;
/** Numbers of davy_turn_end. */
enum {
    DAVY_TURN_STOP = 1,  /**< The model ended it, or a stop text did. */
    DAVY_TURN_LENGTH = 2 /**< max_tokens or the context ended it. */
};

/** An event of a turn, filled by davy_api::dialogue_read. */
typedef struct davy_token_event {
    uint32_t struct_size; /**< sizeof(davy_token_event). */
    davy_token_kind kind; /**< Kind. */
    /** TEXT: valid until the next dialogue_read or dialogue_generate of the dialogue. Others: NULL. */
    const char *text;
    uint64_t text_bytes; /**< Bytes of `text`, without the NUL. */
    int32_t index;       /**< TEXT: number of the piece, from 0. IMAGE_DONE: number of the picture or video, from 0. */
    davy_turn_end end;   /**< END_OF_TURN: how the answer ended. */
} davy_token_event;

/** Bits of davy_dialogue_info::flags. */
enum {
    DAVY_DIALOGUE_SMALLER = 1, /**< Last turn: memory was short, so a picture has fewer tiles or pixels. */
    DAVY_DIALOGUE_SHORTER = 2, /**< Memory was short, so the context is smaller than the model's. */
    /** Last turn: the answer ended inside the model's thoughts, which are left out, so its text is empty. Raise `max_tokens`
     * and `context_tokens`, or set ::DAVY_CAPTION_THOUGHTS. */
    DAVY_DIALOGUE_UNANSWERED = 4
};

/** State of a dialogue, filled by davy_api::dialogue_info and davy_api::caption_info. */
typedef struct davy_dialogue_info {
    uint32_t struct_size;     /**< sizeof(davy_dialogue_info). */
    int32_t turns;            /**< Complete turns. */
    int32_t tokens_used;      /**< Tokens in the context. */
    int32_t tokens_max;       /**< Tokens that the context can hold. 0 before the first turn, which allocates it. */
    int32_t prompt_tokens;    /**< Last turn: tokens of the question, pictures included. */
    int32_t image_tokens;     /**< Last turn: tokens of its pictures. */
    int32_t generated_tokens; /**< Last turn: tokens of the answer. */
    davy_turn_end end;        /**< Last turn: how the answer ended. */
    uint64_t kv_bytes;        /**< Memory of the context and its workspace, in bytes. */
    uint32_t flags;           /**< DAVY_DIALOGUE_* bits. */
    uint32_t reserved0;       /**< Reserved; 0. */
    double seconds_to_first_token; /**< Last turn: seconds from its start, loading of weights included. */
    double tokens_per_second;      /**< Last turn: rate from the first token to the last. 0: fewer than two tokens. */
} davy_dialogue_info;

/** @} */

/** @defgroup sequences Sequences
 *
 * Videos, frame after frame.
 *
 * Functions: davy_api::sequence_open to davy_api::sequence_release.
 *
 * A sequence is for a video, or for pictures of one kind. The host pushes frame after frame and pulls the results in the same
 * order. Each result is bit for bit the result of the one-shot call. While one frame is computed, davy copies the next ones
 * in and finished ones out. The number of frames on their way is bounded, and so is the memory.
 * A host that reads, works and writes in three threads is as fast as the slowest of them.
 *
 * **VAEs of clips.** All frames of a sequence are one clip. vae_encode makes fewer latents than frames, vae_decode more frames
 * than latents. The numbers are those of one call for the whole clip with the same tiles, if it has more than one frame.
 * A result has the pts of its first frame or latent.
 * sequence_finish completes the last latent by repeating the last frame, or leaves frames out, as davy_api::vae_encode does.
 * @{ */

/** Describes a sequence for davy_api::sequence_open. */
typedef struct davy_sequence_desc {
    uint32_t struct_size; /**< sizeof(davy_sequence_desc). */
    davy_op op;           /**< The operation. */
    /** Dtype, layout, channels, range and shape of every frame: one picture or latent in host memory. `data` is ignored. */
    const davy_tensor *input;
    /** Dtype, layout, channels and range of every result, with the defaults of an output that the library allocates.
     * NULL: as the input. A VAE's results have the input's layout and dtype, F32 instead of U8 and U16. */
    const davy_tensor *output;
    /** Flags and tiles of every frame. NULL: defaults. A stream, STREAM_ORDERED, timeout_ns, priority or progress is
     * ::DAVY_E_INVALID. */
    const davy_run *run;
    /** Most frames that are pushed and not yet pulled, at most 64. 0: 4. With a VAE of clips: most frames that are not yet
     * computed; davy raises it to the number that the network takes at a time. */
    int32_t max_in_flight;
    uint32_t flags; /**< Reserved; 0. */
} davy_sequence_desc;

/** State of a sequence, filled by davy_api::sequence_info. Counts begin at open or reset. */
typedef struct davy_sequence_info {
    uint32_t struct_size;  /**< sizeof(davy_sequence_info). */
    int32_t max_in_flight; /**< The limit in use. */
    uint64_t frames_in;    /**< Frames pushed. */
    uint64_t frames_out;   /**< Results pulled. */
    int32_t in_flight;     /**< frames_in - frames_out. VAE of clips: frames not computed plus results not pulled. */
    int32_t ready;         /**< Results that can be pulled without waiting. */
    /** Clips encoded: frames that may have to follow a frame before its result is made. Else 0. */
    int32_t latency_frames;
    int32_t finished;      /**< 1 after sequence_finish. */
    uint64_t memory_bytes; /**< Memory of frames and results, in bytes. */
} davy_sequence_info;

/** @} */

/** @defgroup table The table of functions
 *
 * davy_api has every function, by subject. Two functions are exported by name: davy_get_api and davy_version.
 * @{ */

/** All functions of the library. davy_get_api returns the table. It is valid for the life of the process. */
typedef struct davy_api {
    uint32_t struct_size; /**< Size of this library's table. A function exists if it lies below; see davy_has. */
    uint32_t abi_version; /**< Newest ABI version of this library. */

    /** @name Versions and errors
     * @{ */

    /** Returns the version of the library.
     *
     * @return "1.0.0". Static memory.
     * @threads Any. */
    const char *(DAVY_CALL *version)(void);

    /** Returns the name of a result.
     *
     * @param r  The result.
     * @return "E_SHAPE", for example; "?" for an unknown number. Static memory.
     * @threads Any. */
    const char *(DAVY_CALL *result_name)(davy_result r);

    /** Describes the last error of the calling thread. A successful call does not clear it.
     *
     * @param[out] out  Receives the error. The caller owns it.
     * @return ::DAVY_OK.
     * @errors ::DAVY_E_INVALID, ::DAVY_E_STRUCT. They leave the record as it was.
     * @threads Any. Each thread has its own record; the error of a job is in job_error. */
    davy_result(DAVY_CALL *last_error)(davy_error_info *out);

    /** Finds an extension.
     *
     * @param id  "davy.inspect/1" or "davy.profile/1".
     * @return A const davy_inspect_1 or davy_profile_1, in static memory; NULL: not in this library, or `id` is NULL.
     * @threads Any. */
    const void *(DAVY_CALL *get_extension)(const char *id);

    /** @} */
    /** @name Devices
     * @{ */

    /** Counts the devices, those that cannot be used included.
     *
     * No context is needed.
     *
     * @param desc      Only `library_dir` counts. May be NULL.
     * @param[out] out  Receives the number, 1 or more.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *device_count)(const davy_context_desc *desc, int32_t *out);

    /** Describes a device. Index 0 is the CPU; GPUs follow.
     *
     * @param desc      Only `library_dir` counts. May be NULL.
     * @param index     0 to device_count - 1.
     * @param[out] out  Receives the description.
     * @return ::DAVY_OK. `reason` is not empty if the device cannot be used.
     * @errors The common ones. ::DAVY_E_NOT_FOUND: no such index.
     * @threads Any. */
    davy_result(DAVY_CALL *device_info)(const davy_context_desc *desc, int32_t index, davy_device_info *out);

    /** @} */
    /** @name Contexts
     * @{ */

    /** Creates a context.
     *
     * @param desc      Devices, budgets, callbacks. Copied; `user` pointers and callbacks must stay valid until the context
     *                  and all its children are released.
     * @param[out] out  Receives the context. The caller releases it.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_OPTION: an option or an environment variable. ::DAVY_E_DEVICE: the named
     *         GPU cannot be used.
     * @threads Any. */
    davy_result(DAVY_CALL *context_create)(const davy_context_desc *desc, davy_context **out);

    /** Releases a context. When its last child is released too, its threads end and its memory is freed.
     *
     * @param ctx  The context, or NULL.
     * @threads Any. */
    void(DAVY_CALL *context_release)(davy_context *ctx);

    /** Reports the memory in use.
     *
     * @param ctx       The context.
     * @param[out] out  Receives the numbers.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *context_memory)(davy_context *ctx, davy_memory_info *out);

    /** Changes the budgets. Memory in use stays; memory that is only kept and no longer fits is freed.
     *
     * @param ctx           The context.
     * @param device_bytes  Most memory on each GPU, in bytes. 0: the default.
     * @param host_bytes    Most host memory, in bytes. 0: the default.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *context_budget)(davy_context *ctx, uint64_t device_bytes, uint64_t host_bytes);

    /** Frees memory until no more than the given amounts are in use, or nothing more can be freed.
     *
     * It frees kept arenas first, then weights of models that no call uses. Those weights load again when they are needed.
     * (0, 0) frees as much as possible.
     *
     * @param ctx                The context.
     * @param keep_device_bytes  GPU memory that may stay in use, in bytes, of all GPUs together.
     * @param keep_host_bytes    Host memory that may stay in use, in bytes.
     * @return ::DAVY_OK, even if more stays in use.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *context_trim)(davy_context *ctx, uint64_t keep_device_bytes, uint64_t keep_host_bytes);

    /** @} */
    /** @name Models
     * @{ */

    /** Opens a model and detects its architecture.
     *
     * It reads headers and JSON; the weights load with the first run or with model_load. Two cases do more: the option
     * "blend" mixes the files, and compute INT8 tries the layers on a test picture, which takes seconds on a CPU.
     *
     * @param ctx       The context.
     * @param desc      Sources, precision, options. Copied, but see davy_source.
     * @param[out] out  Receives the model. The caller releases it.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_NOT_FOUND, ::DAVY_E_IO: a file. ::DAVY_E_FORMAT, ::DAVY_E_UNSAFE: its content.
     *         ::DAVY_E_ARCH, ::DAVY_E_TENSOR, ::DAVY_E_SHAPE, ::DAVY_E_TOKENIZER: its weights. ::DAVY_E_UNSUPPORTED: the
     *         precision, a variant of the network, or a role. ::DAVY_E_OPTION: an option. ::DAVY_E_CANCELLED: by `progress`.
     *         INT8: the work errors.
     * @threads Any. */
    davy_result(DAVY_CALL *model_open)(davy_context *ctx, const davy_model_desc *desc, davy_model **out);

    /** Releases a model. Runs, dialogues and sequences that use it keep it alive.
     *
     * @param model  The model, or NULL.
     * @threads Any. */
    void(DAVY_CALL *model_release)(davy_model *model);

    /** Describes a model.
     *
     * @param model     The model.
     * @param[out] out  Receives the description.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *model_info)(davy_model *model, davy_model_info *out);

    /** Loads the weights now, instead of in the first run.
     *
     * @param model     The model.
     * @param run       Only timeout_ns, priority and progress count, and `stream` for a job. May be NULL.
     * @param[out] job  NULL: the call blocks. Else it receives a job, which the caller releases, and the call returns at once.
     * @return ::DAVY_OK.
     * @errors The common and the work errors.
     * @threads Any. */
    davy_result(DAVY_CALL *model_load)(davy_model *model, const davy_run *run, davy_job **job);

    /** Frees the weights and kept arenas. The model stays usable; its weights load again when they are needed.
     *
     * Runs and dialogues that are under way keep the weights until they end.
     *
     * @param model  The model.
     * @param flags  0.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *model_unload)(davy_model *model, uint32_t flags);

    /** @} */
    /** @name One-shot calls
     *
     * Arguments are checked before the work begins. Jobs of a context run one after the other, each on all its threads.
     * Pictures of an N or T axis are computed one after the other, or together where the result is the same.
     * @{ */

    /** Reports the output's shape, the workspace and the tiles of a call without running it.
     *
     * It refuses the inputs and runs that the call would refuse. If memory is short it makes room as the call would: it frees
     * kept arenas and unloads models that no call uses.
     *
     * @param model     The model.
     * @param query     Operation, input and run. Copied.
     * @param[out] out  Receives the plan.
     * @return ::DAVY_OK.
     * @errors Those of the operation.
     * @threads Any. */
    davy_result(DAVY_CALL *plan_query)(davy_model *model, const davy_query *query, davy_plan_info *out);

    /** Encodes pictures or clips to latents.
     *
     * Alpha is ignored. Grey stands for three equal colours. The sides of the input must be multiples of
     * davy_model_info::size_multiple. A latent has the sides H / f and W / f with f = davy_model_info::spatial_factor.
     *
     * **Clips.** If temporal_factor is above 1 and T is above 1, the network sees the T frames as one clip, each clip of N on its
     * own. T frames make 1 + ceil((T - first) / temporal_factor) latents. `first` is 1, in the TAEHV family temporal_factor.
     * Frames that are missing in the last latent repeat the last frame.
     * MiniMax H3 (taeh3) works in pieces of 17 frames and makes 5 * ceil(T / 17) - 3 latents. It leaves out frames behind the fifth
     * of the last piece, and the log reports them.
     *
     * davy computes a clip in slices that fit into memory. Their length does not change the result. If the shortest slice of
     * whole frames does not fit, or tile_width and tile_height ask for it, davy cuts the frames into tiles, the same in all frames.
     * A clip with T = 1, and a picture without T, is computed as a picture.
     *
     * @param model           The model.
     * @param pixels          The input. Its memory must stay valid until the call returns, or the job has finished.
     * @param[in,out] latent  The output: shape [.., H / f, W / f, z], F32, F16 or BF16; see davy_tensor. An output of the
     *                        library is described on return, also with a job.
     * @param run             How to run. NULL: defaults. Copied.
     * @param[out] job        NULL: the call blocks until the output is complete. Else it receives a job, which the caller releases,
     *                        and the call returns at once.
     * @return ::DAVY_OK.
     * @errors The common and the work errors. ::DAVY_E_SHAPE: the shape of a tensor. ::DAVY_E_UNSUPPORTED: the model has no
     *         encoder, or a flag or memory that it does not offer. ::DAVY_E_OPTION: an option.
     * @threads Any. */
    davy_result(DAVY_CALL *vae_encode)(davy_model *model, const davy_tensor *pixels, davy_tensor *latent,
                                       const davy_run *run, davy_job **job);

    /** Decodes latents to pictures or clips.
     *
     * The sides of the output are those of the latent times davy_model_info::spatial_factor.
     *
     * **Clips.** See vae_encode. T latents make 1 + temporal_factor * (T - 1) frames. The caller drops frames that vae_encode
     * repeated. MiniMax H3 (taeh3) makes 17 * ceil(T / 5) - 12 frames and leaves out latents behind the second of the last
     * piece of 5.
     *
     * @param model           The model.
     * @param latent          The input: F32, F16 or BF16, with davy_model_info::latent_channels channels. Its memory must stay
     *                        valid until the call returns, or the job has finished.
     * @param[in,out] pixels  The output; see davy_tensor and vae_encode.
     * @param run             How to run. NULL: defaults. Copied.
     * @param[out] job        As in vae_encode.
     * @return ::DAVY_OK.
     * @errors As vae_encode.
     * @threads Any. */
    davy_result(DAVY_CALL *vae_decode)(davy_model *model, const davy_tensor *latent, davy_tensor *pixels,
                                       const davy_run *run, davy_job **job);

    /** Enlarges or restores pictures.
     *
     * The output has the channels of the input: grey gives grey, and alpha goes through the network too, unless
     * ::DAVY_RUN_DROP_ALPHA is set. Constant alpha keeps its exact value. Where alpha is 0, the network sees the colour of
     * visible pixels up to 8 pixels away, so that hidden colours make no edges.
     *
     * @param model        The model.
     * @param in           The input. Its memory must stay valid until the call returns, or the job has finished.
     * @param[in,out] out  The output: sides of the input * scale_num / scale_den; see davy_tensor and vae_encode.
     * @param run          How to run. NULL: defaults. Copied.
     * @param[out] job     As in vae_encode.
     * @return ::DAVY_OK.
     * @errors As vae_encode.
     * @threads Any. */
    davy_result(DAVY_CALL *upscale)(davy_model *model, const davy_tensor *in, davy_tensor *out, const davy_run *run,
                                    davy_job **job);

    /** @} */
    /** @name Texts
     * @{ */

    /** Gives access to the characters of a text.
     *
     * @param text        The text.
     * @param[out] utf8   Receives the string. It belongs to the text and lives as long.
     * @param[out] bytes  Receives its length without the NUL. May be NULL.
     * @return ::DAVY_OK.
     * @errors ::DAVY_E_INVALID: `text` or `utf8` is NULL.
     * @threads Any. */
    davy_result(DAVY_CALL *text_get)(davy_text *text, const char **utf8, uint64_t *bytes);

    /** Releases a text.
     *
     * @param text  The text, or NULL.
     * @threads Any. */
    void(DAVY_CALL *text_release)(davy_text *text);

    /** @} */
    /** @name Jobs
     * @{ */

    /** Waits for a job.
     *
     * @param job         The job.
     * @param timeout_ns  Longest wait in nanoseconds. 0: do not wait. UINT64_MAX: no limit.
     * @return ::DAVY_PENDING: not finished. ::DAVY_OK: the work succeeded.
     * @errors The common ones, and the error of the work, which becomes the last error of this thread.
     * @threads Any, several at once. */
    davy_result(DAVY_CALL *job_wait)(davy_job *job, uint64_t timeout_ns);

    /** Reports state and progress of a job.
     *
     * @param job       The job.
     * @param[out] out  Receives the state.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *job_info)(davy_job *job, davy_job_info *out);

    /** Asks a job to stop. It never waits. The job ends with ::DAVY_E_CANCELLED, unless it has finished before.
     *
     * @param job  The job.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any, callbacks included. */
    davy_result(DAVY_CALL *job_cancel)(davy_job *job);

    /** Describes the error of a finished job.
     *
     * @param job       The job.
     * @param[out] out  Receives the error. `code` ::DAVY_OK: the work succeeded.
     * @return ::DAVY_OK. ::DAVY_PENDING: the job has not finished, and `out` is untouched.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *job_error)(davy_job *job, davy_error_info *out);

    /** Releases a job. An unfinished job is cancelled, and the call waits until davy no longer touches the caller's memory.
     *
     * An output buffer that the library allocated for the job belongs to the caller, whatever the result was.
     *
     * @param job  The job, or NULL.
     * @threads Any but callbacks: a callback of the same job would wait for ever. */
    void(DAVY_CALL *job_release)(davy_job *job);

    /** @} */
    /** @name Buffers
     * @{ */

    /** Allocates memory for tensors. It counts as workspace in the budget.
     *
     * @param ctx       The context.
     * @param memory    HOST or 0. CUDA: memory of the context's first GPU.
     * @param bytes     Size, 1 or more.
     * @param[out] out  Receives the buffer. The caller releases it.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_UNSUPPORTED: other memory. ::DAVY_E_BUDGET, ::DAVY_E_NOMEM_HOST,
     *         ::DAVY_E_NOMEM_DEVICE, ::DAVY_E_DEVICE_LOST.
     * @threads Any. */
    davy_result(DAVY_CALL *buffer_alloc)(davy_context *ctx, davy_memory memory, uint64_t bytes, davy_buffer **out);

    /** Describes the memory of a buffer.
     *
     * @param buffer    The buffer.
     * @param[out] out  Receives the tensor that a call filled, or U8 of shape [bytes] after buffer_alloc. `data` is the address.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *buffer_tensor)(davy_buffer *buffer, davy_tensor *out);

    /** Releases a buffer. Jobs and stream-ordered work that use it keep its memory until they end.
     *
     * @param buffer  The buffer, or NULL.
     * @threads Any. */
    void(DAVY_CALL *buffer_release)(davy_buffer *buffer);

    /** @} */
    /** @name Captions and dialogues
     *
     * In the calls that answer, only timeout_ns, priority and progress of a run count. Flags, a stream, tiles or options are
     * ::DAVY_E_INVALID. The stages are "load", "look", "read" and "answer".
     * @{ */

    /** Asks the same question about each of n pictures, each in a conversation of its own.
     *
     * davy works on several pictures at once as far as memory allows, on all GPUs of the context. The CPU gives each picture
     * the answer that it gives for that picture alone. A GPU rounds differently if it works on several pictures at once; the
     * answer does not depend on the other pictures.
     *
     * @param model     The model.
     * @param n         Number of pictures, 1 to 1048576.
     * @param images    n pictures, one picture each, in host memory. Their memory is read during the work: it must stay valid
     *                  until the call returns, or the job has finished.
     * @param params    The question and how to answer. NULL: defaults. Copied.
     * @param run       Timeout, priority, progress. NULL: defaults.
     * @param[out] job  NULL: the call blocks. Else it receives a job, which the caller releases, and the call returns at once.
     * @param[out] out  An array of n texts that the caller owns and keeps valid until the job has finished. It receives the
     *                  answers, which the caller releases.
     * @return ::DAVY_OK. caption_info has the numbers of each answer.
     * @errors The common and the work errors. ::DAVY_E_UNSUPPORTED: the model does not caption, or a picture lies in GPU memory.
     *         ::DAVY_E_SHAPE: not one picture. ::DAVY_E_CONTEXT_FULL, ::DAVY_E_TOKENIZER. One picture that fails ends the
     *         call, and `out` is untouched, unless ::DAVY_CAPTION_PARTIAL is set.
     * @threads Any. */
    davy_result(DAVY_CALL *caption)(davy_model *model, uint32_t n, const davy_tensor *const *images,
                                    const davy_caption_params *params, const davy_run *run, davy_job **job,
                                    davy_text **out);

    /** Opens a dialogue. It takes no memory for the context yet.
     *
     * @param model     The model.
     * @param params    Defaults for all turns. NULL: 0 everywhere. Copied.
     * @param[out] out  Receives the dialogue. The caller releases it.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_UNSUPPORTED: the model does not caption. ::DAVY_E_INVALID: also if `context_tokens` is
     *         above the model's limit.
     * @threads Any. */
    davy_result(DAVY_CALL *dialogue_open)(davy_model *model, const davy_caption_params *params, davy_dialogue **out);

    /** Adds a picture or a video to the next turn. Pictures come before the turn's words.
     *
     * @param dialogue  The dialogue.
     * @param image     A picture in host memory; it is copied. A T axis above 1 is a video of T frames, for models that take
     *                  videos; davy keeps the frames that the model reads. A turn has at most 1024 pictures and kept frames.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_BUSY. ::DAVY_E_UNSUPPORTED: a video, or GPU memory. ::DAVY_E_SHAPE: N above 1.
     *         ::DAVY_E_INVALID: too many pictures. ::DAVY_E_BUDGET. After an error nothing was added.
     * @threads One at a time. */
    davy_result(DAVY_CALL *dialogue_add_image)(davy_dialogue *dialogue, const davy_tensor *image);

    /** Adds words to the next turn, on a line of their own after earlier words.
     *
     * @param dialogue  The dialogue.
     * @param role      USER, or SYSTEM before the first turn.
     * @param utf8      The words; copied. At most 1 MiB for each role.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_BUSY. ::DAVY_E_STATE: SYSTEM after a complete turn. ::DAVY_E_INVALID: too long, or not
     *         UTF-8.
     * @threads One at a time. */
    davy_result(DAVY_CALL *dialogue_add_text)(davy_dialogue *dialogue, davy_role role, const char *utf8);

    /** Computes the answer of a turn. Loads the weights if necessary.
     *
     * @param dialogue  The dialogue.
     * @param params    Replaces the parameters of dialogue_open for this turn, but for `context_tokens` and `video_fps`.
     *                  NULL: those of dialogue_open. Copied.
     * @param run       Timeout, priority, progress. NULL: defaults.
     * @param[out] job  NULL: the call blocks. Else it receives a job, which the caller releases, and the call returns at once;
     *                  dialogue_read then delivers the answer piece by piece.
     * @return ::DAVY_OK. dialogue_text has the answer.
     * @errors The common ones, ::DAVY_E_BUSY, and ::DAVY_E_STATE (nothing was added): the dialogue is unchanged.
     *         The work errors, ::DAVY_E_CONTEXT_FULL and ::DAVY_E_TOKENIZER: the dialogue returns to its state after the last
     *         complete turn, without the pictures and user's words that were added since. Cancellation takes no longer than a
     *         token.
     * @threads One at a time. */
    davy_result(DAVY_CALL *dialogue_generate)(davy_dialogue *dialogue, const davy_caption_params *params,
                                              const davy_run *run, davy_job **job);

    /** Reads the next event of the turn. The next dialogue_generate drops unread events.
     *
     * @param dialogue    The dialogue.
     * @param[out] out    Receives the event. Its text belongs to the dialogue.
     * @param timeout_ns  Longest wait in nanoseconds. 0: do not wait. UINT64_MAX: no limit.
     * @return ::DAVY_OK: an event. ::DAVY_PENDING: none yet. ::DAVY_END: all events were read and the dialogue is free, also after
     *         a turn that failed; job_error has its error.
     * @errors The common ones. ::DAVY_E_BUSY: another thread reads.
     * @threads One at a time; it may run while dialogue_generate or its job runs. */
    davy_result(DAVY_CALL *dialogue_read)(davy_dialogue *dialogue, davy_token_event *out, uint64_t timeout_ns);

    /** Returns the answer of the last complete turn.
     *
     * @param dialogue  The dialogue.
     * @param[out] out  Receives the text. The caller releases it.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_BUSY. ::DAVY_E_STATE: no turn is complete.
     * @threads One at a time. */
    davy_result(DAVY_CALL *dialogue_text)(davy_dialogue *dialogue, davy_text **out);

    /** Drops the last turns, and the pictures and user's words that were added since. Nothing is computed.
     *
     * @param dialogue    The dialogue.
     * @param keep_turns  Number of turns to keep, 0 to the number of complete turns.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_BUSY.
     * @threads One at a time. */
    davy_result(DAVY_CALL *dialogue_rewind)(davy_dialogue *dialogue, int32_t keep_turns);

    /** Reports the state of a dialogue.
     *
     * @param dialogue  The dialogue.
     * @param[out] out  Receives the state.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_BUSY.
     * @threads One at a time. */
    davy_result(DAVY_CALL *dialogue_info)(davy_dialogue *dialogue, davy_dialogue_info *out);

    /** Releases a dialogue. An unfinished job goes on and keeps what it uses.
     *
     * @param dialogue  The dialogue, or NULL.
     * @threads Any. */
    void(DAVY_CALL *dialogue_release)(davy_dialogue *dialogue);

    /** @} */
    /** @name Sequences
     *
     * A frame that fails ends the sequence. Results before it can still be pulled. Then every pull and every push returns its
     * error until sequence_reset.
     * @{ */

    /** Opens a sequence. It checks the frames' description; the first frame takes the memory and loads the weights.
     *
     * For upscale it also plans a frame, and so may make room as plan_query does.
     *
     * @param model     The model.
     * @param desc      Operation, frames and results. Copied.
     * @param[out] out  Receives the sequence. The caller releases it.
     * @return ::DAVY_OK.
     * @errors The common ones, and those of plan_query. ::DAVY_E_SHAPE: a frame of several pictures.
     * @threads Any. */
    davy_result(DAVY_CALL *sequence_open)(davy_model *model, const davy_sequence_desc *desc, davy_sequence **out);

    /** Copies a frame into the sequence and returns. The work begins without another call.
     *
     * @param sequence    The sequence.
     * @param in          A frame like davy_sequence_desc::input in host memory, with any strides. It is copied.
     * @param timeout_ns  Longest wait for room in nanoseconds. 0: do not wait. UINT64_MAX: no limit.
     * @return ::DAVY_OK. ::DAVY_FULL: there was no room, and nothing was taken.
     * @errors The common ones. ::DAVY_E_BUSY. ::DAVY_E_STATE: after sequence_finish. ::DAVY_E_CANCELLED: sequence_reset.
     *         ::DAVY_E_SHAPE, ::DAVY_E_UNSUPPORTED: another kind of frame. ::DAVY_E_BUDGET. The error of an earlier frame.
     * @threads One push at a time, beside one pull. */
    davy_result(DAVY_CALL *sequence_push)(davy_sequence *sequence, const davy_tensor *in, uint64_t timeout_ns);

    /** Takes the next result, in the order of the pushes. Its pts is that of its frame.
     *
     * @param sequence     The sequence.
     * @param[in,out] out  With `data` 0 and no buffer, it receives the result's own buffer, which the caller releases. Else the
     *                     result is copied to its memory; dtype, layout, channels, range and shape are those of the results,
     *                     the strides any.
     * @param timeout_ns   Longest wait in nanoseconds. 0: do not wait. UINT64_MAX: no limit.
     * @return ::DAVY_OK. ::DAVY_PENDING: the result is not ready. ::DAVY_NEED_INPUT, at once: no result is on its way, or the network
     *         needs more frames. ::DAVY_END, at once: finished, and all results were pulled.
     * @errors The common ones. ::DAVY_E_BUSY. ::DAVY_E_CANCELLED: sequence_reset. ::DAVY_E_SHAPE, ::DAVY_E_UNSUPPORTED: `out`.
     *         The work errors of the frame.
     * @threads One pull at a time, beside one push. */
    davy_result(DAVY_CALL *sequence_pull)(davy_sequence *sequence, davy_tensor *out, uint64_t timeout_ns);

    /** Ends the input. Frames on their way are computed, and then sequence_pull returns ::DAVY_END. It does not wait.
     *
     * @param sequence  The sequence.
     * @return ::DAVY_OK, also the second time.
     * @errors The common ones.
     * @threads Any, but not beside sequence_push. */
    davy_result(DAVY_CALL *sequence_finish)(davy_sequence *sequence);

    /** Returns the sequence to its state after sequence_open, whatever its state is. The frames' memory is kept.
     *
     * It cancels frames on their way, which takes no longer than a tile. Until it returns, sequence_push and sequence_pull of other
     * threads return ::DAVY_E_CANCELLED.
     *
     * @param sequence  The sequence.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *sequence_reset)(davy_sequence *sequence);

    /** Reports the state of a sequence.
     *
     * @param sequence  The sequence.
     * @param[out] out  Receives the state.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *sequence_info)(davy_sequence *sequence, davy_sequence_info *out);

    /** Releases a sequence. It cancels frames on their way and waits until the work has stopped.
     *
     * @param sequence  The sequence, or NULL.
     * @threads Any. */
    void(DAVY_CALL *sequence_release)(davy_sequence *sequence);

    /** @} */
    /** @name Numbers of captions
     * @{ */

    /** Reports the numbers of an answer of caption, as dialogue_info does after such a turn.
     *
     * davy works on several pictures at once, so times include work on the others. `kv_bytes` is the memory of all pictures in work.
     *
     * @param text      A text of caption.
     * @param[out] out  Receives the numbers.
     * @return ::DAVY_OK.
     * @errors ::DAVY_E_INVALID, ::DAVY_E_STRUCT. ::DAVY_E_UNSUPPORTED: another text.
     * @threads Any. */
    davy_result(DAVY_CALL *caption_info)(davy_text *text, davy_dialogue_info *out);

    /** @} */
    /* ---- end of 1.0: append below, never above ---- */
} davy_api;

/** @} */

/** @defgroup extensions Extensions
 *
 * davy_api::get_extension finds an extension by its name. The number behind the "/" is its version.
 * @{ */

/** "davy.inspect/1": describes weight files as JSON. */
typedef struct davy_inspect_1 {
    uint32_t struct_size; /**< sizeof(davy_inspect_1) of the library. */
    uint32_t reserved0;   /**< Reserved; 0. */

    /** Describes the file of a model. It succeeds for files that davy can parse but not run: then "recognised" is false, "why"
     * has the reason, and "looks_like" the names of similar networks.
     *
     * @param ctx        The context.
     * @param desc       As for model_open. Copied.
     * @param[out] json  Receives the JSON as a text, which the caller releases.
     * @return ::DAVY_OK.
     * @errors Those of model_open for a file that davy cannot open or parse.
     * @threads Any. */
    davy_result(DAVY_CALL *describe)(davy_context *ctx, const davy_model_desc *desc, davy_text **json);
} davy_inspect_1;

/** "davy.profile/1": measures the steps of the runs of a context. */
typedef struct davy_profile_1 {
    uint32_t struct_size; /**< sizeof(davy_profile_1) of the library. */
    uint32_t reserved0;   /**< Reserved; 0. */

    /** Starts a measurement and drops an earlier one. Runs are slower until `stop`.
     *
     * @param ctx  The context.
     * @return ::DAVY_OK.
     * @errors The common ones.
     * @threads Any. */
    davy_result(DAVY_CALL *start)(davy_context *ctx);

    /** Ends the measurement.
     *
     * The JSON is an array with an object for each step: "step", "kernel", "calls", "ms", "flops", "bytes". On a GPU, "peak_gflops"
     * and "peak_gbs" are its peak rates at that precision, estimated from its clocks. Captioning models on the CPU are not
     * measured.
     *
     * @param ctx        The context.
     * @param[out] json  Receives the JSON as a text, which the caller releases.
     * @return ::DAVY_OK.
     * @errors The common ones. ::DAVY_E_STATE: no measurement runs.
     * @threads Any. */
    davy_result(DAVY_CALL *stop)(davy_context *ctx, davy_text **json);
} davy_profile_1;

/** @} */

/** @addtogroup table
 * @{ */

/** Finds the table of functions. It is one of the two exports.
 *
 * @param abi_version  The oldest version you support, such as ::DAVY_ABI_1_0.
 * @return The table, in static memory. NULL: the major version is not 1, or the minor version is newer than the library's.
 * @threads Any. */
DAVY_EXPORT const davy_api *DAVY_CALL davy_get_api(uint32_t abi_version);

/** Returns the version of the library. It is one of the two exports, and never fails.
 *
 * @return "1.0.0". Static memory.
 * @threads Any. */
DAVY_EXPORT const char *DAVY_CALL davy_version(void);

/** Type of davy_get_api, for dlsym. */
typedef const davy_api *(DAVY_CALL *davy_get_api_fn)(uint32_t abi_version);
/** Type of davy_version, for dlsym. */
typedef const char *(DAVY_CALL *davy_version_fn)(void);

/** @} */

#ifdef __cplusplus
}
#endif
#endif /* DAVY_H */
