/* linear_few.c - host side of "linear" for few rows. W is read once, from memory into registers, for up to eight tokens
 * at a time. It runs on every device; linear_stream.c is faster on the devices that support it. */
#include "kernels/cuda/linear/linear_few.h"

#include <stdbool.h>
#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/linear/linear_few_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(linear_few, term))

enum {
    MOST = 16,              /* rows: two launches read W twice, the second time partly from L2 */
    SHARED = 48 << 10,      /* for x, so that several blocks fit */
    SHARED_WIDE = 96 << 10, /* for four rows and more, whose registers allow at most two blocks */
    STATIC = 3 << 10,       /* static shared memory of the kernels */
    /* size of W in bytes above which it counts as large, and the next launch begins before the wait; */
    EARLY = 4 << 20,
    EARLY_WHOLE = 2 << 20 /* of integers */
};

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_linear_args *a = args;
    (void)caps;
    return a->m <= MOST && few_forms(a);
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_linear_args *a = args;
    const double rows = (double)(a->m < FEW_TOKENS ? a->m : FEW_TOKENS);
    const double bytes = few_bytes(a) * (TERM(base) + TERM(each) * rows); /* the products also take time */
    return (a->m > FEW_TOKENS ? 2.0 : 1.0) *
           (TERM(launch) + TERM(row) * rows + bytes / (TERM(memory) * caps->memory_gbs));
}

/* Bytes available for x, beside `beside` bytes of other data. */
static int32_t room_of(int32_t beside, int32_t tokens, const dvk_cuda_caps *caps) {
    const int32_t wanted = tokens > 2 ? SHARED_WIDE : SHARED;
    return (caps->shared_bytes - STATIC < wanted ? caps->shared_bytes - STATIC : wanted) - beside;
}

/* Number of warps that share a row: more if blocks are few and rows long. most: limit by the available chunks. */
static int32_t split_of(const dvk_linear_few_params *p, int32_t rows, int64_t fit, int32_t most) {
    const int32_t outputs = p->glu ? rows / 2 : rows;
    const int32_t at_a_time = 32 * (rows == 2 ? 4 : 2); /* chunks, as in linear_few.cu */
    int32_t split = 1;
    while (split < FEW_WARPS && p->chunks > at_a_time * split && p->n * 2 * split <= fit * FEW_WARPS * outputs &&
           32 * 2 * split <= most) {
        split *= 2;
    }
    return split;
}

static int32_t phase_of(const dvk_linear_few_params *p, int32_t most) {
    const int32_t step = 32 * p->split;
    const int32_t fit = most / step * step;
    return fit < p->chunks ? fit : (p->chunks + 1) / 2 * 2;
}

static int launch(const dvk_linear_args *a, int64_t first, dvk_queue *q) {
    const lin_kind kind = lin_kind_of(a->type);
    dvk_linear_few_params p = few_params(a, first, FEW_TOKENS);
    const int32_t tokens = few_tokens(p.m);
    const int32_t bytes = few_chunk_shared(kind, tokens);
    /* rows of a warp at a time, as in linear_few.cu */
    const int32_t rows = tokens > 2 || dvk_lin_nibbles(kind) ? 4 : 2;
    const bool whole = kind > LIN_BF16;
    p.early = few_bytes(a) > (whole ? EARLY_WHOLE : EARLY);
    const bool large = p.early && !whole && tokens == 1 && p.more == NULL;
    const int64_t fit = (int64_t)q->caps->processors * FEW_RESIDENT(rows * tokens, whole, large);
    const int32_t most = room_of(few_norm_shared(a), tokens, q->caps) / bytes;
    p.split = split_of(&p, rows, fit, most);
    p.phase = phase_of(&p, most);
    p.norm_at = p.phase * bytes;
    const int64_t outputs = FEW_WARPS / p.split * (a->glu ? rows / 2 : rows);
    const int64_t tiles = (a->n + outputs - 1) / outputs;
    const int64_t turns = (tiles + fit - 1) / fit;
    char name[40];
    snprintf(name, sizeof name, large ? "linear_few_%s_large" : "linear_few_%s_%d%s", few_name(kind), (int)tokens,
             p.more != NULL ? "_more" : "");
    void *list[] = {&p};
    const dvk_launch l = {.module = "linear_few",
                          .function = name,
                          .grid = {(uint32_t)((tiles + turns - 1) / turns), 1, 1},
                          .block = {FEW_WARPS * 32, 1, 1},
                          .shared_bytes = few_shared(p.norm_at + few_norm_shared(a), STATIC),
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return q->launch(q, &l);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_linear_args *a = args;
    int r = 0;
    (void)scratch;
    for (int64_t first = 0; r == 0 && first < a->m; first += FEW_TOKENS) {
        r = launch(a, first, q);
    }
    return r;
}

extern const dvk_cuda_kernel dvk_linear_cuda_few;
const dvk_cuda_kernel dvk_linear_cuda_few = {.op = "linear",
                                             .variant = "cuda/few",
                                             .sm_min = 75,
                                             .computes = DVK_COMPUTES_ANY,
                                             .supports = supports,
                                             .cost = cost,
                                             .enqueue = enqueue,
                                             .packed_bytes = dvk_linear_packed_bytes,
                                             .pack_units = dvk_linear_pack_units,
                                             .pack = dvk_linear_pack};
