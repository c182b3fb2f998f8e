/* linear_simt.h - definitions shared by linear_simt.c and linear_simt.cu. */
#ifndef DVK_CUDA_LINEAR_SIMT_H
#define DVK_CUDA_LINEAR_SIMT_H

#include "kernels/cuda/linear/linear_many.h"

enum { DVK_LINEAR_SIMT_TILE = 64, DVK_LINEAR_SIMT_K = 16, DVK_LINEAR_SIMT_THREADS = 256 };

typedef struct dvk_linear_simt {
    dvk_linear_out out;
    const void *x;
    const unsigned char *w;
    float *parts;                 /* [splits][m][w_rows], or NULL: the kernel runs the epilogue */
    int64_t x_row, w_row, scales; /* w_row: bytes */
    int32_t x_form, kind, zero, scale_row;
    int32_t k, w_rows, shares, steps, m_tiles;
} dvk_linear_simt;

#endif
