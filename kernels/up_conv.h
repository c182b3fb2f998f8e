/* up_conv.h - "up_conv": a transposed convolution of 2 x 2 with what is added behind it, and the 3 x 3 without padding that
 * reads the sum. That sum, the largest picture of a U-shaped network, is never in memory. */
#ifndef DVK_UP_CONV_H
#define DVK_UP_CONV_H

#include "kernels/op.h"

/* m = bend(the pixel shuffle by two of w_up * (x * scale) + b_up) + res, as large as res, in the type of y;
 * y = bend(w * m + b), two rows and columns less. bend(v) = v >= 0 ? v : slope * v, each with a slope of its own. */
typedef struct dvk_up_conv_args {
    dvk_view x, res, y;
    const float *scale;       /* [c of x] or NULL */
    const float *w_up, *b_up; /* [4 * c of res][c of x], channels as pixel_shuffle has them; [4 * c of res] or NULL */
    const float *w, *b;       /* [c of y][c of res][3][3]; [c of y] or NULL */
    float slope_up, slope;
} dvk_up_conv_args;

#endif
