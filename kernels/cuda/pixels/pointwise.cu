// pointwise.cu - y = epi(pro(x)). A thread processes fixed eight channels, whose parameters stay in registers, of a
// sequence of pixels. The thread that writes an element also reads it, so y may alias x or a residual.
#include "kernels/cuda/common/elem_epilogue.cuh"
#include "kernels/cuda/pixels/pointwise.h"

namespace {

__device__ __forceinline__ int64_t offset(const dvk_elem_view &v, int64_t n, int64_t pixel, int32_t w) {
    if (w == 0) {
        return n * v.sn + pixel * v.sw;
    }
    const uint32_t row = (uint32_t)pixel / (uint32_t)w;
    return n * v.sn + row * v.sh + (pixel - (int64_t)row * w) * v.sw;
}

template <int TYPE, int NRES, bool PRO> __device__ __forceinline__ void pointwise(const dvk_pointwise_params &p) {
    constexpr int CURVES = TYPE == 0 ? CURVES_EXACT : CURVES_NONE;
    enum { AT_ONCE = TYPE == DVK_F32 || NRES > 0 ? 2 : 4 };
    wait_for_launch_ahead();
    const int64_t n = blockIdx.y;
    const uint32_t step = gridDim.x * blockDim.x / (uint32_t)p.chunks; // pixels side by side
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= step * (uint32_t)p.chunks) {
        return;
    }
    const int c0 = (int)(thread % (uint32_t)p.chunks) * 8;
    const int lanes = min(8, p.c - c0);
    channels of;
    channel_values(PRO ? p.ends.scale : nullptr, n * p.c + c0, lanes, of.scale, 1.0f);
    channel_values(PRO ? p.ends.shift : nullptr, n * p.c + c0, lanes, of.shift, 0.0f);
    channel_values(p.ends.bias, c0, lanes, of.bias, 0.0f);
    channel_values(p.ends.slopes, c0, lanes, of.slopes, p.ends.slope);
    for (int64_t first = thread / (uint32_t)p.chunks; first < p.pixels; first += (int64_t)AT_ONCE * step) {
        raw8 x[AT_ONCE], res[AT_ONCE][2];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int64_t pixel = first + (int64_t)u * step;
            if (pixel < p.pixels) {
                const int count = p.tail > 0 && pixel == p.pixels - 1 ? p.tail : lanes;
                x[u] = fetch<TYPE>(p.x, offset(p.x, n, pixel, p.w) + c0, count);
                if (NRES > 0 && (TYPE || p.ends.n_res > 0)) {
                    res[u][0] = fetch<TYPE>(p.ends.res[0], offset(p.ends.res[0], n, pixel, p.w) + c0, count);
                }
                if (NRES > 1 && p.ends.n_res > 1) {
                    res[u][1] = fetch<TYPE>(p.ends.res[1], offset(p.ends.res[1], n, pixel, p.w) + c0, count);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int64_t pixel = first + (int64_t)u * step;
            if (pixel < p.pixels) {
                const int count = p.tail > 0 && pixel == p.pixels - 1 ? p.tail : lanes;
                float v[8], r[2][8] = {};
                unpack<TYPE>(x[u], p.x.dtype, v);
                if (NRES > 0 && (TYPE || p.ends.n_res > 0)) {
                    unpack<TYPE>(res[u][0], p.ends.res[0].dtype, r[0]);
                }
                if (NRES > 1 && p.ends.n_res > 1) {
                    unpack<TYPE>(res[u][1], p.ends.res[1].dtype, r[1]);
                }
#pragma unroll
                for (int i = 0; PRO && i < 8; i++) {
                    v[i] = fmaf(v[i], of.scale[i], of.shift[i]);
                }
                activate8<CURVES>(p.ends.pro_act, v, of.slopes);
                epilogue8<NRES, CURVES>(p.ends, of, v, r);
                put<TYPE>(p.y, offset(p.y, n, pixel, p.w) + c0, count, pack<TYPE>(v, p.y.dtype));
            }
        }
    }
}

} // namespace

#define POINTWISE(name, type, nres, pro)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, nres > 1 || (nres > 0 && pro) ? 2 : 3)                           \
        name(const __grid_constant__ dvk_pointwise_params p) {                                                         \
        pointwise<type, nres, pro>(p);                                                                                 \
    }
#define POINTWISE_OF(name, type)                                                                                       \
    POINTWISE(pointwise_##name, type, 0, false)                                                                        \
    POINTWISE(pointwise_##name##_res, type, 1, false)                                                                  \
    POINTWISE(pointwise_##name##_norm, type, 0, true)                                                                  \
    POINTWISE(pointwise_##name##_norm_res, type, 1, true)

POINTWISE_OF(f32, DVK_F32)
POINTWISE_OF(f16, DVK_F16)
POINTWISE_OF(bf16, DVK_BF16)
POINTWISE(pointwise_any, 0, 2, true)
