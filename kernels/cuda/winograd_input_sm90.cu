// winograd_input_sm90.cu - pictures transformed along the width for convolutions of three taps, after a prologue. A thread keeps
// to eight channels and goes along a strip of a row: of the four pixels that a pair of columns takes, two are those of the
// pair before.
#include "kernels/cuda/elem_epilogue.cuh"
#include "kernels/cuda/winograd_input.h"

namespace {

enum { PAIRS = DVK_WINOGRAD_PAIRS };

struct half8 {
    __half2 v[4];
};

// NaN stays NaN, the rest stays finite.
__device__ __forceinline__ __half2 clamped(__half2 v) {
    const __half2 most = __float2half2_rn(65504.0f), least = __float2half2_rn(-65504.0f);
    return __hmax2_nan(__hmin2_nan(v, most), least);
}

template <int TYPE, bool NORM>
__device__ __forceinline__ half8 ready(const raw8 &raw, const float (&scale)[8], const float (&shift)[8], int act) {
    float v[8];
    unpack<TYPE>(raw, TYPE, v);
#pragma unroll
    for (int i = 0; NORM && i < 8; i++) {
        v[i] = fmaf(v[i], scale[i], shift[i]);
    }
#pragma unroll
    for (int i = 0; act == DVK_ACT_SILU && i < 8; i++) {
        v[i] = activated_short(DVK_ACT_SILU, v[i], 0.0f);
    }
#pragma unroll
    for (int i = 0; act == DVK_ACT_RELU && i < 8; i++) {
        v[i] = activated_short(DVK_ACT_RELU, v[i], 0.0f);
    }
    half8 r;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        r.v[i] = clamped(__floats2half2_rn(v[2 * i], v[2 * i + 1]));
    }
    return r;
}

template <bool SUM> __device__ __forceinline__ uint4 combined(const half8 &a, const half8 &b) {
    half8 r;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        r.v[i] = clamped(SUM ? __hadd2(a.v[i], b.v[i]) : __hsub2(a.v[i], b.v[i]));
    }
    return *(const uint4 *)&r;
}

__device__ __forceinline__ void put4(__half *y, int64_t sh, const half8 &d0, const half8 &d1, const half8 &d2,
                                     const half8 &d3) {
    *(uint4 *)y = combined<false>(d0, d2);
    *(uint4 *)(y + sh) = combined<true>(d1, d2);
    *(uint4 *)(y + 2 * sh) = combined<false>(d2, d1);
    *(uint4 *)(y + 3 * sh) = combined<false>(d1, d3);
}

template <int TYPE, bool NORM> __device__ __forceinline__ void transform(const dvk_winograd_input_params &p) {
    wait_for_launch_ahead();
    const uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t c0 = item % p.chunks * 8, strip = item / p.chunks % p.strips, row = item / p.chunks / p.strips;
    if (row >= p.n * p.h) {
        return;
    }
    const uint32_t n = row / p.h, first = strip * p.pairs;
    const int64_t from = n * p.x.sn + (row - n * p.h) * p.x.sh + c0;
    __half *y = (__half *)p.y.data + n * p.y.sn + (row - n * p.h) * 4 * p.y.sh + c0;
    float scale[8], shift[8];
    channel_values(NORM ? p.scale : nullptr, ((int64_t)n * p.chunks) * 8 + c0, 8, scale, 1.0f);
    channel_values(NORM ? p.shift : nullptr, ((int64_t)n * p.chunks) * 8 + c0, 8, shift, 0.0f);
    const half8 zero = {};
    half8 d0 = zero;
    if (first > 0) {
        d0 = ready<TYPE, NORM>(fetch<TYPE>(p.x, from + (2 * first - 1) * p.x.sw, 8), scale, shift, p.act);
    }
    half8 d1 = ready<TYPE, NORM>(fetch<TYPE>(p.x, from + 2 * first * p.x.sw, 8), scale, shift, p.act);
    const uint32_t pairs = (p.w + 1) / 2, last = min(first + p.pairs, pairs);
    for (uint32_t pair = first; pair < last; pair += PAIRS) {
        raw8 raw[2 * PAIRS];
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; i++) {
            if (2 * pair + 1 + i < p.w) {
                raw[i] = fetch<TYPE>(p.x, from + (2 * pair + 1 + i) * p.x.sw, 8);
            }
        }
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const uint32_t column = 2 * (pair + i);
            if (pair + i < last) {
                const half8 d2 = column + 1 < p.w ? ready<TYPE, NORM>(raw[2 * i], scale, shift, p.act) : zero;
                const half8 d3 = column + 2 < p.w ? ready<TYPE, NORM>(raw[2 * i + 1], scale, shift, p.act) : zero;
                for (int64_t k = 0; k <= (n == 0 ? p.repeats : 0); k++) {
                    put4(y + (pair + i) * p.y.sw + k * p.repeat_step, p.y.sh, d0, d1, d2, d3);
                }
                d0 = d2;
                d1 = d3;
            }
        }
    }
}

} // namespace

#define WINOGRAD_INPUT(name, type, norm)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, type == DVK_F32 ? 1 : 2)                                         \
        name(const __grid_constant__ dvk_winograd_input_params p) {                                                    \
        transform<type, norm>(p);                                                                                      \
    }

WINOGRAD_INPUT(winograd_input_f32, DVK_F32, false)
WINOGRAD_INPUT(winograd_input_f32_norm, DVK_F32, true)
WINOGRAD_INPUT(winograd_input_f16, DVK_F16, false)
WINOGRAD_INPUT(winograd_input_f16_norm, DVK_F16, true)
WINOGRAD_INPUT(winograd_input_bf16, DVK_BF16, false)
WINOGRAD_INPUT(winograd_input_bf16_norm, DVK_BF16, true)
