/* conv_int8_vec.h - 8-bit integers in the lanes of a conv_vec, for conv_int8_tmpl.h. A lane of a product holds I8_SLOT
 * channels of one pixel or of the weights of one output. With VNNI, pixels are unsigned bytes with an offset of
 * I8_OFFSET; without VNNI, all numbers have 16 bits. */
#ifndef DVK_CONV_INT8_VEC_H
#define DVK_CONV_INT8_VEC_H

#if defined(__AVX512VNNI__)

enum { I8_SLOT = 4, I8_OFFSET = 128, I8_ZERO = 128 }; /* I8_ZERO: every byte of a pixel outside the picture */

#define CONV_MK_FMA(b, w, s)                                                                                           \
    _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(s), _mm512_castps_si512(b), _mm512_castps_si512(w)))

/* Stores 16 channels; `v` holds all of them. */
static inline void i8_store(char *to, conv_vec v, conv_vec same) {
    (void)same;
    const __m128i q = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
    _mm_storeu_si128((__m128i *)(void *)to, _mm_xor_si128(q, _mm_set1_epi8(-128)));
}

static inline conv_vec i8_larger(conv_vec a, conv_vec b) { /* compares magnitudes by their bits: NaN is the largest */
    const __m512i m = _mm512_and_si512(_mm512_castps_si512(b), _mm512_set1_epi32(0x7fffffff));
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), m));
}

static inline float i8_largest(conv_vec v) {
    return dvk_from_bits((uint32_t)_mm512_reduce_max_epi32(_mm512_castps_si512(v)));
}

static inline conv_vec i8_value(conv_vec sum, conv_vec less) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_castps_si512(less)));
}

#else

enum { I8_SLOT = 2, I8_OFFSET = 0, I8_ZERO = 0 };

#define CONV_MK_FMA(b, w, s)                                                                                           \
    _mm256_castsi256_ps(                                                                                               \
        _mm256_add_epi32(_mm256_castps_si256(s), _mm256_madd_epi16(_mm256_castps_si256(b), _mm256_castps_si256(w))))

/* Stores 16 channels, eight from each vector. */
static inline void i8_store(char *to, conv_vec low, conv_vec high) {
    const __m256i q = _mm256_packs_epi32(_mm256_cvtps_epi32(low), _mm256_cvtps_epi32(high));
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute4x64_epi64(q, 0xd8));
}

static inline conv_vec i8_larger(conv_vec a, conv_vec b) { /* compares magnitudes by their bits: NaN is the largest */
    const __m256i m = _mm256_and_si256(_mm256_castps_si256(b), _mm256_set1_epi32(0x7fffffff));
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), m));
}

static inline float i8_largest(conv_vec v) {
    const __m256i i = _mm256_castps_si256(v);
    const __m128i h = _mm_max_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    const __m128i q = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return dvk_from_bits((uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1))));
}

static inline conv_vec i8_value(conv_vec sum, conv_vec less) {
    (void)less; /* zero */
    return _mm256_cvtepi32_ps(_mm256_castps_si256(sum));
}

#endif

/* Writes a weight to position i of a slot. */
static inline void i8_put(char *slot, int64_t i, int8_t q) {
    const int16_t wide = q;
    if (I8_SLOT == 4) {
        memcpy(slot + i, &q, 1);
    } else {
        memcpy(slot + 2 * i, &wide, 2);
    }
}

#endif
