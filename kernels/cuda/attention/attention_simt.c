/* attention_simt.c - host side of attention in f32 for all cases that the faster kernels do not support. */
#include "kernels/cuda/attention/attention_simt.h"

#include <math.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/common/elem_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(attention_simt, term))

extern const dvk_cuda_kernel dvk_attention_cuda_simt;

typedef struct split {
    int64_t slab, slabs, blocks;
} split;

static split split_of(const dvk_attention_args *a) {
    const int64_t dim = a->v.c / a->heads;
    split s = {.slab = dim <= 128 ? 128 : 512};
    s.slabs = (dim + s.slab - 1) / s.slab;
    s.blocks = (a->q.h * a->q.w + DVK_ATTENTION_SIMT_ROWS - 1) / DVK_ATTENTION_SIMT_ROWS;
    return s;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_args *a = args;
    (void)caps;
    return a->q.h * a->q.w < INT32_MAX / 2 && a->k.h * a->k.w < INT32_MAX / 2 && a->q.n < 65536 &&
           a->heads * split_of(a).slabs < 65536;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_args *a = args;
    const split s = split_of(a);
    const double depth = (double)(a->q.c / a->heads) + (double)s.slab;
    const double block = 2.0 * DVK_ATTENTION_SIMT_ROWS * (double)(a->k.h * a->k.w) * depth /
                         (1e3 * TERM(simt) * caps->simt_tflops / caps->processors);
    return TERM(launch) + block * ceil((double)(s.blocks * s.slabs * a->heads * a->q.n) / caps->processors);
}

static dvk_elem_view view_of(const dvk_view *v, int64_t dim) {
    dvk_elem_view e = dvk_elem_of(v);
    e.vector = e.vector && v->dtype == DVK_F32 && dim % 4 == 0;
    return e;
}

static int32_t row_of(const dvk_view *v) {
    return dvk_elem_even(v) ? 0 : (int32_t)v->w;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_attention_args *a = args;
    const split s = split_of(a);
    const int64_t dim_qk = a->q.c / a->heads, dim_v = a->v.c / a->heads;
    (void)scratch;
    dvk_attention_simt_params p = {.q = view_of(&a->q, dim_qk),
                                   .k = view_of(&a->k, dim_qk),
                                   .v = view_of(&a->v, dim_v),
                                   .y = view_of(&a->y, dim_v),
                                   .w = {row_of(&a->q), row_of(&a->k), row_of(&a->v), row_of(&a->y)},
                                   .queries = (int32_t)(a->q.h * a->q.w),
                                   .keys = (int32_t)(a->k.h * a->k.w),
                                   .dim_qk = (int32_t)dim_qk,
                                   .dim_v = (int32_t)dim_v,
                                   .slabs = (int32_t)s.slabs,
                                   .scale_log2 = a->scale * 1.44269504f};
    void *params[] = {&p};
    const dvk_launch l = {.module = "attention_simt",
                          .function = s.slab == 128 ? "attention_simt_128" : "attention_simt_512",
                          .grid = {(uint32_t)s.blocks, (uint32_t)(a->heads * s.slabs), (uint32_t)a->q.n},
                          .block = {DVK_ATTENTION_SIMT_THREADS, 1, 1},
                          .shared_bytes = DVK_ATTENTION_SIMT_SHARED,
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_attention_cuda_simt = {.op = "attention",
                                                 .variant = "cuda/simt",
                                                 .sm_min = 75,
                                                 .computes = DVK_COMPUTES_ANY,
                                                 .supports = supports,
                                                 .cost = cost,
                                                 .enqueue = enqueue};
