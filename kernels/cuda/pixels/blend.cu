// blend.cu - adds a weighted tile to the output. Every product and every sum is rounded once, as in the reference.
#include "kernels/cuda/pixels/blend.h"
#include "kernels/cuda/common/elem.cuh"

extern "C" __global__ void __launch_bounds__(256) blend(const __grid_constant__ dvk_blend_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const int64_t n = row / (uint32_t)p.h;
        const int64_t y = row - n * p.h;
        const int x = (int)(item / (uint32_t)p.chunks);
        const int c = ((int)item - x * p.chunks) * 8;
        const int count = min(8, p.c - c);
        const float weight = __fmul_rn(p.wy[y], p.wx[x]);
        const int64_t to = n * p.y.sn + y * p.y.sh + x * p.y.sw + c;
        float tile[8], sum[8];
        unpack<0>(fetch<0>(p.x, n * p.x.sn + y * p.x.sh + x * p.x.sw + c, count), p.x.dtype, tile);
        unpack<DVK_F32>(fetch<DVK_F32>(p.y, to, count), DVK_F32, sum);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum[i] = __fadd_rn(sum[i], __fmul_rn(weight, tile[i]));
        }
        put<DVK_F32>(p.y, to, count, pack<DVK_F32>(sum, DVK_F32));
    }
}
