/* conv_pixels.c - host side of memory-bound 1x1 convolutions from 64 to 64 channels of many pixels. Weights are packed
 * in the layout of conv_pixels.cu: pixel_mma.cuh. */
#include "kernels/cuda/conv/conv_pixels.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_pixels, term))

extern const dvk_cuda_kernel dvk_conv2d_cuda_pixels;

static int is_one(float v) {
    return v >= 1.0f && v <= 1.0f;
}

/* 1 if all pictures have one pixel pitch */
static int flat(const dvk_conv2d_args *a, const dvk_view *v) {
    return v->dtype == a->compute && v->c == DVK_CONV_PIXELS_C && mappable(v) && (v->h == 1 || v->sh == v->w * v->sw) &&
           (v->n == 1 || v->sn == v->h * v->w * v->sw);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_epilogue *e = &a->epi;
    (void)caps;
    const int pixelwise = a->kh == 1 && a->kw == 1 && a->stride == 1 && a->pad_top == 0 && a->pad_left == 0 &&
                          a->upsample == 1 && a->y.h == a->x.h && a->y.w == a->x.w;
    const int plain = e->act == DVK_ACT_NONE && is_one(e->alpha) && !e->gate && e->stats == NULL && e->shuffle <= 1 &&
                      e->store == NULL && a->pro.scale == NULL && a->pro.act == DVK_ACT_NONE &&
                      (e->n_res == 0 || (e->n_res == 1 && is_one(e->beta[0]) && flat(a, &e->res[0])));
    return pixelwise && plain && is_half(a->compute) && flat(a, &a->x) && flat(a, &a->y) &&
           a->x.n * a->x.h * a->x.w < INT32_MAX / 2;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const double res = a->epi.n_res > 0 ? view_bytes(&a->epi.res[0]) : 0.0;
    return TERM(launch) + (view_bytes(&a->x) + view_bytes(&a->y) + res) / (TERM(memory) * caps->memory_gbs);
}

static size_t packed_bytes(const void *args) {
    (void)args;
    return DVK_CONV_PIXELS_C * DVK_CONV_PIXELS_C * 2;
}

static int64_t pack_units(const void *args) {
    (void)args;
    return DVK_CONV_PIXELS_C;
}

/* A line has the weights of one output channel, ordered by channel_of() and place() of pixel_mma.cuh. */
static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    for (int64_t line = first; line < last; line++) {
        const int64_t tile = line / 8, r = line % 8, channel = tile / 4 * 32 + r / 2 * 8 + tile % 4 * 2 + r % 2;
        for (int64_t c = 0; c < DVK_CONV_PIXELS_C; c++) {
            const int64_t piece = (c / 8) ^ (line % 2 * 4);
            dvk_store(dst, a->compute, line * DVK_CONV_PIXELS_C + piece * 8 + c % 8,
                      w[channel * DVK_CONV_PIXELS_C + c]);
        }
    }
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    (void)scratch;
    dvk_conv_pixels p = {.x = a->x.data,
                         .w = a->w,
                         .y = a->y.data,
                         .bias = a->epi.bias,
                         .x_pitch = a->x.sw,
                         .y_pitch = a->y.sw,
                         .pixels = (int32_t)(a->x.n * a->x.h * a->x.w)};
    if (a->epi.n_res > 0) {
        p.res = a->epi.res[0].data;
        p.res_pitch = a->epi.res[0].sw;
    }
    const int32_t need = (int32_t)blocks_of(p.pixels, DVK_CONV_PIXELS_AT_ONCE * DVK_CONV_PIXELS_BLOCK / 32);
    void *list[] = {&p};
    const dvk_launch l = {.module = "conv_pixels",
                          .function = a->compute == DVK_BF16 ? "conv_pixels_bf16" : "conv_pixels_f16",
                          .grid = {(uint32_t)least(need, 2 * q->caps->processors), 1, 1},
                          .block = {DVK_CONV_PIXELS_BLOCK, 1, 1},
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_conv2d_cuda_pixels = {.op = "conv2d",
                                                .variant = "cuda/pixels",
                                                .sm_min = 80,
                                                .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                .supports = supports,
                                                .cost = cost,
                                                .enqueue = enqueue,
                                                .packed_bytes = packed_bytes,
                                                .pack_units = pack_units,
                                                .pack = pack};
