/* conv_vec_avx512.h - the vector type of the convolution templates on AVX-512: 16 floats. A load or store of n elements
 * touches exactly those (masked), so that tails never read behind a view. Includers are compiled with the AVX-512
 * flags. */
#ifndef DVK_CONV_VEC_AVX512_H
#define DVK_CONV_VEC_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "kernels/dtype.h"

typedef __m512 conv_vec;

enum {
    CONV_VW = 16,
    CONV_MR = 14,
    CONV_NZ = 2
}; /* lanes; pixels and vectors of the micro-kernel: 28 accumulators in 32 registers */

static inline __mmask16 cv_mask(int64_t n) {
    return (__mmask16)((1u << n) - 1u);
}

static inline conv_vec cv_set1(float f) {
    return _mm512_set1_ps(f);
}

static inline conv_vec cv_load(const float *p) {
    return _mm512_loadu_ps(p);
}

static inline void cv_store(float *p, conv_vec v) {
    _mm512_storeu_ps(p, v);
}

static inline conv_vec cv_add(conv_vec a, conv_vec b) {
    return _mm512_add_ps(a, b);
}

static inline conv_vec cv_sub(conv_vec a, conv_vec b) {
    return _mm512_sub_ps(a, b);
}

static inline conv_vec cv_mul(conv_vec a, conv_vec b) {
    return _mm512_mul_ps(a, b);
}

static inline conv_vec cv_fma(conv_vec a, conv_vec b, conv_vec c) { /* a * b + c */
    return _mm512_fmadd_ps(a, b, c);
}

static inline conv_vec cv_fnma(conv_vec a, conv_vec b, conv_vec c) { /* c - a * b */
    return _mm512_fnmadd_ps(a, b, c);
}

/* The hardware's min and max return the second operand if one is NaN. */
static inline conv_vec cv_max(conv_vec a, conv_vec b) {
    return _mm512_max_ps(a, b);
}

static inline conv_vec cv_min(conv_vec a, conv_vec b) {
    return _mm512_min_ps(a, b);
}

/* x >= 0 ? a : b, b for NaN */
static inline conv_vec cv_select_ge0(conv_vec x, conv_vec a, conv_vec b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ), b, a);
}

static inline conv_vec cv_round(conv_vec a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for an integer n in [-126, 127] */
static inline conv_vec cv_exp2i(conv_vec n) {
    return _mm512_scalef_ps(_mm512_set1_ps(1.0f), n);
}

/* a / b within 2 ulp: an estimate of 14 bits and one Newton step, because the 512-bit divider is slow */
static inline conv_vec cv_div(conv_vec a, conv_vec b) {
    const __m512 r = _mm512_rcp14_ps(b);
    const __m512 q = _mm512_mul_ps(a, r);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, b, a), r, q);
}

/* n elements from index i of an array of dtype t, zeros behind them */
static inline conv_vec cv_get(const void *p, dvk_dtype t, int64_t i, int64_t n) {
    const __mmask16 m = cv_mask(n);
    if (t == DVK_F32) {
        return _mm512_maskz_loadu_ps(m, (const float *)p + i);
    }
    const __m256i h = _mm256_maskz_loadu_epi16(m, (const uint16_t *)p + i);
    return t == DVK_BF16 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)) : _mm512_cvtph_ps(h);
}

static inline __m256i cv_to_bf16(conv_vec v) {
#ifdef __AVX512BF16__
    const __m256bh b = _mm512_cvtneps_pbh(v);
    __m256i h;
    memcpy(&h, &b, sizeof h);
    return h;
#else
    const __m512i u = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i q = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(q, 16));
#endif
}

static inline void cv_put(void *p, dvk_dtype t, int64_t i, int64_t n, conv_vec v) {
    const __mmask16 m = cv_mask(n);
    if (t == DVK_F32) {
        _mm512_mask_storeu_ps((float *)p + i, m, v);
    } else {
        const __m256i h =
            t == DVK_BF16 ? cv_to_bf16(v) : _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_mask_storeu_epi16((uint16_t *)p + i, m, h);
    }
}

/* Two whole vectors, 32 elements from index i. */
static inline void cv_put2(void *p, dvk_dtype t, int64_t i, conv_vec v0, conv_vec v1) {
#ifdef __AVX512BF16__
    if (t == DVK_BF16) {
        const __m512bh b = _mm512_cvtne2ps_pbh(v1, v0);
        memcpy((uint16_t *)p + i, &b, sizeof b);
        return;
    }
#endif
    if (t == DVK_F32) { /* whole cache lines without a mask: the memory system need not read them first */
        _mm512_storeu_ps((float *)p + i, v0);
        _mm512_storeu_ps((float *)p + i + CONV_VW, v1);
        return;
    }
    cv_put(p, t, i, CONV_VW, v0);
    cv_put(p, t, i + CONV_VW, CONV_VW, v1);
}

#endif
