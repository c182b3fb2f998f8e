/* linear_stream.c - host side of "linear" for one or two rows on sm_90a with float weights. There is one block per
 * multiprocessor. W streams through ring buffers in shared memory, and all of x stays there. It is faster than
 * linear_few.c from about 30 MB of W on. */
#include "kernels/cuda/linear/linear_stream.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/linear/linear_few_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(linear_stream, term))

enum {
    MOST = 2,         /* rows */
    SLAB = 4608,      /* maximum bytes of a row in a unit */
    ROWS = 2,         /* rows of a unit, as in linear_stream_sm90.cu */
    SUMS = 8 << 10,   /* maximum bytes of buffered sums */
    RING = 72 << 10,  /* target size of the rings in bytes, but at least LEAST_STAGES stages: */
    HALF = 112 << 10, /* of the shared memory of a multiprocessor: the next launch may start to fetch W */
    LEAST_STAGES = 2,
    SHORT = 1024,     /* values of a row */
    AHEAD = 96 << 10, /* bytes of W behind the rings that a block prefetches into L2 */
    STATIC = 1 << 10  /* static shared memory of the kernel */
};

/* Computes the layout of shared memory; 0: it does not fit. */
static int lay_out(const dvk_linear_args *a, const dvk_cuda_caps *caps, dvk_linear_stream_params *p) {
    const lin_kind kind = lin_kind_of(a->type);
    const int32_t tokens = few_tokens(p->few.m);
    const int32_t outputs = p->few.glu ? ROWS / 2 : ROWS;
    const int32_t most = SLAB / 16;
    p->few.phase = (p->few.chunks + 1) / 2 * 2;
    p->groups = (p->few.n + outputs - 1) / outputs;
    p->slabs = (p->few.chunks + most - 1) / most;
    p->whole = STREAM_WARPS / p->slabs;
    p->rest = STREAM_WARPS % p->slabs;
    p->slab = p->slabs == 1 ? p->few.chunks : (p->few.chunks + 2 * p->slabs - 1) / (2 * p->slabs) * 2;
    p->stage_bytes = ROWS * p->slab * 16;
    const int32_t group_sums = p->slabs * ROWS * tokens * 4;
    const int32_t of_block = p->groups / caps->processors + 1; /* at most */
    const int32_t round = of_block < SUMS / group_sums ? of_block + STREAM_WARPS - 1 : SUMS / group_sums;
    p->round = round > STREAM_WARPS ? round / STREAM_WARPS * STREAM_WARPS : STREAM_WARPS;
    p->sums_bytes = p->round * group_sums;
    p->few.norm_at = p->few.phase * few_chunk_shared(kind, tokens);
    p->ring_at = (p->few.norm_at + few_norm_shared(a) + 127) / 128 * 128;
    const int32_t one = STREAM_WARPS * p->stage_bytes;
    const int32_t half = HALF < caps->shared_bytes ? HALF : caps->shared_bytes;
    const int32_t left = half - p->ring_at - 2 * p->sums_bytes - STATIC;
    const int32_t fit = (left < RING ? left : RING) / one;
    p->stages = fit > STREAM_STAGES ? STREAM_STAGES : fit > LEAST_STAGES ? fit : LEAST_STAGES;
    p->sums_at = p->ring_at + p->stages * one;
    p->ahead = (int32_t)(AHEAD / (a->glu ? 2 : 1) / (outputs * p->few.w_row));
    return p->sums_at + 2 * p->sums_bytes + STATIC <= caps->shared_bytes;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_linear_args *a = args;
    if (a->m > MOST || lin_kind_of(a->type) > LIN_BF16 || a->more != NULL || !few_forms(a)) {
        return 0;
    }
    dvk_linear_stream_params p = {.few = few_params(a, 0, MOST)};
    return lay_out(a, caps, &p);
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_linear_args *a = args;
    const double share = a->k < SHORT ? TERM(memory_short) : TERM(memory); /* a unit also takes time */
    return TERM(launch) + few_bytes(a) / (share * caps->memory_gbs);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_linear_args *a = args;
    dvk_linear_stream_params p = {.few = few_params(a, 0, MOST)};
    (void)scratch;
    lay_out(a, q->caps, &p);
    char name[48];
    snprintf(name, sizeof name, "linear_stream_%s_%d", few_name(lin_kind_of(a->type)), (int)few_tokens(a->m));
    void *list[] = {&p};
    const dvk_launch l = {.module = "linear_stream_sm90",
                          .function = name,
                          .grid = {(uint32_t)(p.groups < q->caps->processors ? p.groups : q->caps->processors), 1, 1},
                          .block = {(STREAM_WARPS + 1) * 32, 1, 1},
                          .shared_bytes = few_shared(p.sums_at + 2 * p.sums_bytes, STATIC),
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

extern const dvk_cuda_kernel dvk_linear_cuda_stream;
const dvk_cuda_kernel dvk_linear_cuda_stream = {.op = "linear",
                                                .variant = "cuda/stream",
                                                .sm_min = 90,
                                                .sm_max = 90,
                                                .computes = DVK_COMPUTES_ANY,
                                                .supports = supports,
                                                .cost = cost,
                                                .enqueue = enqueue,
                                                .packed_bytes = dvk_linear_packed_bytes,
                                                .pack_units = dvk_linear_pack_units,
                                                .pack = dvk_linear_pack};
