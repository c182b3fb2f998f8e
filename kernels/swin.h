/* swin.h - halves of a transformer block as fused ops for CUDA. Intermediate results stay in the multiprocessor. */
#ifndef DVK_SWIN_H
#define DVK_SWIN_H

#include "kernels/op.h"

/* u = (x - mean) / sqrt(var + eps) * gamma + beta over the channels of each pixel, biased variance. */
typedef struct dvk_swin_norm {
    const float *gamma, *beta; /* [c] or NULL: 1 and 0 */
    float eps;
    int32_t reserved;
} dvk_swin_norm;

/* A 1x1 convolution. plain: layout of the reference. packed: layout of the CUDA kernel (kernels/cuda/window/swin.h).
 * The unused one may be NULL. */
typedef struct dvk_swin_linear {
    const float *w; /* [out][in] */
    const void *packed;
    const float *bias; /* [out] or NULL */
} dvk_swin_linear;

/* "norm_mlp": y = out(gelu(in(u))) + res, with `hidden` channels between in and out. */
typedef struct dvk_norm_mlp_args {
    dvk_view x, y, res; /* res.data NULL: none */
    dvk_swin_norm norm;
    dvk_swin_linear in, out;
    int64_t hidden;
} dvk_norm_mlp_args;

/* "norm_window": y = out(attention of in(u)) + res. in gives the queries, keys and values of all heads, 3 * heads * dim
 * concatenated channels. The attention is "window_attention" of pictures that windows divide. */
typedef struct dvk_norm_window_args {
    dvk_view x, y, res; /* res.data NULL: none */
    dvk_swin_norm norm;
    dvk_swin_linear in, out;
    const float *table; /* [heads][2 * window - 1][2 * window - 1] or NULL */
    int64_t heads, dim;
    int32_t window, shift_y, shift_x, grid;
    float scale;
    int32_t reserved;
} dvk_norm_window_args;

#endif
