/* driver.h - the part of the CUDA driver API that davy uses. It is declared here, so that a build needs no CUDA toolkit. The
 * driver is loaded at run time. Names and numbers are those of cuda.h, in davy's spelling. */
#ifndef DV_DRIVER_H
#define DV_DRIVER_H

#include "core/base/common.h"

#if defined(_WIN32)
#define DV_CUDA_CALL __stdcall
#else
#define DV_CUDA_CALL
#endif

typedef int cu_result;
typedef int cu_device;
typedef uint64_t cu_address;
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphExec_st *cu_graph_exec;
typedef struct CUmemPoolHandle_st *cu_pool;

enum { /* CUresult: the values that davy distinguishes */
       CU_OK = 0,
       CU_INVALID_VALUE = 1,
       CU_OUT_OF_MEMORY = 2,
       CU_NOT_INITIALIZED = 3,
       CU_NO_DEVICE = 100,
       CU_NOT_FOUND = 500,
       CU_NOT_READY = 600,
       CU_NOT_SUPPORTED = 801
};

enum { /* CUdevice_attribute */
       CU_DEVICE_CLOCK_KHZ = 13,
       CU_DEVICE_PROCESSORS = 16,
       CU_DEVICE_COMPUTE_MODE = 20,
       CU_DEVICE_MEMORY_CLOCK_KHZ = 36,
       CU_DEVICE_MEMORY_BUS_BITS = 37,
       CU_DEVICE_L2_BYTES = 38,
       CU_DEVICE_MAJOR = 75,
       CU_DEVICE_MINOR = 76,
       CU_DEVICE_SHARED_OPTIN = 97,
       CU_DEVICE_MEMORY_POOLS = 115
};

enum { CU_COMPUTE_PROHIBITED = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_BLOCKING = 1, CU_EVENT_NO_TIMING = 2 };
enum { CU_HOST_PORTABLE = 1 };
enum { CU_CAPTURE_THREAD_LOCAL = 1, CU_CAPTURE_RELAXED = 2 };
enum { CU_FUNCTION_SHARED_BYTES = 1, CU_FUNCTION_MAX_DYNAMIC_SHARED = 8, CU_FUNCTION_WIDE_CLUSTER = 14 };
enum { CU_POOL_RELEASE_THRESHOLD = 4, CU_POOL_RESERVED = 5, CU_POOL_USED = 7, CU_ACCESS_READ_WRITE = 3 };
enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };
enum { CU_POINTER_MEMORY_TYPE = 2, CU_POINTER_MANAGED = 8, CU_POINTER_DEVICE = 9 };
enum { CU_LAUNCH_CLUSTER = 4, CU_LAUNCH_SERIALIZATION = 6 };

typedef struct cu_uuid {
    unsigned char bytes[16];
} cu_uuid;

typedef struct cu_pool_props {
    int alloc_type;   /* 1: pinned, the only type */
    int handle_types; /* 0: not shared between processes */
    int location_type, location_id;
    void *security;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
} cu_pool_props;

typedef struct cu_access {
    int location_type, location_id;
    int flags;
} cu_access;

typedef struct cu_copy_2d {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    cu_address src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    cu_address dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width_bytes, height;
} cu_copy_2d;

typedef struct cu_launch_attribute {
    int id;
    char pad[4];
    union {
        char room[64];
        uint64_t align;
        unsigned cluster[3];
        int serialization; /* programmatic: the kernel may start early */
    } value;
} cu_launch_attribute;

typedef struct cu_launch_config {
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    cu_stream stream;
    cu_launch_attribute *attributes;
    unsigned n_attributes;
} cu_launch_config;

_Static_assert(sizeof(cu_pool_props) == 88 && sizeof(cu_copy_2d) == 128 && sizeof(cu_launch_attribute) == 72 &&
                   sizeof(cu_launch_config) == 56,
               "the driver's structs");

/* (member, exported name, arguments). FIRST: present even in drivers that are too old for davy; enough to list devices.
 * NEED: davy cannot run without it. MAY: optional, NULL if the driver lacks it. */
