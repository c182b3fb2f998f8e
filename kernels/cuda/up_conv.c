/* up_conv.c - "up_conv" on Hopper's tensor cores, from 64 channels by way of 64 to at most 64; see up_conv_sm90.cu. */
#include "kernels/up_conv.h"

#include "kernels/cuda/conv_made_host.h"
#include "kernels/cuda/up_conv.h"

extern const dvk_cuda_kernel dvk_up_conv_cuda_f16, dvk_up_conv_cuda_bf16;

static int takes(const dvk_up_conv_args *a, const dvk_cuda_caps *caps) {
    return a->x.c == DVK_UP_CHANNELS && a->res.c == DVK_UP_CHANNELS && a->res.dtype == a->y.dtype &&
           mappable(&a->res) && a->res.n == a->x.n && a->res.h == 2 * a->x.h && a->res.w == 2 * a->x.w &&
           a->y.h == a->res.h - 2 && a->y.w == a->res.w - 2 && made_fits(&a->x, &a->y) &&
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

/* Two tiles take so long, or what is moved; the constants are of an H200. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_up_conv_args *a = args;
    const double jobs = 12400.0 * (double)blocks_of(made_jobs(&a->y), caps->processors);
    const double bytes = (view_bytes(&a->x) + view_bytes(&a->res) + view_bytes(&a->y)) / (0.75 * caps->memory_gbs);
    return 9000.0 + (jobs > bytes ? jobs : bytes);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_up_conv_args *a = args;
    dvk_up_conv p = {.scale = a->scale, .w_up = a->w_up, .b_up = a->b_up, .w = a->w, .slope_up = a->slope_up};
    (void)scratch;
    made_fill(&p.of, &a->x, &a->y, DVK_UP_ENTRIES);
    p.of.epi.bias = a->b;
    p.of.epi.slope = a->slope;
    int r = map_of(q, &a->res, 1, 0, DVK_UP_WIDTH, DVK_UP_HEIGHT, &p.of.res[0]);
    r = r != 0 ? r : map_of(q, &a->y, 1, 0, DVK_WGMMA_TILE_W, DVK_WGMMA_PIECE_H, &p.of.y[0]);
    return r != 0 ? r
                  : made_launch(q, "up_conv_sm90", a->y.dtype == DVK_F16 ? "up_conv_f16" : "up_conv_bf16", &p.of,
                                DVK_UP_SHARED, &p);
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
