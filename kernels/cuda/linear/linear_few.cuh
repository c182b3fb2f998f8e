// linear_few.cuh - parts of linear_few.cu: products of 16 bytes of weights with x in shared memory.
#pragma once

#include "kernels/cuda/linear/linear_few_x.cuh"
#include "kernels/cuda/linear/linear_scales.cuh"

struct few_chunk {
    uint4 w;
    uint2 head; // head of its block, or heads of a pair of blocks
};

__device__ __forceinline__ uint4 stream16(const unsigned char *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

__device__ __forceinline__ void look_ahead(const unsigned char *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

template <int KIND>
__device__ __forceinline__ few_chunk load_chunk(const dvk_linear_few_params &p, int64_t row, int chunk) {
    few_chunk c;
    c.w = stream16(p.w + row * p.w_row + (int64_t)chunk * 16);
    c.head = make_uint2(0, 0);
    if constexpr (!is_float<KIND>()) {
        const int block = chunk * chunk_elements<KIND>() / LIN_BLOCK;
        const unsigned char *s = p.scales + row * p.scale_row;
        if constexpr (in_pairs<KIND>()) {
            c.head = __ldg((const uint2 *)s + block / 2);
        } else {
            c.head.x = dvk_lin_halves((lin_kind)KIND) == 1 ? (uint32_t)__ldg((const uint16_t *)s + block)
                                                           : __ldg((const uint32_t *)s + block);
        }
    }
    return c;
}

__device__ __forceinline__ int dot4(uint32_t u, uint32_t s, int sum) {
    int d;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(u), "r"(s), "r"(sum));
    return d;
}

// ---- products ----

template <int KIND> __device__ __forceinline__ void widen(const uint4 &w, float (&v)[8]) {
    raw8 r = {};
    r.a = w;
    unpack<KIND == LIN_F32 ? DVK_F32 : KIND == LIN_F16 ? DVK_F16 : DVK_BF16>(r, 0, v);
}

template <int KIND, int M, int R>
__device__ __forceinline__ void add_float(const few_chunk (&c)[R], const uint4 *x, int row, int phase, int at,
                                          float (&sum)[R * M]) {
    constexpr int E = chunk_elements<KIND>();
    float w[R][8];
#pragma unroll
    for (int r = 0; r < R; r++) {
        widen<KIND>(c[r].w, w[r]);
    }
#pragma unroll
    for (int t = 0; t < M; t++) {
        float v[8];
#pragma unroll
        for (int h = 0; h < E / 4; h++) {
            const uint4 u = x[t * row + h * phase + at];
            v[4 * h] = __uint_as_float(u.x);
            v[4 * h + 1] = __uint_as_float(u.y);
            v[4 * h + 2] = __uint_as_float(u.z);
            v[4 * h + 3] = __uint_as_float(u.w);
        }
#pragma unroll
        for (int i = 0; i < E; i++) {
#pragma unroll
            for (int r = 0; r < R; r++) {
                sum[r * M + t] = fmaf(w[r][i], v[i], sum[r * M + t]);
            }
        }
    }
}

template <int KIND, int M, int R>
__device__ __forceinline__ void add_blocks(const few_chunk (&c)[R], const uint4 *x, int row, int zero, int at,
                                           float (&sum)[R * M]) {
    constexpr bool NIBBLES = chunk_elements<KIND>() == LIN_BLOCK;
    constexpr bool MIN = KIND == LIN_BYTES_MIN || KIND == LIN_NIBBLES_MIN || in_pairs<KIND>();
    const int half = NIBBLES ? 0 : at & 1;
    const bool odd = ((NIBBLES ? at : at >> 1) & 1) != 0; // phases begin with an even block
    const uint4 *block = x + (NIBBLES ? at : at >> 1) * (int)(sizeof(dvk_q8) / 16);
    float scale[R];
    float least[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        scale[r] = head_scale<KIND>(c[r].head, odd, half != 0);
        least[r] = head_least<KIND>(c[r].head, odd);
    }
#pragma unroll
    for (int t = 0; t < M; t++) {
        const uint4 head = block[t * row];
        const uint4 q = block[t * row + 1 + half];
        const uint4 upper = NIBBLES ? block[t * row + 2] : make_uint4(0, 0, 0, 0);
        const int whole = NIBBLES ? (int)head.z + (int)head.w : (int)(half ? head.w : head.z);
        const uint32_t a[4] = {q.x, q.y, q.z, q.w};
        const uint32_t b[4] = {upper.x, upper.y, upper.z, upper.w};
#pragma unroll
        for (int r = 0; r < R; r++) {
            const uint32_t u[4] = {c[r].w.x, c[r].w.y, c[r].w.z, c[r].w.w};
            int dot = MIN ? 0 : -zero * whole;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                dot = dot4(NIBBLES ? u[i] & 0x0f0f0f0fu : u[i], a[i], dot);
                if (NIBBLES) {
                    dot = dot4(u[i] >> 4 & 0x0f0f0f0fu, b[i], dot);
                }
            }
            const float t1 = MIN ? fmaf(scale[r], (float)dot, least[r] * (float)whole) : scale[r] * (float)dot;
            sum[r * M + t] = fmaf(__uint_as_float(head.x), t1, sum[r * M + t]);
        }
    }
}

