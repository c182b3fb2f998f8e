// attention_wgmma_combine.cuh - merges the results of several pairs of blocks for one unit of attention_wgmma_sm90.cu.
#pragma once

#include "kernels/cuda/attention/attention_wgmma.cuh"

namespace attention {

// Merges a unit: rescales the sums of its parts to the highest frame and divides by the total. One warp per row.
template <typename T> __device__ __forceinline__ void combine(const dvk_attention_wgmma_params &p) {
    const int lane = (int)threadIdx.x % 32;
    const int row = (int)(blockIdx.x % (ROWS / 4) * 4 + threadIdx.x / 32);
    const int unit = (int)blockIdx.x / (ROWS / 4);
    const int begin = unit * p.steps, end = begin + p.steps;
    const segment g(p, begin, end);
    const int first =
        (int)(((begin + 1) * (int64_t)p.pairs - 1) / p.total_steps); // the pair that processes the step at `begin`
    wait_for_launch_before();
    let_next_launch_begin();
    if (begin_of(p, first + 1) >= end || g.row0(p) + row >= p.queries) {
        return;
    }
    float top = -INFINITY;
    for (int i = first; begin_of(p, i) < end; i++) {
        const int64_t at = (int64_t)(2 * i + (begin_of(p, i) < begin)) * ROWS + row;
        top = fmaxf(top, p.totals[at * 2]);
    }
    float x[16] = {}, total = 0.0f;
    for (int i = first; begin_of(p, i) < end; i++) {
        const int64_t at = (int64_t)(2 * i + (begin_of(p, i) < begin)) * ROWS + row;
        const float shrink = exp2_fast(p.totals[at * 2] - from(top));
        total += p.totals[at * 2 + 1] * shrink;
#pragma unroll
        for (int c = 0; c < 16; c += 4) {
            const float4 v = *(const float4 *)(p.sums + at * DIM + c * 32 + lane * 4);
            x[c] += v.x * shrink;
            x[c + 1] += v.y * shrink;
            x[c + 2] += v.z * shrink;
            x[c + 3] += v.w * shrink;
        }
    }
    const float share = 1.0f / total;
    T *y = (T *)p.y + g.picture(p) * p.y_sn + (g.row0(p) + row) * p.y_sw + g.head(p) * DIM + lane * 4;
#pragma unroll
    for (int c = 0; c < 16; c += 4) {
        *(uint2 *)(y + c * 32) =
            make_uint2(pack2(T(), x[c] * share, x[c + 1] * share), pack2(T(), x[c + 2] * share, x[c + 3] * share));
    }
}

} // namespace attention
