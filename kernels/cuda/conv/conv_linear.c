/* conv_linear.c - host side of 1x1 convolutions of many pixels on Hopper's tensor cores: support, slices of output
 * channels, cost. Weights are packed in the layout of conv_linear_sm90.cu. */
#include "kernels/cuda/conv/conv_linear.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_linear, term))

extern const dvk_cuda_kernel dvk_conv2d_cuda_linear;

static const int32_t widths[] = {256, 192, 144, 128, 96, 64, 32};

typedef struct plan { /* slices of output channels, which depend only on the weights, and the ring */
    int32_t width, slices, slots;
    int32_t shared; /* bytes */
} plan;

static int32_t chunks_of(const dvk_conv2d_args *a) {
    return (int32_t)blocks_of(a->x.c, DVK_WGMMA_CHUNK);
}

static int32_t out_bytes(int32_t width) {
    return width / 64 * DVK_LINEAR1_ROWS * 128 + (DVK_LINEAR1_ROWS * (width % 64) * 2 + 1023) / 1024 * 1024;
}

static plan plan_of(const dvk_conv2d_args *a, int32_t width) {
    enum { SHARED = 227 * 1024 };
    const int32_t chunks = chunks_of(a);
    plan c = {.width = width, .slices = (int32_t)blocks_of(a->y.c, width)};
    const int32_t fixed = chunks * width * 128 + 2 * out_bytes(width) + width * 4 + DVK_LINEAR1_BARRIERS;
    c.slots = least((SHARED - fixed) / DVK_LINEAR1_SLOT, DVK_LINEAR1_MAX_SLOTS);
    c.shared = fixed + c.slots * DVK_LINEAR1_SLOT;
    return c;
}

/* The time of a tile is that of its padded products or of loading its pixels. The rates are an H200's and are constants
 * here, not in the cost table: the layout of packed weights follows from them on every device. */
static double tile_time(const dvk_conv2d_args *a, const plan *c) {
    const double products = 64.0 * c->width * (double)blocks_of(a->x.c, 16) * 16.0 / 3000.0;
    const double bring = chunks_of(a) * DVK_LINEAR1_SLOT / (c->slots > 3 ? 36.0 : 30.0);
    return products > bring ? products : bring;
}

/* The slice width with the lowest total time; width 0: none. */
static plan best_plan(const dvk_conv2d_args *a) {
    plan best = {0};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        const plan c = plan_of(a, widths[i]);
        if (c.slots >= 3 && (best.width == 0 || tile_time(a, &c) * c.slices < tile_time(a, &best) * best.slices)) {
            best = c;
        }
    }
    return best;
}

static int even(const dvk_view *v) {
    return mappable(v) && (v->h == 1 || v->sh == v->w * v->sw) && (v->n == 1 || v->sn == v->h * v->w * v->sw);
}

static int same_type(const dvk_conv2d_args *a, const dvk_view *v) {
    return v->dtype == a->compute && even(v);
}

static int in_words(const dvk_conv2d_args *a, const dvk_view *v) {
    return v->dtype == a->compute && (uintptr_t)v->data % 4 == 0 && v->sw % 2 == 0 && v->c % 2 == 0 &&
           (v->h == 1 || v->sh == v->w * v->sw) && (v->n == 1 || v->sn == v->h * v->w * v->sw);
}

/* 1 if a slice begins at 16 bytes and another tensor follows its last channel: all pieces but the last are stored
 * whole. */
static int by_pieces(const dvk_conv2d_args *a) {
    return same_type(a, &a->y) && !ends_alone(&a->y) && a->y.c % 2 == 0 &&
           (a->epi.n_res == 0 || same_type(a, &a->epi.res[0]));
}

/* 1 if y must be stored word by word. A bulk copy writes whole pieces of 16 bytes, which needs padding behind the last
 * channel. y is stored by words if it is a slice followed by another tensor, or if it begins within a piece. */
static int by_words(const dvk_conv2d_args *a) {
    const dvk_epilogue *e = &a->epi;
    return !by_pieces(a) && (!mappable(&a->y) || !ends_alone(&a->y)) && in_words(a, &a->y) &&
           (e->n_res == 0 || in_words(a, &e->res[0])) &&
           (e->act == DVK_ACT_NONE || e->act == DVK_ACT_RELU || e->act == DVK_ACT_LRELU);
}

static int can(const dvk_conv2d_args *a) {
    const dvk_epilogue *e = &a->epi;
    const int pixelwise = a->kh == 1 && a->kw == 1 && a->stride == 1 && a->pad_top == 0 && a->pad_left == 0 &&
                          a->upsample == 1 && a->y.h == a->x.h && a->y.w == a->x.w;
    const int bent =
        e->act == DVK_ACT_GELU || e->act == DVK_ACT_SILU || e->act == DVK_ACT_RELU || e->act == DVK_ACT_LRELU;
    const int ends = e->n_res == 1
                         ? e->act == DVK_ACT_NONE
                         : e->n_res == 0 && e->alpha >= 1.0f && e->alpha <= 1.0f && (bent || e->act == DVK_ACT_NONE);
    const int plain = !e->gate && e->stats == NULL && e->shuffle <= 1 && e->store == NULL;
    const int stored = by_words(a) || by_pieces(a) ||
                       (ends_alone(&a->y) && same_type(a, &a->y) && (e->n_res == 0 || same_type(a, &e->res[0])));
    return pixelwise && ends && plain && stored && is_half(a->compute) && same_type(a, &a->x) &&
           a->x.n * a->x.h * a->x.w < INT32_MAX / 2 && best_plan(a).width > 0;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    return can(a) && a->pro.scale == NULL && a->pro.act == DVK_ACT_NONE && best_plan(a).shared <= caps->shared_bytes;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const plan c = best_plan(a);
    const int64_t tiles = blocks_of(a->x.n * a->x.h * a->x.w, DVK_LINEAR1_ROWS);
    const double each = tile_time(a, &c) * TERM(tile) + TERM(around);
    double bytes = view_bytes(&a->x) + view_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += view_bytes(&a->epi.res[i]);
    }
    const double products = (double)blocks_of(tiles * c.slices, caps->processors) * each;
    const double memory = bytes / (TERM(memory) * caps->memory_gbs);
    return TERM(launch) + (products > memory ? products : memory);
}

