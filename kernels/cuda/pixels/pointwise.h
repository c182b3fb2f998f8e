/* pointwise.h - parameters that pointwise.c passes to pointwise.cu. */
#ifndef DVK_CUDA_POINTWISE_H
#define DVK_CUDA_POINTWISE_H

#include "kernels/cuda/common/elem.h"

typedef struct dvk_pointwise_params {
    dvk_elem_view x, y;
    dvk_elem_ends ends;
    int64_t pixels; /* of a picture */
    int32_t w;      /* 0: pixels are evenly spaced, also from row to row */
    int32_t c;
    int32_t chunks; /* of eight channels */
    int32_t tail;   /* channels of the very last pixel if they are fewer than c; otherwise 0 */
} dvk_pointwise_params;

#endif
