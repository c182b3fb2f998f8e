/* resample.h - parameters that resample.c passes to resample.cu. */
#ifndef DVK_CUDA_RESAMPLE_H
#define DVK_CUDA_RESAMPLE_H

#include "kernels/cuda/common/elem.h"

typedef struct dvk_resample_params {
    dvk_elem_view x, y, res; /* res.data NULL: none */
    int32_t rows, h, w;      /* of the small side; rows: of all pictures */
    int32_t c;               /* channels of upsample; of the large side of the shuffles */
    int32_t chunks;          /* pieces of a pixel's channels, one per thread */
    int32_t r;
} dvk_resample_params;

#endif
