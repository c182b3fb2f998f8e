// linear_join.cu - adds the partial sums of split-k "linear": two columns of a row per thread.
#include "kernels/cuda/linear/linear_join.h"

#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/linear/linear_many.cuh"

static __device__ __forceinline__ float2 joined(const dvk_linear_join &p, int row, int column, bool two) {
    const float *from = p.parts + (int64_t)row * p.wide + column;
    float2 s = make_float2(0.0f, 0.0f);
    for (int i = 0; i < p.shares; i++, from += (int64_t)p.out.m * p.wide) {
        s.x += from[0];
        s.y += two ? from[1] : 0.0f;
    }
    return s;
}

extern "C" __global__ void __launch_bounds__(256) linear_join(const dvk_linear_join p) {
    wait_for_launch_ahead();
    const int wide = (p.out.n + 1) / 2;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < (int64_t)p.out.m * wide;
         i += (int64_t)gridDim.x * 256) {
        const int row = (int)(i / wide), column = 2 * (int)(i - (int64_t)row * wide);
        const bool two = column + 1 < p.out.n;
        const linear_extras extras = linear_fetch(p.out, row, column);
        const float2 s = joined(p, row, column, two);
        const float2 other = p.out.glu ? joined(p, row, column + p.out.n, two) : make_float2(0.0f, 0.0f);
        linear_finish(p.out, row, column, make_float4(s.x, s.y, other.x, other.y), extras);
    }
}
