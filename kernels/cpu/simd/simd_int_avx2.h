/* simd_int_avx2.h - converts CONV_VW integers of a picture to floats and back on AVX2; used with conv_vec_avx2.h.
 * Values to be stored are already in the range of their type; halves round to even. */
#ifndef DVK_SIMD_INT_AVX2_H
#define DVK_SIMD_INT_AVX2_H

#include "kernels/cpu/simd/conv_vec_avx2.h"

static inline conv_vec ci_load_u8(const void *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)));
}

static inline conv_vec ci_load_u16(const void *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)));
}

static inline __m128i ci_to_u16(conv_vec v) {
    const __m256i i = _mm256_cvtps_epi32(v);
    return _mm_packus_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
}

static inline void ci_store_u8(void *p, conv_vec v) {
    const __m128i h = ci_to_u16(v);
    _mm_storel_epi64(p, _mm_packus_epi16(h, h));
}

static inline void ci_store_u16(void *p, conv_vec v) {
    _mm_storeu_si128(p, ci_to_u16(v));
}

#endif
