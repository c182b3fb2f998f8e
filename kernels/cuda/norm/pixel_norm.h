/* pixel_norm.h - definitions shared by pixel_norm.c and pixel_norm.cu. */
#ifndef DVK_CUDA_PIXEL_NORM_H
#define DVK_CUDA_PIXEL_NORM_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_PIXEL_NORM_WARPS = 8, /* of a block */
    DVK_PIXEL_NORM_LANES = 8, /* of a row */
    DVK_PIXEL_NORM_OCTETS = 8 /* of a lane, at most */
};

typedef struct dvk_pixel_norm_params {
    dvk_elem_view x, y;
    const float *w, *b; /* or NULL */
    int64_t rows, x_row, y_row;
    int32_t dim;
    int32_t alone; /* the elements behind the last channel of y are padding and may be overwritten */
    float eps;
    int32_t reserved;
} dvk_pixel_norm_params;

#endif
