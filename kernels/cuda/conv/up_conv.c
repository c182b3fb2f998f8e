/* up_conv.c - host side of "up_conv" on Hopper's tensor cores, from 64 channels through 64 to at most 64; see
 * up_conv_sm90.cu. */
#include "kernels/up_conv.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"
#include "kernels/cuda/conv/up_conv.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(up_conv, term))

extern const dvk_cuda_kernel dvk_up_conv_cuda_f16, dvk_up_conv_cuda_bf16;

static int fits(const dvk_view *x, const dvk_view *y) {
    return y->c <= DVK_UP_CHANNELS && x->n == y->n && y->h >= 1 && y->w >= 1 && x->dtype == y->dtype && vectored(x) &&
           mappable(y) && ends_alone(y) && y->n * y->h * y->w < INT32_MAX / 8;
}

static int64_t jobs_of(const dvk_view *y) {
    return blocks_of(y->n * blocks_of(y->h, DVK_WGMMA_TILE_H) * blocks_of(y->w, DVK_WGMMA_TILE_W), 2);
}

static void fill(dvk_conv_wgmma *of, const dvk_view *x, const dvk_view *y) {
    memset(of, 0, sizeof *of);
    of->from = view_of(x);
    of->epi = (dvk_conv_epi){
        .y = view_of(y), .alpha = 1.0f, .act = (int32_t)DVK_ACT_LRELU, .shuffle = 1, .c_out = (int32_t)y->c, .step = 1};
    of->epilogue = (int32_t)DVK_WGMMA_SLOPE;
    of->c_in = (int32_t)x->c;
    of->n = (int32_t)y->n;
    of->in_h = (int32_t)x->h;
    of->in_w = (int32_t)x->w;
    of->out_h = (int32_t)y->h;
    of->out_w = (int32_t)y->w;
    of->tiles_x = (int32_t)blocks_of(of->out_w, DVK_WGMMA_TILE_W);
    of->tiles_y = (int32_t)blocks_of(of->out_h, DVK_WGMMA_TILE_H);
    of->blocks = of->phases = of->split = 1;
    of->jobs = (int32_t)jobs_of(y);
    of->entries = DVK_UP_ENTRIES;
    of->entry_bytes = DVK_WGMMA_PIECE;
}

static int takes(const dvk_up_conv_args *a, const dvk_cuda_caps *caps) {
    return a->x.c == DVK_UP_CHANNELS && a->res.c == DVK_UP_CHANNELS && a->res.dtype == a->y.dtype &&
           mappable(&a->res) && a->res.n == a->x.n && a->res.h == 2 * a->x.h && a->res.w == 2 * a->x.w &&
           a->y.h == a->res.h - 2 && a->y.w == a->res.w - 2 && fits(&a->x, &a->y) &&
           DVK_UP_SHARED <= caps->shared_bytes;
}

static int supports_f16(const void *args, const dvk_cuda_caps *caps) {
    const dvk_up_conv_args *a = args;
    return a->y.dtype == DVK_F16 && takes(a, caps);
}

static int supports_bf16(const void *args, const dvk_cuda_caps *caps) {
    const dvk_up_conv_args *a = args;
    return a->y.dtype == DVK_BF16 && takes(a, caps);
}

/* The time of two tiles, or the memory traffic. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_up_conv_args *a = args;
    const double jobs = TERM(job) * (double)blocks_of(jobs_of(&a->y), caps->processors);
    const double bytes =
        (view_bytes(&a->x) + view_bytes(&a->res) + view_bytes(&a->y)) / (TERM(memory) * caps->memory_gbs);
    return TERM(launch) + (jobs > bytes ? jobs : bytes);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_up_conv_args *a = args;
    dvk_up_conv p = {.scale = a->scale, .w_up = a->w_up, .b_up = a->b_up, .w = a->w, .slope_up = a->slope_up};
    (void)scratch;
    fill(&p.of, &a->x, &a->y);
    p.of.epi.bias = a->b;
    p.of.epi.slope = a->slope;
    int r = map_of(q, &a->res, 1, 0, DVK_UP_WIDTH, DVK_UP_HEIGHT, &p.of.res[0]);
    r = r != 0 ? r : map_of(q, &a->y, 1, 0, DVK_WGMMA_TILE_W, DVK_WGMMA_PIECE_H, &p.of.y[0]);
    void *list[] = {&p};
    const dvk_launch l = {.module = "up_conv_sm90",
                          .function = a->y.dtype == DVK_F16 ? "up_conv_f16" : "up_conv_bf16",
                          .grid = {(uint32_t)least(p.of.jobs, q->caps->processors), 1, 1},
                          .block = {DVK_UP_THREADS, 1, 1},
                          .shared_bytes = DVK_UP_SHARED,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return r != 0 ? r : q->launch(q, &l);
}

#define UP(name, computes_of, supports_of)                                                                             \
    const dvk_cuda_kernel name = {.op = "up_conv",                                                                     \
                                  .variant = "cuda/wgmma",                                                             \
                                  .sm_min = 90,                                                                        \
                                  .sm_max = 90,                                                                        \
                                  .computes = (computes_of),                                                           \
                                  .supports = (supports_of),                                                           \
                                  .cost = cost,                                                                        \
                                  .enqueue = enqueue}

UP(dvk_up_conv_cuda_f16, DVK_COMPUTES_F16, supports_f16);
UP(dvk_up_conv_cuda_bf16, DVK_COMPUTES_BF16, supports_bf16);
