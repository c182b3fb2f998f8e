/* cuda.h - what a CUDA kernel of davy is, and the list of all of them. The counterpart of kernels/kernel.h.
 *
 * A kernel is a pair of files: NAME.cu holds device code only, built to a fatbin (NAME_sm90.cu: for sm_90a alone) and
 * embedded under its NAME; NAME.c turns an op's arguments into launches. What both must agree on stands in a header
 * NAME.h of plain structs. Device functions are extern "C". Nothing here includes a CUDA header: the host side builds
 * with any C compiler, and reaches the driver only through a dvk_queue.
 *
 * Contract with the planner, for every view of 16-bit type: data is 16-byte aligned and sw, sh, sn are multiples of 8
 * elements, unless it is a slice of a concat that begins or ends at a channel no multiple of 8. Where sw is c rounded up to
 * a multiple of 8, what lies behind the last channel is nobody's and may be overwritten. While a plan is made,
 * `data` of a view is its offset in the arena plus a large aligned constant, so that its alignment can be looked at;
 * other pointers are only NULL or not.
 * Unless said otherwise an op on CUDA means exactly what kernels/op.h says. Answers may depend on the kernel chosen, never
 * on timing: no floating-point atomics. */
#ifndef DVK_CUDA_H
#define DVK_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/op.h"

typedef struct dvk_cuda_caps {
    int32_t sm;           /* compute capability, 10 * major + minor: 75, 80, 86, 89, 90, 100, 120 */
    int32_t processors;   /* multiprocessors */
    int32_t shared_bytes; /* dynamic shared memory a block may ask for */
    int32_t l2_bytes;
    double memory_gbs;                  /* device memory, bytes per ns */
    double tensor_tflops;               /* dense 16-bit products with f32 sums */
    double simt_tflops;                 /* f32 */
    const struct dvk_cost_table *costs; /* kernels/costs/cuda_costs.h; NULL: those of sm */
} dvk_cuda_caps;

enum { DVK_LAUNCH_OVERLAP = 1 }; /* may begin before the launch ahead has ended; the kernel waits (griddepcontrol) */

typedef struct dvk_launch {
    const char *module;   /* NAME of the .cu */
    const char *function; /* extern "C" */
    uint32_t grid[3], block[3];
    uint32_t cluster;      /* blocks of a cluster, along x; 0 and 1: none */
    uint32_t shared_bytes; /* dynamic; above 48 KiB is allowed for without asking */
    uint32_t flags;
    void **params; /* pointers to the arguments, as cuLaunchKernel takes them */
} dvk_launch;

/* CUtensorMap: passed to a kernel by value as `const __grid_constant__ CUtensorMap`. */
typedef struct dvk_tensor_map {
    _Alignas(64) unsigned char opaque[128];
} dvk_tensor_map;

typedef struct dvk_tensor_map_desc { /* cuTensorMapEncodeTiled; innermost dimension first */
    const void *data;
    dvk_dtype dtype;
    int32_t rank;
    int64_t size[5];
    int64_t stride_bytes[4]; /* of dimensions 1 .. rank - 1 */
    int32_t box[5];
    int32_t step[5];       /* element strides; 0 counts as 1 */
    int32_t swizzle_bytes; /* 0, 32, 64, 128 */
} dvk_tensor_map_desc;

/* A stream. All functions return 0 or the driver's CUresult; after an error nothing has been enqueued. */
typedef struct dvk_queue dvk_queue;
struct dvk_queue {
    const dvk_cuda_caps *caps;
    int (*launch)(dvk_queue *q, const dvk_launch *l);
    int (*clear)(dvk_queue *q, void *device, size_t bytes); /* zeros */
    int (*tensor_map)(dvk_queue *q, const dvk_tensor_map_desc *desc, dvk_tensor_map *out);
};

typedef struct dvk_cuda_kernel {
    const char *op;                                               /* "conv2d" */
    const char *variant;                                          /* "cuda/mma", "cuda/wgmma" */
    int32_t sm_min, sm_max;                                       /* inclusive; sm_max 0: every later one */
    uint32_t computes;                                            /* DVK_COMPUTES_* of the precisions it may serve */
    int (*supports)(const void *args, const dvk_cuda_caps *caps); /* NULL: every args the op allows */
    double (*cost)(const void *args, const dvk_cuda_caps *caps);  /* estimated ns; the planner takes the least */
    size_t (*scratch_bytes)(const void *args, const dvk_cuda_caps *caps); /* device memory while it runs; NULL: none */
    /* Device pointers in args and scratch. Several launches are allowed. Called under stream capture too. */
    int (*enqueue)(const void *args, void *scratch, dvk_queue *q);
    /* conv2d: whether it can write args->epi.stats (op.h), and how many chunks a picture has then; NULL or 0: no. */
    int64_t (*stats_chunks)(const void *args, const dvk_cuda_caps *caps);
    /* conv2d: whether it can write args->epi.sums, and how many rows; NULL or 0: no. */
    int64_t (*sums_chunks)(const void *args, const dvk_cuda_caps *caps);
    /* conv2d: whether what pack() makes of weights in 16 bits is these and zeros, no sums, and `scaled` is obeyed. NULL: no. */
    int (*scalable)(const void *args, const dvk_cuda_caps *caps);
    /* conv2d: whether it can store its result into the picture args->epi.store, or, where that is NULL, into some; NULL or
     * 0: no. */
    int (*stores)(const void *args, const dvk_cuda_caps *caps);
    int turns; /* conv2d: goes through a picture from its end where args->backwards says so */
    /* Ops with weights, as in kernel.h: on the host, from f32 OIHW, to the bytes that are then uploaded. They serve every
     * picture size: they depend on channels, window, padding, stride, upsample, shuffle, dtypes and compute alone. */
    size_t (*packed_bytes)(const void *args);
    int64_t (*pack_units)(const void *args);
    void (*pack)(const void *args, const float *w, void *dst, int64_t first, int64_t last);
} dvk_cuda_kernel;

enum {
    DVK_COMPUTES_F32 = 1,  /* products and sums in f32 */
    DVK_COMPUTES_TF32 = 2, /* f32 values, products of TF32; only when asked for */
    DVK_COMPUTES_F16 = 4,
    DVK_COMPUTES_BF16 = 8,
    DVK_COMPUTES_FP8 = 16,  /* 16-bit values, products of E4M3; only when asked for */
    DVK_COMPUTES_INT8 = 32, /* the same of 8-bit integers */
    DVK_COMPUTES_ANY = 15   /* moves data, or computes in f32 whatever the storage */
};

extern const dvk_cuda_kernel *const dvk_cuda_kernels[];
extern const int32_t dvk_cuda_kernel_count;

/* The cheapest kernel that this device and precision (one DVK_COMPUTES_* bit) allow; NULL: none. */
const dvk_cuda_kernel *dvk_cuda_choose(const char *op, const void *args, const dvk_cuda_caps *caps, uint32_t computes);
const dvk_cuda_kernel *dvk_cuda_find(const char *op, const char *variant); /* NULL: not in this build */

/* Embedded device code, in alphabetical order; none in a build without nvcc. */
typedef struct dvk_cuda_module {
    const char *name;
    const unsigned char *image, *end; /* fatbin */
} dvk_cuda_module;
const dvk_cuda_module *dvk_cuda_modules(int32_t *count);

#endif
