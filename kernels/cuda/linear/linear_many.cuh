// linear_many.cuh - the epilogue of "linear": bias, activation, the other factor, residual.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/linear/linear_many.h"

#define LINEAR_DEVICE static __device__ __forceinline__

LINEAR_DEVICE uint32_t linear_pack(float a, float b, int form) {
    if (form == DVK_BF16) {
        const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
        return *(const uint32_t *)&v;
    }
    const __half2 v = __floats2half2_rn(a, b);
    return *(const uint32_t *)&v;
}

LINEAR_DEVICE float2 linear_unpack(uint32_t u, int form) {
    return form == DVK_BF16 ? make_float2(__uint_as_float(u << 16), __uint_as_float(u & 0xffff0000u))
                            : __half22float2(*(const __half2 *)&u);
}

LINEAR_DEVICE float linear_load(const void *p, int form, int64_t at) {
    return form == DVK_F32 ? ((const float *)p)[at] : linear_unpack(((const uint16_t *)p)[at], form).x;
}

LINEAR_DEVICE void linear_store(void *p, int form, int64_t at, float v) {
    if (form == DVK_F32) {
        ((float *)p)[at] = v;
    } else {
        ((uint16_t *)p)[at] = (uint16_t)linear_pack(v, v, form);
    }
}

// All activations except GELU with erf and RELU2 are x sigmoid(x (a + b x^2)): (1 + tanh u) / 2 = sigmoid(2 u).
template <int N> LINEAR_DEVICE void linear_activate(float (&v)[N], int act) {
    if (act == DVK_GATE_NONE) {
        return;
    }
    if (act == DVK_GATE_GELU) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = 0.5f * v[i] * (1.0f + erff(v[i] * 0.70710678f));
        }
    } else if (act == DVK_GATE_RELU2) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = v[i] > 0.0f ? v[i] * v[i] : v[i] - v[i]; // keeps a NaN
        }
    } else {
        const float a = act == DVK_GATE_SILU ? 1.0f : act == DVK_GATE_GELU_QUICK ? 1.702f : 1.59576912f;
        const float b = act == DVK_GATE_GELU_TANH ? 0.0713548163f : 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) { // exp(88.7) and above: the quotient is zero, which is correct
            v[i] = __fdividef(v[i], 1.0f + __expf(-v[i] * fmaf(b * v[i], v[i], a)));
        }
    }
}

LINEAR_DEVICE float linear_bias(const dvk_linear_out &o, int column) { // with glu: up to 2 n
    return o.bias != nullptr && column < (o.glu ? 2 * o.n : o.n) ? __ldg(o.bias + column) : 0.0f;
}

// Two columns of a row; columns beyond the end are zero.
LINEAR_DEVICE float2 linear_residual(const dvk_linear_out &o, int row, int column) {
    if (o.res == nullptr || row >= o.m || column >= o.n) {
        return make_float2(0.0f, 0.0f);
    }
    const int64_t at = row * o.res_row + column;
    if (o.res_pairs && column + 1 < o.n) {
        return o.res_form == DVK_F32 ? *(const float2 *)((const float *)o.res + at)
                                     : linear_unpack(*(const uint32_t *)((const uint16_t *)o.res + at), o.res_form);
    }
    return make_float2(linear_load(o.res, o.res_form, at),
                       column + 1 < o.n ? linear_load(o.res, o.res_form, at + 1) : 0.0f);
}

LINEAR_DEVICE void linear_store_pair(const dvk_linear_out &o, int row, int column, float a, float b) {
    if (row >= o.m || column >= o.n) {
        return;
    }
    const int64_t at = row * o.y_row + column;
    if (o.y_pairs && column + 1 < o.n) {
        if (o.y_form == DVK_F32) {
            *(float2 *)((float *)o.y + at) = make_float2(a, b);
        } else {
            *(uint32_t *)((uint16_t *)o.y + at) = linear_pack(a, b, o.y_form);
        }
        return;
    }
    linear_store(o.y, o.y_form, at, a);
    if (column + 1 < o.n) {
        linear_store(o.y, o.y_form, at + 1, b);
    }
}

// Addends and factors of the sums of two columns. They are fetched for several pairs before any store. y may alias the
// residual, so the compiler cannot move loads ahead of stores.
struct linear_extras {
    float2 bias, other, res; // other: of the other factor
};

LINEAR_DEVICE linear_extras linear_fetch(const dvk_linear_out &o, int row, int column) {
    linear_extras e;
    e.bias = make_float2(linear_bias(o, column), linear_bias(o, column + 1));
    e.other = make_float2(0.0f, 0.0f);
    if (o.glu) {
        e.other = make_float2(linear_bias(o, o.n + column), linear_bias(o, o.n + column + 1));
    }
    e.res = linear_residual(o, row, column);
    return e;
}

// Stores the sums of two columns, with glu followed by those of the other factor.
LINEAR_DEVICE void linear_finish(const dvk_linear_out &o, int row, int column, const float4 &sums,
                                 const linear_extras &e) {
    float v[2] = {sums.x + e.bias.x, sums.y + e.bias.y};
    linear_activate(v, o.act);
    if (o.glu) {
        v[0] *= sums.z + e.other.x;
        v[1] *= sums.w + e.other.y;
    }
    linear_store_pair(o, row, column, v[0] + e.res.x, v[1] + e.res.y);
}
