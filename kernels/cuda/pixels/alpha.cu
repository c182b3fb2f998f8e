// alpha.cu - computes the range of a plane, block by block, and fills a plane with one number if the range is one
// number.
#include "kernels/cuda/pixels/alpha.h"
#include "kernels/cuda/common/elem.cuh"

namespace {

constexpr int THREADS = 256;

struct range {
    float least, largest;
};

// A NaN widens the range to everything, which is never a single number.
__device__ __forceinline__ range join(range a, range b) {
    return {b.least < a.least ? b.least : a.least, b.largest > a.largest ? b.largest : a.largest};
}

__device__ range of_block(range r, range *shared) {
    shared[threadIdx.x] = r;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
        }
        __syncthreads();
    }
    return shared[0];
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS) alpha_range(const __grid_constant__ dvk_alpha_params p) {
    wait_for_launch_ahead();
    __shared__ range shared[THREADS];
    const float infinity = __int_as_float(0x7f800000);
    range r = {infinity, -infinity};
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.n_in; i += (int64_t)gridDim.x * THREADS) {
        const float v = p.in[i];
        r = v == v ? join(r, {v, v}) : range{-infinity, infinity};
    }
    r = of_block(r, shared);
    if (threadIdx.x == 0) {
        p.range[2 * blockIdx.x] = r.least;
        p.range[2 * blockIdx.x + 1] = r.largest;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) alpha_settle(const __grid_constant__ dvk_alpha_params p) {
    wait_for_launch_ahead();
    __shared__ range shared[THREADS];
    const float infinity = __int_as_float(0x7f800000);
    range r = {infinity, -infinity};
    if (threadIdx.x < DVK_ALPHA_BLOCKS) {
        r = {p.range[2 * threadIdx.x], p.range[2 * threadIdx.x + 1]};
    }
    r = of_block(r, shared);
    if (r.least != r.largest) {
        return;
    }
    const float v = __fadd_rn(__fmul_rn(r.least, p.mul), p.add);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.n_out; i += (int64_t)gridDim.x * THREADS) {
        p.out[i] = v;
    }
}
