/* kernel.h - a chosen kernel, for the CPU (kernels/kernel.h) or for CUDA (kernels/cuda/cuda.h). Planning, packing and
 * dumps treat both alike; only the runners differ. */
#ifndef DV_KERNEL_H
#define DV_KERNEL_H

#include "core/base/common.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernel.h"

typedef struct dv_kernel { /* at most one of the two is set */
    const dvk_kernel *cpu;
    const dvk_cuda_kernel *cuda;
} dv_kernel;

static inline bool dv_kernel_is(dv_kernel a, dv_kernel b) {
    return a.cpu == b.cpu && a.cuda == b.cuda;
}

static inline bool dv_kernel_none(dv_kernel k) {
    return k.cpu == NULL && k.cuda == NULL;
}

static inline const char *dv_kernel_op(dv_kernel k) {
    return k.cuda != NULL ? k.cuda->op : k.cpu->op;
}

static inline const char *dv_kernel_variant(dv_kernel k) {
    return k.cuda != NULL ? k.cuda->variant : k.cpu->variant;
}

static inline bool dv_kernel_is_int8(dv_kernel k) {
    return k.cuda != NULL ? k.cuda->computes == DVK_COMPUTES_INT8 : k.cpu != NULL && k.cpu->compute == DVK_INT8;
}

static inline uint64_t dv_kernel_packed_bytes(dv_kernel k, const void *args) {
    return k.cuda != NULL ? k.cuda->packed_bytes(args) : k.cpu->packed_bytes(args);
}

static inline int64_t dv_kernel_pack_units(dv_kernel k, const void *args) {
    return k.cuda != NULL ? k.cuda->pack_units(args) : k.cpu->pack_units(args);
}

static inline void dv_kernel_pack(dv_kernel k, const void *args, const float *w, void *dst, int64_t first,
                                  int64_t last) {
    (k.cuda != NULL ? k.cuda->pack : k.cpu->pack)(args, w, dst, first, last);
}

#endif
