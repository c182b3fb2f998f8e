// pointwise.cu - y = epi(pro(x)). A thread keeps to eight channels, whose parameters stay in registers, and goes from
// pixel to pixel; y may be the memory of x or of a residual, as every element is read by the thread that writes it.
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/pointwise.h"

namespace {

__device__ __forceinline__ void channel_values(const float *p, int64_t at, int count, float (&v)[8], float none) {
    if (p != nullptr && count == 8 && (uintptr_t)(p + at) % 16 == 0) {
        const float4 a = *(const float4 *)(p + at), b = *(const float4 *)(p + at + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = p != nullptr && i < count ? p[at + i] : none;
    }
}

__device__ __forceinline__ void activate8(int act, float (&v)[8], const float (&slopes)[8]) {
    if (act == DVK_ACT_NONE) {
        return;
    }
    if (act == DVK_ACT_SILU) { // alone: the others are short, and CLAMP3 is rare
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = activated(DVK_ACT_SILU, v[i], 0.0f);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = activated(act, v[i], slopes[i]);
    }
}

struct channels { // parameters of a thread's channels
    float scale[8], shift[8], bias[8], slopes[8];
};

template <int NRES>
__device__ __forceinline__ void epilogue8(const dvk_pointwise_params &p, const channels &of, float (&v)[8],
                                          const float (&res)[2][8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] += of.bias[i];
    }
    if (NRES > 0 && p.gate) {
#pragma unroll
        for (int i = 0; i < 8; i++) { // sigmoid(t) - 0.5 without its cancellation
            v[i] = (v[i] + res[0][i]) * (0.5f * tanhf(0.5f * v[i]));
        }
        return;
    }
    if (!p.act_last) {
        activate8(p.act, v, of.slopes);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] *= p.alpha;
        if (NRES > 0) {
            v[i] += p.beta[0] * res[0][i];
        }
        if (NRES > 1 && p.n_res > 1) {
            v[i] += p.beta[1] * res[1][i];
        }
    }
    if (p.act_last) {
        activate8(p.act, v, of.slopes);
    }
}

__device__ __forceinline__ int64_t offset(const dvk_elem_view &v, int64_t n, int64_t pixel, int32_t w) {
    if (w == 0) {
        return n * v.sn + pixel * v.sw;
    }
    const uint32_t row = (uint32_t)pixel / (uint32_t)w;
    return n * v.sn + row * v.sh + (pixel - (int64_t)row * w) * v.sw;
}

template <int TYPE, int NRES, bool PRO> __device__ __forceinline__ void pointwise(const dvk_pointwise_params &p) {
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
    channel_values(PRO ? p.scale : nullptr, n * p.c + c0, lanes, of.scale, 1.0f);
    channel_values(PRO ? p.shift : nullptr, n * p.c + c0, lanes, of.shift, 0.0f);
    channel_values(p.bias, c0, lanes, of.bias, 0.0f);
    channel_values(p.slopes, c0, lanes, of.slopes, p.slope);
    for (int64_t first = thread / (uint32_t)p.chunks; first < p.pixels; first += (int64_t)AT_ONCE * step) {
        raw8 x[AT_ONCE], res[AT_ONCE][2];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int64_t pixel = first + (int64_t)u * step;
            if (pixel < p.pixels) {
                const int count = p.tail > 0 && pixel == p.pixels - 1 ? p.tail : lanes;
                x[u] = fetch<TYPE>(p.x, offset(p.x, n, pixel, p.w) + c0, count);
                if (NRES > 0 && (TYPE || p.n_res > 0)) {
                    res[u][0] = fetch<TYPE>(p.res[0], offset(p.res[0], n, pixel, p.w) + c0, count);
                }
                if (NRES > 1 && p.n_res > 1) {
                    res[u][1] = fetch<TYPE>(p.res[1], offset(p.res[1], n, pixel, p.w) + c0, count);
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
                if (NRES > 0 && (TYPE || p.n_res > 0)) {
                    unpack<TYPE>(res[u][0], p.res[0].dtype, r[0]);
                }
                if (NRES > 1 && p.n_res > 1) {
                    unpack<TYPE>(res[u][1], p.res[1].dtype, r[1]);
                }
#pragma unroll
                for (int i = 0; PRO && i < 8; i++) {
                    v[i] = fmaf(v[i], of.scale[i], of.shift[i]);
                }
                activate8(p.pro_act, v, of.slopes);
                epilogue8<NRES>(p, of, v, r);
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
