/* attention_kv_mma.c - host side of "attention_kv" for many queries on mma.sync. Keys and values have one 16-bit type;
 * heads have any multiple of 8 up to 128 channels. Queries and results may be f32. */
#include <math.h>
#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/attention/attention_kv_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(attention_kv_mma, term))

extern const dvk_cuda_kernel dvk_attention_kv_cuda_mma;

enum { WARPS = 4, TILE = 16 };

typedef struct kind { /* instantiations of attention_kv_mma.cu */
    int32_t dim, keys;
    int32_t tiles;   /* of 16 queries, per warp */
    int32_t at_once; /* blocks per multiprocessor */
    int32_t share;   /* cost term: share of the tensor cores' rate */
} kind;

#define KIND(dim, keys, tiles, at_once)                                                                                \
    { dim, keys, tiles, at_once, DVK_COST(attention_kv_mma, dim_##dim##x##tiles) }
static const kind kinds[] = {KIND(32, 64, 2, 2), KIND(64, 64, 1, 3), KIND(64, 64, 2, 2),  KIND(80, 64, 1, 3),
                             KIND(80, 64, 2, 2), KIND(96, 64, 2, 2), KIND(128, 32, 1, 3), KIND(128, 32, 2, 2)};

static int64_t rows_of(kind k) {
    return (int64_t)WARPS * TILE * k.tiles;
}

static int64_t blocks_of(const dvk_attention_kv_args *a, kind k) {
    return (a->m + rows_of(k) - 1) / rows_of(k) * a->heads;
}

static double time_of(const dvk_attention_kv_args *a, kind k, const dvk_cuda_caps *caps) {
    const double rows = (double)rows_of(k);
    const double share = dvk_cuda_cost(caps, k.share) / TERM(reached);
    const double places = (double)k.at_once * caps->processors;
    const double flops = 4.0 * rows * (dvk_attention_kv_seen(a) + 0.5 * rows + k.keys) * k.dim;
    const double block = TERM(block) + flops / (1e3 * share * caps->tensor_tflops / places);
    return TERM(launch) + block * ceil((double)blocks_of(a, k) / places);
}

static kind kind_of(const dvk_attention_kv_args *a, const dvk_cuda_caps *caps) {
    int best = -1;
    for (int i = 0; i < (int)(sizeof kinds / sizeof kinds[0]); i++) {
        const int fits = kinds[i].dim >= a->dim && (best < 0 || kinds[i].dim == kinds[best].dim);
        if (fits && (best < 0 || time_of(a, kinds[i], caps) < time_of(a, kinds[best], caps))) {
            best = i;
        }
    }
    return kinds[best];
}

static int32_t shared_bytes(kind k, const dvk_cuda_caps *caps) {
    return ((int32_t)rows_of(k) + (caps->sm >= 80 ? 2 : 1) * 2 * k.keys) * (k.dim + 8) * 2;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    const int type = a->k.form == DVK_ROWS_F16 || (a->k.form == DVK_ROWS_BF16 && caps->sm >= 80);
    return type && a->v.form == a->k.form && dvk_attention_kv_fits(a) && a->dim <= 128 && a->dim % 8 == 0 &&
           a->scale > 0.0f && dvk_attention_kv_even(&a->k, a->kv_heads, 8) &&
           dvk_attention_kv_even(&a->v, a->kv_heads, 8) && dvk_attention_kv_even(&a->y, a->heads, 2) &&
           a->k.row < INT32_MAX && a->v.row < INT32_MAX && a->q.row < INT32_MAX &&
           shared_bytes(kind_of(a, caps), caps) <= caps->shared_bytes;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    return time_of(args, kind_of(args, caps), caps);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_attention_kv_args *a = args;
    const kind k = kind_of(a, q->caps);
    (void)scratch;
    dvk_attention_kv_params p = dvk_attention_kv_of(a);
    p.q.vector = p.q.form == DVK_ROWS_F32 ? p.q.vector : dvk_attention_kv_even(&a->q, a->heads, 8);
    char name[48];
    snprintf(name, sizeof name, "attention_kv_mma_%s_%d_%d", a->k.form == DVK_ROWS_BF16 ? "bf16" : "f16", (int)k.dim,
             (int)k.tiles);
    void *params[] = {&p};
    const dvk_launch l = {.module = "attention_kv_mma",
                          .function = name,
                          .grid = {(uint32_t)(blocks_of(a, k) / a->heads), (uint32_t)a->heads, 1},
                          .block = {32 * WARPS, 1, 1},
                          .shared_bytes = (uint32_t)shared_bytes(k, q->caps),
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_attention_kv_cuda_mma = {.op = "attention_kv",
                                                   .variant = "cuda/mma",
                                                   .sm_min = 75,
                                                   .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                   .supports = supports,
                                                   .cost = cost,
                                                   .enqueue = enqueue};
