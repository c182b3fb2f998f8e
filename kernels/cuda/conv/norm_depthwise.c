/* norm_depthwise.c - host side of "norm_depthwise" for 64 channels in 16 bits. */
#include "kernels/norm_depthwise.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/common/elem_host.h"
#include "kernels/cuda/conv/norm_depthwise.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(norm_depthwise, term))

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t pairs_of(const dvk_norm_depthwise_args *a) {
    return ceil_div(a->x.h, 2);
}

static int64_t strips_of(const dvk_norm_depthwise_args *a) {
    return ceil_div(a->x.w, DVK_NORM_DEPTH_W);
}

/* Hidden channels per job: those of a gated layer are processed together. */
static int64_t at_once(const dvk_norm_depthwise_args *a) {
    return a->w_out != NULL || a->hidden <= DVK_NORM_DEPTH_MOST ? a->hidden : DVK_NORM_DEPTH_C;
}

static int64_t warp_bytes(const dvk_norm_depthwise_args *a) {
    const int64_t tiles = a->plain ? 3 * DVK_NORM_DEPTH_C / 8 /* sums of f32, and results */
                                   : (at_once(a) + (a->w_out != NULL ? DVK_NORM_DEPTH_C : 0)) / 8;
    return DVK_NORM_DEPTH_STAGE + tiles * DVK_NORM_DEPTH_PIECE;
}

static int64_t total_of(const dvk_norm_depthwise_args *a) {
    return a->x.n * strips_of(a) * (a->hidden / at_once(a)) * pairs_of(a);
}

/* One block per multiprocessor, or fewer if there is not a job for each warp. */
typedef struct shape {
    int64_t each, blocks;
    int32_t warps;
    uint32_t shared;
} shape;

static uint32_t weights_bytes(const dvk_norm_depthwise_args *a) {
    if (a->plain) {
        return (uint32_t)(2 * a->hidden * DVK_NORM_DEPTH_C + 4 * a->hidden * DVK_PLAIN_DEPTH_TAPS);
    }
    const int64_t rows = a->hidden + (a->w_out != NULL ? DVK_NORM_DEPTH_C : 0);
    return (uint32_t)(2 * rows * DVK_NORM_DEPTH_C + 2 * a->hidden * DVK_NORM_DEPTH_TAPS + 4 * a->hidden);
}

static shape shape_of(const dvk_norm_depthwise_args *a, const dvk_cuda_caps *caps) {
    const int64_t total = total_of(a), held = (caps->shared_bytes - (int64_t)weights_bytes(a)) / warp_bytes(a);
    const int64_t most = held < DVK_NORM_DEPTH_WARPS ? held : DVK_NORM_DEPTH_WARPS,
                  per = ceil_div(total, caps->processors);
    shape s = {.warps = (int32_t)(per > most ? most : per > DVK_NORM_DEPTH_FEW ? per : DVK_NORM_DEPTH_FEW)};
    if (s.warps > most) {
        s.warps = (int32_t)most;
    }
    if (s.warps > 0) {
        s.each = ceil_div(total, (int64_t)caps->processors * s.warps);
        s.blocks = ceil_div(ceil_div(total, s.each), s.warps);
        s.shared = weights_bytes(a) + (uint32_t)(s.warps * warp_bytes(a));
    }
    return s;
}

static int fits(const dvk_view *v, const dvk_norm_depthwise_args *a) {
    return v->dtype == a->x.dtype && dvk_elem_of(v).vector && (v->h + 2) * v->sh < INT32_MAX; /* offsets in 32 bits */
}

static int acts(const dvk_norm_depthwise_args *a) {
    return a->plain                    ? a->act == DVK_ACT_GELU && a->act_in == DVK_ACT_GELU
           : a->act_in != DVK_ACT_NONE ? 0
           : a->w_out != NULL          ? a->act == DVK_ACT_GELU || a->act == DVK_ACT_NONE
                                       : a->act == DVK_ACT_NONE;
}

