/* norm_depthwise.h - what norm_depthwise.c passes to norm_depthwise.cu. */
#ifndef DVK_CUDA_NORM_DEPTHWISE_H
#define DVK_CUDA_NORM_DEPTHWISE_H

#include "kernels/cuda/elem.h"

enum {
    DVK_NORM_DEPTH_C = 64, /* channels of x, and of hidden ones at a time */
    DVK_NORM_DEPTH_W = 16, /* output pixels of a tile */
    DVK_NORM_DEPTH_H = 8,
    DVK_NORM_DEPTH_ROWS = 192, /* pixels of its patch, as a product has them: 18 x 10 and some more */
    DVK_NORM_DEPTH_PITCH = 72, /* 16-bit elements from one row in shared memory to the next */
    DVK_NORM_DEPTH_BLOCK = 256
};

typedef struct dvk_norm_depthwise_params {
    dvk_elem_view x, y, res;
    const float *gamma, *beta, *w_in, *b_in, *w_depth, *b_depth, *w_out, *b_out;
    int32_t h, w;
    int32_t tiles_x, tiles_y, jobs;
    int32_t hidden, act;
    float eps;
} dvk_norm_depthwise_params;

#endif
