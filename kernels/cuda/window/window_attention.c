/* window_attention.c - host side of "window_attention": on mma.sync for 16-bit views, otherwise in f32. For mma.sync,
 * heads have any multiple of 8 up to 128 channels, rounded up to a size with a kernel. */
#include "kernels/cuda/window/window_attention.h"

#include <math.h>
#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/common/elem_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(window_attention, term))

extern const dvk_cuda_kernel dvk_window_attention_cuda_mma;
extern const dvk_cuda_kernel dvk_window_attention_cuda_simt;

typedef struct kind { /* instantiations of window_attention.cu */
    int32_t dim;      /* channels in registers */
    int32_t warps;    /* of a block */
    int32_t blocks;   /* of a multiprocessor */
    int32_t share;    /* cost term: share of the tensor cores' rate */
} kind;

#define KIND(dim, warps, blocks)                                                                                       \
    { dim, warps, blocks, DVK_COST(window_attention, dim_##dim) }
static const kind kinds[] = {KIND(16, 8, 2), KIND(32, 8, 2), KIND(48, 8, 2),
                             KIND(64, 8, 2), KIND(80, 8, 1), KIND(128, 8, 1)};

typedef struct shape {
    kind k;
    int32_t even;
    int32_t warps, units; /* of a window; windows of a block at a time */
    int32_t blocks;       /* into which a window's queries are cut */
    int32_t steps, stages;
    int32_t tables, shared; /* bytes */
} shape;

static int64_t head_dim(const dvk_window_attention_args *a) {
    return a->q.c / a->heads;
}

/* 1 if eight adjacent queries or keys are in one row of their window. */
static int is_even(const dvk_window_attention_args *a) {
    return (a->ww == 8 || a->ww % 16 == 0) && a->wh * a->ww % 16 == 0 && a->kw % 8 == 0 &&
           a->kh * a->kw % DVK_WINDOW_KEYS == 0;
}

static int32_t shared_bytes(const dvk_window_attention_args *a, shape *s) {
    const int32_t pitch = (s->k.dim + 8) * 2, rows = s->k.warps * DVK_WINDOW_ROWS,
                  biases = (a->wh + a->kh - 1) * (a->ww + a->kw - 1);
    const int32_t padded = s->steps * DVK_WINDOW_KEYS;
    s->tables = rows * pitch + s->stages * 2 * s->units * DVK_WINDOW_KEYS * pitch;
    return s->tables + (s->even ? biases * 16 : (biases + 3) / 4 * 16 + padded * 4) + s->units * (8 + padded * 4) +
           rows * 4 + padded;
}

/* As many blocks per multiprocessor as registers allow, if all keys or three steps of them still fit. */
static shape shape_of(const dvk_window_attention_args *a, const dvk_cuda_caps *caps) {
    shape s = {.even = is_even(a)};
    int i = 0;
    while (kinds[i].dim < head_dim(a)) {
        i++;
    }
    s.k = kinds[i];
    const int32_t rows = (a->wh * a->ww + DVK_WINDOW_ROWS - 1) / DVK_WINDOW_ROWS;
    s.warps = rows >= s.k.warps ? s.k.warps : rows > 4 ? 8 : rows > 2 ? 4 : rows;
    s.units = s.k.warps / s.warps;
    s.blocks = (rows + s.k.warps - 1) / s.k.warps;
    s.steps = (a->kh * a->kw + DVK_WINDOW_KEYS - 1) / DVK_WINDOW_KEYS;
    const int32_t least = s.steps < 3 ? s.steps : 3;
    for (int32_t blocks = s.k.blocks; blocks > 0; blocks--) {
        const int32_t limit = (caps->shared_bytes + 1024) / blocks - 1024;
        s.stages = s.steps < DVK_WINDOW_STAGES ? s.steps : DVK_WINDOW_STAGES;
        while ((s.shared = shared_bytes(a, &s)) > limit && s.stages > least) {
            s.stages--;
        }
        if (s.shared <= limit) {
            break;
        }
    }
    return s;
}

static int fits(const dvk_view *v) {
    return (uintptr_t)v->data % 16 == 0 && v->sn % 8 == 0 && v->sh % 8 == 0 && v->sw % 8 == 0 &&
           v->h * v->sh <= INT32_MAX && v->h < 32768 && v->w < 65536;
}

static int64_t windows_of(const dvk_window_attention_args *a) {
    return a->q.n * (a->ph / a->wh) * (a->pw / a->ww);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_window_attention_args *a = args;
    const dvk_view *views[] = {&a->q, &a->k, &a->v, &a->y};
    for (int i = 0; i < 4; i++) {
        if (views[i]->dtype != a->q.dtype || !fits(views[i])) {
            return 0;
        }
    }
    const int type = a->q.dtype == DVK_F16 || (a->q.dtype == DVK_BF16 && caps->sm >= 80);
    return type && a->q.c % a->heads == 0 && head_dim(a) % 8 == 0 && head_dim(a) <= 128 && a->scale > 0.0f &&
           a->wh <= 256 && a->ww <= 256 && a->kh <= 256 && a->kw <= 256 && windows_of(a) < INT32_MAX / 1024 &&
           a->heads <= 1024 && shape_of(a, caps).shared <= caps->shared_bytes;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_window_attention_args *a = args;
    const shape s = shape_of(a, caps);
    const double share = dvk_cuda_cost(caps, s.k.share) / TERM(reached);
    const double places = (double)caps->processors * s.k.blocks;
    const double block = 4.0 * s.k.warps * DVK_WINDOW_ROWS * s.steps * DVK_WINDOW_KEYS * s.k.dim /
                         (1e3 * share * caps->tensor_tflops / places);
    const double count = ceil((double)windows_of(a) / s.units) * (double)a->heads * s.blocks;
    return TERM(launch) + (block + TERM(block)) * ceil(count / places);
}

static dvk_window_view view_of(const dvk_view *v) {
    return (dvk_window_view){.data = v->data, .sn = v->sn, .sh = (int32_t)v->sh, .sw = (int32_t)v->sw};
}

static dvk_window_geometry geometry_of(const dvk_window_attention_args *a) {
    return (dvk_window_geometry){.heads = (int32_t)a->heads,
                                 .dim = (int32_t)head_dim(a),
                                 .h = (int32_t)a->q.h,
                                 .w = (int32_t)a->q.w,
                                 .wh = a->wh,
                                 .ww = a->ww,
                                 .kh = a->kh,
                                 .kw = a->kw,
                                 .down = (int32_t)(a->ph / a->wh),
                                 .across = (int32_t)(a->pw / a->ww),
                                 .shift_y = a->shift_y,
                                 .shift_x = a->shift_x,
                                 .grid = a->grid,
                                 .cut_y = a->cut_y > 0 ? a->cut_y : a->shift_y,
                                 .cut_x = a->cut_x > 0 ? a->cut_x : a->shift_x,
                                 .windows = (int32_t)windows_of(a)};
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_window_attention_args *a = args;
    const shape s = shape_of(a, q->caps);
    (void)scratch;
    dvk_window_params p = {.q = view_of(&a->q),
                           .k = view_of(&a->k),
                           .v = view_of(&a->v),
                           .y = view_of(&a->y),
                           .bias = a->bias,
                           .g = geometry_of(a),
                           .units = s.units,
                           .warps = s.warps,
                           .steps = s.steps,
                           .stages = s.stages,
                           .tables = s.tables,
                           .scale_log2 = a->scale * 1.44269504f,
                           .over_scale = 1.0f / a->scale};
    /* at most as many blocks as the device holds; they loop over windows */
    const int64_t all = (p.g.windows + s.units - 1) / s.units, others = a->heads * s.blocks;
    const int64_t held = ((int64_t)q->caps->processors * s.k.blocks + others - 1) / others;
    const int64_t blocks = all < held ? all : held;
    char name[48];
    snprintf(name, sizeof name, "window_attention_%s_%d_%s", a->q.dtype == DVK_BF16 ? "bf16" : "f16", (int)s.k.dim,
             s.even ? "even" : "any");
    void *params[] = {&p};
    const dvk_launch l = {.module = "window_attention",
                          .function = name,
                          .grid = {(uint32_t)(a->heads * blocks), (uint32_t)s.blocks, 1},
                          .block = {(uint32_t)s.k.warps * 32, 1, 1},
                          .shared_bytes = (uint32_t)s.shared,
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_window_attention_cuda_mma = {.op = "window_attention",
                                                       .variant = "cuda/mma",
                                                       .sm_min = 75,
                                                       .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                       .supports = supports,
                                                       .cost = cost,
                                                       .enqueue = enqueue};

/* ---- in f32 ---- */

/* Threads per query: each has 32 of its channels. */
static int32_t sharers_of(const dvk_window_attention_args *a) {
    int32_t n = 1;
    while (n * DVK_WINDOW_SIMT_SHARE < head_dim(a)) {
        n *= 2;
    }
    return n;
}

static int64_t simt_blocks(const dvk_window_attention_args *a) {
    const int64_t queries = DVK_WINDOW_SIMT_THREADS / sharers_of(a);
    return ((int64_t)a->wh * a->ww + queries - 1) / queries;
}

static int simt_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_window_attention_args *a = args;
    (void)caps;
    return a->q.c % a->heads == 0 && head_dim(a) <= 8 * DVK_WINDOW_SIMT_SHARE && a->q.h < 32768 && a->q.w < 65536 &&
           a->wh <= 1024 && a->ww <= 1024 && a->kh <= 2048 && a->kw <= 2048 && simt_blocks(a) < 65536 &&
           windows_of(a) < INT32_MAX / 1024 && a->heads <= 1024;
}

static double simt_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_window_attention_args *a = args;
    const double tokens = (double)(windows_of(a) * a->heads) * (double)simt_blocks(a) * DVK_WINDOW_SIMT_THREADS;
    return TERM(simt_launch) +
           4.0 * tokens * (double)a->kh * a->kw * DVK_WINDOW_SIMT_SHARE / (1e3 * TERM(simt) * caps->simt_tflops);
}

static int simt_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_window_attention_args *a = args;
    (void)scratch;
    dvk_window_simt_params p = {.q = dvk_elem_of(&a->q),
                                .k = dvk_elem_of(&a->k),
                                .v = dvk_elem_of(&a->v),
                                .y = dvk_elem_of(&a->y),
                                .bias = a->bias,
                                .g = geometry_of(a),
                                .scale = a->scale};
    char name[32];
    snprintf(name, sizeof name, "window_attention_simt_%d", (int)sharers_of(a));
    void *params[] = {&p};
    const dvk_launch l = {.module = "window_attention_simt",
                          .function = name,
                          .grid = {(uint32_t)(p.g.windows * p.g.heads), (uint32_t)simt_blocks(a), 1},
                          .block = {DVK_WINDOW_SIMT_THREADS, 1, 1},
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_window_attention_cuda_simt = {.op = "window_attention",
                                                        .variant = "cuda/simt",
                                                        .sm_min = 75,
                                                        .computes = DVK_COMPUTES_ANY,
                                                        .supports = simt_supports,
                                                        .cost = simt_cost,
                                                        .enqueue = simt_enqueue};
