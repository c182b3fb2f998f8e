// elem_epilogue.cuh - prologue and epilogue of op.h for eight channels of a pixel at a time.
#pragma once

#include "kernels/cuda/common/elem.cuh"

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

// Whether the transcendental activations (GELU and those after it in op.h) are compiled, and how exactly.
enum { CURVES_NONE, CURVES_FAST, CURVES_EXACT };

template <int ACT, int CURVES> __device__ __forceinline__ void activate_all(float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = CURVES == CURVES_FAST ? activated_fast(ACT, v[i], 0.0f) : activated(ACT, v[i], 0.0f);
    }
}

// One branch for all eight.
template <int CURVES> __device__ __forceinline__ void activate8(int act, float (&v)[8], const float (&slopes)[8]) {
    if (act == DVK_ACT_NONE) {
        return;
    }
    if (act == DVK_ACT_SILU) { // a separate branch: the others are short, and CLAMP3 is rare
        return activate_all<DVK_ACT_SILU, CURVES>(v);
    }
    if (CURVES && act == DVK_ACT_GELU) {
        return activate_all<DVK_ACT_GELU, CURVES>(v);
    }
    if (CURVES && act == DVK_ACT_SIGMOID) {
        return activate_all<DVK_ACT_SIGMOID, CURVES>(v);
    }
    if (CURVES && act == DVK_ACT_TANH) {
        return activate_all<DVK_ACT_TANH, CURVES>(v);
    }
    if (CURVES && act == DVK_ACT_MISH) {
        return activate_all<DVK_ACT_MISH, CURVES>(v);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = activated_short(act, v[i], slopes[i]);
    }
}

struct channels { // parameters of a thread's channels
    float scale[8], shift[8], bias[8], slopes[8];
};

template <int NRES, int CURVES>
__device__ __forceinline__ void epilogue8(const dvk_elem_ends &p, const channels &of, float (&v)[8],
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
        activate8<CURVES>(p.act, v, of.slopes);
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
        activate8<CURVES>(p.act, v, of.slopes);
    }
}

} // namespace
