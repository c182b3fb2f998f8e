/* conv_wgmma_epilogue.cuh - the epilogue of a sum. It also moves 16 bytes of eight channels between the fragments of a warp,
 * a few hundred bytes of its shared memory, and a picture. */
#ifndef DVK_CUDA_CONV_WGMMA_EPILOGUE_CUH
#define DVK_CUDA_CONV_WGMMA_EPILOGUE_CUH

#include "kernels/cuda/conv/conv_wgmma.h"
#include "kernels/cuda/conv/conv_wgmma_ptx.cuh"

struct conv_spot { /* an output pixel, within its phase */
    int n, y, x, phase;
};

CONV_DEVICE int64_t offset_of(const dvk_conv_view &v, int n, int y, int x) {
    return n * v.sn + y * v.sh + x * v.sw;
}

CONV_DEVICE float act_exact(const dvk_conv_epi &e, float v, int c) {
    switch (e.act) {
    case CONV_RELU:
        return v < 0 ? 0 : v;
    case CONV_LRELU:
        return v >= 0 ? v : e.slope * v;
    case CONV_PRELU:
        return v >= 0 ? v : __ldg(e.slopes + c) * v;
    case CONV_SILU:
        return __fdividef(v, 1.0f + __expf(-v));
    case CONV_CLAMP3:
        return 3.0f * tanhf(v * (1.0f / 3.0f));
    case CONV_GELU:
        return act_gelu(v);
    case CONV_SIGMOID:
        return act_sigmoid(v);
    case CONV_TANH:
        return act_tanh(v);
    case CONV_MISH:
        return act_mish(v);
    default:
        return v;
    }
}

/* The whole epilogue of op.h for one sum. */
CONV_DEVICE void finish_element(const dvk_conv_epi &e, float v, const conv_spot &s, int c) {
    int y = s.y * e.step + (s.phase >> 1), x = s.x * e.step + (s.phase & 1);
    v += e.bias ? __ldg(e.bias + c) : 0.0f;
    if (e.gate && e.gate != CONV_GATE_TIMES) {
        v = (v + load_element(e.res[0], offset_of(e.res[0], s.n, y, x) + c)) * (sigmoid_of(v) - 0.5f);
    } else {
#pragma unroll 1
        for (int pass = 0; pass < 2; pass++) { /* one copy of the activations and of the residuals */
            if ((e.act_last != 0) == pass) {
                v = act_exact(e, v, c);
                continue;
            }
            float sum = e.gate ? 0.0f : e.alpha * v;
#pragma unroll 1
            for (int i = 0; i < e.n_res && e.shuffle == 1; i++) {
                sum += e.beta[i] * load_element(e.res[i], offset_of(e.res[i], s.n, y, x) + c);
            }
            v = e.gate ? v * sum : sum;
        }
    }
    if (e.shuffle > 1) {
        const int r = e.shuffle, from = c / (r * r), ij = c - from * r * r;
        if (e.n_res) {
            v += load_element(e.res[0], offset_of(e.res[0], s.n, y, x) + from);
        }
        y = y * r + ij / r;
        x = x * r + ij % r;
        c = from;
    }
    store_element(e.y, offset_of(e.y, s.n, y, x) + c, v);
}

/* One sum through an epilogue that stores 16 bytes at a time; RES residuals. */
template <int KIND, int RES>
CONV_DEVICE float finish(const dvk_conv_epi &e, float v, float bias, float slope, float r0, float r1) {
    v += bias;
    if (KIND == DVK_WGMMA_GATE) {
        return (v + r0) * (sigmoid_of(v) - 0.5f);
    }
    if (KIND == DVK_WGMMA_SLOPE) {
        v = v >= 0 ? v : slope * v;
    } else if (KIND == DVK_WGMMA_SILU) {
        v = conv_act_fast<CONV_SILU>(v);
    }
    v *= e.alpha;
    if (RES > 0) {
        v = fmaf(e.beta[0], r0, v);
    }
    if (RES > 1) {
        v = fmaf(e.beta[1], r1, v);
    }
    return KIND != DVK_WGMMA_SLOPE_LAST || v >= 0 ? v : slope * v;
}

