/* norm_depthwise.h - parameters that norm_depthwise.c passes to norm_depthwise.cu and plain_depthwise.cu. */
#ifndef DVK_CUDA_NORM_DEPTHWISE_H
#define DVK_CUDA_NORM_DEPTHWISE_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_NORM_DEPTH_C = 64,       /* channels of x, and of hidden ones at a time */
    DVK_NORM_DEPTH_W = 14,       /* pixels of a strip; a product has one more on both sides */
    DVK_NORM_DEPTH_WARPS = 12,   /* maximum of a block; they are independent */
    DVK_NORM_DEPTH_FEW = 4,      /* minimum */
    DVK_NORM_DEPTH_STAGE = 4096, /* bytes that a warp loads: two rows of 16 pixels */
    DVK_NORM_DEPTH_PIECE = 512,  /* bytes per warp for eight hidden channels */
    DVK_NORM_DEPTH_MOST = 192,   /* maximum hidden channels of a job; for more, a job has 64 */
    DVK_NORM_DEPTH_TAPS = 12,    /* words for two hidden channels: nine taps, bias, value outside the picture */
    DVK_PLAIN_DEPTH_TAPS = 12 /* pairs of f32, without a norm: nine taps, bias, bias of the 1x1 convolution, padding */
};

/* A strip of a picture (and of `at_once` hidden channels if these are stored) is `pairs` pairs of rows. The strips form
 * one sequence, of which a warp takes `each` pairs. Shared memory, from the start: w_in, w_out, taps, biases [hidden]
 * as f32; then for each warp pixels, sums and, for a gated layer, the operand of the second product. Without a norm:
 * w_in, taps; then for each warp pixels, sums and results. */
typedef struct dvk_norm_depthwise_params {
    dvk_elem_view x, y, res;
    const float *gamma, *beta, *w_in, *b_in, *w_depth, *b_depth, *w_out, *b_out;
    int32_t h, w;
    int32_t strips, pairs, total, each;
    int32_t hidden, at_once;
    int32_t warp_bytes;
    float eps;
} dvk_norm_depthwise_params;

#endif
