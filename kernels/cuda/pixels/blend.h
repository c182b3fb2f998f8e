/* blend.h - parameters that blend.c passes to blend.cu. */
#ifndef DVK_CUDA_BLEND_H
#define DVK_CUDA_BLEND_H

#include "kernels/cuda/common/elem.h"

typedef struct dvk_blend_params {
    dvk_elem_view x, y;
    const float *wy, *wx;
    int32_t rows, h, w; /* rows: of all pictures */
    int32_t c, chunks;
} dvk_blend_params;

#endif
