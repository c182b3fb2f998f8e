/* argmax.h - parameters of the device code of "argmax". */
#ifndef DVK_CUDA_ARGMAX_H
#define DVK_CUDA_ARGMAX_H

#include <stdint.h>

enum { DVK_ARGMAX_BLOCKS = 64, DVK_ARGMAX_THREADS = 256 };

typedef struct dvk_argmax_best { /* of a piece of a row */
    float value;
    int32_t index; /* -1: a NaN was found */
} dvk_argmax_best;

typedef struct dvk_argmax_params {
    const float *x;
    dvk_argmax_best *best; /* [m][DVK_ARGMAX_BLOCKS] */
    int32_t *id;
    const int32_t *never;
    int32_t *advance;
    int64_t row;
    int32_t m, n, n_never, n_advance;
} dvk_argmax_params;

#endif
