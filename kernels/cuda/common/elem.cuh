// elem.cuh - processes eight channels of a pixel at a time: loads, stores and conversions to f32, activations, the wait
// of an overlapping launch. A template argument TYPE of 0 means that the view's dtype decides at run time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/elem.h"
#include "kernels/op.h"

struct raw8 { // eight elements as stored: 16-bit types use a alone
    uint4 a, b;
};

// Call before the first access to memory. The next launch of the stream may start its setup from here on; it waits
// likewise.
__device__ __forceinline__ void wait_for_launch_ahead() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ float f32_of(uint32_t bits16, int type) {
    return type == DVK_BF16 ? __uint_as_float(bits16 << 16)
                            : __half2float(__ushort_as_half((unsigned short)(bits16 & 0xffffu)));
}

__device__ __forceinline__ uint32_t bits_of(float v, int type) {
    return type == DVK_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(v)) : __half_as_ushort(__float2half_rn(v));
}

__device__ __forceinline__ float load1(const void *p, int type, int64_t at) {
    return type == DVK_F32 ? ((const float *)p)[at] : f32_of(((const uint16_t *)p)[at], type);
}

__device__ __forceinline__ void store1(void *p, int type, int64_t at, float v) {
    if (type == DVK_F32) {
        ((float *)p)[at] = v;
    } else {
        ((uint16_t *)p)[at] = (uint16_t)bits_of(v, type);
    }
}

template <int TYPE> __device__ __forceinline__ raw8 fetch(const dvk_elem_view &v, int64_t at, int count) {
    const int type = TYPE ? TYPE : v.dtype;
    raw8 r = {};
    if (type == DVK_F32) {
        const float *p = (const float *)v.data + at;
        if (v.vector && count == 8) {
            r.a = *(const uint4 *)p;
            r.b = *(const uint4 *)(p + 4);
        } else {
            uint32_t w[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                w[i] = i < count ? __float_as_uint(p[i]) : 0;
            }
            r.a = make_uint4(w[0], w[1], w[2], w[3]);
            r.b = make_uint4(w[4], w[5], w[6], w[7]);
        }
        return r;
    }
    const uint16_t *p = (const uint16_t *)v.data + at;
    if (v.vector && count == 8) {
        r.a = *(const uint4 *)p;
    } else {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            w[i] = (2 * i < count ? p[2 * i] : 0u) | (2 * i + 1 < count ? (uint32_t)p[2 * i + 1] << 16 : 0u);
        }
        r.a = make_uint4(w[0], w[1], w[2], w[3]);
    }
    return r;
}

template <int TYPE> __device__ __forceinline__ void unpack(const raw8 &r, int type, float (&v)[8]) {
    type = TYPE ? TYPE : type;
    const uint32_t a[4] = {r.a.x, r.a.y, r.a.z, r.a.w};
    const uint32_t b[4] = {r.b.x, r.b.y, r.b.z, r.b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (type == DVK_F32) {
            v[i] = __uint_as_float(a[i]);
            v[i + 4] = __uint_as_float(b[i]);
        } else if (type == DVK_BF16) {
            v[2 * i] = __uint_as_float(a[i] << 16);
            v[2 * i + 1] = __uint_as_float(a[i] & 0xffff0000u);
        } else {
            v[2 * i] = f32_of(a[i], DVK_F16);
            v[2 * i + 1] = f32_of(a[i] >> 16, DVK_F16);
        }
    }
}

template <int TYPE> __device__ __forceinline__ raw8 pack(const float (&v)[8], int type) {
    type = TYPE ? TYPE : type;
    raw8 r = {};
    uint32_t w[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        w[i] = type == DVK_F32 ? __float_as_uint(v[i]) : 0;
    }
    if (type != DVK_F32) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            w[i] = bits_of(v[2 * i], type) | bits_of(v[2 * i + 1], type) << 16;
        }
    }
    r.a = make_uint4(w[0], w[1], w[2], w[3]);
    r.b = make_uint4(w[4], w[5], w[6], w[7]);
    return r;
}

template <int TYPE> __device__ __forceinline__ void put(const dvk_elem_view &v, int64_t at, int count, const raw8 &r) {
    const int type = TYPE ? TYPE : v.dtype;
    const uint32_t w[8] = {r.a.x, r.a.y, r.a.z, r.a.w, r.b.x, r.b.y, r.b.z, r.b.w};
    if (type == DVK_F32) {
        float *p = (float *)v.data + at;
        if (v.vector && count == 8) {
            *(uint4 *)p = r.a;
            *(uint4 *)(p + 4) = r.b;
            return;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i < count) {
                p[i] = __uint_as_float(w[i]);
            }
        }
        return;
    }
    uint16_t *p = (uint16_t *)v.data + at;
    if (v.vector && count == 8) {
        *(uint4 *)p = r.a;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i < count) {
            p[i] = (uint16_t)(w[i / 2] >> (i % 2 * 16));
        }
    }
}

// Converts r, stored as type `from`, to type `to`.
__device__ __forceinline__ raw8 converted(const raw8 &r, int from, int to) {
    if (from == to) {
        return r;
    }
    float v[8];
    unpack<0>(r, from, v);
    return pack<0>(v, to);
}

// The activations that pointwise code inlines for every element. The transcendental ones have separate code.
__device__ __forceinline__ float activated_short(int act, float x, float slope) {
    switch (act) {
    case DVK_ACT_RELU:
        return x < 0.0f ? 0.0f : x;
    case DVK_ACT_LRELU:
    case DVK_ACT_PRELU:
        return x >= 0.0f ? x : slope * x;
    case DVK_ACT_SILU: // exp(88.7) and above: the quotient is zero, which is correct
        return __fdividef(x, 1.0f + __expf(-x));
    case DVK_ACT_CLAMP3:
        return 3.0f * tanhf(x * (1.0f / 3.0f));
    default:
        return x;
    }
}

// All activations, to a few units in the last place.
__device__ __forceinline__ float activated(int act, float x, float slope) {
    switch (act) {
    case DVK_ACT_GELU:
        return 0.5f * x * erfcf(x * -0.70710678f);
    case DVK_ACT_SIGMOID:
        return 1.0f / (1.0f + expf(-x));
    case DVK_ACT_TANH:
        return tanhf(x);
    case DVK_ACT_MISH: {
        const float e = expf(fminf(x, 20.0f)), n = e * (e + 2.0f);
        return x * (n / (n + 2.0f));
    }
    default:
        return activated_short(act, x, slope);
    }
}

// The same for results that are rounded to 16 bits.
__device__ __forceinline__ float activated_fast(int act, float x, float slope) {
    switch (act) {
    case DVK_ACT_GELU:
        return act_gelu_short(x);
    case DVK_ACT_SIGMOID:
        return act_sigmoid(x);
    case DVK_ACT_TANH:
        return act_tanh(x);
    case DVK_ACT_MISH:
        return act_mish(x);
    default:
        return activated_short(act, x, slope);
    }
}

// The loop of a thread of dvk_elem_launch_rows over its rows and their items, both uint32_t.
#define ROWS_AND_ITEMS(row, rows, item, items)                                                                         \
    for (uint32_t row = blockIdx.y; row < (uint32_t)(rows); row += gridDim.y)                                          \
        for (uint32_t item = blockIdx.x * blockDim.x + threadIdx.x; item < (uint32_t)(items);                          \
             item += gridDim.x * blockDim.x)
