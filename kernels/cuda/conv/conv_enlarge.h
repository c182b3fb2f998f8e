/* conv_enlarge.h - parameters that conv_enlarge.c passes to conv_enlarge.cu. */
#ifndef DVK_CUDA_CONV_ENLARGE_H
#define DVK_CUDA_CONV_ENLARGE_H

#include "kernels/cuda/conv/conv_common.h"

enum {
    DVK_ENLARGE_PIXELS = 32, /* pixels of a row per warp */
    DVK_ENLARGE_GROUP = 32   /* channels of the result, of one parity */
};

typedef struct dvk_conv_enlarge {
    dvk_conv_view x, y, res; /* res: of y's size */
    const void *w;           /* [group][32 input channels][eight columns][lane] of eight values */
    const float *bias, *slopes;
    const float *res_scale; /* [c_out] or NULL */
    int32_t fresh;          /* the preceding launch writes the weights */
    float slope, alpha, beta;
    int32_t has_act, n_res;
    int32_t h, w_in;       /* of x */
    int32_t c_out;         /* of y */
    int32_t strips, tiles; /* of DVK_ENLARGE_PIXELS in a row, and of all */
    int32_t w_bytes;
} dvk_conv_enlarge;

#endif
