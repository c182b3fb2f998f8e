/* pil_resize.h - resampling of 8-bit RGB pictures with the bits of Pillow 12: 22-bit fixed-point weights, a horizontal pass,
 * rounding to 8 bits, a vertical pass. Vision models were trained on these values. */
#ifndef DV_VLM_PIL_RESIZE_H
#define DV_VLM_PIL_RESIZE_H

#include "core/base/common.h"
#include "core/base/pool.h"

typedef enum dv_pil_filter { /* Pillow's numbers, as in preprocessor_config.json */
                             DV_PIL_LANCZOS = 1,
                             DV_PIL_BILINEAR = 2,
                             DV_PIL_BICUBIC = 3,
                             DV_PIL_BOX = 4,
                             DV_PIL_HAMMING = 5
} dv_pil_filter;

enum { DV_PIL_MAX_SIDE = 1 << 20 };

typedef struct dv_rgb8 {
    uint8_t *data; /* R, G, B of a pixel side by side */
    int64_t width, height;
    int64_t stride; /* bytes from row to row */
} dv_rgb8;

typedef struct dv_pil_options {
    dv_pil_filter filter;
    const float *box; /* x0, y0, x1, y1 of the source; NULL: the whole source */
    dv_pool *pool;    /* NULL: the calling thread only */
    uint32_t cpu;     /* DVK_CPU_* bits that may be used */
} dv_pil_options;

/* Resamples src into dst. The caller sets dst's size, stride and memory; src and dst must not overlap. Besides the weight
 * tables it needs about 1 MB per thread. At scales above 100 it needs as many rows of 256 pixels as the filter spans. */
davy_result dv_pil_resize(const dv_pil_options *o, const dv_rgb8 *src, const dv_rgb8 *dst);

#endif
