/* attention_kv_few.c - host side of "attention_kv" for few queries over many positions. The number of positions is in
 * device memory. The grid is sized for the maximum, and the kernel cuts each query into as many pieces as it needs. */
#include <math.h>
#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/attention/attention_kv_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(attention_kv_few, term))

extern const dvk_cuda_kernel dvk_attention_kv_cuda_few;

typedef struct shape {
    int32_t lanes;  /* threads per key */
    int32_t heads;  /* of a block */
    int32_t groups; /* blocks that share the heads of a kv head */
    int32_t splits;
} shape;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static shape shape_of(const dvk_attention_kv_args *a, const dvk_cuda_caps *caps) {
    const int64_t share = a->heads / a->kv_heads;
    shape s = {.lanes = a->dim <= 64 ? 8 : 16};
    s.heads = share > 4 ? 8 : share == 3 && s.lanes == 8 ? 3 : share > 2 ? 4 : (int32_t)share;
    s.groups = (int32_t)((share + s.heads - 1) / s.heads);
    const int64_t blocks = a->m * a->kv_heads * s.groups;
    const int64_t pieces = (a->keys + DVK_ATTENTION_KV_PIECE - 1) / DVK_ATTENTION_KV_PIECE;
    const int64_t wanted = (2 * caps->processors + blocks - 1) / blocks;
    s.splits = (int32_t)least(least(wanted, 64), pieces > 0 ? pieces : 1);
    return s;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    const int64_t sixteen = a->k.form == DVK_ROWS_F32 ? 4 : 8;
    (void)caps;
    return dvk_attention_kv_fits(a) && a->dim <= 128 && a->dim % 8 == 0 && a->k.form == a->v.form && a->m <= 4096 &&
           dvk_attention_kv_even(&a->k, a->kv_heads, sixteen) && dvk_attention_kv_even(&a->v, a->kv_heads, sixteen);
}

/* A block needs about 2500 ns for 32 positions (heads above 64 channels) or 64 positions. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    const shape s = shape_of(a, caps);
    const double seen = dvk_attention_kv_seen(a);
    const double blocks = (double)(a->m * a->kv_heads * s.groups);
    const double steps = ceil(seen / s.splits / (512.0 / s.lanes)) * ceil(blocks * s.splits / (3.0 * caps->processors));
    const double flops = 4.0 * blocks * (double)(s.heads * s.lanes * 8) * seen;
    return TERM(launch) + TERM(step) * steps + flops / (1e3 * TERM(simt) * caps->simt_tflops);
}

static size_t scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    const shape s = shape_of(a, caps);
    return s.splits == 1 ? 0 : (size_t)(a->m * a->heads * s.splits * (a->dim + 2)) * sizeof(float);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_attention_kv_args *a = args;
    const shape s = shape_of(a, q->caps);
    const int64_t places = a->m * a->heads * s.splits;
    dvk_attention_kv_params p = dvk_attention_kv_of(a);
    p.splits = s.splits;
    if (s.splits > 1) {
        p.parts = scratch;
        p.tops = p.parts + places * a->dim;
        p.sums = p.tops + places;
    }
    char name[48];
    snprintf(name, sizeof name, "attention_kv_few_%s_%d_%d",
             a->k.form == DVK_ROWS_F32   ? "f32"
             : a->k.form == DVK_ROWS_F16 ? "f16"
                                         : "bf16",
             (int)s.lanes, (int)s.heads);
    void *params[] = {&p};
    dvk_launch l = {.module = "attention_kv_few",
                    .function = name,
                    .grid = {(uint32_t)s.splits, (uint32_t)(a->kv_heads * s.groups), (uint32_t)a->m},
                    .block = {128, 1, 1},
                    .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                    .params = params};
    const int r = q->launch(q, &l);
    if (r != 0 || s.splits == 1) {
        return r;
    }
    l.function = "attention_kv_combine";
    l.grid[0] = (uint32_t)a->heads;
    l.grid[1] = (uint32_t)a->m;
    l.grid[2] = 1;
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_attention_kv_cuda_few = {.op = "attention_kv",
                                                   .variant = "cuda/few",
                                                   .sm_min = 75,
                                                   .computes = DVK_COMPUTES_ANY,
                                                   .supports = supports,
                                                   .cost = cost,
                                                   .scratch_bytes = scratch_bytes,
                                                   .enqueue = enqueue};
