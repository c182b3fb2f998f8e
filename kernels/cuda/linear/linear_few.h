/* linear_few.h - parameters that linear_few.c passes to linear_few.cu. */
#ifndef DVK_CUDA_LINEAR_FEW_H
#define DVK_CUDA_LINEAR_FEW_H

#include "kernels/cuda/common/elem.h"
#include "kernels/lm.h"

enum {
    FEW_WARPS = 8,  /* of a block */
    FEW_TOKENS = 8, /* at most */
    FEW_NORM = 4096 /* maximum length of a row that is normalised while it is staged */
};

typedef struct dvk_linear_few_params {
    dvk_elem_view x, y, res; /* sh: row stride. x of dvk_q8: sh in blocks; res.data NULL: none */
    const unsigned char *w, *scales;
    const float *bias;
    int64_t w_row, scale_row; /* bytes */
    int32_t m, n;
    int32_t chunks; /* 16-byte chunks in a row of w */
    int32_t k;
    int32_t glu, act;
    int32_t zero;  /* of integer weights */
    int32_t split; /* warps that share a row: 1, 2, 4 or 8 */
    int32_t phase; /* chunks whose x are in shared memory together, a multiple of 32 * split */
    const float *norm;
    const float *more; /* rows that are added to x; NULL: none */
    float *sum;
    float norm_eps;
    int32_t n_more;
    int32_t norm_at; /* offset of the norm's factors in shared memory, behind x */
    int32_t rounded; /* x is f32 and is quantised for integer weights */
    int32_t early;   /* 1: the next launch may begin before this one waits; 0: after */
} dvk_linear_few_params;

/* Blocks per multiprocessor that registers allow for `sums` sums per thread. `whole`: integers; `large`: as in
 * linear_few.cu. */
#define FEW_RESIDENT(sums, whole, large) ((large) ? 4 : (sums) <= 2 ? 3 : (sums) <= 4 ? 3 - (whole) : 2)

#endif
