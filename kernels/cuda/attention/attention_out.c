/* attention_out.c - "attention_out" on CUDA. If W is small, one cluster per key head replaces two launches. */
#include "kernels/cuda/attention/attention_out.h"

#include <stdio.h>

#include "kernels/cuda/attention/attention_new_host.h"
#include "kernels/cuda/linear/linear_layout.h"

extern const dvk_cuda_kernel dvk_attention_out_cuda;

enum { HEADS = 8 /* maximum per key head */, AT_ONCE = 32 /* rows of W that a block multiplies */ };

static dvk_linear_args as_linear(const dvk_attention_out_args *a) {
    return (dvk_linear_args){.n = a->n, .k = a->of.a.heads * a->of.a.dim, .type = a->type};
}

#include "kernels/cuda/linear/pack_as_linear.h"

static int32_t rows_of(const dvk_attention_out_args *a) {
    return (int32_t)((a->n + DVK_OUT_CLUSTER - 1) / DVK_OUT_CLUSTER);
}

/* Number of pieces of W that a thread holds. */
static int64_t pieces_of(const dvk_attention_out_args *a) {
    return (rows_of(a) + AT_ONCE - 1) / AT_ONCE * (a->of.a.heads / a->of.a.kv_heads);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_out_args *a = args;
    const dvk_attention_kv_args *of = &a->of.a;
    (void)caps;
    return (a->type == DVK_W_F16 || a->type == DVK_W_BF16) && of->m == 1 && of->dim == DVK_OUT_DIM &&
           dvk_attention_new_fits(&a->of) && of->heads <= HEADS * of->kv_heads && of->kv_heads <= DVK_MORE &&
           a->n > 0 && a->n < 1 << 16 && pieces_of(a) <= DVK_OUT_PIECES;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_attention_out_args *a = args;
    const dvk_linear_layout l = dvk_linear_layout_of(lin_kind_of(a->type), a->n, as_linear(a).k);
    (void)scratch;
    dvk_attention_out_params p = {.of = dvk_attention_new_of(&a->of),
                                  .w = a->w,
                                  .parts = a->parts,
                                  .w_row = l.row,
                                  .n = (int32_t)a->n,
                                  .rows = rows_of(a)};
    p.of.a.splits = DVK_OUT_CLUSTER;
    char name[48];
    snprintf(name, sizeof name, "attention_out_%s_%s", a->of.a.k.form == DVK_ROWS_BF16 ? "bf16" : "f16",
             a->type == DVK_W_BF16 ? "bf16" : "f16");
    void *params[] = {&p};
    const dvk_launch launch = {.module = "attention_out",
                               .function = name,
                               .grid = {DVK_OUT_CLUSTER, (uint32_t)a->of.a.kv_heads, 1},
                               .block = {256, 1, 1},
                               .cluster = DVK_OUT_CLUSTER,
                               .flags = DVK_LAUNCH_OVERLAP,
                               .params = params};
    return q->launch(q, &launch);
}

const dvk_cuda_kernel dvk_attention_out_cuda = {.op = "attention_out",
                                                .variant = "cuda",
                                                .sm_min = 90,
                                                .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                .supports = supports,
                                                .enqueue = enqueue,
                                                .packed_bytes = packed_bytes,
                                                .pack_units = pack_units,
                                                .pack = pack};
