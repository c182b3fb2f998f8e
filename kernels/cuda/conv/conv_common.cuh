/* conv_common.cuh - device code shared by the universal convolutions: numbers of all types, activations, division,
 * group norm statistics. */
#ifndef DVK_CUDA_CONV_COMMON_CUH
#define DVK_CUDA_CONV_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/conv/conv_common.h"

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

CONV_DEVICE uint32_t conv_divide(uint32_t n, const dvk_conv_div &d) {
    const uint32_t q = d.inverse ? __umulhi(n, d.inverse) : n;
    return q - (q * d.by > n);
}

/* ---- numbers ---- */

CONV_DEVICE uint32_t conv_pack_f16(float a, float b) {
    const __half2 h = __floats2half2_rn(a, b);
    return *(const uint32_t *)&h;
}

CONV_DEVICE uint32_t conv_pack_bf16(float a, float b) {
    const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
    return *(const uint32_t *)&h;
}

CONV_DEVICE float2 conv_unpack_f16(uint32_t u) {
    return __half22float2(*(const __half2 *)&u);
}

CONV_DEVICE float2 conv_unpack_bf16(uint32_t u) {
    return make_float2(__uint_as_float(u << 16), __uint_as_float(u & 0xffff0000u));
}

CONV_DEVICE float2 conv_unpack(uint32_t u, int dtype) {
    return dtype == CONV_F16 ? conv_unpack_f16(u) : conv_unpack_bf16(u);
}

CONV_DEVICE float conv_load1(const void *p, int dtype, int at) {
    if (dtype == CONV_F32) {
        return ((const float *)p)[at];
    }
    const uint16_t u = ((const uint16_t *)p)[at];
    return dtype == CONV_F16 ? __half2float(__ushort_as_half(u)) : __uint_as_float((uint32_t)u << 16);
}

CONV_DEVICE void conv_unpack8(const uint4 &u, int dtype, float (&out)[8]) {
    const uint32_t w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 f = conv_unpack(w[i], dtype);
        out[2 * i] = f.x, out[2 * i + 1] = f.y;
    }
}

/* Stores one value; returns it as stored. */
CONV_DEVICE float conv_store1(void *data, int dtype, int at, float f) {
    if (dtype == CONV_F32) {
        ((float *)data)[at] = f;
        return f;
    }
    const uint32_t u = dtype == CONV_F16 ? conv_pack_f16(f, f) : conv_pack_bf16(f, f);
    ((uint16_t *)data)[at] = (uint16_t)u;
    return conv_unpack(u, dtype).x;
}

/* Types of operands: 16-byte pieces, and eight values in the storage type (RAW times 16 bytes). */
struct conv_half {
    enum { PER_PIECE = 8, DTYPE = CONV_F16, RAW = 1, BYTES = 2 };
    static __device__ __forceinline__ uint4 pack(const float (&v)[8]) {
        return make_uint4(conv_pack_f16(v[0], v[1]), conv_pack_f16(v[2], v[3]), conv_pack_f16(v[4], v[5]),
                          conv_pack_f16(v[6], v[7]));
    }
    static __device__ __forceinline__ void unpack(const uint4 &u, float (&v)[8]) {
        conv_unpack8(u, CONV_F16, v);
    }
    static __device__ __forceinline__ void store_shared(uint32_t at, float f) {
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(at), "h"((uint16_t)conv_pack_f16(f, f)) : "memory");
    }
};

struct conv_bfloat {
    enum { PER_PIECE = 8, DTYPE = CONV_BF16, RAW = 1, BYTES = 2 };
    static __device__ __forceinline__ uint4 pack(const float (&v)[8]) {
        return make_uint4(conv_pack_bf16(v[0], v[1]), conv_pack_bf16(v[2], v[3]), conv_pack_bf16(v[4], v[5]),
                          conv_pack_bf16(v[6], v[7]));
    }
    static __device__ __forceinline__ void unpack(const uint4 &u, float (&v)[8]) {
        conv_unpack8(u, CONV_BF16, v);
    }
    static __device__ __forceinline__ void store_shared(uint32_t at, float f) {
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(at), "h"((uint16_t)conv_pack_bf16(f, f)) : "memory");
    }
};

