/* depthwise.c - host side of "depthwise". 3 x 3 and 5 x 5 between views of one type have specialised kernels. A general
 * kernel checks window, types and prologue at run time. A plain kernel serves any stride, and windows that exceed
 * shared memory. */
#include "kernels/cuda/conv/depthwise.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/common/elem_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(depthwise, term))

static int64_t tiles(int64_t size, int64_t tile) {
    return (size + tile - 1) / tile;
}

static int is_any(const dvk_depthwise_args *a) {
    const int half = a->x.dtype != DVK_F32;
    return a->x.dtype != a->y.dtype || a->kh != a->kw || (a->kh != 3 && (a->kh != 5 || !half)) ||
           a->pro.scale != NULL || a->pro.act != DVK_ACT_NONE;
}

static int64_t patch_pixels(const dvk_depthwise_args *a) {
    return (int64_t)(DVK_DEPTHWISE_W + a->kw - 1) * (DVK_DEPTHWISE_H + a->kh - 1);
}

static int64_t shared_bytes(const dvk_depthwise_args *a) {
    const int64_t each = is_any(a) || a->x.dtype == DVK_F32 ? 32 : 16; /* of eight channels */
    return DVK_DEPTHWISE_OCTETS * ((int64_t)a->kh * a->kw * 32 + patch_pixels(a) * each);
}

/* Channels of y per block. */
static int64_t block_channels(const dvk_depthwise_args *a) {
    return a->paired ? 4 * DVK_DEPTHWISE_OCTETS : 8 * DVK_DEPTHWISE_OCTETS;
}

static int can_pair(const dvk_depthwise_args *a) {
    return !is_any(a) && a->x.dtype != DVK_F32 && a->y.c % 8 == 0 && a->x.c == 2 * a->y.c && a->epi.n_res == 0 &&
           !(a->epi.alpha < 1.0f) && !(a->epi.alpha > 1.0f) && a->epi.act != DVK_ACT_PRELU &&
           a->epi.act != DVK_ACT_LRELU && !a->epi.gate;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_depthwise_args *a = args;
    return a->stride <= 1 && shared_bytes(a) <= caps->shared_bytes && dvk_elem_rows_fit(&a->y) &&
           dvk_elem_rows_fit(&a->x) && a->y.n < 65536 && tiles(a->y.c, block_channels(a)) < 65536 &&
           a->epi.stats == NULL && a->epi.shuffle <= 1 && a->epi.gate <= 1 && (!a->paired || can_pair(a)) &&
           tiles(a->y.w, DVK_DEPTHWISE_W) * tiles(a->y.h, DVK_DEPTHWISE_H) < INT32_MAX;
}

/* A patch is read with its halo, mostly from the cache. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_depthwise_args *a = args;
    double bytes = dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += dvk_elem_bytes(&a->epi.res[i]);
    }
    const double products =
        (double)dvk_elem_count(&a->x) * a->kh * a->kw * 2.0 / (TERM(simt) * 1e3 * caps->simt_tflops);
    const double moved = dvk_elem_cost(bytes, caps);
    return TERM(launch) + (moved > products ? moved : products);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    static const char *const types[] = {[DVK_F32] = "f32", [DVK_F16] = "f16", [DVK_BF16] = "bf16"};
    const dvk_depthwise_args *a = args;
    (void)scratch;
    dvk_depthwise_params p = {.x = dvk_elem_of(&a->x),
                              .y = dvk_elem_of(&a->y),
                              .ends = dvk_elem_ends_of(&a->pro, &a->epi),
                              .w = a->w,
                              .kh = a->kh,
                              .kw = a->kw,
                              .pad_top = a->pad_top,
                              .pad_left = a->pad_left,
                              .in_h = (int32_t)a->x.h,
                              .in_w = (int32_t)a->x.w,
                              .out_h = (int32_t)a->y.h,
                              .out_w = (int32_t)a->y.w,
                              .c = (int32_t)a->x.c,
                              .tiles_x = (int32_t)tiles(a->y.w, DVK_DEPTHWISE_W),
                              .patch_w = DVK_DEPTHWISE_W + a->kw - 1,
                              .patch_pixels = (int32_t)patch_pixels(a)};
    char name[32] = "depthwise_any";
    if (!is_any(a)) {
        snprintf(name, sizeof name, "depthwise%d%s_%s", (int)a->kh, a->paired ? "_paired" : "", types[a->y.dtype]);
    }
    void *list[] = {&p};
    const dvk_launch l = {.module = "depthwise",
                          .function = name,
                          .grid = {(uint32_t)(p.tiles_x * tiles(a->y.h, DVK_DEPTHWISE_H)),
                                   (uint32_t)tiles(a->y.c, block_channels(a)), (uint32_t)a->y.n},
                          .block = {DVK_DEPTHWISE_BLOCK, 1, 1},
                          .shared_bytes = (uint32_t)shared_bytes(a),
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return q->launch(q, &l);
}

DVK_ELEM_KERNEL(dvk_depthwise_cuda, "depthwise", supports, cost, enqueue);

/* ---- plain ---- */

static int plain_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_depthwise_args *a = args;
    (void)caps;
    return !a->paired && dvk_elem_rows_fit(&a->x) && dvk_elem_rows_fit(&a->y) && a->pro.scale == NULL &&
           a->pro.act == DVK_ACT_NONE && a->epi.stats == NULL && a->epi.shuffle <= 1 && a->epi.gate <= 1;
}

/* Every tap is read separately, from the cache. */
static double plain_cost(const void *args, const dvk_cuda_caps *caps) {
    return TERM(plain) * cost(args, caps);
}

static int plain_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_depthwise_args *a = args;
    (void)scratch;
    dvk_depthwise_plain_params p = {.x = dvk_elem_of(&a->x),
                                    .y = dvk_elem_of(&a->y),
                                    .ends = dvk_elem_ends_of(&a->pro, &a->epi),
                                    .w = a->w,
                                    .kh = a->kh,
                                    .kw = a->kw,
                                    .pad_top = a->pad_top,
                                    .pad_left = a->pad_left,
                                    .stride = a->stride > 1 ? a->stride : 1,
                                    .in_h = (int32_t)a->x.h,
                                    .in_w = (int32_t)a->x.w,
                                    .rows = (int32_t)(a->y.n * a->y.h),
                                    .out_h = (int32_t)a->y.h,
                                    .out_w = (int32_t)a->y.w,
                                    .c = (int32_t)a->y.c,
                                    .chunks = dvk_elem_chunks(a->y.c)};
    return dvk_elem_launch_rows(q, "depthwise", "depthwise_plain", (int64_t)p.out_w * p.chunks, p.rows, &p);
}

extern const dvk_cuda_kernel dvk_depthwise_cuda_plain;
const dvk_cuda_kernel dvk_depthwise_cuda_plain = {.op = "depthwise",
                                                  .variant = "cuda/plain",
                                                  .sm_min = 75,
                                                  .computes = DVK_COMPUTES_ANY,
                                                  .supports = plain_supports,
                                                  .cost = plain_cost,
                                                  .enqueue = plain_enqueue};
