/* attention_new.c - "attention_new" on CUDA: attention_kv_token.c, preceded by rotation and store. */
#include <stdio.h>

#include "kernels/cuda/attention/attention_new_host.h"

extern const dvk_cuda_kernel dvk_attention_new_cuda;

enum { HEADS = 8, CLUSTER = 8, AT_ONCE = 128 /* positions that a block processes in one step */ };

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

static int supports(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return dvk_attention_new_fits(args);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_attention_new_args *n = args;
    const dvk_attention_kv_args *a = &n->a;
    (void)scratch;
    dvk_attention_new_params p = dvk_attention_new_of(n);
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
