/* up_conv.h - the op "up_conv": a transposed convolution of 2 x 2, an addition, and a 3 x 3 convolution without padding
 * of the sum. The sum, the largest picture of a U-shaped network, is never stored. */
#ifndef DVK_UP_CONV_H
#define DVK_UP_CONV_H

#include "kernels/op.h"

/* m = bend(the pixel shuffle by two of w_up * (x * scale) + b_up) + res, with the size of res and the type of y. y =
 * bend(w * m + b), two rows and columns smaller. bend(v) = v >= 0 ? v : slope * v. Each convolution has a separate
 * slope. */
typedef struct dvk_up_conv_args {
    dvk_view x, res, y;
    const float *scale; /* [c of x] or NULL */
    /* [4 * c of res][c of x], channels in the order of pixel_shuffle; [4 * c of res] or NULL */
    const float *w_up, *b_up;
    const float *w, *b; /* [c of y][c of res][3][3]; [c of y] or NULL */
    float slope_up, slope;
} dvk_up_conv_args;

#endif
