/* pad.h - parameters that pad.c passes to pad.cu. */
#ifndef DVK_CUDA_PAD_H
#define DVK_CUDA_PAD_H

#include "kernels/cuda/common/elem.h"

typedef struct dvk_pad_params {
    dvk_elem_view x, y;
    int32_t rows, h, w; /* of y; rows: of all pictures */
    int32_t xh, xw;
    int32_t top, left;
    int32_t c, chunks;
    int32_t mode;
    int32_t whole; /* the last vectors of the channels of x and y may be read and written whole */
} dvk_pad_params;

#endif
