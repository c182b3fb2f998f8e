// posterior.cu - replaces the means of an encoder's posterior by a sample.
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/pixels/posterior.h"
#include "kernels/normal.h"

extern "C" __global__ void posterior_draw(const __grid_constant__ dvk_posterior_params p) {
    wait_for_launch_ahead();
    const int64_t all = p.pixels * p.z;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t pixel = i / p.z, channel = i - pixel * p.z;
        float *at = p.moments + pixel * 2 * p.z + channel;
        const float logvar = fminf(fmaxf(at[p.z], p.lo), p.hi);
        const float v = dvk_draw(*at, logvar, dvk_normal(p.seed, p.stream, (uint64_t)(channel * p.pixels + pixel)));
        *at = __fadd_rn(__fmul_rn(v, p.mul), p.add);
    }
}
