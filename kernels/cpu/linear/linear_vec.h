/* linear_vec.h - the 32-bit integer lanes of the linear templates, used with a conv_vec_*.h. A lane is a row of a
 * panel; its four bytes are four k. */
#ifndef DVK_LINEAR_VEC_H
#define DVK_LINEAR_VEC_H

#include <immintrin.h>
#include <string.h>

#include "kernels/quant.h"

static inline int32_t lv_four(const int8_t *q) {
    int32_t v;
    memcpy(&v, q, sizeof v);
    return v;
}

/* One token uses each weight once, so memory bandwidth limits the rate. Several instructions separate its loads, and
 * the hardware prefetcher looks too few lines ahead: 22 instead of 37 GB/s on a Zen 5. Prefetching beyond the weights
 * is harmless. */
enum { LV_AHEAD = 4096 };

static inline void lv_prefetch(const unsigned char *p, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *)p + LV_AHEAD + i, _MM_HINT_T0);
    }
}

#if defined(__AVX512F__)

typedef __m512i lin_ivec;

static inline lin_ivec lv_load(const void *p) {
    return _mm512_loadu_si512(p);
}

static inline lin_ivec lv_set1(int32_t v) {
    return _mm512_set1_epi32(v);
}

static inline lin_ivec lv_and(lin_ivec a, lin_ivec b) {
    return _mm512_and_si512(a, b);
}

static inline lin_ivec lv_shift_right(lin_ivec a, unsigned n) {
    return _mm512_srli_epi32(a, n);
}

static inline lin_ivec lv_shift_left(lin_ivec a, unsigned n) {
    return _mm512_slli_epi32(a, n);
}

static inline lin_ivec lv_shift_signed(lin_ivec a, unsigned n) {
    return _mm512_srai_epi32(a, n);
}

static inline lin_ivec lv_load_16(const void *p) { /* signed */
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(p));
}

static inline lin_ivec lv_sub(lin_ivec a, lin_ivec b) {
    return _mm512_sub_epi32(a, b);
}

static inline conv_vec lv_to_f32(lin_ivec a) {
    return _mm512_cvtepi32_ps(a);
}

static inline conv_vec lv_as_f32(lin_ivec a) {
    return _mm512_castsi512_ps(a);
}

static inline float lv_sum(conv_vec v) {
    return _mm512_reduce_add_ps(v);
}

/* The horizontal sums of four vectors. */
static inline void lv_sum4(const conv_vec v[4], float to[4]) {
    const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    const __m512 four = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(four),
                                      _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(four), 1)));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

static inline float lv_max(conv_vec v) {
    return _mm512_reduce_max_ps(v);
}

static inline conv_vec lv_abs(conv_vec v) {
    return _mm512_abs_ps(v);
}

/* 16 floats as integers, ties to even, in bytes; returns their sum. */
static inline int32_t lv_to_bytes(const float *x, float scale, int8_t *to) {
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(scale)));
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(q));
    return _mm512_reduce_add_epi32(q);
}

#if defined(__AVX512VNNI__)
enum { LV_SIGNED = 0 }; /* 1 if lv_dot_offset removes the offset of signed bytes */

/* sum + the four products of u (unsigned bytes) and s (signed) */
static inline lin_ivec lv_dot(lin_ivec sum, lin_ivec u, lin_ivec s) {
    return _mm512_dpbusd_epi32(sum, u, s);
}
#endif

#else

typedef __m256i lin_ivec;

static inline lin_ivec lv_load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline lin_ivec lv_set1(int32_t v) {
    return _mm256_set1_epi32(v);
}

static inline lin_ivec lv_and(lin_ivec a, lin_ivec b) {
    return _mm256_and_si256(a, b);
}

static inline lin_ivec lv_shift_right(lin_ivec a, int n) {
    return _mm256_srli_epi32(a, n);
}

static inline lin_ivec lv_shift_left(lin_ivec a, int n) {
    return _mm256_slli_epi32(a, n);
}

static inline lin_ivec lv_shift_signed(lin_ivec a, int n) {
    return _mm256_srai_epi32(a, n);
}

static inline lin_ivec lv_load_16(const void *p) { /* signed */
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(p));
}

static inline lin_ivec lv_sub(lin_ivec a, lin_ivec b) {
    return _mm256_sub_epi32(a, b);
}

static inline conv_vec lv_to_f32(lin_ivec a) {
    return _mm256_cvtepi32_ps(a);
}

static inline conv_vec lv_as_f32(lin_ivec a) {
    return _mm256_castsi256_ps(a);
}

static inline float lv_sum(conv_vec v) {
    const __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 q = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* The horizontal sums of four vectors. */
static inline void lv_sum4(const conv_vec v[4], float to[4]) {
    const __m256 a = _mm256_add_ps(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
    const __m256 b = _mm256_add_ps(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
    const __m256 four = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(four), _mm256_extractf128_ps(four, 1)));
}

static inline float lv_max(conv_vec v) {
    const __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 q = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

static inline conv_vec lv_abs(conv_vec v) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

/* 16 floats as integers, ties to even, in bytes; returns their sum. */
static inline int32_t lv_to_bytes(const float *x, float scale, int8_t *to) {
    const __m256 s = _mm256_set1_ps(scale);
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), s));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), s));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)(void *)to, bytes);
    const __m256i pair = _mm256_add_epi32(a, b);
    const __m128i h = _mm_add_epi32(_mm256_castsi256_si128(pair), _mm256_extracti128_si256(pair, 1));
    const __m128i q = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

enum { LV_SIGNED = 1 };

/* vpmaddubsw adds two products in 16 bits: up to 63 * 127 * 2 fits. Bytes with an offset sign become magnitudes, and
 * their sign moves to the other factor. */
static inline lin_ivec lv_dot(lin_ivec sum, lin_ivec u, lin_ivec s) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1)));
}

static inline lin_ivec lv_dot_offset(lin_ivec sum, lin_ivec u, lin_ivec s) {
    const __m256i q = _mm256_xor_si256(u, _mm256_set1_epi8(-128));
    return lv_dot(sum, _mm256_abs_epi8(q), _mm256_sign_epi8(s, q));
}

#endif
#endif
