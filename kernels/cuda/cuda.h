/* cuda.h - the interface of CUDA kernels and the list of all of them. It is the counterpart of kernels/kernel.h.
 *
 * A kernel is a pair of files. NAME.cu holds device code only. It is built to a fatbin (NAME_sm90.cu: for sm_90a alone)
 * and embedded under its NAME. NAME.c turns an op's arguments into launches. A header NAME.h of plain structs defines
 * what they share. Device functions are extern "C". No file includes a CUDA header. The host side builds with any C
 * compiler and reaches the driver only through a dvk_queue.
 *
 * Contract with the planner for every view of a 16-bit type:
 * - data is 16-byte aligned, and sw, sh, sn are multiples of 8 elements. The exception is a slice of a concat that
 *   begins or ends at a channel which is no multiple of 8.
 * - If sw is c rounded up to a multiple of 8, kernels may overwrite the padding behind the last channel.
 * - During planning, `data` of a view is its offset in the arena plus a large aligned constant, so that supports() can
 *   check its alignment. Other pointers are only NULL or not NULL.
 *
 * Unless stated otherwise, an op on CUDA has exactly the semantics of kernels/op.h. Results may depend on the chosen
 * kernel, never on timing: no floating-point atomics. */
#ifndef DVK_CUDA_H
#define DVK_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/op.h"

typedef struct dvk_cuda_caps {
    int32_t sm;           /* compute capability, 10 * major + minor: 75, 80, 86, 89, 90, 100, 120 */
    int32_t processors;   /* multiprocessors */
    int32_t shared_bytes; /* maximum dynamic shared memory of a block */
    int32_t l2_bytes;
    double memory_gbs;                  /* device memory, bytes per ns */
    double tensor_tflops;               /* dense 16-bit products with f32 sums */
    double simt_tflops;                 /* f32 */
    const struct dvk_cost_table *costs; /* kernels/costs/cuda_costs.h; NULL: those of sm */
} dvk_cuda_caps;

/* may begin before the preceding launch has ended; the kernel waits (griddepcontrol) */
enum { DVK_LAUNCH_OVERLAP = 1 };

typedef struct dvk_launch {
    const char *module;   /* NAME of the .cu */
    const char *function; /* extern "C" */
    uint32_t grid[3], block[3];
    uint32_t cluster;      /* blocks per cluster, along x; 0 and 1: no cluster */
    uint32_t shared_bytes; /* dynamic; launch() raises the limit if it is above 48 KiB */
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
    uint32_t computes;                                            /* DVK_COMPUTES_* of the supported precisions */
    int (*supports)(const void *args, const dvk_cuda_caps *caps); /* NULL: all args of the op */
    double (*cost)(const void *args, const dvk_cuda_caps *caps);  /* estimated ns; the planner takes the lowest */
    size_t (*scratch_bytes)(const void *args, const dvk_cuda_caps *caps); /* device memory while it runs; NULL: none */
    /* Device pointers in args and scratch. Several launches are allowed. Called under stream capture too. */
    int (*enqueue)(const void *args, void *scratch, dvk_queue *q);
    /* conv2d: number of statistics chunks of a picture if the kernel can write args->epi.stats (op.h). NULL or 0: it
     * cannot. */
    int64_t (*stats_chunks)(const void *args, const dvk_cuda_caps *caps);
    /* conv2d: number of rows if the kernel can write args->epi.sums. NULL or 0: it cannot. */
    int64_t (*sums_chunks)(const void *args, const dvk_cuda_caps *caps);
    /* conv2d: 1 if pack() only reorders and pads 16-bit weights, without sums, and the kernel honours `scaled`. NULL:
     * no. */
    int (*scalable)(const void *args, const dvk_cuda_caps *caps);
    /* conv2d: 1 if the kernel can store its result into the picture args->epi.store; with a NULL store, into some
     * picture. NULL or 0: no. */
    int (*stores)(const void *args, const dvk_cuda_caps *caps);
    int turns; /* conv2d: 1 if the kernel honours args->backwards */
    /* Ops with weights, as in kernel.h: packs f32 OIHW on the host into the bytes that are then uploaded. The packed
     * bytes serve every picture size. They depend only on channels, window, padding, stride, upsample, shuffle, dtypes
     * and compute. */
    size_t (*packed_bytes)(const void *args);
    int64_t (*pack_units)(const void *args);
    void (*pack)(const void *args, const float *w, void *dst, int64_t first, int64_t last);
} dvk_cuda_kernel;

enum {
    DVK_COMPUTES_F32 = 1,  /* products and sums in f32 */
    DVK_COMPUTES_TF32 = 2, /* f32 values, products of TF32; only on request */
    DVK_COMPUTES_F16 = 4,
    DVK_COMPUTES_BF16 = 8,
    DVK_COMPUTES_FP8 = 16,  /* 16-bit values, products of E4M3; only on request */
    DVK_COMPUTES_INT8 = 32, /* 16-bit values, products of 8-bit integers; only on request */
    DVK_COMPUTES_ANY = 15   /* moves data, or computes in f32 for every storage type */
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