// ---- epilogue of the sums ----

// Sums N values over the lanes: lane l returns number l / (32 / N). FAR: distance of the lanes that are added next.
template <int N, int FAR = 16> __device__ __forceinline__ float sum_lanes(float (&v)[N]) {
    const bool up = (threadIdx.x & FAR) != 0;
    float left[N > 1 ? N / 2 : 1];
#pragma unroll
    for (int i = 0; i < (N > 1 ? N / 2 : 1); i++) {
        const float send = N > 1 && !up ? v[i + N / 2] : v[i];
        left[i] = (N > 1 && up ? v[i + N / 2] : v[i]) + __shfl_xor_sync(~0u, send, FAR);
    }
    if constexpr (FAR > 1) {
        return sum_lanes<(N > 1 ? N / 2 : 1), FAR / 2>(left);
    }
    return left[0];
}

__device__ __forceinline__ float gated(int act, float x) {
    switch (act) {
    case DVK_GATE_SILU:
        return x / (1.0f + expf(-x));
    case DVK_GATE_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case DVK_GATE_GELU_TANH:
        return 0.5f * x * (1.0f + tanhf(0.79788456f * fmaf(0.044715f * x * x, x, x)));
    case DVK_GATE_GELU_QUICK:
        return x / (1.0f + expf(-1.702f * x));
    case DVK_GATE_RELU2:
        return x < 0.0f ? 0.0f : x * x;
    default:
        return x;
    }
}

// Addends of a sum. They are fetched while W streams, biases before the launch waits.
struct few_extras {
    float bias, res;
};

__device__ __forceinline__ void add_bias(const dvk_linear_few_params &p, int o, few_extras &e) {
    if (p.bias != nullptr && o < p.n) {
        e.bias = p.bias[o];
    }
}

__device__ __forceinline__ void add_res(const dvk_linear_few_params &p, int token, int o, few_extras &e) {
    if (p.res.data != nullptr && o < p.n && token < p.m) {
        e.res = load1(p.res.data, p.res.dtype, token * p.res.sh + o);
    }
}

__device__ __forceinline__ few_extras extras_of(const dvk_linear_few_params &p, int token, int o) {
    few_extras e = {};
    add_bias(p, o, e);
    add_res(p, token, o, e);
    return e;
}

// other: of a GLU, otherwise unused
__device__ __forceinline__ void put_result(const dvk_linear_few_params &p, int token, int o, float sum, float other,
                                           const few_extras &e) {
    float t = gated(p.act, sum + e.bias);
    if (p.glu) {
        t *= p.bias != nullptr ? other + p.bias[p.n + o] : other;
    }
    store1(p.y.data, p.y.dtype, token * p.y.sh + o, t + e.res);
}
