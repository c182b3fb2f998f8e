/* candidates.h - what "candidates" hands to its device code. */
#ifndef DVK_CUDA_CANDIDATES_H
#define DVK_CUDA_CANDIDATES_H

#include "kernels/lm.h"

enum { DVK_CANDIDATES_THREADS = 1024, DVK_CANDIDATES_WARPS = 8 /* of a block that looks for the largest of pieces */ };

typedef struct dvk_candidates_params {
    const float *x;
    uint32_t *tops; /* [pieces]: the largest value of each as a number that rises with it; 0: a NaN */
    dvk_candidates *to;
    int32_t n, pieces, least;
    int32_t reserved;
} dvk_candidates_params;

#endif
