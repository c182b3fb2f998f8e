/* conv_down.c - host side of "conv_down" on Hopper's tensor cores, from 32 channels to 64 and to 64; see
 * conv_down_sm90.cu. */
#include "kernels/conv_down.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_down.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_down, term))

extern const dvk_cuda_kernel dvk_conv_down_cuda_f16, dvk_conv_down_cuda_bf16;

static int64_t jobs_of(const dvk_view *y) {
    return blocks_of(y->n * blocks_of(y->h, DVK_WGMMA_TILE_H) * blocks_of(y->w, DVK_WGMMA_TILE_W), 2);
}

/* y is written as four pictures by parity, none of which may be empty. */
static int fits(const dvk_view *x, const dvk_view *y, const dvk_view *z) {
    return x->c == DVK_DOWN_IN && y->c == DVK_DOWN_CHANNELS && z->c == DVK_DOWN_CHANNELS && x->n == y->n &&
           z->n == y->n && x->h == y->h + 2 && x->w == y->w + 2 && y->h >= 2 && y->w >= 2 && y->h % 2 == 0 &&
           y->w % 2 == 0 && z->h == y->h / 2 && z->w == y->w / 2 && y->n * y->h * y->w < INT32_MAX / 8;
}

static int takes(const dvk_conv_down_args *a, dvk_dtype t, const dvk_cuda_caps *caps) {
    return a->x.dtype == t && a->y.dtype == t && a->z.dtype == t && fits(&a->x, &a->y, &a->z) && mappable(&a->x) &&
           mappable(&a->y) && mappable(&a->z) && DVK_DOWN_SHARED <= caps->shared_bytes;
}

static int supports_f16(const void *args, const dvk_cuda_caps *caps) {
    return takes(args, DVK_F16, caps);
}

static int supports_bf16(const void *args, const dvk_cuda_caps *caps) {
    return takes(args, DVK_BF16, caps);
}

/* The time of two tiles, or the memory traffic. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv_down_args *a = args;
    const double jobs = TERM(job) * (double)blocks_of(jobs_of(&a->y), caps->processors);
    const double bytes =
        (view_bytes(&a->x) + view_bytes(&a->y) + view_bytes(&a->z)) / (TERM(memory) * caps->memory_gbs);
    return TERM(launch) + (jobs > bytes ? jobs : bytes);
}

static dvk_conv_epi epi_of_view(const dvk_view *y, const float *bias, float slope) {
    return (dvk_conv_epi){.y = view_of(y),
                          .bias = bias,
                          .slope = slope,
                          .alpha = 1.0f,
                          .act = (int32_t)DVK_ACT_LRELU,
                          .shuffle = 1,
                          .c_out = (int32_t)y->c,
                          .step = 1};
}

static void fill(dvk_conv_wgmma *of, const dvk_view *y) {
    of->n = (int32_t)y->n;
    of->out_h = (int32_t)y->h;
    of->out_w = (int32_t)y->w;
    of->tiles_x = (int32_t)blocks_of(of->out_w, DVK_WGMMA_TILE_W);
    of->tiles_y = (int32_t)blocks_of(of->out_h, DVK_WGMMA_TILE_H);
    of->blocks = of->phases = of->split = 1;
    of->jobs = (int32_t)jobs_of(y);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    static const int32_t patch[] = {DVK_DOWN_IN, DVK_DOWN_WIDTH, DVK_DOWN_HEIGHT};
    enum { WIDE = DVK_WGMMA_TILE_W / 2, HIGH = DVK_WGMMA_TILE_H / 2 };
    const dvk_conv_down_args *a = args;
    dvk_conv_down p;
    (void)scratch;
    memset(&p, 0, sizeof p);
    fill(&p.of, &a->y);
    p.of.epi = epi_of_view(&a->y, a->b, a->slope);
    p.epi = epi_of_view(&a->z, a->b_down, a->slope_down);
    p.w = a->w;
    p.w_down = a->w_down;
    int r = map_of_box(q, &a->x, 1, 0, patch, &p.of.x);
    for (int parity = 0; parity < 4 && r == 0; parity++) {
        r = map_of(q, &a->y, 2, parity, WIDE, HIGH, &p.of.y[parity]);
    }
    r = r != 0 ? r : map_of(q, &a->z, 1, 0, WIDE, HIGH, &p.z);
    void *list[] = {&p};
    const dvk_launch l = {.module = "conv_down_sm90",
                          .function = a->y.dtype == DVK_F16 ? "conv_down_f16" : "conv_down_bf16",
                          .grid = {(uint32_t)least(p.of.jobs, q->caps->processors), 1, 1},
                          .block = {DVK_WGMMA_THREADS, 1, 1},
                          .shared_bytes = DVK_DOWN_SHARED,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return r != 0 ? r : q->launch(q, &l);
}

#define DOWN(name, computes_of, supports_of)                                                                           \
    const dvk_cuda_kernel name = {.op = "conv_down",                                                                   \
                                  .variant = "cuda/wgmma",                                                             \
                                  .sm_min = 90,                                                                        \
                                  .sm_max = 90,                                                                        \
                                  .computes = (computes_of),                                                           \
                                  .supports = (supports_of),                                                           \
                                  .cost = cost,                                                                        \
                                  .enqueue = enqueue}

DOWN(dvk_conv_down_cuda_f16, DVK_COMPUTES_F16, supports_f16);
DOWN(dvk_conv_down_cuda_bf16, DVK_COMPUTES_BF16, supports_bf16);
