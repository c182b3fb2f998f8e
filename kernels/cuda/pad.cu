// pad.cu - a picture with its bottom and right edge extended. A thread writes eight channels of a pixel.
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/pad.h"

namespace {

__device__ __forceinline__ int reflected(int i, int size) {
    return i < size ? i : max(0, 2 * size - 2 - i);
}

} // namespace

extern "C" __global__ void __launch_bounds__(256) pad(const __grid_constant__ dvk_pad_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const int n = (int)(row / (uint32_t)p.h);
        const int y = (int)row - n * p.h;
        const int x = (int)(item / (uint32_t)p.chunks);
        const int c = ((int)item - x * p.chunks) * 8;
        const int count = min(8, p.c - c);
        raw8 v = {};
        if (p.reflect || (y < p.xh && x < p.xw)) {
            const int64_t from = n * p.x.sn + reflected(y, p.xh) * p.x.sh + reflected(x, p.xw) * p.x.sw + c;
            v = converted(fetch<0>(p.x, from, count), p.x.dtype, p.y.dtype);
        }
        put<0>(p.y, n * p.y.sn + y * p.y.sh + x * p.y.sw + c, count, v);
    }
}
