// multiply.cu - y = epi(x * act(g)). A thread processes fixed eight channels of a sequence of pixels. The thread that
// writes an element also reads it, so y may alias x, g or a residual.
#include "kernels/cuda/common/elem_epilogue.cuh"
#include "kernels/cuda/pixels/multiply.h"

namespace {

__device__ __forceinline__ int64_t offset(const dvk_elem_view &v, int64_t n, int64_t pixel, int32_t w) {
    if (w == 0) {
        return n * v.sn + pixel * v.sw;
    }
    const uint32_t row = (uint32_t)pixel / (uint32_t)w;
    return n * v.sn + row * v.sh + (pixel - (int64_t)row * w) * v.sw;
}

template <int TYPE>
__device__ __forceinline__ void gate_at(const dvk_multiply_params &p, int64_t at, int c, int lanes, float (&g)[8]) {
    const float none[8] = {};
    if (p.one_channel) {
        const float v = load1(p.g.data, p.g.dtype, at);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            g[i] = v;
        }
    } else {
        unpack<TYPE>(fetch<TYPE>(p.g, at + c, lanes), p.g.dtype, g);
    }
    activate8<CURVES_EXACT>(p.act, g, none);
}

template <int TYPE> __device__ __forceinline__ void multiply(const dvk_multiply_params &p) {
    wait_for_launch_ahead();
    const int64_t n = blockIdx.y;
    const uint32_t step = gridDim.x * blockDim.x / (uint32_t)p.chunks; // pixels side by side
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= step * (uint32_t)p.chunks) {
        return;
    }
    const int c = (int)(thread % (uint32_t)p.chunks) * 8, lanes = min(8, p.c - c);
    channels of;
    channel_values(p.ends.bias, c, lanes, of.bias, 0.0f);
    channel_values(p.ends.slopes, c, lanes, of.slopes, p.ends.slope);
    float g[8];
    if (p.one_pixel) {
        gate_at<TYPE>(p, n * p.g.sn, c, lanes, g);
    }
    for (int64_t pixel = thread / (uint32_t)p.chunks; pixel < p.pixels; pixel += step) {
        const raw8 x = fetch<TYPE>(p.x, offset(p.x, n, pixel, p.w) + c, lanes);
        float v[8], res[2][8] = {};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const dvk_elem_view &r = p.ends.res[k];
            if (k < p.ends.n_res) {
                unpack<0>(fetch<0>(r, offset(r, n, pixel, p.w) + c, lanes), r.dtype, res[k]);
            }
        }
        if (!p.one_pixel) {
            gate_at<TYPE>(p, offset(p.g, n, pixel, p.w), c, lanes, g);
        }
        unpack<TYPE>(x, p.x.dtype, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] *= g[i];
        }
        epilogue8<2, CURVES_EXACT>(p.ends, of, v, res);
        put<TYPE>(p.y, offset(p.y, n, pixel, p.w) + c, lanes, pack<TYPE>(v, p.y.dtype));
    }
}

} // namespace

#define MULTIPLY(name, type)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256, 3) name(const __grid_constant__ dvk_multiply_params p) {         \
        multiply<type>(p);                                                                                             \
    }

MULTIPLY(multiply_f32, DVK_F32)
MULTIPLY(multiply_f16, DVK_F16)
MULTIPLY(multiply_bf16, DVK_BF16)
MULTIPLY(multiply_any, 0)