/* ---- weights: [slice][chunk][width][64], rows swizzled ---- */

static size_t packed_bytes(const void *args) {
    const dvk_conv2d_args *a = args;
    const plan c = best_plan(a);
    return (size_t)c.slices * (size_t)chunks_of(a) * (size_t)c.width * 128;
}

static int64_t pack_units(const void *args) {
    return (int64_t)best_plan(args).slices * chunks_of(args);
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const plan c = best_plan(a);
    for (int64_t u = first; u < last; u++) {
        unsigned char *to = (unsigned char *)dst + u * c.width * 128;
        const int64_t chunk = u % chunks_of(a), slice = u / chunks_of(a);
        for (int32_t r = 0; r < c.width; r++) {
            const int64_t o = slice * c.width + r;
            for (int32_t k = 0; k < DVK_WGMMA_CHUNK; k++) {
                const int64_t i = chunk * DVK_WGMMA_CHUNK + k;
                const float v = o < a->y.c && i < a->x.c ? w[o * a->x.c + i] : 0.0f;
                dvk_store(to, a->compute, r * 64 + ((k / 8) ^ (r & 7)) * 8 + k % 8, v);
            }
        }
    }
}

/* ---- launch ---- */

/* Treats all pixels as one row. */
static int map_flat(dvk_queue *q, const dvk_view *v, int32_t channels, int32_t pixels, dvk_wgmma_map *out) {
    dvk_view flat = *v;
    flat.w = v->n * v->h * v->w;
    flat.h = flat.n = 1;
    return map_of_box(q, &flat, 1, 0, (const int32_t[]){channels, pixels, 1}, out);
}

static int make_maps(const dvk_conv2d_args *a, dvk_conv_linear *p, int32_t width, dvk_queue *q) {
    int r = map_flat(q, &a->x, DVK_WGMMA_CHUNK, DVK_LINEAR1_ROWS, &p->x);
    p->words = by_words(a);
    if (p->words || by_pieces(a)) {
        p->data = a->y.data;
        p->pitch = a->y.sw;
    }
    if (p->words) {
        p->res_data = a->epi.res[0].data;
        p->res_pitch = a->epi.res[0].sw;
        return r;
    }
    if (p->data == NULL) {
        r = r == 0 && width >= 64 ? map_flat(q, &a->y, 64, 16, &p->y) : r;
        r = r == 0 && width % 64 > 0 ? map_flat(q, &a->y, width % 64, 16, &p->y_last) : r;
    }
    if (a->epi.n_res > 0) {
        r = r == 0 && width >= 64 ? map_flat(q, &a->epi.res[0], 64, 16, &p->res) : r;
        r = r == 0 && width % 64 > 0 ? map_flat(q, &a->epi.res[0], width % 64, 16, &p->res_last) : r;
    }
    return r;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    const plan c = best_plan(a);
    dvk_conv_linear p;
    (void)scratch;
    memset(&p, 0, sizeof p);
    const int r = make_maps(a, &p, c.width, q);
    if (r != 0) {
        return r;
    }
    p.w = a->w;
    p.bias = a->epi.bias;
    p.pixels = a->x.n * a->x.h * a->x.w;
    p.tiles = (int32_t)blocks_of(a->x.n * a->x.h * a->x.w, DVK_LINEAR1_ROWS);
    p.chunks = chunks_of(a);
    p.last_k16 = (int32_t)blocks_of(a->x.c - (int64_t)(p.chunks - 1) * DVK_WGMMA_CHUNK, 16);
    p.c_out = (int32_t)a->y.c;
    p.slices = c.slices;
    p.slots = c.slots;
    p.act = a->epi.act == DVK_ACT_RELU ? DVK_ACT_LRELU : (int32_t)a->epi.act;
    p.n_res = a->epi.n_res;
    p.slope = a->epi.act == DVK_ACT_LRELU ? a->epi.slope : 0.0f;
    p.alpha = a->epi.alpha;
    p.times = a->epi.beta[0];
    char name[32];
    snprintf(name, sizeof name, "conv_linear_%s_%d", a->compute == DVK_BF16 ? "bf16" : "f16", (int)c.width);
    const int32_t blocks = least(p.tiles * c.slices, q->caps->processors);
    void *list[] = {&p};
    const dvk_launch l = {.module = "conv_linear_sm90",
                          .function = name,
                          .grid = {(uint32_t)(blocks < c.slices ? c.slices : blocks / c.slices * c.slices), 1, 1},
                          .block = {DVK_LINEAR1_THREADS, 1, 1},
                          .shared_bytes = (uint32_t)c.shared,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_conv2d_cuda_linear = {.op = "conv2d",
                                                .variant = "cuda/wgmma_linear",
                                                .sm_min = 90,
                                                .sm_max = 90,
                                                .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                .supports = supports,
                                                .cost = cost,
                                                .enqueue = enqueue,
                                                .packed_bytes = packed_bytes,
                                                .pack_units = pack_units,
                                                .pack = pack};
