/* pil_rows.h - the two inner loops of pil_resize.c: in plain C, and with AVX2. Results are equal in every bit. */
#ifndef DV_VLM_PIL_ROWS_H
#define DV_VLM_PIL_ROWS_H

#include "core/base/common.h"

enum { DV_PIL_BITS = 22 }; /* fraction bits of the fixed-point weights */

/* Weights of one axis. Output i is the sum over taps t < count[i] of source[first[i] + t] * weight[i * taps + t]. */
typedef struct dv_pil_axis {
    int64_t in, out;
    int64_t taps; /* weights stored per output: a multiple of 4, padded with zeros */
    int32_t *first;
    int32_t *count;
    int32_t *weight;
    /* The same weights split for 16-bit multiplication: weight = high * 2^15 + low, 0 <= low < 2^15. For each output and
     * each four taps: four lows, then four highs. NULL: not needed. */
    int16_t *split;
} dv_pil_axis;

/* Horizontal pass: RGB pixels [x0, x1) of `rows` rows. src is row 0, of width axis->in; dst is pixel x0 of row 0. */
typedef struct dv_pil_across {
    const dv_pil_axis *axis;
    const uint8_t *src;
    uint8_t *dst;
    int64_t src_stride, dst_stride;
    int64_t x0, x1, rows;
} dv_pil_across;

/* Vertical pass: `bytes` bytes of output row y. src is row axis->first[y]. */
typedef struct dv_pil_down {
    const dv_pil_axis *axis;
    const uint8_t *src;
    uint8_t *dst;
    int64_t src_stride;
    int64_t y, bytes;
} dv_pil_down;

typedef struct dv_pil_rows {
    void (*across)(const dv_pil_across *a);
    void (*down)(const dv_pil_down *d);
    bool split; /* reads axis->split */
} dv_pil_rows;

extern const dv_pil_rows dv_pil_rows_plain;
const dv_pil_rows *dv_pil_rows_avx2(void); /* NULL: not in this build */

#endif
