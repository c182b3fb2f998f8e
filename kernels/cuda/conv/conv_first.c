/* conv_first.c - host side of "conv2d" of 3 x 3 from at most four channels, such as colours, on the tensor cores of
 * Ampere and later; see conv_first.cu. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/conv/conv_first.h"
#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_first, term))

extern const dvk_cuda_kernel dvk_conv2d_cuda_first;

enum { FIRST_TAPS = 9 };

static int aligned(const dvk_view *v) {
    return conv_view_of(v).vec;
}

static int has_act(dvk_act act) {
    return act == DVK_ACT_NONE || act == DVK_ACT_RELU || act == DVK_ACT_LRELU || act == DVK_ACT_PRELU ||
           act == DVK_ACT_SILU;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_epilogue *e = &a->epi;
    const int64_t limit = INT32_MAX / DVK_FIRST_THREADS;
    (void)caps;
    if (a->kh != 3 || a->kw != 3 || a->stride != 1 || a->upsample != 1 || a->phased || a->pad_top < 0 ||
        a->pad_left < 0) {
        return 0;
    }
    if (a->x.c > 4 || (a->y.c != 16 && a->y.c != 32 && a->y.c != 48 && a->y.c != 64)) {
        return 0;
    }
    if ((a->compute != DVK_F16 && a->compute != DVK_BF16) || a->y.dtype != a->compute || !aligned(&a->y) ||
        (a->x.dtype != DVK_F32 && (a->x.dtype != a->compute || !aligned(&a->x)))) {
        return 0;
    }
    return a->pro.act == DVK_ACT_NONE && has_act(e->act) && e->n_res == 0 && !(e->alpha < 1.0f) && !(e->alpha > 1.0f) &&
           !e->gate && e->stats == NULL && e->shuffle <= 1 && e->store == NULL && a->x.n == a->y.n && a->x.h < limit &&
           a->x.w < limit && a->y.n * conv_ceil(a->y.h, DVK_FIRST_HEIGHT) * conv_ceil(a->y.w, DVK_FIRST_WIDTH) < limit;
}

static int64_t blocks_of(const dvk_conv2d_args *a, const dvk_cuda_caps *caps) {
    const int64_t tiles = a->y.n * conv_ceil(a->y.h, DVK_FIRST_HEIGHT) * conv_ceil(a->y.w, DVK_FIRST_WIDTH);
    return conv_least(tiles, 2 * (int64_t)caps->processors);
}

/* ---- weights: the operand of a lane (column of eight, share of four) ---- */

static int32_t octets_of(const dvk_conv2d_args *a) {
    return (int32_t)(a->y.c / 8);
}

/* The output channel of a column: a lane's two columns of every eight are adjacent channels of its group. */
static int64_t channel_of(int32_t octets, int32_t octet, int32_t column) {
    const int32_t group = octet & ~3, wide = (int32_t)conv_least(octets - group, 4);
    return group * 8 + column / 2 * 2 * wide + (octet - group) * 2 + column % 2;
}

static size_t packed_bytes(const void *args) {
    return (size_t)octets_of(args) * 32 * (2 * 8 + 4);
}

static int64_t pack_units(const void *args) {
    return octets_of(args);
}

static void pack_one(const dvk_conv2d_args *a, const float *w, void *dst, int64_t at, int64_t o, int32_t tap,
                     int64_t c) {
    dvk_store(dst, a->compute, at, c < a->x.c ? w[(o * a->x.c + c) * FIRST_TAPS + tap] : 0.0f);
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const int32_t octets = octets_of(a);
    const int64_t behind = (int64_t)2 * octets * 32 * 4; /* offset of the ninth tap */
    for (int32_t octet = (int32_t)first; octet < (int32_t)last; octet++) {
        for (int32_t lane = 0; lane < 32; lane++) {
            const int64_t o = channel_of(octets, octet, lane / 4);
            for (int32_t step = 0; step < 2; step++) {
                for (int32_t c = 0; c < 4; c++) {
                    const int64_t at = ((int64_t)(step * octets + octet) * 32 + lane) * 4 + c;
                    pack_one(a, w, dst, at, o, step * 4 + lane % 4, c);
                }
            }
            for (int32_t k = 0; k < 2; k++) {
                const int64_t at = behind + ((int64_t)octet * 32 + lane) * 2 + k;
                pack_one(a, w, dst, at, o, FIRST_TAPS - 1, lane % 4 * 2 + k);
            }
        }
    }
}

