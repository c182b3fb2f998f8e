/* conv_math_tmpl.h - activations on one vector, for a file that has included a conv_vec_*.h. Within 4 ulp of the exact
 * value over the range where a float can hold it; NaN stays NaN. */

/* e^r = 1 + r + r^2 q(r) for |r| <= ln 2 / 2, fitted at Chebyshev nodes: relative error 7.4e-10 */
CONV_INLINE conv_vec conv_expm1_small(conv_vec r) {
    conv_vec q = cv_set1(1.9891247e-4f);
    q = cv_fma(q, r, cv_set1(1.3933881e-3f));
    q = cv_fma(q, r, cv_set1(8.3333105e-3f));
    q = cv_fma(q, r, cv_set1(4.1666463e-2f));
    q = cv_fma(q, r, cv_set1(1.6666667e-1f));
    q = cv_fma(q, r, cv_set1(0.5f));
    return cv_fma(cv_mul(r, r), q, r);
}

/* x = n ln 2 + r, ln 2 split in two so that n times the first part is exact; x is bounded so that 2^n is a normal
 * number */
CONV_INLINE conv_vec conv_exp_reduce(conv_vec *x) {
    const conv_vec v = cv_max(cv_set1(-87.0f), cv_min(cv_set1(87.0f), *x));
    const conv_vec n = cv_round(cv_mul(v, cv_set1(1.442695f)));
    *x = cv_fnma(n, cv_set1(1.4286068e-6f), cv_fnma(n, cv_set1(0.69314575f), v));
    return n;
}

CONV_INLINE conv_vec conv_exp(conv_vec x) {
    const conv_vec scale = cv_exp2i(conv_exp_reduce(&x));
    return cv_fma(scale, conv_expm1_small(x), scale);
}

CONV_INLINE conv_vec conv_silu(conv_vec x) {
    return cv_div(x, cv_add(cv_set1(1.0f), conv_exp(cv_sub(cv_set1(0.0f), x))));
}

#ifdef __AVX512BF16__
/* SiLU where the result is rounded to bf16 anyway: 2^f by a cubic (relative error 1.0e-4), the estimate of 1/d as it
 * comes. */
CONV_INLINE conv_vec conv_silu_bf16(conv_vec x) {
    const conv_vec t = cv_max(cv_set1(-126.0f), cv_min(cv_set1(126.0f), cv_mul(x, cv_set1(-1.442695f))));
    const conv_vec n = cv_round(t);
    const conv_vec f = cv_sub(t, n);
    conv_vec p = cv_fma(cv_set1(5.583828e-2f), f, cv_set1(0.24263948f));
    p = cv_fma(p, f, cv_set1(0.69313675f));
    p = cv_fma(p, f, cv_set1(0.99992454f));
    return cv_mul(x, _mm512_rcp14_ps(cv_add(cv_set1(1.0f), _mm512_scalef_ps(p, n))));
}
#endif

CONV_INLINE conv_vec conv_sigmoid(conv_vec x) {
    return cv_div(cv_set1(1.0f), cv_add(cv_set1(1.0f), conv_exp(cv_sub(cv_set1(0.0f), x))));
}

/* 3 tanh(x / 3) = 3 m / (m + 2) with m = e^(2x/3) - 1, computed without cancellation near zero */
CONV_INLINE conv_vec conv_clamp3(conv_vec x) {
    conv_vec r = cv_mul(cv_set1(2.0f / 3.0f), x);
    const conv_vec scale = cv_exp2i(conv_exp_reduce(&r));
    const conv_vec m = cv_fma(scale, conv_expm1_small(r), cv_sub(scale, cv_set1(1.0f)));
    return cv_div(cv_mul(cv_set1(3.0f), m), cv_add(m, cv_set1(2.0f)));
}

/* tanh x = m / (m + 2) with m = e^(2x) - 1, computed without cancellation near zero */
CONV_INLINE conv_vec conv_tanh(conv_vec x) {
    conv_vec r = cv_add(x, x);
    const conv_vec scale = cv_exp2i(conv_exp_reduce(&r));
    const conv_vec m = cv_fma(scale, conv_expm1_small(r), cv_sub(scale, cv_set1(1.0f)));
    return cv_div(m, cv_add(m, cv_set1(2.0f)));
}

/* erf by Abramowitz and Stegun 7.1.26, within 1.5e-7 */
CONV_INLINE conv_vec conv_gelu(conv_vec x) {
    const conv_vec z = cv_mul(x, cv_set1(0.70710678f));
    const conv_vec size = cv_max(z, cv_sub(cv_set1(0.0f), z));
    const conv_vec t = cv_div(cv_set1(1.0f), cv_fma(cv_set1(0.3275911f), size, cv_set1(1.0f)));
    conv_vec p = cv_fma(cv_set1(1.061405429f), t, cv_set1(-1.453152027f));
    p = cv_fma(p, t, cv_set1(1.421413741f));
    p = cv_fma(p, t, cv_set1(-0.284496736f));
    p = cv_fma(p, t, cv_set1(0.254829592f));
    const conv_vec tail = cv_mul(cv_mul(p, t), conv_exp(cv_sub(cv_set1(0.0f), cv_mul(z, z)))); /* 1 - erf|z| */
    const conv_vec half = cv_mul(cv_set1(0.5f), x);
    return cv_select_ge0(z, cv_fnma(half, tail, x), cv_mul(half, tail));
}

/* tanh(ln(1 + n)) = (n^2 + 2n) / (n^2 + 2n + 2) with n = e^x, which is 1 long before n^2 overflows */
CONV_INLINE conv_vec conv_mish(conv_vec x) {
    const conv_vec n = conv_exp(cv_min(cv_set1(30.0f), x));
    const conv_vec m = cv_fma(n, n, cv_add(n, n));
    return cv_mul(x, cv_div(m, cv_add(m, cv_set1(2.0f))));
}

CONV_INLINE conv_vec conv_act(dvk_act act, conv_vec x, conv_vec slope) {
    switch (act) {
    case DVK_ACT_RELU:
        return cv_max(cv_set1(0.0f), x);
    case DVK_ACT_LRELU:
    case DVK_ACT_PRELU:
        return cv_select_ge0(x, x, cv_mul(x, slope));
    case DVK_ACT_SILU:
        return conv_silu(x);
    case DVK_ACT_CLAMP3:
        return conv_clamp3(x);
    case DVK_ACT_GELU:
        return conv_gelu(x);
    case DVK_ACT_SIGMOID:
        return conv_sigmoid(x);
    case DVK_ACT_TANH:
        return conv_tanh(x);
    case DVK_ACT_MISH:
        return conv_mish(x);
    default:
        return x;
    }
}
