/* linear_widen.h - converts integer W to 16-bit numbers, in memory that a later launch reads. */
#ifndef DVK_CUDA_LINEAR_WIDEN_H
#define DVK_CUDA_LINEAR_WIDEN_H

#include "kernels/cuda/linear/linear_layout.h"

typedef struct dvk_linear_widen {
    const unsigned char *w;
    void *to;          /* [rows][pieces] of eight, zeros behind k */
    int64_t scales;    /* of linear_layout.h */
    int64_t row;       /* bytes of a row of numbers */
    int64_t total;     /* pieces in all */
    int32_t pieces, k; /* of a row */
    int32_t kind, zero, scale_row, form;
} dvk_linear_widen;

#ifndef __CUDACC__
#include "kernels/cuda/cuda.h"

size_t dvk_linear_widen_bytes(const dvk_linear_args *a); /* 0: W is not of an integer type */
double dvk_linear_widen_ns(const dvk_linear_args *a, const dvk_cuda_caps *caps);
/* Converts W to x's type; the next launch in the queue must wait for it. */
int dvk_linear_widen_enqueue(const dvk_linear_args *a, void *to, dvk_queue *q);
#endif

#endif
