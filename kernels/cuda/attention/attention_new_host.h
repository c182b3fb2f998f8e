/* attention_new_host.h - shared code of the host sides of "attention_new" and "attention_out". */
#ifndef DVK_CUDA_ATTENTION_NEW_HOST_H
#define DVK_CUDA_ATTENTION_NEW_HOST_H

#include "kernels/cuda/attention/attention_kv_host.h"
#include "kernels/cuda/attention/attention_new.h"

static inline int dvk_attention_new_fits(const dvk_attention_new_args *n) {
    const dvk_attention_kv_args *a = &n->a;
    const int cache = (a->k.form == DVK_ROWS_F16 || a->k.form == DVK_ROWS_BF16) && a->v.form == a->k.form &&
                      dvk_attention_kv_even(&a->k, a->kv_heads, 8) && dvk_attention_kv_even(&a->v, a->kv_heads, 8);
    const int fresh = a->q.form == DVK_ROWS_F32 && n->k.form == DVK_ROWS_F32 && n->v.form == DVK_ROWS_F32 &&
                      dvk_attention_kv_even(&a->q, a->heads, 4) && dvk_attention_kv_even(&n->k, a->kv_heads, 4) &&
                      dvk_attention_kv_even(&n->v, a->kv_heads, 4) && (uintptr_t)n->cs % 16 == 0;
    return cache && fresh && a->in.position != NULL && dvk_attention_kv_fits(a) && (a->dim == 64 || a->dim == 128) &&
           2 * n->pairs == a->dim && a->m <= 4096;
}

/* All parameters except splits. */
static inline dvk_attention_new_params dvk_attention_new_of(const dvk_attention_new_args *n) {
    return (dvk_attention_new_params){.a = dvk_attention_kv_of(&n->a),
                                      .k = dvk_rows_of(&n->k, n->a.kv_heads),
                                      .v = dvk_rows_of(&n->v, n->a.kv_heads),
                                      .cs = n->cs,
                                      .sign = n->inverse ? -1.0f : 1.0f};
}

#endif