struct conv_float {
    enum { PER_PIECE = 4, DTYPE = CONV_F32, RAW = 2, BYTES = 4 };
    static __device__ __forceinline__ uint4 pack(const float (&v)[4]) {
        return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
    }
    static __device__ __forceinline__ void unpack(const uint4 &u, float (&v)[4]) {
        v[0] = __uint_as_float(u.x), v[1] = __uint_as_float(u.y), v[2] = __uint_as_float(u.z),
        v[3] = __uint_as_float(u.w);
    }
    static __device__ __forceinline__ void store_shared(uint32_t at, float f) {
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "f"(f) : "memory");
    }
};

struct conv_tfloat : conv_float { /* f32 rounded to the 10 bits of tf32 */
    static __device__ __forceinline__ float round(float f) {
        uint32_t u = __float_as_uint(f);
#if __CUDA_ARCH__ >= 800
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(f));
#endif
        return __uint_as_float(u);
    }
    static __device__ __forceinline__ uint4 pack(const float (&v)[4]) {
        const float r[4] = {round(v[0]), round(v[1]), round(v[2]), round(v[3])};
        return conv_float::pack(r);
    }
    static __device__ __forceinline__ void store_shared(uint32_t at, float f) {
        conv_float::store_shared(at, round(f));
    }
};

template <class T> CONV_DEVICE void conv_unpack_raw(const uint4 (&raw)[T::RAW], float (&v)[8]) {
    if constexpr (T::RAW == 1) {
        conv_unpack8(raw[0], T::DTYPE, v);
    } else {
#pragma unroll
        for (int i = 0; i < T::RAW; i++) {
            v[4 * i] = __uint_as_float(raw[i].x), v[4 * i + 1] = __uint_as_float(raw[i].y);
            v[4 * i + 2] = __uint_as_float(raw[i].z), v[4 * i + 3] = __uint_as_float(raw[i].w);
        }
    }
}

/* Stores v and replaces it by the rounded values. */
template <class T> CONV_DEVICE void conv_store_raw(char *to, float (&v)[8]) {
    if constexpr (T::RAW == 1) {
        const uint4 u = T::DTYPE == CONV_F16 ? conv_half::pack(v) : conv_bfloat::pack(v);
        *(uint4 *)to = u;
        conv_unpack8(u, T::DTYPE, v);
    } else {
        *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)(to + 16) = make_float4(v[4], v[5], v[6], v[7]);
    }
}

CONV_DEVICE float conv_reciprocal(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

CONV_DEVICE float conv_sigmoid(float x) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.44269504f));
    return conv_reciprocal(1.0f + e);
}

/* x * sigmoid(x) to about 11 bits, for results that are rounded to bf16. */
CONV_DEVICE float conv_silu_short(float x) {
    float t;
    asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(x * 0.5f));
    return fmaf(x * 0.5f, t, x * 0.5f);
}

/* The activations from GELU on. */
template <int N> CONV_DEVICE void conv_curve(float (&v)[N], int act) {
    if (act == CONV_GELU) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = act_gelu(v[i]);
        }
    } else if (act == CONV_MISH) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = act_mish(v[i]);
        }
    } else { /* tanh(x) = 2 sigmoid(2x) - 1 */
        const bool tanh = act == CONV_TANH;
        const float k = tanh ? 2.0f : 1.0f, below = tanh ? -1.0f : 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = fmaf(k, act_sigmoid(v[i] * k), below);
        }
    }
}

/* The activations that are linear on both sides of 0. */
template <int N> CONV_DEVICE void conv_slope(float (&v)[N], const float *slopes) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] = v[i] >= 0 ? v[i] : slopes[i] * v[i];
    }
}

