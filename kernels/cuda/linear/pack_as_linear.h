/* pack_as_linear.h - packed_bytes, pack_units and pack of a kernel that stores W in the layout of "linear". Include it
 * after a function as_linear, which converts the kernel's arguments to those of "linear". */
#ifndef DVK_CUDA_PACK_AS_LINEAR_H
#define DVK_CUDA_PACK_AS_LINEAR_H

#include "kernels/cuda/linear/linear_layout.h"

static size_t packed_bytes(const void *args) {
    const dvk_linear_args a = as_linear(args);
    return dvk_linear_packed_bytes(&a);
}

static int64_t pack_units(const void *args) {
    const dvk_linear_args a = as_linear(args);
    return dvk_linear_pack_units(&a);
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_linear_args a = as_linear(args);
    dvk_linear_pack(&a, w, dst, first, last);
}

#endif
