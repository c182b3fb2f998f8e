// winograd_input_sm90.cu - transforms pictures along the width for convolutions of three taps, after a prologue. A
// thread has fixed eight channels of a strip of a row. Of the six pixels of a quad, two are shared with the previous
// quad. The code must be short: at the memory rate, a scheduler has 37 clocks for eight values of a warp.
#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/elem_epilogue.cuh"
#include "kernels/cuda/conv/winograd_input.h"

namespace {

enum { STEP = DVK_WINOGRAD_STEP, LINES = DVK_WINOGRAD_LINES, PIXELS = DVK_WINOGRAD_PIXELS };

struct half8 {
    __half2 v[4];
};

// Rounds; NaN stays NaN, all other values stay finite.
__device__ __forceinline__ __half2 finite(float low, float high) {
    uint32_t r;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return *(__half2 *)&r;
}

// supports() has already checked the view.
template <int TYPE> __device__ __forceinline__ raw8 pixel(const dvk_elem_view &v, int64_t at) {
    raw8 r = {};
    const uint4 *from = (const uint4 *)((const char *)v.data + at * (TYPE == DVK_F32 ? 4 : 2));
    r.a = from[0];
    if (TYPE == DVK_F32) {
        r.b = from[1];
    }
    return r;
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
        v[i] *= act_sigmoid(v[i]);
    }
#pragma unroll
    for (int i = 0; act == DVK_ACT_RELU && i < 8; i++) {
        v[i] = activated_short(DVK_ACT_RELU, v[i], 0.0f);
    }
    half8 r;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        r.v[i] = finite(v[2 * i], v[2 * i + 1]);
    }
    return r;
}

struct lines {
    float v[LINES];
    __device__ __forceinline__ explicit lines(const float (&d)[LINES]) {
        const float even1 = fmaf(-2.25f, d[2], d[4]), odd1 = fmaf(-2.25f, d[1], d[3]);
        const float even2 = fmaf(-0.5625f, d[2], d[4]), odd2 = fmaf(-0.5625f, d[1], d[3]);
        v[0] = fmaf(1.265625f, d[0], fmaf(-2.8125f, d[2], d[4]));
        v[1] = fmaf(0.75f, odd1, even1);
        v[2] = fmaf(-0.75f, odd1, even1);
        v[3] = fmaf(1.5f, odd2, even2);
        v[4] = fmaf(-1.5f, odd2, even2);
        v[5] = fmaf(1.265625f, d[1], fmaf(-2.8125f, d[3], d[5]));
    }
};

// Transform of the pixels of a quad.
__device__ __forceinline__ void transformed(const half8 (&d)[LINES], half8 (&y)[LINES]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low[LINES], high[LINES];
#pragma unroll
        for (int k = 0; k < LINES; k++) {
            low[k] = __low2float(d[k].v[i]);
            high[k] = __high2float(d[k].v[i]);
        }
        const lines l(low), h(high);
#pragma unroll
        for (int k = 0; k < LINES; k++) {
            y[k].v[i] = finite(l.v[k], h.v[k]);
        }
    }
}

__device__ __forceinline__ void put_lines(__half *y, int64_t sh, const half8 (&v)[LINES]) {
#pragma unroll
    for (int line = 0; line < LINES; line++, y += sh) {
        *(uint4 *)y = *(const uint4 *)&v[line];
    }
}

// Stores the first four of six pixels of a quad, of which `there` exist; the last two belong to the next one.
__device__ __forceinline__ void put_pixels(__half *to, int64_t sw, const half8 (&d)[LINES], int there) {
#pragma unroll
    for (int k = 0; k < PIXELS; k++) {
        if (k < there) {
            *(uint4 *)(to + k * sw) = *(const uint4 *)&d[1 + k];
        }
    }
}

template <int TYPE, bool NORM> __device__ __forceinline__ void transform(const dvk_winograd_input_params &p) {
    wait_for_launch_ahead();
    const uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t c0 = item % p.chunks * 8, strip = item / p.chunks % p.strips, row = item / p.chunks / p.strips;
    if (row >= p.n * p.h) {
        return;
    }
    const uint32_t n = row / p.h, first = strip * p.quads, quads = (p.w + PIXELS - 1) / PIXELS;
    const int64_t from = n * p.x.sn + (row - n * p.h) * p.x.sh + c0;
    float scale[8], shift[8];
    channel_values(NORM ? p.scale : nullptr, ((int64_t)n * p.chunks) * 8 + c0, 8, scale, 1.0f);
    channel_values(NORM ? p.shift : nullptr, ((int64_t)n * p.chunks) * 8 + c0, 8, shift, 0.0f);
    const half8 zero = {};
    half8 d[LINES];
    d[0] = zero;
    if (first > 0) {
        d[0] = ready<TYPE, NORM>(pixel<TYPE>(p.x, from + (PIXELS * first - 1) * p.x.sw), scale, shift, p.act);
    }
    d[1] = ready<TYPE, NORM>(pixel<TYPE>(p.x, from + PIXELS * first * p.x.sw), scale, shift, p.act);
    __half *y = (__half *)p.y.data + n * p.y.sn + (row - n * p.h) * LINES * p.y.sh + first * p.y.sw + c0;
    const uint32_t left = min(p.quads, quads - first), repeats = n == 0 ? (uint32_t)p.repeats : 0;
    const bool keeps = n >= p.kept_from && row - n * p.h < p.kept_rows;
    __half *kept = (__half *)p.kept.data + (keeps ? (n - p.kept_from) * p.kept.sn : 0) + (row - n * p.h) * p.kept.sh +
                   PIXELS * first * p.kept.sw + c0;
    int64_t at = from + (PIXELS * first + 1) * p.x.sw;
    int pixels = (int)(p.w - PIXELS * first) - 1; // number of pixels from `at` on
    for (uint32_t quad = 0; quad < left; quad += STEP, pixels -= STEP * PIXELS) {
        raw8 raw[STEP * PIXELS];
#pragma unroll
        for (int i = 0; i < STEP * PIXELS; i++, at += p.x.sw) {
            if (i < pixels) {
                raw[i] = pixel<TYPE>(p.x, at);
            }
        }
#pragma unroll
        for (int i = 0; i < STEP; i++, y += p.y.sw) {
            if (quad + i >= left) {
                break;
            }
#pragma unroll
            for (int k = 0; k < PIXELS; k++) {
                d[2 + k] = i * PIXELS + k < pixels ? ready<TYPE, NORM>(raw[i * PIXELS + k], scale, shift, p.act) : zero;
            }
            half8 v[LINES];
            transformed(d, v);
            put_lines(y, p.y.sh, v);
#pragma unroll 1
            for (uint32_t k = 1; k <= repeats; k++) {
                put_lines(y + k * p.repeat_step, p.y.sh, v);
            }
            if (keeps) {
                put_pixels(kept, p.kept.sw, d, pixels - i * PIXELS + 1);
                kept += PIXELS * p.kept.sw;
            }
            d[0] = d[4];
            d[1] = d[5];
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
