/* winograd_band.h - "conv2d_winograd_band": what conv2d_winograd (op.h) makes, of a band of the pictures' rows, of as many
 * transformed rows as that takes: a picture is transformed and convolved a band at a time, and its transform, half as large
 * again as itself, never exists as a whole. */
#ifndef DVK_WINOGRAD_BAND_H
#define DVK_WINOGRAD_BAND_H

#include "kernels/op.h"

/* Rows first .. first + rows - 1 of conv.y, which is the whole picture, as conv2d_winograd would write them; the same of its
 * residuals and statistics. conv.x: transformed rows dvk_band_from .. dvk_band_to - 1 of the picture. */
/* "winograd_input" keeps what is plain of the first kept.h rows, where kept.h is less than x.h: the others come with the next
 * band. */
typedef struct dvk_winograd_band_args {
    dvk_conv2d_args conv; /* the first member: weights, statistics and residuals are bound as a convolution's */
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
