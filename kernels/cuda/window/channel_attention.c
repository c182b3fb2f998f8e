/* channel_attention.c - host side of "channel_attention" on CUDA: on mma.sync for 16-bit views and heads of up to 64
 * channels, otherwise in f32. */
#include "kernels/cuda/window/channel_attention.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/common/elem_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(channel_attention, term))

extern const dvk_cuda_kernel dvk_channel_attention_cuda_heads;
extern const dvk_cuda_kernel dvk_channel_attention_cuda_mma;
extern const dvk_cuda_kernel dvk_channel_attention_cuda_simt;

static int64_t pitch_of(const dvk_channel_attention_args *a) {
    return a->q.c / a->heads;
}

static int64_t groups_of(const dvk_channel_attention_args *a) {
    return a->grid ? (int64_t)a->wh * a->ww : a->wh == 0 ? 1 : (a->q.h / a->wh) * (a->q.w / a->ww);
}

static int64_t units_of(const dvk_channel_attention_args *a) {
    return a->q.n * groups_of(a) * a->heads;
}

static int64_t chunks_by(const dvk_channel_attention_args *a, int64_t each) {
    return (a->q.h * a->q.w / groups_of(a) + each - 1) / each;
}

static int64_t chunks_of(const dvk_channel_attention_args *a) {
    return chunks_by(a, DVK_CHANNEL_PIXELS);
}

static int64_t entries_of(int64_t width) {
    return width * (width + 2);
}

static int64_t mma_width(const dvk_channel_attention_args *a) {
    return pitch_of(a) <= 16 ? 16 : pitch_of(a) <= 32 ? 32 : 64;
}

static int supports(const dvk_channel_attention_args *a, int64_t most) {
    return a->q.c % a->heads == 0 && pitch_of(a) <= most && a->q.h * a->q.w < INT32_MAX / 2 && chunks_of(a) < 65536 &&
           units_of(a) < INT32_MAX;
}

static int mma_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_channel_attention_args *a = args;
    const dvk_view *views[] = {&a->q, &a->k, &a->v, &a->y};
    for (int i = 0; i < 4; i++) {
        if (views[i]->dtype != a->q.dtype || !dvk_elem_of(views[i]).vector) {
            return 0;
        }
    }
    const int type = a->q.dtype == DVK_F16 || (a->q.dtype == DVK_BF16 && caps->sm >= 80);
    return type && supports(a, 64) && pitch_of(a) % 8 == 0;
}

/* Sums and weights of more channels do not fit into 48 KiB of shared memory. */
static int simt_supports(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return supports(args, 104);
}

static double bytes_of(const dvk_channel_attention_args *a) {
    return dvk_elem_bytes(&a->q) + dvk_elem_bytes(&a->k) + dvk_elem_bytes(&a->v) + dvk_elem_bytes(&a->y);
}

static double mma_cost(const void *args, const dvk_cuda_caps *caps) {
    return TERM(launch) + dvk_elem_cost(bytes_of(args), caps);
}

static double simt_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_channel_attention_args *a = args;
    const double products = 4.0 * (double)dvk_elem_count(&a->q) * (double)pitch_of(a);
    return TERM(launch) + dvk_elem_cost(bytes_of(a), caps) + products / (1e3 * TERM(simt) * caps->simt_tflops);
}

static size_t scratch_of(const dvk_channel_attention_args *a, int64_t width) {
    return (size_t)(units_of(a) * (chunks_of(a) * entries_of(width) + width * width)) * sizeof(float);
}

static size_t mma_scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return scratch_of(args, mma_width(args));
}

static size_t simt_scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return scratch_of(args, pitch_of(args));
}

static dvk_channel_params params_of(const dvk_channel_attention_args *a, int64_t width, float *scratch) {
    dvk_channel_params p = {.q = dvk_elem_of(&a->q),
                            .k = dvk_elem_of(&a->k),
                            .v = dvk_elem_of(&a->v),
                            .y = dvk_elem_of(&a->y),
                            .temperature = a->temperature,
                            .weights = scratch,
                            .partial = scratch + units_of(a) * width * width,
                            .heads = (int32_t)a->heads,
                            .dim = (int32_t)a->dim,
                            .pitch = (int32_t)pitch_of(a),
                            .width = (int32_t)width,
                            .groups = (int32_t)groups_of(a),
                            .across = a->grid     ? a->ww
                                      : a->wh > 0 ? (int32_t)(a->q.w / a->ww)
                                                  : 1,
                            .h = (int32_t)a->q.h,
                            .w = (int32_t)a->q.w,
                            .step_y = 1,
                            .step_x = 1,
                            .chunks = (int32_t)chunks_of(a),
                            .eps = a->eps};
    if (a->grid) {
        p.h = (int32_t)(a->q.h / a->wh);
        p.w = (int32_t)(a->q.w / a->ww);
        p.first_y = p.first_x = 1;
        p.step_y = a->wh;
        p.step_x = a->ww;
    } else if (a->wh > 0) {
        p.h = p.first_y = a->wh;
        p.w = p.first_x = a->ww;
    }
    return p;
}

static int start(dvk_queue *q, const char *function, dvk_channel_params *p, int64_t units, int64_t slices,
                 int32_t threads, int64_t shared) {
    void *params[] = {p};
    const dvk_launch l = {
        .module = "channel_attention",
        .function = function,
        .grid = {(uint32_t)units, slices > 0 ? (uint32_t)p->chunks : 1, slices > 0 ? (uint32_t)slices : 1},
        .block = {(uint32_t)threads, 1, 1},
        .shared_bytes = (uint32_t)shared,
        .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
        .params = params};
    return q->launch(q, &l);
}

