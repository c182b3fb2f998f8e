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
/* SiLU for results that are rounded to bf16: 2^f by a cubic (relative error 1.0e-4), and the hardware estimate of 1/d
 * without refinement. */
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

/* GELU = max(x, 0) - s Q(s) with s = |x| and Q(s) = e^(-s^2 / 2) M(s), M(s) = e^(s^2 / 2) erfc(s / sqrt 2) / 2. M is a
 * polynomial in u = (4 - s) / (4 + s), minimax in relative error for s in [0, 13.2] (Remez): 2.4e-8. Its coefficients
 * were rounded one by one, and the rest fitted again. Beyond 13.2 the results are denormal. With FMA the relative error
 * stays below 3e-7, also in the tail. Without FMA the rounding of s^2 / 2 adds up to 6e-8 s^2 / 2. */
CONV_INLINE conv_vec conv_gelu(conv_vec x) {
    const conv_vec s = cv_min(cv_set1(13.2f), cv_max(x, cv_sub(cv_set1(0.0f), x)));
    const conv_vec u = cv_div(cv_sub(cv_set1(4.0f), s), cv_add(cv_set1(4.0f), s));
    conv_vec p = cv_set1(6.20432256e-5f);
    p = cv_fma(p, u, cv_set1(-0.000162525728f));
    p = cv_fma(p, u, cv_set1(-0.00065734802f));
    p = cv_fma(p, u, cv_set1(0.000498970388f));
    p = cv_fma(p, u, cv_set1(0.00849834271f));
    p = cv_fma(p, u, cv_set1(0.030866323f));
    p = cv_fma(p, u, cv_set1(0.0717066601f));
    p = cv_fma(p, u, cv_set1(0.124379136f));
    p = cv_fma(p, u, cv_set1(0.170397744f));
    p = cv_fma(p, u, cv_set1(0.094410643f));
    const conv_vec half = cv_mul(cv_set1(0.5f), s);
    const conv_vec n = cv_round(cv_mul(cv_mul(half, s), cv_set1(-1.442695f)));
    const conv_vec r = cv_fnma(half, s, cv_mul(n, cv_set1(-0.69314575f))); /* -s^2 / 2 - n ln 2, as in conv_exp */
    const conv_vec m = conv_expm1_small(cv_fnma(n, cv_set1(1.4286068e-6f), r));
    p = cv_mul(s, p);
    return cv_fnma(cv_exp2i(n), cv_fma(p, m, p), cv_max(cv_set1(0.0f), x));
}

/* tanh(ln(1 + n)) = (n^2 + 2n) / (n^2 + 2n + 2) with n = e^x; it reaches 1 long before n^2 overflows */
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
