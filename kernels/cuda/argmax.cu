// argmax.cu - the largest number of a row: of pieces first, then of those.
#include "kernels/cuda/argmax.h"
#include "kernels/cuda/elem.cuh"

namespace {

// A NaN wins over everything, the lower index among equals.
__device__ __forceinline__ dvk_argmax_best better(dvk_argmax_best a, dvk_argmax_best b) {
    if (a.index < 0 || b.index < 0) {
        return a.index < 0 ? a : b;
    }
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

// Of all threads, in the first.
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

} // namespace

extern "C" __global__ void __launch_bounds__(DVK_ARGMAX_THREADS)
    argmax_pieces(const __grid_constant__ dvk_argmax_params p) {
    wait_for_launch_ahead();
    const float *x = p.x + blockIdx.y * p.row;
    dvk_argmax_best best = {-INFINITY, 0x7fffffff};
    for (int i = blockIdx.x * DVK_ARGMAX_THREADS + threadIdx.x; i < p.n; i += DVK_ARGMAX_BLOCKS * DVK_ARGMAX_THREADS) {
        bool left_out = false;
        for (int k = 0; k < p.n_never; k++) {
            left_out = left_out || p.never[k] == i;
        }
        if (!left_out) {
            best = better(best, {x[i], isnan(x[i]) ? -1 : i});
        }
    }
    best = of_block(best);
    if (threadIdx.x == 0) {
        p.best[blockIdx.y * DVK_ARGMAX_BLOCKS + blockIdx.x] = best;
    }
}

extern "C" __global__ void __launch_bounds__(DVK_ARGMAX_BLOCKS)
    argmax_last(const __grid_constant__ dvk_argmax_params p) {
    wait_for_launch_ahead();
    const dvk_argmax_best best = of_block(p.best[blockIdx.x * DVK_ARGMAX_BLOCKS + threadIdx.x]);
    if (threadIdx.x == 0) {
        p.id[blockIdx.x] = best.index >= 0 && isfinite(best.value) ? best.index : -1;
    }
    if (blockIdx.x == 0 && threadIdx.x < p.n_advance) {
        p.advance[threadIdx.x]++;
    }
}
