/* patches.h - parameters of the device code of "patches". */
#ifndef DVK_CUDA_PATCHES_H
#define DVK_CUDA_PATCHES_H

#include <stdint.h>

#include "kernels/cuda/norm/rows.h"

typedef struct dvk_patches_params {
    const uint8_t *x;
    const float *table;
    const int32_t *order;
    dvk_rows_view y;
    int64_t items; /* of four values, a patch's number of them rounded up */
    int32_t values, per_patch;
} dvk_patches_params;

#endif
