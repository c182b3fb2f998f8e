/* candidates.h - parameters of the device code of "candidates". */
#ifndef DVK_CUDA_CANDIDATES_H
#define DVK_CUDA_CANDIDATES_H

#include "kernels/lm.h"

enum {
    DVK_CANDIDATES_THREADS = 1024,
    DVK_CANDIDATES_WARPS = 8 /* threads of a block that finds the maxima of pieces */
};

typedef struct dvk_candidates_params {
    const float *x;
    uint32_t *tops; /* [pieces]: the maximum of each as an integer of the same order; 0: a NaN */
    dvk_candidates *to;
    int32_t n, pieces, least;
    int32_t reserved;
} dvk_candidates_params;

#endif
