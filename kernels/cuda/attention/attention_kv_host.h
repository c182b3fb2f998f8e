/* attention_kv_host.h - shared code of the host sides of "attention_kv". */
#ifndef DVK_CUDA_ATTENTION_KV_HOST_H
#define DVK_CUDA_ATTENTION_KV_HOST_H

#include "kernels/cuda/attention/attention_kv.h"
#include "kernels/cuda/norm/rows_host.h"

static inline int dvk_attention_kv_fits(const dvk_attention_kv_args *a) {
    return a->m < INT32_MAX / 2 && a->keys < INT32_MAX / 2 && a->past < INT32_MAX / 2 && a->window < INT32_MAX / 2 &&
           a->heads < 65536 && a->kv_heads > 0 && a->heads % a->kv_heads == 0 && a->dim <= DVK_HEAD_MAX &&
           a->in.each < INT32_MAX / DVK_PAGE;
}

static inline dvk_attention_kv_params dvk_attention_kv_of(const dvk_attention_kv_args *a) {
    return (dvk_attention_kv_params){.q = dvk_rows_of(&a->q, a->heads),
                                     .k = dvk_rows_of(&a->k, a->kv_heads),
                                     .v = dvk_rows_of(&a->v, a->kv_heads),
                                     .y = dvk_rows_of(&a->y, a->heads),
                                     .in = a->in,
                                     .bounds = a->bounds,
                                     .n_bounds = (int32_t)a->n_bounds,
                                     .m = (int32_t)a->m,
                                     .keys = (int32_t)a->keys,
                                     .heads = (int32_t)a->heads,
                                     .kv_heads = (int32_t)a->kv_heads,
                                     .dim = (int32_t)a->dim,
                                     .past = (int32_t)a->past,
                                     .causal = a->causal,
                                     .window = (int32_t)a->window,
                                     .scale_log2 = a->scale * 1.44269504f};
}

/* Average number of keys that a query sees, as far as the host can determine it. */
static inline double dvk_attention_kv_seen(const dvk_attention_kv_args *a) {
    double seen = (double)a->keys;
    if (a->bounds != NULL && a->n_bounds > 2) {
        seen /= (double)(a->n_bounds - 1);
    } else if (a->causal && a->in.position == NULL) {
        seen = (double)a->past + 0.5 * (double)a->m;
    }
    return a->window > 0 && seen > (double)a->window ? (double)a->window : seen;
}

/* 1 if every aligned group of `elements` elements is aligned to its size. */
static inline int dvk_attention_kv_even(const dvk_rows *x, int64_t heads, int64_t elements) {
    const int64_t size = x->form == DVK_ROWS_F32 ? 4 : 2;
    return (uintptr_t)x->data % (uintptr_t)(elements * size) == 0 && x->row % elements == 0 &&
           (heads == 1 || x->head % elements == 0);
}

#endif
