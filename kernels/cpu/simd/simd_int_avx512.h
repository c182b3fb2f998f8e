/* simd_int_avx512.h - converts CONV_VW integers of a picture to floats and back on AVX-512; used with
 * conv_vec_avx512.h. Values to be stored are already in the range of their type; halves round to even. */
#ifndef DVK_SIMD_INT_AVX512_H
#define DVK_SIMD_INT_AVX512_H

#include "kernels/cpu/simd/conv_vec_avx512.h"

static inline conv_vec ci_load_u8(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p)));
}

static inline conv_vec ci_load_u16(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)));
}

static inline void ci_store_u8(void *p, conv_vec v) {
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

static inline void ci_store_u16(void *p, conv_vec v) {
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v)));
}

#endif
