// pad.cu - a picture with its edges extended. A thread writes eight channels of a pixel.
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/pixels/pad.h"

namespace {

__device__ __forceinline__ int extended(int i, int size, int mode) {
    if (mode == DVK_PAD_EDGE) {
        return min(max(i, 0), size - 1);
    }
    return i < 0 ? min(-i, size - 1) : i < size ? i : max(0, 2 * size - 2 - i);
}

} // namespace

extern "C" __global__ void __launch_bounds__(256) pad(const __grid_constant__ dvk_pad_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const int n = (int)(row / (uint32_t)p.h);
        const int oy = (int)row - n * p.h;
        const int ox = (int)(item / (uint32_t)p.chunks);
        const int c = ((int)item - ox * p.chunks) * 8;
        const int y = oy - p.top, x = ox - p.left;
        const int count = p.whole ? 8 : min(8, p.c - c);
        raw8 v = {};
        if (p.mode != DVK_PAD_ZERO || (y >= 0 && x >= 0 && y < p.xh && x < p.xw)) {
            const int64_t from =
                n * p.x.sn + extended(y, p.xh, p.mode) * p.x.sh + extended(x, p.xw, p.mode) * p.x.sw + c;
            v = converted(fetch<0>(p.x, from, count), p.x.dtype, p.y.dtype);
        }
        put<0>(p.y, n * p.y.sn + oy * p.y.sh + ox * p.y.sw + c, count, v);
    }
}
