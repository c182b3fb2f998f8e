/* conv_vec_avx2.h - the vector type of the convolution templates on AVX2 + FMA + F16C: 8 floats. A load or store of n
 * elements touches exactly those, so that tails never read behind a view. Includers are compiled with the AVX2 flags. */
#ifndef DVK_CONV_VEC_AVX2_H
#define DVK_CONV_VEC_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/dtype.h"

typedef __m256 conv_vec;

enum {
    CONV_VW = 8,
    CONV_MR = 6,
    CONV_NZ = 2
}; /* lanes; pixels and vectors of the micro-kernel: 12 accumulators in 16 registers */

static inline __m256i cv_mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline conv_vec cv_set1(float f) {
    return _mm256_set1_ps(f);
}

static inline conv_vec cv_load(const float *p) {
    return _mm256_loadu_ps(p);
}

static inline void cv_store(float *p, conv_vec v) {
    _mm256_storeu_ps(p, v);
}

static inline conv_vec cv_add(conv_vec a, conv_vec b) {
    return _mm256_add_ps(a, b);
}

static inline conv_vec cv_sub(conv_vec a, conv_vec b) {
    return _mm256_sub_ps(a, b);
}

static inline conv_vec cv_mul(conv_vec a, conv_vec b) {
    return _mm256_mul_ps(a, b);
}

static inline conv_vec cv_fma(conv_vec a, conv_vec b, conv_vec c) { /* a * b + c */
    return _mm256_fmadd_ps(a, b, c);
}

static inline conv_vec cv_fnma(conv_vec a, conv_vec b, conv_vec c) { /* c - a * b */
    return _mm256_fnmadd_ps(a, b, c);
}

/* The hardware's min and max return the second operand if one is NaN. */
static inline conv_vec cv_max(conv_vec a, conv_vec b) {
    return _mm256_max_ps(a, b);
}

static inline conv_vec cv_min(conv_vec a, conv_vec b) {
    return _mm256_min_ps(a, b);
}

/* x >= 0 ? a : b, b for NaN */
static inline conv_vec cv_select_ge0(conv_vec x, conv_vec a, conv_vec b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GE_OQ));
}

static inline conv_vec cv_round(conv_vec a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for an integer n in [-126, 127] */
static inline conv_vec cv_exp2i(conv_vec n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}

static inline conv_vec cv_div(conv_vec a, conv_vec b) {
    return _mm256_div_ps(a, b);
}

/* n elements from index i of an array of dtype t, zeros behind them */
static inline conv_vec cv_get(const void *p, dvk_dtype t, int64_t i, int64_t n) {
    if (t == DVK_F32) {
        const float *f = (const float *)p + i;
        return n == CONV_VW ? _mm256_loadu_ps(f) : _mm256_maskload_ps(f, cv_mask(n));
    }
    const uint16_t *s = (const uint16_t *)p + i;
    uint16_t tail[CONV_VW] = {0};
    if (n < CONV_VW) {
        memcpy(tail, s, (size_t)n * 2);
        s = tail;
    }
    const __m128i h = _mm_loadu_si128((const __m128i *)s);
    return t == DVK_BF16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)) : _mm256_cvtph_ps(h);
}

static inline __m128i cv_to_bf16(conv_vec v) {
    const __m256i u = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i q = _mm256_srli_epi32(_mm256_blendv_epi8(r, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
}

static inline void cv_put(void *p, dvk_dtype t, int64_t i, int64_t n, conv_vec v) {
    if (t == DVK_F32) {
        float *f = (float *)p + i;
        if (n == CONV_VW) {
            _mm256_storeu_ps(f, v);
        } else {
            _mm256_maskstore_ps(f, cv_mask(n), v);
        }
        return;
    }
    const __m128i h = t == DVK_BF16 ? cv_to_bf16(v) : _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    uint16_t *d = (uint16_t *)p + i;
    if (n == CONV_VW) {
        _mm_storeu_si128((__m128i *)d, h);
    } else {
        uint16_t tail[CONV_VW];
        _mm_storeu_si128((__m128i *)tail, h);
        memcpy(d, tail, (size_t)n * 2);
    }
}

static inline void cv_put2(void *p, dvk_dtype t, int64_t i, conv_vec v0, conv_vec v1) {
    cv_put(p, t, i, CONV_VW, v0);
    cv_put(p, t, i + CONV_VW, CONV_VW, v1);
}

#endif