static int supports(const dvk_norm_depthwise_args *a, dvk_dtype type, const dvk_cuda_caps *caps) {
    const int gated = a->w_out != NULL;
    return a->x.dtype == type && a->x.c == DVK_NORM_DEPTH_C && fits(&a->x, a) && fits(&a->y, a) && acts(a) &&
           a->hidden % DVK_NORM_DEPTH_C == 0 && a->y.c == (gated ? DVK_NORM_DEPTH_C : a->hidden) &&
           (!gated || a->hidden == 2 * DVK_NORM_DEPTH_C) && (a->res.data == NULL || (gated && fits(&a->res, a))) &&
           (!a->plain || (!gated && a->hidden == DVK_NORM_DEPTH_C)) && total_of(a) < INT32_MAX / 2 &&
           shape_of(a, caps).warps > 0;
}

static int supports_f16(const void *args, const dvk_cuda_caps *caps) {
    return supports(args, DVK_F16, caps);
}

static int supports_bf16(const void *args, const dvk_cuda_caps *caps) {
    return supports(args, DVK_BF16, caps);
}

/* The time of a warp's pairs of rows, with one extra pair before its first; warps share a multiprocessor. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_norm_depthwise_args *a = args;
    const shape s = shape_of(a, caps);
    const double each = a->w_out != NULL ? TERM(excite) : a->plain ? TERM(plain) : TERM(pixel) * (double)at_once(a);
    const double work = (double)(s.each + 1) * (TERM(rows) + each * s.warps);
    const double bytes = dvk_elem_cost(dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y) + dvk_elem_bytes(&a->res), caps);
    return TERM(launch) + (work > bytes ? work : bytes);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_norm_depthwise_args *a = args;
    const shape s = shape_of(a, q->caps);
    (void)scratch;
    dvk_norm_depthwise_params p = {.x = dvk_elem_of(&a->x),
                                   .y = dvk_elem_of(&a->y),
                                   .res = dvk_elem_of(&a->res),
                                   .gamma = a->gamma,
                                   .beta = a->beta,
                                   .w_in = a->w_in,
                                   .b_in = a->b_in,
                                   .w_depth = a->w_depth,
                                   .b_depth = a->b_depth,
                                   .w_out = a->w_out,
                                   .b_out = a->b_out,
                                   .h = (int32_t)a->x.h,
                                   .w = (int32_t)a->x.w,
                                   .strips = (int32_t)strips_of(a),
                                   .pairs = (int32_t)pairs_of(a),
                                   .total = (int32_t)total_of(a),
                                   .each = (int32_t)s.each,
                                   .hidden = (int32_t)a->hidden,
                                   .at_once = (int32_t)at_once(a),
                                   .warp_bytes = (int32_t)warp_bytes(a),
                                   .eps = a->eps};
    char name[40];
    snprintf(name, sizeof name, "%s_depthwise%s_%s", a->plain ? "plain" : "norm",
             a->w_out == NULL         ? ""
             : a->act == DVK_ACT_GELU ? "_gelu"
                                      : "_product",
             a->x.dtype == DVK_F16 ? "f16" : "bf16");
    void *list[] = {&p};
    const dvk_launch l = {.module = a->plain ? "plain_depthwise" : "norm_depthwise",
                          .function = name,
                          .grid = {(uint32_t)s.blocks, 1, 1},
                          .block = {(uint32_t)s.warps * 32, 1, 1},
                          .shared_bytes = s.shared,
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return q->launch(q, &l);
}

#define KERNEL(NAME, COMPUTES, SUPPORTS)                                                                               \
    extern const dvk_cuda_kernel NAME;                                                                                 \
    const dvk_cuda_kernel NAME = {.op = "norm_depthwise",                                                              \
                                  .variant = "cuda/mma",                                                               \
                                  .sm_min = 80,                                                                        \
                                  .computes = COMPUTES,                                                                \
                                  .supports = SUPPORTS,                                                                \
                                  .cost = cost,                                                                        \
                                  .enqueue = enqueue}

KERNEL(dvk_norm_depthwise_cuda_f16, DVK_COMPUTES_F16, supports_f16);
KERNEL(dvk_norm_depthwise_cuda_bf16, DVK_COMPUTES_BF16, supports_bf16);
