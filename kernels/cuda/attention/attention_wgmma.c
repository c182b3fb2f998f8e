/* attention_wgmma.c - host side of attention on Hopper for 16-bit views and heads of 512 channels: the middle block of
 * a KL VAE. */
#include "kernels/cuda/attention/attention_wgmma.h"

#include <math.h>
#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/cuda.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(attention_wgmma, term))

extern const dvk_cuda_kernel dvk_attention_cuda_wgmma;

enum { DIM = DVK_ATTENTION_WGMMA_DIM, ROWS = DVK_ATTENTION_WGMMA_ROWS, STEP = DVK_ATTENTION_WGMMA_KEYS };

typedef struct plan {
    int64_t units, steps; /* as in attention_wgmma.h */
    int64_t pairs;        /* of blocks */
    double time;          /* in steps */
} plan;

static int64_t queries_of(const dvk_attention_args *a) {
    return a->q.h * a->q.w;
}

static int64_t keys_of(const dvk_attention_args *a) {
    return a->k.h * a->k.w;
}

/* Time of equal pieces for `pairs` concurrent pairs of blocks. Prologue and epilogue of a unit cost some steps. Merging
 * the parts costs a launch and twice their traffic. */
static double time_of_pieces(const plan *p, int64_t pairs, const dvk_cuda_caps *caps) {
    const double share = (double)(p->units * p->steps) / (double)pairs;
    const double parts = pairs % p->units == 0 ? 1.0 : ceil(1.0 + share / (double)p->steps);
    const double joined = (double)pairs * (parts < 2.0 ? 1.0 : 2.0) * ROWS * DIM * 4.0 * 2.0 / caps->memory_gbs;
    return ceil(share) + TERM(unit) * parts + (TERM(join) + joined) / TERM(step);
}

/* One unit per pair of blocks if that fills the device well. Otherwise as many pairs as the device holds. These do not
 * read the same keys at the same time, so the gain must outweigh that. */
static plan plan_of(const dvk_attention_args *a, const dvk_cuda_caps *caps) {
    plan p = {.units = (queries_of(a) + ROWS - 1) / ROWS * a->heads * a->q.n, .steps = (keys_of(a) + STEP - 1) / STEP};
    const int64_t at_once = caps->processors / 2;
    const int64_t whole = at_once / p.units < p.steps ? at_once / p.units * p.units : p.steps * p.units;
    const int64_t choices[] = {whole, at_once < p.units * p.steps ? at_once : 0};
    p.pairs = p.units;
    p.time = ceil((double)p.units / (double)at_once) * ((double)p.steps + TERM(unit));
    for (int i = 0; i < 2; i++) {
        const double time = choices[i] > 0 ? TERM(pieces) * time_of_pieces(&p, choices[i], caps) : p.time;
        if (time < p.time) {
            p.pairs = choices[i];
            p.time = time;
        }
    }
    return p;
}

static int view_ok(const dvk_view *v, const dvk_attention_args *a) {
    return v->dtype == a->q.dtype && v->c == a->q.c && (uintptr_t)v->data % 16 == 0 && v->sn % 8 == 0 &&
           v->sw % 8 == 0 && (v->h == 1 || v->sh == v->w * v->sw) && v->h * v->w < INT32_MAX / 2;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_args *a = args;
    return (a->q.dtype == DVK_F16 || a->q.dtype == DVK_BF16) && a->q.c == a->heads * DIM && view_ok(&a->q, a) &&
           view_ok(&a->k, a) && view_ok(&a->v, a) && view_ok(&a->y, a) && a->scale > 0.0f &&
           caps->shared_bytes >= DVK_ATTENTION_WGMMA_SHARED && caps->processors >= 2 &&
           (double)plan_of(a, caps).units * (double)plan_of(a, caps).steps < INT32_MAX / 64;
}

/* A step is 2 * 2 * 128 * 128 * 512 operations on two multiprocessors, at nearly their peak rate. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_args *a = args;
    const double step = 4.0 * ROWS * STEP * DIM / (2.0 * 1e3 * TERM(tensor) * caps->tensor_tflops / caps->processors);
    return TERM(launch) + plan_of(a, caps).time * step;
}

static int64_t part_rows(const plan *p) {
    return p->pairs != p->units ? 2 * p->pairs * ROWS : 0;
}

static size_t scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_args *a = args;
    const plan p = plan_of(a, caps);
    return (size_t)part_rows(&p) * (DIM + 2) * sizeof(float);
}

static int map_of(dvk_queue *q, const dvk_view *v, int32_t tokens, dvk_tensor_map *out) {
    const int64_t count = v->h * v->w;
    const dvk_tensor_map_desc d = {.data = v->data,
                                   .dtype = v->dtype,
                                   .rank = 3,
                                   .size = {v->c, count, v->n},
                                   .stride_bytes = {v->sw * 2, v->n > 1 ? v->sn * 2 : count * v->sw * 2},
                                   .box = {64, tokens, 1},
                                   .swizzle_bytes = 128};
    return q->tensor_map(q, &d, out);
}

static int launch(dvk_queue *q, const char *function, dvk_dtype type, int64_t blocks, void **params, int joins) {
    char name[48];
    snprintf(name, sizeof name, "%s_%s", function, type == DVK_BF16 ? "bf16" : "f16");
    const dvk_launch l = {.module = "attention_wgmma_sm90",
                          .function = name,
                          .grid = {(uint32_t)blocks, 1, 1},
                          .block = {joins ? 128 : DVK_ATTENTION_WGMMA_THREADS, 1, 1},
                          .cluster = joins ? 1 : 2,
                          .shared_bytes = joins ? 0 : DVK_ATTENTION_WGMMA_SHARED,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = params};
    return q->launch(q, &l);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_attention_args *a = args;
    const plan s = plan_of(a, q->caps);
    dvk_tensor_map maps[3];
    const dvk_view *views[] = {&a->q, &a->k, &a->v};
    for (int i = 0; i < 3; i++) {
        const int r = map_of(q, views[i], i == 2 ? 32 : 64, &maps[i]);
        if (r != 0) {
            return r;
        }
    }
    dvk_attention_wgmma_params p = {.y = a->y.data,
                                    .y_sn = a->y.sn,
                                    .y_sw = a->y.sw,
                                    .queries = (int32_t)queries_of(a),
                                    .keys = (int32_t)keys_of(a),
                                    .heads = (int32_t)a->heads,
                                    .blocks = (int32_t)((queries_of(a) + ROWS - 1) / ROWS),
                                    .steps = (int32_t)s.steps,
                                    .total_steps = (int32_t)(s.units * s.steps),
                                    .pairs = (int32_t)s.pairs,
                                    .scale_log2 = a->scale * 1.44269504f,
                                    .sums = scratch,
                                    .totals = part_rows(&s) > 0 ? (float *)scratch + part_rows(&s) * DIM : NULL};
    void *params[] = {&maps[0], &maps[1], &maps[2], &p};
    const int r = launch(q, "attention_wgmma", a->q.dtype, 2 * s.pairs, params, 0);
    if (r != 0 || part_rows(&s) == 0) {
        return r;
    }
    void *join_params[] = {&p};
    return launch(q, "attention_wgmma_combine", a->q.dtype, s.units * (ROWS / 4), join_params, 1);
}

const dvk_cuda_kernel dvk_attention_cuda_wgmma = {.op = "attention",
                                                  .variant = "cuda/wgmma",
                                                  .sm_min = 90,
                                                  .sm_max = 90,
                                                  .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                  .supports = supports,
                                                  .cost = cost,
                                                  .scratch_bytes = scratch_bytes,
                                                  .enqueue = enqueue};
