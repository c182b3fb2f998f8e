/* excite.h - "excite": what a squeeze-and-excitation block has behind the sums of its picture's channels, with a
 * convolution's weights scaled by it, if any are given: the product of the picture and the scales is never made. */
#ifndef DVK_EXCITE_H
#define DVK_EXCITE_H

#include "kernels/op.h"

/* scale = sigmoid(w_out relu(w_in m + b_in) + b_out), m = the sum of the rows of `sums`, over `pixels`.
 * scaled[i] = w[i] * scale[channel[i]] for `count` values of `dtype`, 16 bits each, a channel as a number of that type;
 * count is a multiple of 8, and eight values in a row from a multiple of 8 on are of channels in a row, or all zero. */
typedef struct dvk_excite_args {
    const float *sums;          /* [rows][c] */
    const float *w_in, *b_in;   /* [hidden][c]; [hidden] or NULL */
    const float *w_out, *b_out; /* [c][hidden]; [c] or NULL */
    float *scale;               /* [c] */
    const void *w, *channel;
    void *scaled;
    int64_t rows, c, hidden, pixels, count;
    dvk_dtype dtype;
    int32_t reserved;
} dvk_excite_args;

#endif
