/* linear_mma.c - host side of "linear" for many rows on mma.sync: tiles, splits of k, launches. Integer W are first
 * converted to 16-bit numbers in scratch memory. */
#include "kernels/cuda/linear/linear_mma.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/linear/linear_join.h"
#include "kernels/cuda/linear/linear_widen.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(linear_mma, term))

extern const dvk_cuda_kernel dvk_linear_cuda_mma;

typedef struct linear_tile {
    int32_t m, n, warps;
} linear_tile;

#define LINEAR_TILE(M, N, WM, WN) {M, N, (WM) * (WN)},
static const linear_tile tiles[] = {LINEAR_MMA_TILES(LINEAR_TILE)};
enum { TILES = sizeof tiles / sizeof tiles[0], MOST_TOGETHER = 16, LEAST_STEPS = 8 };

typedef struct linear_choice {
    linear_tile tile;
    int64_t m_tiles, n_tiles;
    int32_t steps, shares;
    double ns;
} linear_choice;

/* Blocks per multiprocessor, limited by registers. */
static int64_t resident_of(const linear_tile *t) {
    return t->m == 128 ? 2 : 4;
}

/* Rate of the tensor cores with mma.sync, as a share of their peak. */
static double share_of_peak(const dvk_cuda_caps *caps, const linear_tile *t) {
    return TERM(tensor) * (t->m == 128 ? 1.0 : TERM(small));
}

static void set_choice(const dvk_linear_args *a, const dvk_cuda_caps *caps, const linear_tile *t, linear_choice *c) {
    const int64_t at_once = resident_of(t) * caps->processors;
    c->tile = *t;
    c->m_tiles = dvk_many_ceil(a->m, t->m);
    c->n_tiles = dvk_many_ceil(a->n, a->glu ? t->n / 2 : t->n);
    c->steps = (int32_t)dvk_many_ceil(a->k, DVK_LINEAR_MMA_K);
    c->shares = dvk_join_shares(c->m_tiles * c->n_tiles, c->steps, LEAST_STEPS, at_once);
    const double per_tile = caps->tensor_tflops * 1e3 * share_of_peak(caps, t) / (double)at_once;
    const double flops = 2.0 * t->m * t->n * DVK_LINEAR_MMA_K * (double)(dvk_many_ceil(c->steps, c->shares) + 8);
    const double work = (double)dvk_many_ceil(c->m_tiles * c->n_tiles * c->shares, at_once) * flops / per_tile;
    const double parts = 2.0 * (double)dvk_join_bytes(a, c->shares) / caps->memory_gbs;
    const double memory = dvk_many_traffic(a) / (TERM(memory) * caps->memory_gbs);
    c->ns = TERM(launch) + (work > memory ? work : memory) + (c->shares > 1 ? TERM(join) + parts : 0.0);
}

static linear_choice choose(const dvk_linear_args *a, const dvk_cuda_caps *caps) {
    linear_choice best = {.ns = 0.0}, c;
    for (int32_t i = 0; i < TILES; i++) {
        set_choice(a, caps, &tiles[i], &c);
        if (best.ns == 0.0 || c.ns < best.ns) {
            best = c;
        }
    }
    return best;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_linear_args *a = args;
    const linear_choice c = choose(a, caps);
    return dvk_many_pairs_with(a) && dvk_many_fits(a) && (a->x.form == DVK_ROWS_F16 || caps->sm >= 80) &&
           c.m_tiles * c.n_tiles < INT32_MAX;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    return choose(args, caps).ns + dvk_linear_widen_ns(args, caps);
}

static size_t wide_bytes(const dvk_linear_args *a) {
    return (dvk_linear_widen_bytes(a) + DVK_LAYOUT_ALIGN - 1) / DVK_LAYOUT_ALIGN * DVK_LAYOUT_ALIGN;
}

static size_t scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    return wide_bytes(args) + dvk_join_bytes(args, choose(args, caps).shares);
}

static int launch(const dvk_linear_args *a, const linear_choice *c, dvk_linear_mma *p, dvk_queue *q) {
    char name[64];
    void *params[] = {p};
    snprintf(name, sizeof name, "linear_mma_%s_%dx%d", a->x.form == DVK_ROWS_BF16 ? "bf16" : "f16", (int)c->tile.m,
             (int)c->tile.n);
    const dvk_launch l = {.module = "linear_mma",
                          .function = name,
                          .grid = {(uint32_t)(c->m_tiles * c->n_tiles), (uint32_t)c->shares, 1},
                          .block = {(uint32_t)(32 * c->tile.warps), 1, 1},
                          .shared_bytes =
                              (uint32_t)((c->tile.m + c->tile.n) * DVK_LINEAR_MMA_K * 2 * DVK_LINEAR_MMA_STAGES),
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_linear_args *a = args;
    const linear_choice c = choose(a, q->caps);
    const int widen = !dvk_many_is_16_bit(a->type);
    float *parts = c.shares > 1 ? (float *)(void *)((unsigned char *)scratch + wide_bytes(a)) : NULL;
    dvk_linear_mma p = {.out = dvk_many_out(a),
                        .x = a->x.data,
                        .w = widen ? scratch : a->w,
                        .parts = parts,
                        .x_row = a->x.row,
                        .w_row = dvk_lin_row(LIN_BF16, a->k) / 2,
                        .k = (int32_t)a->k,
                        .w_rows = (int32_t)dvk_many_rows(a),
                        .shares = c.shares,
                        .steps = c.steps,
                        .m_tiles = (int32_t)c.m_tiles,
                        .n_tiles = (int32_t)c.n_tiles,
                        .together = (int32_t)(c.m_tiles < MOST_TOGETHER ? c.m_tiles : MOST_TOGETHER),
                        .x_aligned = dvk_many_aligned(&a->x, a->m, 16)};
    int error = widen ? dvk_linear_widen_enqueue(a, scratch, q) : 0;
    if (error == 0) {
        error = launch(a, &c, &p, q);
    }
    return error == 0 && parts != NULL ? dvk_linear_join_enqueue(a, parts, c.shares, q) : error;
}

const dvk_cuda_kernel dvk_linear_cuda_mma = {
    .op = "linear",
    .variant = "cuda/mma",
    .sm_min = 75,
    .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
    .supports = supports,
    .cost = cost,
    .scratch_bytes = scratch_bytes,
    .enqueue = enqueue,
    .packed_bytes = dvk_linear_packed_bytes,
    .pack_units = dvk_linear_pack_units,
    .pack = dvk_linear_pack,
};