/* In place of a template's kind and number of residuals: those of the launch. */
enum { KIND_OF_LAUNCH = -1, RES_OF_LAUNCH = -1 };

/* Eight sums with their bias, with residuals in r, through one of the two kinds that are cheaper together. */
template <class T, int KIND, int RES>
CONV_DEVICE void finish_octet(const dvk_conv_epi &e, float (&v)[8], const uint32_t (&r)[2][4]) {
    if (KIND == DVK_WGMMA_CURVE) {
        conv_curve_fast(v, e.act);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] *= e.alpha;
        }
        return;
    }
    const conv_bend bend(e.act);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 r0 = T::unpack(r[0][i]), r1 = T::unpack(r[1][i]);
        float2 times = make_float2(e.beta[0] * r0.x, e.beta[0] * r0.y);
        if (RES > 1 || (RES == RES_OF_LAUNCH && e.n_res > 1)) {
            times.x = fmaf(e.beta[1], r1.x, times.x), times.y = fmaf(e.beta[1], r1.y, times.y);
        }
        v[2 * i] = bend(v[2 * i]) * times.x, v[2 * i + 1] = bend(v[2 * i + 1]) * times.y;
    }
}

/* The same through any kind of finish(), with the launch's number of residuals: one copy of code for all rare cases. */
template <class T>
CONV_DEVICE void finish_seldom(const dvk_conv_epi &e, int kind, float (&v)[8], const float (&slope)[8],
                               const uint32_t (&r)[2][4]) {
    if (kind == DVK_WGMMA_SILU) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = conv_act_fast<CONV_SILU>(v[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = kind != DVK_WGMMA_SLOPE || v[i] >= 0 ? v[i] : slope[i] * v[i];
        v[i] *= e.alpha;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        if (k < e.n_res) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 add = T::unpack(r[k][i]);
                v[2 * i] = fmaf(e.beta[k], add.x, v[2 * i]);
                v[2 * i + 1] = fmaf(e.beta[k], add.y, v[2 * i + 1]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = kind != DVK_WGMMA_SLOPE_LAST || v[i] >= 0 ? v[i] : slope[i] * v[i];
    }
}

/* 1 if finish_octet supports the kind. */
CONV_DEVICE constexpr bool by_octets(int kind) {
    return kind == DVK_WGMMA_CURVE || kind == DVK_WGMMA_TIMES;
}

/* The slope of one output channel for finish(). */
CONV_DEVICE float slope_of(const dvk_conv_epi &e, int c) {
    return e.act == CONV_PRELU ? (c < e.c_out ? __ldg(e.slopes + c) : 0.0f) : e.act == CONV_LRELU ? e.slope : 0.0f;
}

CONV_DEVICE float bias_of(const dvk_conv_epi &e, int c) {
    return e.bias && c < e.c_out ? __ldg(e.bias + c) : 0.0f;
}

/* Loads 16 bytes of a picture. This kernel may overwrite a residual, so the read-only path is not allowed. */
CONV_DEVICE uint4 load_octet(const dvk_conv_view &v, int64_t at, bool real) {
    return real ? *(const uint4 *)((const uint16_t *)v.data + at) : make_uint4(0, 0, 0, 0);
}

CONV_DEVICE void shared_store(uint32_t at, const uint4 &u) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(u.x), "r"(u.y), "r"(u.z), "r"(u.w)
                 : "memory");
}

CONV_DEVICE uint4 shared_load(uint32_t at) {
    uint4 u;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(u.x), "=r"(u.y), "=r"(u.z), "=r"(u.w)
                 : "r"(at)
                 : "memory");
    return u;
}

CONV_DEVICE uint32_t shared_load_word(uint32_t at) {
    uint32_t u;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(u) : "r"(at) : "memory");
    return u;
}

#endif
