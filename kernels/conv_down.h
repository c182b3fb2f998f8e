/* conv_down.h - "conv_down": a 3 x 3 without padding, whose result is wanted, and the 2 x 2 with a stride of two that reads
 * that result, which is not read again for it. */
#ifndef DVK_CONV_DOWN_H
#define DVK_CONV_DOWN_H

#include "kernels/op.h"

/* y = bend(w * x + b), two rows and columns less than x; z = bend(w_down * y + b_down), of y as it is stored, half as
 * large, what is left over not read. bend(v) = v >= 0 ? v : slope * v, each with a slope of its own. */
typedef struct dvk_conv_down_args {
    dvk_view x, y, z;
    const float *w, *b;           /* [c of y][c of x][3][3]; [c of y] or NULL */
    const float *w_down, *b_down; /* [c of z][c of y][2][2]; [c of z] or NULL */
    float slope, slope_down;
} dvk_conv_down_args;

#endif
