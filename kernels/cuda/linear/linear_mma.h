/* linear_mma.h - definitions shared by linear_mma.c and linear_mma.cu. */
#ifndef DVK_CUDA_LINEAR_MMA_H
#define DVK_CUDA_LINEAR_MMA_H

#include "kernels/cuda/linear/linear_many.h"

enum { DVK_LINEAR_MMA_K = 32, DVK_LINEAR_MMA_STAGES = 3 }; /* a step: rows of 64 bytes */

/* rows of x and of W per block, warps along them */
#define LINEAR_MMA_TILES(X)                                                                                            \
    X(128, 128, 2, 2)                                                                                                  \
    X(64, 64, 2, 2)

typedef struct dvk_linear_mma {
    dvk_linear_out out;
    const uint16_t *x, *w;
    float *parts; /* [splits][m][w_rows], or NULL: the kernel runs the epilogue */
    int64_t x_row, w_row;
    int32_t k, w_rows, shares, steps;
    int32_t m_tiles, n_tiles, together; /* tiles along m that share one n before the next n */
    int32_t x_aligned;                  /* rows of x begin at multiples of 16 bytes */
} dvk_linear_mma;

#endif
