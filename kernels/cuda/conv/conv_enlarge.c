/* conv_enlarge.c - host side of "conv2d" of 1 x 1 with a pixel shuffle by two to whole groups of channels; see
 * conv_enlarge.cu. */
#include <stdio.h>

#include "kernels/cuda/conv/conv_enlarge.h"
#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_enlarge, term))

extern const dvk_cuda_kernel dvk_conv2d_cuda_enlarge;

static int aligned(const dvk_view *v, dvk_dtype dtype) {
    return v->dtype == dtype && conv_view_of(v).vec;
}

/* No residual, or one of the result's size. */
static int can_add(const dvk_conv2d_args *a) {
    const dvk_epilogue *e = &a->epi;
    return e->n_res == 0 || (e->n_res == 1 && conv_adds_behind_shuffle(a) && aligned(&e->res[0], a->compute) &&
                             (!e->act_last || e->act == DVK_ACT_NONE));
}

static int64_t weight_bytes(const dvk_conv2d_args *a) {
    return 4 * a->y.c * a->x.c * 2;
}

static int64_t shared_bytes(const dvk_conv2d_args *a) {
    return weight_bytes(a) + (4 * 2 + 1) * a->y.c * (int64_t)sizeof(float);
}

static int64_t strips_of(const dvk_conv2d_args *a) {
    return conv_ceil(a->x.w, DVK_ENLARGE_PIXELS);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_epilogue *e = &a->epi;
    if (a->kh != 1 || a->kw != 1 || a->stride != 1 || a->upsample != 1 || a->phased || a->pad_top != 0 ||
        a->pad_left != 0 || e->shuffle != 2) {
        return 0;
    }
    if ((a->x.c != 64 && a->x.c != 128) || a->y.c % DVK_ENLARGE_GROUP != 0 || a->y.h != 2 * a->x.h ||
        a->y.w != 2 * a->x.w || a->x.n * a->x.h * strips_of(a) > INT32_MAX / 2) {
        return 0;
    }
    if ((a->compute != DVK_F16 && a->compute != DVK_BF16) || !aligned(&a->x, a->compute) ||
        !aligned(&a->y, a->compute)) {
        return 0;
    }
    return a->pro.scale == NULL && a->pro.act == DVK_ACT_NONE && e->act <= DVK_ACT_PRELU && !e->gate &&
           e->stats == NULL && e->store == NULL && can_add(a) && shared_bytes(a) <= caps->shared_bytes;
}

/* ---- weights: a lane's eight input channels of an output channel; the columns make a lane's results adjacent ---- */

static int64_t groups_of(const dvk_conv2d_args *a) {
    return 4 * a->y.c / DVK_ENLARGE_GROUP;
}

static int scalable(const void *args, const dvk_cuda_caps *caps) {
    (void)args;
    (void)caps;
    return 1;
}

static size_t packed_bytes(const void *args) {
    return (size_t)weight_bytes(args);
}

static int64_t pack_units(const void *args) {
    return groups_of(args);
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const int64_t each = a->y.c / DVK_ENLARGE_GROUP, parts = a->x.c / 32;
    for (int64_t group = first; group < last; group++) {
        for (int64_t i = 0; i < parts * 4 * 32; i++) {
            const int64_t part = i / 128, octet = i / 32 % 4, lane = i % 32, column = lane / 4;
            const int64_t c = group % each * DVK_ENLARGE_GROUP + column / 2 * 8 + octet * 2 + column % 2;
            const float *from = w + (c * 4 + group / each) * a->x.c + (part * 4 + lane % 4) * 8;
            for (int64_t k = 0; k < 8; k++) {
                dvk_store(dst, a->compute, (group * parts * 128 + i) * 8 + k, from[k]);
            }
        }
    }
}

/* ---- cost: reads and writes; the share of the memory rate was measured on an H200 ---- */

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const double x = (double)(a->x.n * a->x.h * a->x.w), y = 4.0 * x * (double)a->y.c;
    const double bytes = 2.0 * (x * (double)a->x.c + y * (1.0 + a->epi.n_res));
    return TERM(launch) + bytes / (TERM(memory) * caps->memory_gbs);
}

/* ---- launch ---- */

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    const dvk_epilogue *e = &a->epi;
    const int64_t tiles = a->x.n * a->x.h * strips_of(a);
    const int64_t threads = a->x.c == 64 ? 256 : 384, most = (a->x.c == 64 ? 2 : 1) * (int64_t)q->caps->processors;
    dvk_conv_enlarge p = {
        .x = conv_view_of(&a->x),
        .y = conv_view_of(&a->y),
        .w = a->w,
        .bias = e->bias,
        .slopes = e->act == DVK_ACT_PRELU ? e->slopes : NULL,
        .slope = e->act == DVK_ACT_LRELU ? e->slope : 0.0f,
        .alpha = e->alpha,
        .has_act = e->act != DVK_ACT_NONE,
        .n_res = e->n_res,
        .h = (int32_t)a->x.h,
        .w_in = (int32_t)a->x.w,
        .c_out = (int32_t)a->y.c,
        .strips = (int32_t)strips_of(a),
        .tiles = (int32_t)tiles,
        .w_bytes = (int32_t)weight_bytes(a),
        .fresh = a->scaled,
    };
    if (e->n_res == 1) {
        p.res = conv_view_of(&e->res[0]);
        p.beta = e->beta[0];
        p.res_scale = e->res_scale;
    }
    char name[32];
    void *list[] = {&p};
    (void)scratch;
    snprintf(name, sizeof name, "conv_enlarge_%s_%d", a->compute == DVK_F16 ? "f16" : "bf16", (int)a->x.c);
    const dvk_launch l = {.module = "conv_enlarge",
                          .function = name,
                          .grid = {(uint32_t)conv_least(conv_ceil(tiles, threads / 32), most), 1, 1},
                          .block = {(uint32_t)threads, 1, 1},
                          .shared_bytes = (uint32_t)shared_bytes(a),
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_conv2d_cuda_enlarge = {.op = "conv2d",
                                                 .variant = "cuda/mma/enlarge",
                                                 .sm_min = 80,
                                                 .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                 .supports = supports,
                                                 .cost = cost,
                                                 .enqueue = enqueue,
                                                 .scalable = scalable,
                                                 .packed_bytes = packed_bytes,
                                                 .pack_units = pack_units,
                                                 .pack = pack};
