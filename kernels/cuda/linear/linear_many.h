/* linear_many.h - shared code of the kernels of "linear" for many rows: the epilogue. */
#ifndef DVK_CUDA_LINEAR_MANY_H
#define DVK_CUDA_LINEAR_MANY_H

#include <stdint.h>

#include "kernels/lm.h"

typedef struct dvk_linear_out {
    void *y;
    const void *res;
    const float *bias;
    int64_t y_row, res_row;
    int32_t y_form, res_form; /* dvk_dtype */
    int32_t m, n, act, glu;
    int32_t y_pairs, res_pairs; /* two elements at an even column may be accessed together */
} dvk_linear_out;

#ifndef __CUDACC__
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/linear/linear_layout.h"
#include "kernels/dtype.h"

static inline int64_t dvk_many_ceil(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t dvk_many_rows(const dvk_linear_args *a) { /* of W */
    return a->glu ? 2 * a->n : a->n;
}

static inline int64_t dvk_many_bytes(const dvk_rows *r) { /* size of an element other than q8 */
    return (int64_t)dvk_dtype_size((dvk_dtype)r->form);
}

/* 1 if rows begin at multiples of `bytes` bytes. */
static inline int dvk_many_aligned(const dvk_rows *r, int64_t m, int64_t bytes) {
    return (uintptr_t)r->data % (uintptr_t)bytes == 0 && (m == 1 || r->row * dvk_many_bytes(r) % bytes == 0);
}

static inline dvk_linear_out dvk_many_out(const dvk_linear_args *a) {
    return (dvk_linear_out){.y = a->y.data,
                            .res = a->res.data,
                            .bias = a->bias,
                            .y_row = a->y.row,
                            .res_row = a->res.row,
                            .y_form = (int32_t)a->y.form,
                            .res_form = (int32_t)a->res.form,
                            .m = (int32_t)a->m,
                            .n = (int32_t)a->n,
                            .act = (int32_t)a->act,
                            .glu = a->glu != 0,
                            .y_pairs = dvk_many_aligned(&a->y, a->m, 2 * dvk_many_bytes(&a->y)),
                            .res_pairs =
                                a->res.data != NULL && dvk_many_aligned(&a->res, a->m, 2 * dvk_many_bytes(&a->res))};
}

static inline int dvk_many_is_16_bit(dvk_wtype t) {
    return t == DVK_W_F16 || t == DVK_W_BF16;
}

/* Types for tensor cores: x of W's 16-bit type, or integer W, which are converted to x's type. */
static inline int dvk_many_pairs_with(const dvk_linear_args *a) {
    return (a->x.form == DVK_ROWS_F16 && a->type != DVK_W_BF16 && a->type != DVK_W_F32) ||
           (a->x.form == DVK_ROWS_BF16 && a->type != DVK_W_F16 && a->type != DVK_W_F32);
}

/* 1 if rows and columns can be counted in 32 bits and x needs no norm or sum. */
static inline int dvk_many_fits(const dvk_linear_args *a) {
    return a->norm == NULL && !a->rounded && a->m < 1 << 24 && dvk_many_rows(a) < 1 << 24 && a->k < 1 << 24;
}

/* Minimum traffic between memory and multiprocessors in bytes. */
static inline double dvk_many_traffic(const dvk_linear_args *a) {
    const double x = (double)a->m * (double)a->k * (a->x.form == DVK_ROWS_Q8 ? 1.5 : (double)dvk_many_bytes(&a->x));
    const double y = (double)a->m * (double)a->n * (double)dvk_many_bytes(&a->y) * (a->res.data != NULL ? 2.0 : 1.0);
    return x + y + (double)dvk_linear_packed_bytes(a);
}
#endif

#endif
