/* attention_mma.c - host side of attention on mma.sync for 16-bit views. Heads have any multiple of 8 up to 512
 * channels; they are rounded up to a size with a kernel. */
#include "kernels/cuda/attention/attention_mma.h"

#include <math.h>
#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/cuda.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(attention_mma, term))

extern const dvk_cuda_kernel dvk_attention_cuda_mma;

typedef struct kind { /* instantiations of attention_mma.cu and attention_mma_wide.cu */
    int32_t dim;      /* channels in registers */
    int32_t keys;     /* of a step */
    int32_t ahead;    /* holds two steps of keys even without asynchronous copies */
    int32_t share;    /* cost term: share of the tensor cores' rate */
} kind;

#define KIND(dim, keys, ahead)                                                                                         \
    { dim, keys, ahead, DVK_COST(attention_mma, dim_##dim) }
static const kind kinds[] = {KIND(32, 64, 1), KIND(48, 64, 0),  KIND(64, 48, 1),  KIND(80, 64, 0),
                             KIND(96, 64, 0), KIND(128, 48, 0), KIND(256, 64, 0), KIND(512, 128, 0)};

typedef struct shape {
    kind k;
    int32_t tiles;  /* of 16 queries, per warp */
    int32_t wide;   /* four warps share their queries */
    int32_t rows;   /* queries of a block */
    int32_t shared; /* bytes */
} shape;

static int64_t head_dim(const dvk_attention_args *a) {
    return a->q.c / a->heads;
}

static int32_t shared_bytes(const shape *s, int async) {
    const int32_t pitch = s->k.dim + 8;
    const int32_t parts = async ? s->k.dim == 512 && s->tiles == 2 ? 4 : 3 : 1;
    if (!s->wide) {
        return (s->rows + (s->k.ahead || async ? 2 : 1) * 2 * s->k.keys) * pitch * 2;
    }
    const int32_t k_part = s->k.keys * (8192 / s->k.keys + 8);
    const int32_t v_part = 8192 / s->k.dim * pitch;
    const int32_t part = k_part > v_part ? k_part : v_part;
    return (s->rows * (pitch + s->k.keys + 8) + parts * part) * 2 + 4 * s->rows * 4;
}

static shape shape_of(const dvk_attention_args *a, const dvk_cuda_caps *caps) {
    const int async = caps->sm >= 80;
    int i = 0;
    while (kinds[i].dim < head_dim(a)) {
        i++;
    }
    shape s = {.k = kinds[i], .tiles = 2, .wide = kinds[i].dim > 128};
    s.rows = s.wide ? 64 : 128;
    s.shared = shared_bytes(&s, async);
    if (s.wide && s.shared > caps->shared_bytes) {
        s.tiles = 1;
        s.rows = 32;
        s.shared = shared_bytes(&s, async);
    }
    return s;
}

static int even(const dvk_view *v) {
    return (uintptr_t)v->data % 16 == 0 && v->sn % 8 == 0 && v->sw % 8 == 0 && v->sw <= INT32_MAX &&
           (v->h == 1 || v->sh == v->w * v->sw);
}

static int views_fit(const dvk_attention_args *a) {
    const dvk_view *views[] = {&a->q, &a->k, &a->v, &a->y};
    for (int i = 0; i < 4; i++) {
        if (views[i]->dtype != a->q.dtype || views[i]->c != a->q.c || !even(views[i]) ||
            views[i]->h * views[i]->w > INT32_MAX / 2) {
            return 0;
        }
    }
    return 1;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_args *a = args;
    const int type = a->q.dtype == DVK_F16 || (a->q.dtype == DVK_BF16 && caps->sm >= 80);
    return type && views_fit(a) && a->q.c % a->heads == 0 && head_dim(a) % 8 == 0 && head_dim(a) <= 512 &&
           a->scale > 0.0f && a->heads < 65536 && a->q.n < 65536 && shape_of(a, caps).shared <= caps->shared_bytes;
}

static int64_t blocks_along(const dvk_attention_args *a, const shape *s) {
    return (a->q.h * a->q.w + s->rows - 1) / s->rows;
}

/* Two blocks per multiprocessor. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_args *a = args;
    const shape s = shape_of(a, caps);
    const double share = dvk_cuda_cost(caps, s.k.share) / TERM(reached);
    const double places = caps->processors * (s.wide ? 1.0 : 2.0);
    const double block =
        4.0 * s.rows * (double)(a->k.h * a->k.w) * s.k.dim / (1e3 * share * caps->tensor_tflops / places);
    return TERM(launch) + block * ceil((double)(blocks_along(a, &s) * a->heads * a->q.n) / places);
}

static dvk_attention_mma_view view_of(const dvk_view *v) {
    return (dvk_attention_mma_view){.data = v->data, .sn = v->sn, .sw = (int32_t)v->sw};
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_attention_args *a = args;
    const shape s = shape_of(a, q->caps);
    (void)scratch;
    dvk_attention_mma_params p = {.q = view_of(&a->q),
                                  .k = view_of(&a->k),
                                  .v = view_of(&a->v),
                                  .y = view_of(&a->y),
                                  .queries = (int32_t)(a->q.h * a->q.w),
                                  .keys = (int32_t)(a->k.h * a->k.w),
                                  .dim = (int32_t)head_dim(a),
                                  .scale_log2 = a->scale * 1.44269504f};
    char name[48];
    snprintf(name, sizeof name, "attention_mma_%s_%d_%d", a->q.dtype == DVK_BF16 ? "bf16" : "f16", (int)s.k.dim,
             (int)s.tiles);
    void *params[] = {&p};
    const dvk_launch l = {.module = s.wide ? "attention_mma_wide" : "attention_mma",
                          .function = name,
                          .grid = {(uint32_t)blocks_along(a, &s), (uint32_t)a->heads, (uint32_t)a->q.n},
                          .block = {s.wide ? 256 : 128, 1, 1},
                          .shared_bytes = (uint32_t)s.shared,
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_attention_cuda_mma = {.op = "attention",
                                                .variant = "cuda/mma",
                                                .sm_min = 75,
                                                .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                .supports = supports,
                                                .cost = cost,
                                                .enqueue = enqueue};
