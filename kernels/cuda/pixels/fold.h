/* fold.h - parameters that plan/fuse_cuda.c passes to fold.cu. */
#ifndef DVK_CUDA_FOLD_H
#define DVK_CUDA_FOLD_H

#include "kernels/cuda/common/elem.h"

typedef struct dvk_fold_params {
    dvk_elem_view x, y;
    int32_t rows, h, w; /* of y; rows: of all pictures */
    int32_t c;          /* of y */
    int32_t chunks;     /* groups of eight of y's channels */
    int32_t r, top, left;
    int32_t in_h, in_w, in_c; /* of x */
    int32_t dim, padded;      /* of a head; fold */
    int32_t whole;            /* every aligned group of eight channels is in one pixel of x */
} dvk_fold_params;

#endif
