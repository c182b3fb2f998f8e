/* depthwise_planes.c - host side of "depthwise" of 16-bit pictures by 3 x 3 or 5 x 5, tile by tile. */
#include "kernels/cuda/conv/depthwise_planes.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/common/elem_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(depthwise_planes, term))

static int64_t tiles(int64_t size, int64_t tile) {
    return (size + tile - 1) / tile;
}

static int64_t jobs_of(const dvk_depthwise_args *a) {
    return a->y.n * tiles(a->y.h, DVK_PLANES_H) * tiles(a->y.w, DVK_PLANES_W);
}

static int64_t slabs_of(const dvk_depthwise_args *a) {
    return tiles(a->y.c, (int64_t)DVK_PLANES_OCTETS * 8);
}

static int fits(const dvk_view *v, const dvk_depthwise_args *a) {
    return v->dtype == a->x.dtype && dvk_elem_of(v).vector && dvk_elem_rows_fit(v);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_depthwise_args *a = args;
    const dvk_epilogue *e = &a->epi;
    const int plain = !a->paired && a->stride <= 1 && a->kh == a->kw && (a->kh == 3 || a->kh == 5) &&
                      a->pro.scale == NULL && a->pro.act == DVK_ACT_NONE;
    const int ends = e->n_res <= 1 && (e->n_res == 0 || fits(&e->res[0], a)) && !e->gate && e->stats == NULL &&
                     e->shuffle <= 1 && e->act != DVK_ACT_PRELU;
    const int type = a->x.dtype == DVK_F16 || (a->x.dtype == DVK_BF16 && caps->sm >= 80);
    return plain && ends && type && fits(&a->x, a) && fits(&a->y, a) && jobs_of(a) < INT32_MAX / 2 &&
           slabs_of(a) <= 2 * caps->processors && dvk_planes_shared(a->kh) <= caps->shared_bytes;
}

/* A tile's time is that of its sums. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_depthwise_args *a = args;
    const double held = 2.0 * caps->processors / (double)slabs_of(a);
    const double each = TERM(tile) + TERM(tap) * a->kh * a->kw;
    const double sums = each * (double)tiles(jobs_of(a), (int64_t)held > 0 ? (int64_t)held : 1);
    double bytes = dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y);
    bytes += a->epi.n_res > 0 ? dvk_elem_bytes(&a->epi.res[0]) : 0.0;
    const double moved = dvk_elem_cost(bytes, caps);
    return moved > TERM(launch) + sums ? moved : TERM(launch) + sums;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_depthwise_args *a = args;
    (void)scratch;
    dvk_depthwise_planes p = {.x = dvk_elem_of(&a->x),
                              .y = dvk_elem_of(&a->y),
                              .ends = dvk_elem_ends_of(NULL, &a->epi),
                              .w = a->w,
                              .pad_top = a->pad_top,
                              .pad_left = a->pad_left,
                              .in_h = (int32_t)a->x.h,
                              .in_w = (int32_t)a->x.w,
                              .out_h = (int32_t)a->y.h,
                              .out_w = (int32_t)a->y.w,
                              .c = (int32_t)a->y.c,
                              .tiles_x = (int32_t)tiles(a->y.w, DVK_PLANES_W),
                              .tiles_y = (int32_t)tiles(a->y.h, DVK_PLANES_H),
                              .jobs = (int32_t)jobs_of(a),
                              .slabs = (int32_t)slabs_of(a),
                              .alone = a->y.sw == (a->y.c + 7) / 8 * 8};
    char name[32];
    snprintf(name, sizeof name, "depthwise_planes%d_%s", (int)a->kh, a->x.dtype == DVK_F16 ? "f16" : "bf16");
    const int32_t held = 2 * q->caps->processors / p.slabs;
    void *list[] = {&p};
    const dvk_launch l = {.module = "depthwise_planes",
                          .function = name,
                          .grid = {(uint32_t)(p.slabs * (p.jobs < held ? p.jobs : held)), 1, 1},
                          .block = {DVK_PLANES_BLOCK, 1, 1},
                          .shared_bytes = (uint32_t)dvk_planes_shared(a->kh),
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return q->launch(q, &l);
}

extern const dvk_cuda_kernel dvk_depthwise_cuda_planes;
const dvk_cuda_kernel dvk_depthwise_cuda_planes = {.op = "depthwise",
                                                   .variant = "cuda/planes",
                                                   .sm_min = 75,
                                                   .computes = DVK_COMPUTES_ANY,
                                                   .supports = supports,
                                                   .cost = cost,
                                                   .enqueue = enqueue};
