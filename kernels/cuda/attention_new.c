/* attention_new.c - "attention_new" on CUDA: attention_kv_token.c's way, with the rotation and the store ahead of it. */
#include "kernels/cuda/attention_new.h"

#include <math.h>
#include <stdio.h>

#include "kernels/cuda/attention_kv_host.h"

extern const dvk_cuda_kernel dvk_attention_new_cuda;

enum { HEADS = 8, CLUSTER = 8, AT_ONCE = 128 /* positions that a block sees in one step */ };

static int32_t groups_of(const dvk_attention_kv_args *a) { /* blocks that share the heads of a kv head */
    return (int32_t)((a->heads / a->kv_heads + HEADS - 1) / HEADS);
}

/* Blocks of a cluster, which share the positions of a query. */
static int32_t splits_of(const dvk_attention_kv_args *a, const dvk_cuda_caps *caps) {
    const int64_t blocks = a->m * a->kv_heads * groups_of(a);
    int32_t splits = 1;
    while (splits < CLUSTER && splits * AT_ONCE < a->keys && 2 * splits * blocks <= 2 * caps->processors) {
        splits *= 2;
    }
    return splits;
}

static int even(const dvk_rows *x, int64_t heads, int64_t elements) {
    return dvk_attention_kv_even(x, heads, elements);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_new_args *n = args;
    const dvk_attention_kv_args *a = &n->a;
    (void)caps;
    const int cache = (a->k.form == DVK_ROWS_F16 || a->k.form == DVK_ROWS_BF16) && a->v.form == a->k.form &&
                      even(&a->k, a->kv_heads, 8) && even(&a->v, a->kv_heads, 8);
    const int fresh = a->q.form == DVK_ROWS_F32 && n->k.form == DVK_ROWS_F32 && n->v.form == DVK_ROWS_F32 &&
                      even(&a->q, a->heads, 4) && even(&n->k, a->kv_heads, 4) && even(&n->v, a->kv_heads, 4) &&
                      (uintptr_t)n->cs % 16 == 0;
    return cache && fresh && a->in.position != NULL && dvk_attention_kv_fits(a) && (a->dim == 64 || a->dim == 128) &&
           2 * n->pairs == a->dim && a->m <= 4096;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_attention_new_args *n = args;
    const dvk_attention_kv_args *a = &n->a;
    (void)scratch;
    dvk_attention_new_params p = {.a = dvk_attention_kv_of(a),
                                  .k = dvk_rows_of(&n->k, a->kv_heads),
                                  .v = dvk_rows_of(&n->v, a->kv_heads),
                                  .cs = n->cs,
                                  .sign = n->inverse ? -1.0f : 1.0f};
    p.a.splits = splits_of(a, q->caps);
    char name[48];
    snprintf(name, sizeof name, "attention_new_%s_%d", a->k.form == DVK_ROWS_BF16 ? "bf16" : "f16", (int)a->dim);
    void *params[] = {&p};
    const dvk_launch l = {.module = "attention_new",
                          .function = name,
                          .grid = {(uint32_t)p.a.splits, (uint32_t)(a->kv_heads * groups_of(a)), (uint32_t)a->m},
                          .block = {256, 1, 1},
                          .cluster = (uint32_t)p.a.splits,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_attention_new_cuda = {.op = "attention_new",
                                                .variant = "cuda",
                                                .sm_min = 90,
                                                .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                .supports = supports,
                                                .enqueue = enqueue};
