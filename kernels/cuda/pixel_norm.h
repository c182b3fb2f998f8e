/* pixel_norm.h - what pixel_norm.c and pixel_norm.cu agree on. */
#ifndef DVK_CUDA_PIXEL_NORM_H
#define DVK_CUDA_PIXEL_NORM_H

#include "kernels/cuda/elem.h"

enum {
    DVK_PIXEL_NORM_WARPS = 8, /* of a block */
    DVK_PIXEL_NORM_ROWS = 4   /* of a warp at a time */
};

typedef struct dvk_pixel_norm_params {
    dvk_elem_view x, y;
    const float *w, *b; /* or NULL */
    int64_t rows, x_row, y_row;
    int32_t dim;
    float eps;
} dvk_pixel_norm_params;

#endif
