/* attention_kv.h - the range of keys [first, last) that a query of "attention_kv" sees. */
#ifndef DVK_REF_ATTENTION_KV_H
#define DVK_REF_ATTENTION_KV_H

#include "kernels/lm.h"

void dvk_visible(const dvk_attention_kv_args *a, int64_t query, int64_t *first, int64_t *last);

#endif
