/* norm_depthwise.h - the op "norm_depthwise": layer norm, 1x1 convolution and depthwise 3x3 of a transformer block. For
 * a gated feed-forward layer it includes the gate and the last 1x1 convolution. It can also run the two convolutions
 * alone. */
#ifndef DVK_NORM_DEPTHWISE_H
#define DVK_NORM_DEPTHWISE_H

#include "kernels/op.h"

/* u = (x - mean) / sqrt(var + eps) * gamma + beta over the channels of each pixel, biased variance. plain: u = x. v =
 * act_in(w_in u + b_in), zero around the picture. d = depthwise 3x3 of v with w_depth, + b_depth. With w_out NULL, y =
 * act(d). Otherwise y = w_out (act(d[first half]) * d[second half]) + b_out + res. */
typedef struct dvk_norm_depthwise_args {
    dvk_view x, y, res;             /* res.data NULL: none */
    const float *gamma, *beta;      /* [c] or NULL: 1 and 0 */
    const float *w_in, *b_in;       /* [hidden][c]; [hidden] or NULL */
    const float *w_depth, *b_depth; /* [9][hidden]; [hidden] or NULL */
    const float *w_out, *b_out;     /* [c of y][hidden / 2] or NULL; [c of y] or NULL */
    int64_t hidden;
    float eps;
    dvk_act act, act_in; /* without slopes */
    int32_t plain;
} dvk_norm_depthwise_args;

#endif
