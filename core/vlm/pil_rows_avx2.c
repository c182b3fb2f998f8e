/* pil_rows_avx2.c - the loops of the resampler with AVX2. A weight has up to 24 bits and a pixel 8, but vpmaddwd multiplies
 * 16-bit pairs. So weights are split into two halves (pil_rows.h), and the sums of the halves are combined once at the end. That
 * is exact, because all sums are modulo 2^32. Compiled with -mavx2 on x86-64; empty on other machines. */
#include <string.h>

#include "core/vlm/pil_rows.h"

#if defined(__AVX2__)

#include <immintrin.h>

enum { ROWS = 4 };

/* Input: four pixels, 12 bytes, in both halves. Result: pairs of 16-bit values R0R1 G0G1 B0B1 of pixels 0, 1 and 2, 3. */
static __m256i pair_pixels(__m256i v) {
    const __m256i order = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7,
                                           -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    return _mm256_shuffle_epi8(v, order);
}

/* Input: four 16-bit weights in both halves. Result: the first two fill the lower half, the other two the upper half. */
static __m256i spread_low(__m256i w) {
    const __m256i order = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5,
                                           6, 7, 4, 5, 6, 7);
    return _mm256_shuffle_epi8(w, order);
}

static __m256i spread_high(__m256i w) {
    const __m256i order = _mm256_setr_epi8(8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11, 12, 13, 14, 15, 12,
                                           13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15);
    return _mm256_shuffle_epi8(w, order);
}

/* Result: R, G, B in three bytes. */
static uint32_t finish_pixel(__m256i low, __m256i high) {
    const __m256i both = _mm256_add_epi32(low, _mm256_slli_epi32(high, 15));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(1 << (DV_PIL_BITS - 1))), DV_PIL_BITS);
    sum = _mm_packs_epi32(sum, sum);
    return (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
}

/* One output pixel of ROWS rows. */
static void pixel(const dv_pil_across *a, int64_t x, const uint8_t *const rows[ROWS], uint32_t out[ROWS]) {
    const int64_t groups = (a->axis->count[x] + 3) / 4;
    const int16_t *w = a->axis->split + x * a->axis->taps * 2;
    const int64_t at = 3 * (int64_t)a->axis->first[x];
    __m256i low[ROWS];
    __m256i high[ROWS];
    for (int r = 0; r < ROWS; r++) {
        low[r] = _mm256_setzero_si256();
        high[r] = _mm256_setzero_si256();
    }
    for (int64_t g = 0; g < groups; g++) {
        const __m256i weights =
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(w + 8 * g)));
        const __m256i wl = spread_low(weights);
        const __m256i wh = spread_high(weights);
        for (int r = 0; r < ROWS; r++) {
            const void *p = rows[r] + at + 12 * g;
            const __m256i v = pair_pixels(_mm256_broadcastsi128_si256(_mm_loadu_si128(p)));
            low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(v, wl));
            high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(v, wh));
        }
    }
    for (int r = 0; r < ROWS; r++) {
        out[r] = finish_pixel(low[r], high[r]);
    }
}

/* A group of four taps loads 16 bytes. Pixels for which axis->taps taps would read past the row use the plain loop. A pixel's own
 * count does not work as a limit, because it does not grow with x. */
static int64_t safe_end(const dv_pil_across *a) {
    int64_t x = a->x1;
    while (x > a->x0 && 3 * ((int64_t)a->axis->first[x - 1] + a->axis->taps) + 4 > 3 * a->axis->in) {
        x--;
    }
    return x;
}

static void across(const dv_pil_across *a) {
    const int64_t end = safe_end(a);
    for (int64_t r = 0; r < a->rows; r += ROWS) {
        const uint8_t *rows[ROWS];
        uint8_t *outs[ROWS];
        for (int64_t i = 0; i < ROWS; i++) { /* repeats the last row */
            const int64_t row = dv_min(r + i, a->rows - 1);
            rows[i] = a->src + row * a->src_stride;
            outs[i] = a->dst + row * a->dst_stride;
        }
        for (int64_t x = a->x0; x < end; x++) {
            uint32_t rgb[ROWS];
            pixel(a, x, rows, rgb);
            for (int i = 0; i < ROWS; i++) {
                memcpy(outs[i] + 3 * (x - a->x0), &rgb[i], 3);
            }
        }
    }
    if (end < a->x1) {
        dv_pil_across rest = *a;
        rest.x0 = end;
        rest.dst += 3 * (end - a->x0);
        dv_pil_rows_plain.across(&rest);
    }
}

static __m256i finish_8(__m256i low, __m256i high) {
    const __m256i half = _mm256_set1_epi32(1 << (DV_PIL_BITS - 1));
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_add_epi32(low, _mm256_slli_epi32(high, 15)), half), DV_PIL_BITS);
}

/* Two weights of the split table as a pair for vpmaddwd. */
static __m256i pair_of(const int16_t *w) {
    int32_t pair;
    memcpy(&pair, w, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* Computes 32 bytes of the output row. Two source rows at a time: their interleaved bytes are the pairs for vpmaddwd. */
static void down_32(const dv_pil_down *d, const uint8_t *src, uint8_t *dst) {
    const int64_t count = d->axis->count[d->y];
    const int16_t *w = d->axis->split + d->y * d->axis->taps * 2;
    const __m256i zero = _mm256_setzero_si256();
    __m256i low[4] = {zero, zero, zero, zero};
    __m256i high[4] = {zero, zero, zero, zero};
    for (int64_t t = 0; t < count; t += 2) {
        const int16_t *pair = w + t / 4 * 8 + t % 4;
        const __m256i wl = pair_of(pair);
        const __m256i wh = pair_of(pair + 4);
        const void *p0 = src + t * d->src_stride;
        const void *p1 = src + (t + 1 < count ? t + 1 : t) * d->src_stride;
        const __m256i r0 = _mm256_loadu_si256(p0);
        const __m256i r1 = _mm256_loadu_si256(p1);
        const __m256i ab = _mm256_unpacklo_epi8(r0, r1);
        const __m256i cd = _mm256_unpackhi_epi8(r0, r1);
        const __m256i v[4] = {_mm256_unpacklo_epi8(ab, zero), _mm256_unpackhi_epi8(ab, zero),
                              _mm256_unpacklo_epi8(cd, zero), _mm256_unpackhi_epi8(cd, zero)};
        for (int i = 0; i < 4; i++) {
            low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(v[i], wl));
            high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(v[i], wh));
        }
    }
    const __m256i ab = _mm256_packs_epi32(finish_8(low[0], high[0]), finish_8(low[1], high[1]));
    const __m256i cd = _mm256_packs_epi32(finish_8(low[2], high[2]), finish_8(low[3], high[3]));
    _mm256_storeu_si256((void *)dst, _mm256_packus_epi16(ab, cd));
}

static void down(const dv_pil_down *d) {
    int64_t i = 0;
    for (; i + 32 <= d->bytes; i += 32) {
        down_32(d, d->src + i, d->dst + i);
    }
    if (i < d->bytes) {
        dv_pil_down rest = *d;
        rest.src += i;
        rest.dst += i;
        rest.bytes -= i;
        dv_pil_rows_plain.down(&rest);
    }
}

static const dv_pil_rows rows_avx2 = {.across = across, .down = down, .split = true};

const dv_pil_rows *dv_pil_rows_avx2(void) {
    return &rows_avx2;
}

#else

const dv_pil_rows *dv_pil_rows_avx2(void) {
    return NULL;
}

#endif