/* One branch for N values. slopes: for the three activations that are linear on both sides of 0. 3 tanh(x / 3) = 6
 * sigmoid(2x / 3) - 3; its error near 0 is the rounding of 3, which is sufficient. CURVES: also those from GELU on. */
template <int N, bool CURVES = true> CONV_DEVICE void conv_act(float (&v)[N], int act, const float *slopes) {
    if (CURVES && act >= CONV_GELU) {
        conv_curve(v, act);
    } else if (act >= CONV_SILU) {
        const bool silu = act == CONV_SILU;
        const float k = silu ? 1.0f : 2.0f / 3.0f;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float s = conv_sigmoid(v[i] * k);
            v[i] = silu ? v[i] * s : fmaf(6.0f, s, -3.0f);
        }
    } else if (act) {
        conv_slope(v, slopes);
    }
}

/* The same for a prologue: no slopes, and of the transcendental ones only SILU and CLAMP3 (op.h). */
template <int N> CONV_DEVICE void conv_pro_act(float (&v)[N], int act) {
    const float zeros[N] = {};
    conv_act<N, false>(v, act, zeros);
}

struct conv_block { /* the block of output that a thread block computes */
    int64_t n;
    int y0, x0; /* first output pixel, within the phase */
    int n_tile, tile, phase;
};

/* ---- statistics: count, mean, and sum of squared differences from the mean ---- */

struct conv_moments {
    float n, mean, m2;
};

CONV_DEVICE conv_moments conv_merge(const conv_moments &a, const conv_moments &b) {
    conv_moments r;
    r.n = a.n + b.n;
    const float part = r.n > 0 ? b.n * conv_reciprocal(r.n) : 0.0f;
    const float delta = b.mean - a.mean;
    r.mean = fmaf(delta, part, a.mean);
    r.m2 = a.m2 + b.m2 + delta * delta * a.n * part;
    return r;
}

CONV_DEVICE conv_moments conv_merge_lanes(conv_moments a, int distance) {
    conv_moments b;
    b.n = __shfl_xor_sync(0xffffffffu, a.n, distance);
    b.mean = __shfl_xor_sync(0xffffffffu, a.mean, distance);
    b.m2 = __shfl_xor_sync(0xffffffffu, a.m2, distance);
    const bool upper = threadIdx.x & distance; /* both lanes merge in the same order, so both get the same bits */
    return upper ? conv_merge(b, a) : conv_merge(a, b);
}

/* Sums of differences from the first value of one channel. */
struct conv_channel_sums {
    float pivot, s, q;
};

CONV_DEVICE conv_moments conv_sums_moments(const conv_channel_sums &c, float n) {
    conv_moments m;
    const float inv = n > 0 ? conv_reciprocal(n) : 0.0f;
    m.n = n;
    m.mean = fmaf(c.s, inv, c.pivot);
    m.m2 = fmaxf(c.q - c.s * c.s * inv, 0.0f);
    return m;
}

/* Merges parts[rows][channels] of a block, first channel n0, into its groups; eight lanes per group. All threads call
 * it. */
CONV_DEVICE void conv_store_stats(const dvk_conv_epi &e, const conv_moments *parts, int rows, int channels, int n0,
                                  int64_t chunk) {
    const int per = e.group_channels;
    const int groups = (min(channels, e.c_out - n0) + per - 1) / per;
    const int lane = threadIdx.x & 7;
    for (int g0 = 0; g0 < groups; g0 += blockDim.x >> 3) {
        const int g = g0 + (threadIdx.x >> 3);
        conv_moments m = {0, 0, 0};
        if (g < groups) {
            for (int i = lane; i < per * rows; i += 8) {
                m = conv_merge(m, parts[i / per * channels + g * per + i % per]);
            }
        }
        m = conv_merge_lanes(m, 4);
        m = conv_merge_lanes(m, 2);
        m = conv_merge_lanes(m, 1);
        if (g < groups && lane == 0) {
            float *out = e.stats + (chunk * e.groups + n0 / per + g) * 3;
            out[0] = m.n, out[1] = m.mean, out[2] = m.m2;
        }
    }
}

#endif
