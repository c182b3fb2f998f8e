/* pil_resize.h - resampling of 8-bit RGB pictures, bit for bit as Pillow 12 does it: 22-bit fixed-point weights,
 * a horizontal pass, rounding to 8 bits, a vertical pass. Preprocessors of vision models are defined by these numbers. */
#ifndef DV_VLM_PIL_RESIZE_H
#define DV_VLM_PIL_RESIZE_H

#include "core/base/common.h"
#include "core/base/pool.h"

typedef enum dv_pil_filter { /* Pillow's own numbers, as preprocessor_config.json has them */
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
    const float *box; /* x0, y0, x1, y1 of the source; NULL: all of it */
    dv_pool *pool;    /* NULL: this thread alone */
    uint32_t cpu;     /* DVK_CPU_* bits that may be used */
} dv_pil_options;

/* Resamples src into dst, whose sizes, stride and memory are the caller's; they must not overlap. Beside the tables of
 * weights it takes about a megabyte per thread for ordinary scales; at scales above 100 as many rows of 256 pixels as
 * the filter reaches over. */
davy_result dv_pil_resize(const dv_pil_options *o, const dv_rgb8 *src, const dv_rgb8 *dst);

#endif
