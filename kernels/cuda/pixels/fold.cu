// fold.cu - folds r x r pixels into one pixel and back. A thread writes eight channels of a pixel.
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/pixels/fold.h"

namespace {

struct place { // of a thread, in y
    int64_t n;
    int y, x, c, count;
};

__device__ __forceinline__ place placed(const dvk_fold_params &p, uint32_t row, uint32_t item) {
    const uint32_t n = row / (uint32_t)p.h, x = item / (uint32_t)p.chunks, c = (item - x * p.chunks) * 8;
    return {n, (int)(row - n * p.h), (int)x, (int)c, min(8, p.c - (int)c)};
}

__device__ __forceinline__ int around(int i, int size) {
    return i < 0 ? i + size : i >= size ? i - size : i;
}

// Source element of channel c of the folded pixel; -1: padding of a head.
__device__ __forceinline__ int64_t source(const dvk_fold_params &p, const place &at, int c) {
    const int head = c / p.padded, within = c - head * p.padded;
    if (within >= p.dim) {
        return -1;
    }
    const int i = head * p.dim + within, pixel = i / p.in_c, down = pixel / p.r;
    const int y = around(at.y * p.r - p.top + down, p.in_h);
    const int x = around(at.x * p.r - p.left + pixel - down * p.r, p.in_w);
    return at.n * p.x.sn + y * p.x.sh + x * p.x.sw + i - pixel * p.in_c;
}

} // namespace

extern "C" __global__ void __launch_bounds__(256) fold(const __grid_constant__ dvk_fold_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const place at = placed(p, row, item);
        raw8 out = {};
        if (p.whole) {
            const int64_t from = source(p, at, at.c);
            if (from >= 0) {
                out = converted(fetch<0>(p.x, from, at.count), p.x.dtype, p.y.dtype);
            }
        } else {
            float v[8];
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const int64_t from = k < at.count ? source(p, at, at.c + k) : -1;
                v[k] = from >= 0 ? load1(p.x.data, p.x.dtype, from) : 0.0f;
            }
            out = pack<0>(v, p.y.dtype);
        }
        put<0>(p.y, at.n * p.y.sn + at.y * p.y.sh + at.x * p.y.sw + at.c, at.count, out);
    }
}

extern "C" __global__ void __launch_bounds__(256) unfold(const __grid_constant__ dvk_fold_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const place at = placed(p, row, item);
        const int y = around(at.y + p.top, p.h), x = around(at.x + p.left, p.w);
        const int down = y / p.r, across = x / p.r, pixel = (y - down * p.r) * p.r + x - across * p.r;
        const int64_t from = at.n * p.x.sn + down * p.x.sh + across * p.x.sw + (int64_t)pixel * p.c + at.c;
        put<0>(p.y, at.n * p.y.sn + at.y * p.y.sh + at.x * p.y.sw + at.c, at.count,
               converted(fetch<0>(p.x, from, at.count), p.x.dtype, p.y.dtype));
    }
}
