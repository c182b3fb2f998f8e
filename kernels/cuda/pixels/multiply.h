/* multiply.h - parameters that multiply.c passes to multiply.cu. */
#ifndef DVK_CUDA_MULTIPLY_H
#define DVK_CUDA_MULTIPLY_H

#include "kernels/cuda/common/elem.h"

typedef struct dvk_multiply_params {
    dvk_elem_view x, g, y;
    dvk_elem_ends ends;
    int64_t pixels; /* of a picture */
    int32_t w;      /* 0: pixels are evenly spaced, also from row to row */
    int32_t c, chunks;
    int32_t act;
    int32_t one_pixel, one_channel; /* of g */
} dvk_multiply_params;

#endif
