/* conv_down.h - the op "conv_down": a 3 x 3 convolution without padding, then a 2 x 2 convolution with stride 2 of its
 * result. Both results are stored. The second convolution does not read the first result from memory. */
#ifndef DVK_CONV_DOWN_H
#define DVK_CONV_DOWN_H

#include "kernels/op.h"

/* y = bend(w * x + b), two rows and columns smaller than x. z = bend(w_down * y + b_down) of y as stored, at half the
 * size; an odd last row or column of y is not read. bend(v) = v >= 0 ? v : slope * v. Each convolution has a separate
 * slope. */
typedef struct dvk_conv_down_args {
    dvk_view x, y, z;
    const float *w, *b;           /* [c of y][c of x][3][3]; [c of y] or NULL */
    const float *w_down, *b_down; /* [c of z][c of y][2][2]; [c of z] or NULL */
    float slope, slope_down;
} dvk_conv_down_args;

#endif
