/* norm_depthwise.c - "norm_depthwise" on CUDA: of 64 channels, in 16 bits. */
#include "kernels/norm_depthwise.h"

#include <stdio.h>

#include "kernels/cuda/elem_host.h"
#include "kernels/cuda/norm_depthwise.h"

static int64_t tiles(int64_t size, int64_t tile) {
    return (size + tile - 1) / tile;
}

static int64_t jobs_of(const dvk_norm_depthwise_args *a) {
    return a->x.n * tiles(a->x.h, DVK_NORM_DEPTH_H) * tiles(a->x.w, DVK_NORM_DEPTH_W);
}

static uint32_t shared_bytes(const dvk_norm_depthwise_args *a) {
    const int64_t out =
        a->w_out != NULL ? DVK_NORM_DEPTH_C : 0; /* rows of the other matrix; as many hidden channels more */
    const int64_t rows = DVK_NORM_DEPTH_ROWS + a->hidden + out;
    const int64_t hidden = DVK_NORM_DEPTH_ROWS * (DVK_NORM_DEPTH_PITCH + out);
    return (uint32_t)(2 * (rows * DVK_NORM_DEPTH_PITCH + hidden + 9 * a->hidden));
}

static int fits(const dvk_view *v, const dvk_norm_depthwise_args *a) {
    return v->dtype == a->x.dtype && dvk_elem_of(v).vector;
}

static int supports(const dvk_norm_depthwise_args *a, dvk_dtype type, const dvk_cuda_caps *caps) {
    const int gated = a->w_out != NULL;
    return a->x.dtype == type && a->x.c == DVK_NORM_DEPTH_C && fits(&a->x, a) && fits(&a->y, a) &&
           a->hidden % DVK_NORM_DEPTH_C == 0 && a->y.c == (gated ? DVK_NORM_DEPTH_C : a->hidden) &&
           (!gated || a->hidden == 2 * DVK_NORM_DEPTH_C) && (a->res.data == NULL || (gated && fits(&a->res, a))) &&
           a->act != DVK_ACT_LRELU && a->act != DVK_ACT_PRELU && jobs_of(a) < INT32_MAX / 2 &&
           shared_bytes(a) <= (uint32_t)caps->shared_bytes;
}

static int supports_f16(const void *args, const dvk_cuda_caps *caps) {
    return supports(args, DVK_F16, caps);
}

static int supports_bf16(const void *args, const dvk_cuda_caps *caps) {
    return supports(args, DVK_BF16, caps);
}

/* A tile's time is that of ordinary arithmetic; the constant is of an H200. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_norm_depthwise_args *a = args;
    const double work = (double)jobs_of(a) * (double)(1000 + 32 * a->hidden) / caps->processors / 1.7;
    const double bytes = dvk_elem_cost(dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y) + dvk_elem_bytes(&a->res), caps);
    return 3000.0 + (work > bytes ? work : bytes);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_norm_depthwise_args *a = args;
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
                                   .tiles_x = (int32_t)tiles(a->x.w, DVK_NORM_DEPTH_W),
                                   .tiles_y = (int32_t)tiles(a->x.h, DVK_NORM_DEPTH_H),
                                   .jobs = (int32_t)jobs_of(a),
                                   .hidden = (int32_t)a->hidden,
                                   .act = (int32_t)a->act,
                                   .eps = a->eps};
    char name[40];
    snprintf(name, sizeof name, "norm_depthwise%s_%s", a->w_out != NULL ? "_gated" : "",
             a->x.dtype == DVK_F16 ? "f16" : "bf16");
    void *list[] = {&p};
    const int32_t most = 2 * q->caps->processors;
    const dvk_launch l = {.module = "norm_depthwise",
                          .function = name,
                          .grid = {(uint32_t)(p.jobs < most ? p.jobs : most), 1, 1},
                          .block = {DVK_NORM_DEPTH_BLOCK, 1, 1},
                          .shared_bytes = shared_bytes(a),
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
