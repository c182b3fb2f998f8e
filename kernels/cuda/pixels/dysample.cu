// dysample.cu - every output pixel is sampled bilinearly, with a separate position for each group of channels. A thread
// computes up to four channels of a pixel, of one group or summed over all groups.
#include "kernels/cuda/pixels/dysample.h"
#include "kernels/cuda/common/elem.cuh"

namespace {

struct axis { // two samples and the weight of the second
    int first, second;
    float t;
    // `at` plus `ahead`. `ahead` is small, so the fraction keeps all its bits. A NaN reads the first sample.
    __device__ __forceinline__ axis(int at, float ahead, int size) {
        const float far = fminf(fmaxf(ahead, -1e6f), 1e6f), whole = floorf(far);
        first = ahead != ahead ? -1 : at + (int)whole;
        t = first < 0 || first >= size - 1 ? 0.0f : far - whole;
        first = min(max(first, 0), size - 1);
        second = min(first + 1, size - 1);
    }
};

} // namespace

extern "C" __global__ void __launch_bounds__(256) dysample(const __grid_constant__ dvk_dysample_params p) {
    wait_for_launch_ahead();
    const int r = p.r, each = p.parts * p.chunks, square = r * r;
    ROWS_AND_ITEMS(row, p.rows, item, p.w * each) {
        const int64_t n = row / (uint32_t)p.h;
        const int oy = (int)row - (int)n * p.h, ox = (int)(item / (uint32_t)each), piece = (int)item - ox * each;
        const int part = piece / p.chunks, c = (piece - part * p.chunks) * 4;
        const int h = oy / r, i = oy - h * r, w = ox / r, j = ox - w * r;
        const int64_t offsets = n * p.offset.sn + h * p.offset.sh + w * p.offset.sw + i * r + j;
        float sum[4] = {};
        for (int g = part; g < p.groups; g += p.parts) {
            const float dx = load1(p.offset.data, p.offset.dtype, offsets + (int64_t)g * square);
            const float dy = load1(p.offset.data, p.offset.dtype, offsets + (int64_t)(p.groups + g) * square);
            const axis x(w, (float)(2 * j - r + 1) / (float)(2 * r) + dx, p.xw);
            const axis y(h, (float)(2 * i - r + 1) / (float)(2 * r) + dy, p.xh);
            const int64_t from = n * p.x.sn + (int64_t)g * p.width + c;
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const int64_t pixel =
                    from + (q < 2 ? y.first : y.second) * p.x.sh + (q % 2 ? x.second : x.first) * p.x.sw;
                const float weight = (q < 2 ? 1.0f - y.t : y.t) * (q % 2 ? x.t : 1.0f - x.t);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    if (c + k < p.width) {
                        sum[k] = fmaf(weight, load1(p.x.data, p.x.dtype, pixel + k), sum[k]);
                    }
                }
            }
        }
        const int64_t to = n * p.y.sn + (int64_t)oy * p.y.sh + (int64_t)ox * p.y.sw + (int64_t)part * p.width + c;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (c + k < p.width) {
                store1(p.y.data, p.y.dtype, to + k, sum[k]);
            }
        }
    }
}
