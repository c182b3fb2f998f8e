/* attention_kv_token.c - host side of "attention_kv" for few queries over a 16-bit cache on mma.sync. If positions are
 * in device memory, the grid is sized for the maximum, and the kernel cuts each query into as many pieces as it needs. */
#include <math.h>
#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/attention/attention_kv_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(attention_kv_token, term))

extern const dvk_cuda_kernel dvk_attention_kv_cuda_token;

enum { HEADS = 8, CLUSTER = 8, MAX_SPLITS = 32 };

typedef struct shape {
    int32_t groups; /* blocks that share the heads of a kv head */
    int32_t splits; /* blocks that share the positions of a query */
    int32_t apart;  /* a second launch merges them */
} shape;

/* Number of blocks that run at once if `splits` of them form a cluster: a cluster must fit into one group of
 * multiprocessors. */
static double at_once(const dvk_attention_kv_args *a, int32_t splits, const dvk_cuda_caps *caps) {
    const double share = splits > 4 ? TERM(cluster_8) : splits > 2 ? TERM(cluster_4) : 1.0;
    return (a->dim <= 64 ? 2.0 : 1.0) * caps->processors * (caps->sm >= 90 ? share : 1.0);
}

static shape shape_of(const dvk_attention_kv_args *a, const dvk_cuda_caps *caps) {
    const int64_t share = a->heads / a->kv_heads;
    shape s = {.groups = (int32_t)((share + HEADS - 1) / HEADS), .splits = 1};
    const int64_t blocks = a->m * a->kv_heads * s.groups;
    const int32_t most = caps->sm >= 90 ? CLUSTER : MAX_SPLITS;
    while (s.splits < most && s.splits * DVK_ATTENTION_KV_PIECE < a->keys &&
           (double)(2 * s.splits * blocks) <= at_once(a, 2 * s.splits, caps)) {
        s.splits *= 2;
    }
    s.apart = caps->sm < 90 && s.splits > 1;
    return s;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    const int type = a->k.form == DVK_ROWS_F16 || (a->k.form == DVK_ROWS_BF16 && caps->sm >= 80);
    return type && a->v.form == a->k.form && dvk_attention_kv_fits(a) && a->dim <= 128 && a->dim % 8 == 0 &&
           a->m <= 4096 && dvk_attention_kv_even(&a->k, a->kv_heads, 8) && dvk_attention_kv_even(&a->v, a->kv_heads, 8);
}

/* The time of a block for 128 positions; all blocks together are limited by the rate of the memory or of the L2 cache. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    const shape s = shape_of(a, caps);
    const double seen = dvk_attention_kv_seen(a);
    const double blocks = (double)(a->m * a->kv_heads * s.groups);
    const double steps = ceil(seen / s.splits / 128.0) * ceil(blocks * s.splits / at_once(a, s.splits, caps));
    const double read = blocks * dvk_rows_bytes(&a->k, 2 * a->dim) * seen / caps->memory_gbs;
    const double work = TERM(step) * steps;
    return (s.apart ? TERM(launch_apart) : TERM(launch)) + (read > work ? read : work);
}

static size_t scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    const shape s = shape_of(a, caps);
    return s.apart ? (size_t)(a->m * a->heads * s.splits * (a->dim + 2)) * sizeof(float) : 0;
}

static int launch(const dvk_attention_kv_args *a, shape s, void *scratch, dvk_queue *q) {
    const int64_t places = a->m * a->heads * s.splits;
    dvk_attention_kv_params p = dvk_attention_kv_of(a);
    p.splits = s.splits;
    if (s.apart) {
        p.parts = scratch;
        p.tops = p.parts + places * a->dim;
        p.sums = p.tops + places;
    }
    char name[48];
    snprintf(name, sizeof name, "attention_kv_token_%s_%d", a->k.form == DVK_ROWS_BF16 ? "bf16" : "f16",
             a->dim <= 64 ? 64 : 128);
    void *params[] = {&p};
    dvk_launch l = {.module = "attention_kv_token",
                    .function = name,
                    .grid = {(uint32_t)s.splits, (uint32_t)(a->kv_heads * s.groups), (uint32_t)a->m},
                    .block = {256, 1, 1},
                    .cluster = s.apart ? 1 : (uint32_t)s.splits,
                    .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                    .params = params};
    const int r = q->launch(q, &l);
    if (r != 0 || !s.apart) {
        return r;
    }
    l.module = "attention_kv_few";
    l.function = "attention_kv_combine";
    l.grid[0] = (uint32_t)a->heads;
    l.grid[1] = (uint32_t)a->m;
    l.grid[2] = 1;
    l.block[0] = 128;
    return q->launch(q, &l);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    return launch(args, shape_of(args, q->caps), scratch, q);
}

const dvk_cuda_kernel dvk_attention_kv_cuda_token = {.op = "attention_kv",
                                                     .variant = "cuda/token",
                                                     .sm_min = 75,
                                                     .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                     .supports = supports,
                                                     .cost = cost,
                                                     .scratch_bytes = scratch_bytes,
                                                     .enqueue = enqueue};