#define DV_CUDA_FUNCTIONS(FIRST, NEED, MAY)                                                                            \
    FIRST(init, "cuInit", (unsigned flags))                                                                            \
    FIRST(driver_version, "cuDriverGetVersion", (int *version))                                                        \
    FIRST(error_name, "cuGetErrorName", (cu_result code, const char **name))                                           \
    FIRST(error_text, "cuGetErrorString", (cu_result code, const char **text))                                         \
    FIRST(device_count, "cuDeviceGetCount", (int *count))                                                              \
    FIRST(device_get, "cuDeviceGet", (cu_device * device, int index))                                                  \
    FIRST(device_name, "cuDeviceGetName", (char *name, int bytes, cu_device device))                                   \
    FIRST(device_uuid, "cuDeviceGetUuid_v2", (cu_uuid * uuid, cu_device device))                                       \
    FIRST(device_pci, "cuDeviceGetPCIBusId", (char *id, int bytes, cu_device device))                                  \
    FIRST(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device device))                     \
    FIRST(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, cu_device device))                                    \
    NEED(primary_state, "cuDevicePrimaryCtxGetState", (cu_device device, unsigned *flags, int *active))                \
    NEED(primary_retain, "cuDevicePrimaryCtxRetain", (cu_context * context, cu_device device))                         \
    NEED(primary_release, "cuDevicePrimaryCtxRelease_v2", (cu_device device))                                          \
    NEED(context_push, "cuCtxPushCurrent_v2", (cu_context context))                                                    \
    NEED(context_pop, "cuCtxPopCurrent_v2", (cu_context * context))                                                    \
    NEED(context_device, "cuCtxGetDevice", (cu_device * device))                                                       \
    NEED(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                              \
    NEED(memory_alloc, "cuMemAlloc_v2", (cu_address * address, size_t bytes))                                          \
    NEED(memory_free, "cuMemFree_v2", (cu_address address))                                                            \
    NEED(host_alloc, "cuMemHostAlloc", (void **p, size_t bytes, unsigned flags))                                       \
    NEED(host_free, "cuMemFreeHost", (void *p))                                                                        \
    MAY(host_register, "cuMemHostRegister_v2", (void *p, size_t bytes, unsigned flags))                                \
    MAY(host_unregister, "cuMemHostUnregister", (void *p))                                                             \
    MAY(pool_create, "cuMemPoolCreate", (cu_pool * pool, const cu_pool_props *props))                                  \
    MAY(pool_destroy, "cuMemPoolDestroy", (cu_pool pool))                                                              \
    MAY(pool_trim, "cuMemPoolTrimTo", (cu_pool pool, size_t keep))                                                     \
    MAY(pool_set, "cuMemPoolSetAttribute", (cu_pool pool, int attribute, void *value))                                 \
    MAY(pool_get, "cuMemPoolGetAttribute", (cu_pool pool, int attribute, void *value))                                 \
    MAY(pool_alloc, "cuMemAllocFromPoolAsync", (cu_address * address, size_t bytes, cu_pool pool, cu_stream stream))   \
    MAY(pool_free, "cuMemFreeAsync", (cu_address address, cu_stream stream))                                           \
    MAY(pool_access, "cuMemPoolSetAccess", (cu_pool pool, const cu_access *list, size_t count))                        \
    MAY(peer_can, "cuDeviceCanAccessPeer", (int *can, cu_device device, cu_device peer))                               \
    NEED(copy_any, "cuMemcpyAsync", (cu_address dst, cu_address src, size_t bytes, cu_stream stream))                  \
    NEED(copy_2d, "cuMemcpy2DAsync_v2", (const cu_copy_2d *copy, cu_stream stream))                                    \
    NEED(copy_peer, "cuMemcpyPeerAsync",                                                                               \
         (cu_address dst, cu_context dst_context, cu_address src, cu_context src_context, size_t bytes,                \
          cu_stream stream))                                                                                           \
    NEED(set_8, "cuMemsetD8Async", (cu_address dst, unsigned char value, size_t bytes, cu_stream stream))              \
    NEED(pointer_attribute, "cuPointerGetAttribute", (void *value, int attribute, cu_address address))                 \
    NEED(module_load, "cuModuleLoadData", (cu_module * module, const void *image))                                     \
    NEED(module_unload, "cuModuleUnload", (cu_module module))                                                          \
    NEED(module_function, "cuModuleGetFunction", (cu_function * function, cu_module module, const char *name))         \
    NEED(function_get, "cuFuncGetAttribute", (int *value, int attribute, cu_function function))                        \
    NEED(function_set, "cuFuncSetAttribute", (cu_function function, int attribute, int value))                         \
    NEED(launch, "cuLaunchKernelEx",                                                                                   \
         (const cu_launch_config *config, cu_function function, void **params, void **extra))                          \
    NEED(tensor_map, "cuTensorMapEncodeTiled",                                                                         \
         (void *map, int type, uint32_t rank, void *address, const uint64_t *size, const uint64_t *stride,             \
          const uint32_t *box, const uint32_t *step, int interleave, int swizzle, int promotion, int fill))            \
    NEED(stream_create, "cuStreamCreate", (cu_stream * stream, unsigned flags))                                        \
    NEED(stream_destroy, "cuStreamDestroy_v2", (cu_stream stream))                                                     \
    NEED(stream_sync, "cuStreamSynchronize", (cu_stream stream))                                                       \
    NEED(stream_query, "cuStreamQuery", (cu_stream stream))                                                            \
    NEED(stream_wait, "cuStreamWaitEvent", (cu_stream stream, cu_event event, unsigned flags))                         \
    NEED(capture_begin, "cuStreamBeginCapture_v2", (cu_stream stream, int mode))                                       \
    NEED(capture_end, "cuStreamEndCapture", (cu_stream stream, cu_graph * graph))                                      \
    NEED(capture_status, "cuStreamIsCapturing", (cu_stream stream, int *status))                                       \
    NEED(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                                               \
    NEED(event_create, "cuEventCreate", (cu_event * event, unsigned flags))                                            \
    NEED(event_destroy, "cuEventDestroy_v2", (cu_event event))                                                         \
    NEED(event_record, "cuEventRecord", (cu_event event, cu_stream stream))                                            \
    NEED(event_query, "cuEventQuery", (cu_event event))                                                                \
    NEED(event_sync, "cuEventSynchronize", (cu_event event))                                                           \
    NEED(event_ms, "cuEventElapsedTime", (float *ms, cu_event from, cu_event to))                                      \
    NEED(graph_instantiate, "cuGraphInstantiateWithFlags",                                                             \
         (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                                             \
    NEED(graph_launch, "cuGraphLaunch", (cu_graph_exec exec, cu_stream stream))                                        \
    NEED(graph_destroy, "cuGraphDestroy", (cu_graph graph))                                                            \
    NEED(graph_exec_destroy, "cuGraphExecDestroy", (cu_graph_exec exec))

#define DV_CUDA_MEMBER(member, symbol, args) cu_result(DV_CUDA_CALL *member) args;
typedef struct dv_driver {
    DV_CUDA_FUNCTIONS(DV_CUDA_MEMBER, DV_CUDA_MEMBER, DV_CUDA_MEMBER)
    int32_t version;  /* 1000 * major + 10 * minor of the CUDA version it supports */
    char reason[256]; /* not empty: devices can be listed but not used, and only the FIRST members are set */
} dv_driver;
#undef DV_CUDA_MEMBER

enum { DV_DRIVER_VERSION_MIN = 13000 };

/* Returns the driver. The first call loads and initialises it; it stays loaded for the life of the process.
 * library_dir: searched first; may be NULL. The environment variable DAVY_CUDA_DRIVER names another file.
 * DAVY_E_DEVICE: no driver works. DAVY_E_NOMEM_HOST: memory ran out before this was decided; a later call tries again. In both
 * cases `why` receives the reason as a sentence. The error record is not set. */
davy_result dv_driver_get(const char *library_dir, const dv_driver **out, char *why, size_t bytes);
/* "CUDA_ERROR_OUT_OF_MEMORY", or "CUDA error 2" if the driver has no name for the code. buf: at least 64 bytes. */
const char *dv_driver_error_name(const dv_driver *cu, cu_result code, char *buf, size_t bytes);

#endif
