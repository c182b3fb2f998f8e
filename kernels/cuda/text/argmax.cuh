// argmax.cuh - the better of two candidates of a row, and the best of a block.
#pragma once

#include "kernels/cuda/text/argmax.h"
#include "kernels/cuda/common/elem.cuh"

namespace {

// A NaN wins over everything; among equals the lower index wins.
__device__ __forceinline__ dvk_argmax_best better(dvk_argmax_best a, dvk_argmax_best b) {
    if (a.index < 0 || b.index < 0) {
        return a.index < 0 ? a : b;
    }
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

// The best of all threads, valid in the first one.
__device__ __forceinline__ dvk_argmax_best of_block(dvk_argmax_best best) {
    __shared__ dvk_argmax_best parts[DVK_ARGMAX_THREADS / 32];
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        dvk_argmax_best other;
        other.value = __shfl_xor_sync(0xffffffffu, best.value, i);
        other.index = __shfl_xor_sync(0xffffffffu, best.index, i);
        best = better(best, other);
    }
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = best;
    }
    __syncthreads();
    for (int i = 1; threadIdx.x == 0 && i < (int)blockDim.x / 32; i++) {
        best = better(best, parts[i]);
    }
    return best;
}

// -1: no valid id
__device__ __forceinline__ int32_t id_of(dvk_argmax_best best) {
    return best.index >= 0 && isfinite(best.value) ? best.index : -1;
}

} // namespace
