/* excite.h - the op "excite": the part of a squeeze-and-excitation block after the sums of the channels. It can also
 * scale the weights of the next convolution, so that the product of picture and scales is never stored. */
#ifndef DVK_EXCITE_H
#define DVK_EXCITE_H

#include "kernels/op.h"

/* scale = sigmoid(w_out relu(w_in m + b_in) + b_out), m = the sum of the rows of `sums`, divided by `pixels`.
 * scaled[i] = w[i] * scale[channel[i]] for `count` values of the 16-bit type `dtype`; the channel numbers are stored in
 * that type. count is a multiple of 8. Each aligned group of eight values belongs to consecutive channels or is zero. */
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
