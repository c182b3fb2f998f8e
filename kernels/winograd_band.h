/* winograd_band.h - the op "conv2d_winograd_band": conv2d_winograd (op.h) for a band of rows. It needs only the
 * transformed rows of that band. The transform, which is 1.5 times the picture, is therefore never stored as a whole. */
#ifndef DVK_WINOGRAD_BAND_H
#define DVK_WINOGRAD_BAND_H

#include "kernels/op.h"

/* Writes rows first .. first + rows - 1 of conv.y, with the same result as conv2d_winograd. Views of conv.y, its
 * residuals and statistics are those of the whole picture. conv.x holds the transformed rows dvk_band_from ..
 * dvk_band_to - 1 of the picture. */
/* If kept.h is less than x.h, "winograd_input" keeps only the first kept.h rows of pro(x). The next band keeps the
 * others. */
typedef struct dvk_winograd_band_args {
    /* the first member, so that weights, statistics and residuals are bound as in a convolution */
    dvk_conv2d_args conv;
    int64_t first, rows;
} dvk_winograd_band_args;

static inline int64_t dvk_band_from(const dvk_winograd_band_args *a) {
    return a->first > 0 ? a->first - 1 : 0;
}

static inline int64_t dvk_band_to(const dvk_winograd_band_args *a) {
    const int64_t end = a->first + a->rows;
    return end < a->conv.y.h ? end + 1 : a->conv.y.h;
}

#endif
