/* linear_few_host.h - shared code of the host sides of "linear" for few rows. */
#ifndef DVK_CUDA_LINEAR_FEW_HOST_H
#define DVK_CUDA_LINEAR_FEW_HOST_H

#include "kernels/cuda/common/elem_host.h"
#include "kernels/cuda/linear/linear_few.h"
#include "kernels/cuda/linear/linear_layout.h"

static inline const char *few_name(lin_kind kind) {
    static const char *const names[] = {"f32",     "f16",    "bf16",    "bytes",       "bytes_min",
                                        "bytes_k", "halves", "nibbles", "nibbles_min", "nibbles_k"};
    return names[kind];
}

static inline int64_t few_rows_of(const dvk_linear_args *a) {
    return a->glu ? 2 * a->n : a->n;
}

static inline double few_bytes(const dvk_linear_args *a) {
    return (double)dvk_linear_layout_of(lin_kind_of(a->type), few_rows_of(a), a->k).bytes;
}

static inline int few_any_float(const dvk_rows *x) {
    return x->form == DVK_ROWS_F32 || x->form == DVK_ROWS_F16 || x->form == DVK_ROWS_BF16;
}

static inline int few_more_fits(const dvk_linear_args *a) {
    return a->more == NULL || (a->m == 1 && a->norm != NULL && a->n_more <= DVK_MORE && (uintptr_t)a->more % 16 == 0 &&
                               (uintptr_t)a->sum % 16 == 0);
}

/* 1 if rows of f32 are normalised or summed while they are staged: four values at a time, with a norm's factors. */
static inline int few_changes(const dvk_linear_args *a) {
    return few_more_fits(a) && a->x.form == DVK_ROWS_F32 && (uintptr_t)a->x.data % 16 == 0 &&
           (a->m == 1 || a->x.row % 4 == 0) && a->k % 4 == 0 &&
           (a->norm == NULL || ((uintptr_t)a->norm % 16 == 0 && a->k <= FEW_NORM));
}

/* Supported forms: float weights times rows of f32, f16 or bf16 with products in f32; integer weights times q8. */
static inline int few_forms(const dvk_linear_args *a) {
    const int fit = few_rows_of(a) < INT32_MAX / 2 && a->k < INT32_MAX / 2 && few_any_float(&a->y);
    const int whole = lin_kind_of(a->type) > LIN_BF16;
    if (!fit || (a->norm != NULL && whole && !a->rounded) || (a->rounded && !whole)) {
        return 0;
    }
    return a->norm != NULL || a->rounded ? few_changes(a)
           : whole                       ? a->x.form == DVK_ROWS_Q8 && (uintptr_t)a->x.data % 16 == 0
                                         : few_any_float(&a->x);
}

/* Shared memory of a norm's factors in bytes. */
static inline int32_t few_norm_shared(const dvk_linear_args *a) {
    return a->norm != NULL ? (int32_t)a->k * 4 : 0;
}

static inline dvk_elem_view few_view(const dvk_rows *x, int64_t m, int64_t first) {
    const int64_t size = x->form == DVK_ROWS_Q8 ? (int64_t)sizeof(dvk_q8) : x->form == DVK_ROWS_F32 ? 4 : 2;
    unsigned char *data = x->data;
    return (dvk_elem_view){.data = data != NULL ? data + first * x->row * size : NULL,
                           .sh = x->row,
                           .dtype = (int32_t)x->form,
                           .vector = (uintptr_t)data % 16 == 0 && (m == 1 || x->row * size % 16 == 0)};
}

/* Number of tokens of the kernel: the next power of two. */
static inline int32_t few_tokens(int64_t m) {
    return m > 4 ? 8 : m > 2 ? 4 : (int32_t)m;
}

/* Shared memory of x for one chunk of all tokens, in bytes. */
static inline int32_t few_chunk_shared(lin_kind kind, int32_t tokens) {
    const int32_t bytes = kind == LIN_F32         ? 16
                          : kind <= LIN_BF16      ? 32
                          : dvk_lin_nibbles(kind) ? (int32_t)sizeof(dvk_q8)
                                                  : (int32_t)sizeof(dvk_q8) / 2;
    return bytes * tokens;
}

/* Dynamic shared memory to request. launch() allows 48 KiB without a request (cuda.h), less the kernel's static part. */
static inline uint32_t few_shared(int32_t bytes, int32_t own) {
    const int32_t most = 48 << 10;
    return (uint32_t)(bytes > most - own && bytes <= most ? most + 16 : bytes);
}

/* Parameters for up to `most` tokens from `first` on, except split and phase. */
static inline dvk_linear_few_params few_params(const dvk_linear_args *a, int64_t first, int64_t most) {
    const dvk_linear_layout l = dvk_linear_layout_of(lin_kind_of(a->type), few_rows_of(a), a->k);
    const int64_t m = a->m - first < most ? a->m - first : most;
    return (dvk_linear_few_params){.x = few_view(&a->x, m, first),
                                   .y = few_view(&a->y, m, first),
                                   .res = few_view(&a->res, m, first),
                                   .w = a->w,
                                   .scales = (const unsigned char *)a->w + l.scales,
                                   .bias = a->bias,
                                   .w_row = l.row,
                                   .scale_row = l.scale_row,
                                   .m = (int32_t)m,
                                   .n = (int32_t)a->n,
                                   .chunks = (int32_t)(l.row / 16),
                                   .k = (int32_t)a->k,
                                   .glu = a->glu,
                                   .act = (int32_t)a->act,
                                   .zero = lin_zero(a->type),
                                   .norm = a->norm,
                                   .more = a->more,
                                   .sum = a->sum,
                                   .norm_eps = a->norm_eps,
                                   .n_more = a->more != NULL ? a->n_more : 0,
                                   .rounded = a->rounded};
}

#endif
