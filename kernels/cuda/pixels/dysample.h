/* dysample.h - parameters that dysample.c passes to dysample.cu. */
#ifndef DVK_CUDA_DYSAMPLE_H
#define DVK_CUDA_DYSAMPLE_H

#include "kernels/cuda/common/elem.h"

typedef struct dvk_dysample_params {
    dvk_elem_view x, offset, y;
    int32_t rows, h, w; /* of y; rows: of all pictures */
    int32_t xh, xw;
    int32_t width; /* channels of a group */
    int32_t groups, r;
    int32_t parts, chunks; /* separate groups, or 1 if they are summed; pieces of a part's channels, one per thread */
} dvk_dysample_params;

#endif