static int weigh(dvk_queue *q, dvk_channel_params *p, int64_t units) {
    return start(q, "channel_weights", p, units, 0, DVK_CHANNEL_SIMT_THREADS, entries_of(p->width) * 4);
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int mma_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_channel_attention_args *a = args;
    const int64_t width = mma_width(a), units = units_of(a);
    const char *type = a->q.dtype == DVK_BF16 ? "bf16" : "f16";
    const int64_t tile = DVK_CHANNEL_TILE * (width + 8) * 2;
    dvk_channel_params p = params_of(a, width, scratch);
    char gram[40], apply[40];
    snprintf(gram, sizeof gram, "channel_gram_%s_%d", type, (int)width);
    snprintf(apply, sizeof apply, "channel_apply_%s_%d", type, (int)width);
    int r = start(q, gram, &p, units, 1, DVK_CHANNEL_WARPS * 32,
                  larger(DVK_CHANNEL_WARPS * 4 * tile, entries_of(width) * 4));
    r = r == 0 ? weigh(q, &p, units) : r;
    return r == 0 ? start(q, apply, &p, units, 1, DVK_CHANNEL_WARPS * 32,
                          width * (width + 8) * 2 + DVK_CHANNEL_WARPS * 2 * tile)
                  : r;
}

static int simt_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_channel_attention_args *a = args;
    const int64_t width = pitch_of(a), units = units_of(a);
    dvk_channel_params p = params_of(a, width, scratch);
    const int64_t slices = (entries_of(width) + DVK_CHANNEL_SIMT_ENTRIES - 1) / DVK_CHANNEL_SIMT_ENTRIES;
    const int64_t row = DVK_CHANNEL_TILE * width * 4;
    int r = start(q, "channel_gram_simt", &p, units, slices, DVK_CHANNEL_SIMT_THREADS, 2 * row);
    r = r == 0 ? weigh(q, &p, units) : r;
    return r == 0 ? start(q, "channel_apply_simt", &p, units, 1, DVK_CHANNEL_SIMT_THREADS, row) : r;
}

/* ---- all heads of a pixel together ---- */

enum { HEAD_DIM = 16, HEAD_TOKENS = 64 }; /* of channel_heads.cuh */

static int heads_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_channel_attention_args *a = args;
    return mma_supports(args, caps) && pitch_of(a) == HEAD_DIM && a->heads <= DVK_CHANNEL_HEADS &&
           chunks_by(a, DVK_CHANNEL_HEADS_PIXELS) < 65536;
}

static double heads_cost(const void *args, const dvk_cuda_caps *caps) {
    return TERM(launch_heads) + dvk_elem_cost(bytes_of(args), caps);
}

static size_t heads_scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    const dvk_channel_attention_args *a = args;
    const int64_t chunks = chunks_by(a, DVK_CHANNEL_HEADS_PIXELS);
    (void)caps;
    return (size_t)(units_of(a) * (chunks * entries_of(HEAD_DIM) + HEAD_DIM * HEAD_DIM)) * sizeof(float);
}

static int start_heads(dvk_queue *q, const char *function, dvk_channel_params *p, int64_t groups, int32_t tiles) {
    void *params[] = {p};
    const dvk_launch l = {.module = "channel_heads",
                          .function = function,
                          .grid = {(uint32_t)groups, (uint32_t)p->chunks, 1},
                          .block = {(uint32_t)p->heads * 32, 1, 1},
                          .shared_bytes = (uint32_t)(tiles * HEAD_TOKENS * (p->heads * HEAD_DIM + 8) * 2),
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

static int heads_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_channel_attention_args *a = args;
    const int64_t units = units_of(a), groups = units / a->heads;
    const int bf16 = a->q.dtype == DVK_BF16;
    dvk_channel_params p = params_of(a, HEAD_DIM, scratch);
    p.chunks = (int32_t)chunks_by(a, DVK_CHANNEL_HEADS_PIXELS);
    int r = start_heads(q, bf16 ? "channel_sums_bf16" : "channel_sums_f16", &p, groups, 4);
    r = r == 0 ? weigh(q, &p, units) : r;
    return r == 0 ? start_heads(q, bf16 ? "channel_mix_bf16" : "channel_mix_f16", &p, groups, 2) : r;
}

const dvk_cuda_kernel dvk_channel_attention_cuda_heads = {.op = "channel_attention",
                                                          .variant = "cuda/heads",
                                                          .sm_min = 75,
                                                          .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                          .supports = heads_supports,
                                                          .cost = heads_cost,
                                                          .scratch_bytes = heads_scratch_bytes,
                                                          .enqueue = heads_enqueue};

const dvk_cuda_kernel dvk_channel_attention_cuda_mma = {.op = "channel_attention",
                                                        .variant = "cuda/mma",
                                                        .sm_min = 75,
                                                        .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                        .supports = mma_supports,
                                                        .cost = mma_cost,
                                                        .scratch_bytes = mma_scratch_bytes,
                                                        .enqueue = mma_enqueue};

const dvk_cuda_kernel dvk_channel_attention_cuda_simt = {.op = "channel_attention",
                                                         .variant = "cuda/simt",
                                                         .sm_min = 75,
                                                         .computes = DVK_COMPUTES_ANY,
                                                         .supports = simt_supports,
                                                         .cost = simt_cost,
                                                         .scratch_bytes = simt_scratch_bytes,
                                                         .enqueue = simt_enqueue};