/* ---- cost: writes, or a warp's instructions for sixteen pixels; the constants are of an H200 ---- */

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const double pixels = (double)(a->y.n * a->y.h * a->y.w);
    const double bytes = pixels * (double)a->y.c * 2.0 + (double)(a->x.n * a->x.h * a->x.w) * 16.0;
    const double tiles = (double)(a->y.n * conv_ceil(a->y.h, DVK_FIRST_HEIGHT) * conv_ceil(a->y.w, DVK_FIRST_WIDTH));
    const double rounds = (double)conv_ceil((int64_t)tiles, 2 * (int64_t)caps->processors);
    const double tile = 2.0 * (TERM(pixel) + TERM(octet) * octets_of(a)) * DVK_FIRST_WIDTH * DVK_FIRST_HEIGHT / 16.0 /
                        4.0 / TERM(clock);
    const double memory = bytes / (TERM(memory) * caps->memory_gbs);
    return TERM(launch) + (rounds * tile > memory ? rounds * tile : memory);
}

/* ---- launch ---- */

static dvk_conv_first params_of(const dvk_conv2d_args *a) {
    const dvk_epilogue *e = &a->epi;
    const int32_t tiles_x = (int32_t)conv_ceil(a->y.w, DVK_FIRST_WIDTH);
    const int32_t tiles_y = (int32_t)conv_ceil(a->y.h, DVK_FIRST_HEIGHT);
    return (dvk_conv_first){
        .x = conv_view_of(&a->x),
        .y = conv_view_of(&a->y),
        .w = a->w,
        .scale = a->pro.scale,
        .shift = a->pro.shift,
        .bias = e->bias,
        .slopes = e->act == DVK_ACT_PRELU ? e->slopes : NULL,
        .slope = e->act == DVK_ACT_LRELU ? e->slope : 0.0f,
        .act = e->act == DVK_ACT_NONE   ? DVK_FIRST_NONE
               : e->act == DVK_ACT_SILU ? DVK_FIRST_SILU
                                        : DVK_FIRST_SLOPE,
        .c_in = (int32_t)a->x.c,
        .n = (int32_t)a->y.n,
        .in_h = (int32_t)a->x.h,
        .in_w = (int32_t)a->x.w,
        .out_h = (int32_t)a->y.h,
        .out_w = (int32_t)a->y.w,
        .pad_top = a->pad_top,
        .pad_left = a->pad_left,
        .tiles_x = tiles_x,
        .tiles_y = tiles_y,
        .tiles = (int32_t)a->y.n * tiles_x * tiles_y,
    };
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    dvk_conv_first p = params_of(a);
    char name[32];
    void *list[] = {&p};
    (void)scratch;
    snprintf(name, sizeof name, "conv_first_%s_%d", a->compute == DVK_F16 ? "f16" : "bf16", (int)a->y.c);
    const dvk_launch l = {.module = "conv_first",
                          .function = name,
                          .grid = {(uint32_t)blocks_of(a, q->caps), 1, 1},
                          .block = {DVK_FIRST_THREADS, 1, 1},
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_conv2d_cuda_first = {.op = "conv2d",
                                               .variant = "cuda/mma/first",
                                               .sm_min = 80,
                                               .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                               .supports = supports,
                                               .cost = cost,
                                               .enqueue = enqueue,
                                               .packed_bytes = packed_bytes,
                                               .pack_units = pack_units,
                                               .pack = pack};
