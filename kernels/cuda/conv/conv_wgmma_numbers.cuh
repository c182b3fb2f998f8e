/* conv_wgmma_numbers.cuh - storage types and activations. */
#ifndef DVK_CUDA_CONV_WGMMA_NUMBERS_CUH
#define DVK_CUDA_CONV_WGMMA_NUMBERS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/conv/conv_wgmma.h"

#define CONV_DEVICE static __device__ __forceinline__

enum { CONV_F32 = 1, CONV_F16 = 2, CONV_BF16 = 3 }; /* dvk_dtype */
enum { /* dvk_act */
       CONV_RELU = 1,
       CONV_LRELU,
       CONV_PRELU,
       CONV_SILU,
       CONV_CLAMP3,
       CONV_GELU,
       CONV_SIGMOID,
       CONV_TANH,
       CONV_MISH
};
enum { CONV_GATE_TIMES = 2 }; /* of dvk_epilogue */

struct wgmma_half {
    enum { DTYPE = CONV_F16 };
    static __device__ __forceinline__ uint32_t pack(float a, float b) {
        const __half2 h = __floats2half2_rn(a, b);
        return *(const uint32_t *)&h;
    }
    static __device__ __forceinline__ float2 unpack(uint32_t u) {
        return __half22float2(*(const __half2 *)&u);
    }
};

struct wgmma_bfloat {
    enum { DTYPE = CONV_BF16 };
    static __device__ __forceinline__ uint32_t pack(float a, float b) {
        const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
        return *(const uint32_t *)&h;
    }
    static __device__ __forceinline__ float2 unpack(uint32_t u) {
        return make_float2(__uint_as_float(u << 16), __uint_as_float(u & 0xffff0000u));
    }
};

CONV_DEVICE float load_element(const dvk_conv_view &v, int64_t at) {
    if (v.dtype == CONV_F32) {
        return ((const float *)v.data)[at];
    }
    const uint32_t u = ((const uint16_t *)v.data)[at];
    return v.dtype == CONV_F16 ? wgmma_half::unpack(u).x : wgmma_bfloat::unpack(u).x;
}

CONV_DEVICE void store_element(const dvk_conv_view &v, int64_t at, float f) {
    if (v.dtype == CONV_F32) {
        ((float *)v.data)[at] = f;
    } else {
        ((uint16_t *)v.data)[at] = (uint16_t)(v.dtype == CONV_F16 ? wgmma_half::pack(f, f) : wgmma_bfloat::pack(f, f));
    }
}

CONV_DEVICE float sigmoid_of(float x) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

/* Activations to the accuracy of 16-bit storage: tanh in hardware has an error of 2^-11. */
template <int ACT> CONV_DEVICE float conv_act_fast(float x) {
    if (ACT == CONV_RELU) {
        return fmaxf(x, 0.0f);
    }
    if (ACT == CONV_SILU) {
        float t;
        const float h = 0.5f * x;
        asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(h));
        return fmaf(h, t, h);
    }
    if (ACT == CONV_CLAMP3) {
        return 3.0f * tanhf(x * (1.0f / 3.0f));
    }
    return x;
}

/* SIGMOID or TANH as 1 +- a tanh of a multiple of x, without a branch. */
struct conv_bend {
    float in, out, add;
    __device__ __forceinline__ conv_bend(int act)
        : in(act == CONV_TANH ? 1.0f : 0.5f), out(in), add(act == CONV_TANH ? 0.0f : 0.5f) {}
    __device__ __forceinline__ float operator()(float x) const {
        float t;
        asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(in * x));
        return fmaf(out, t, add);
    }
};

/* The activations from GELU on, with one branch for eight values. */
CONV_DEVICE void conv_curve_fast(float (&v)[8], int act) {
    if (act == CONV_MISH) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = act_mish(v[i]);
        }
    } else if (act == CONV_GELU) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = act_gelu_short(v[i]);
        }
    } else {
        const conv_bend bend(act);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = bend(v[i]);
        }
    }
}

#endif
