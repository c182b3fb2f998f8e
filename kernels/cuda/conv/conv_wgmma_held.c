/* conv_wgmma_held.c - host side of "conv2d" of 3 x 3 from 64 channels to at most 64 on Hopper's tensor cores, with
 * weights in registers; see conv_wgmma_held_sm90.cu. */
#include "kernels/cuda/conv/conv_wgmma_held.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_wgmma_held, term))

extern const dvk_cuda_kernel dvk_conv2d_cuda_wgmma_held;

enum { CHANNELS = 64, SIDE = 3, THREADS = 128 /* that hold the weights */ };

static dvk_conv_held shape_of(const dvk_conv2d_args *a) {
    dvk_conv_held h;
    memset(&h, 0, sizeof h);
    dvk_conv_wgmma *p = &h.c;
    p->epilogue = (int32_t)epilogue_of(a);
    p->n = (int32_t)a->y.n;
    p->out_h = (int32_t)a->y.h;
    p->out_w = (int32_t)a->y.w;
    p->pad_top = a->pad_top;
    p->pad_left = a->pad_left;
    p->tiles_x = (int32_t)blocks_of(a->y.w, DVK_WGMMA_TILE_W);
    p->tiles_y = (int32_t)blocks_of(a->y.h, DVK_WGMMA_TILE_H);
    p->jobs = p->n * p->tiles_y * p->tiles_x;
    p->split = 1; /* sums: a row for each warpgroup */
    p->pitch = DVK_WGMMA_TILE_W + SIDE - 1;
    p->patch_pixels = p->pitch * (DVK_WGMMA_TILE_H + SIDE - 1);
    p->x_bytes = (p->patch_pixels * 128 + 1023) / 1024 * 1024;
    p->entries = DVK_HELD_PIECES;
    p->entry_bytes = DVK_WGMMA_PIECE;
    p->lead = DVK_HELD_TAPS - 2; /* the products of one begin before those of the other end */
    return h;
}

/* Bytes of shared memory, 0: too little. */
static int32_t lay_out(dvk_conv_wgmma *p, int32_t available) {
    const int32_t fixed = DVK_WGMMA_BARRIERS + 2 * p->entries * p->entry_bytes;
    const int32_t rest = available - fixed;
    p->x_slots = rest > 0 ? least(rest / p->x_bytes, DVK_HELD_MAX_X) : 0;
    return p->x_slots >= 3 ? fixed + p->x_slots * p->x_bytes : 0;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    if (!can_read(a) || a->kh != SIDE || a->kw != SIDE || a->upsample != 1 || a->x.c != CHANNELS || a->y.c < 1 ||
        a->y.c > CHANNELS || a->epi.shuffle > 1 || a->epi.gate || a->epi.n_res > 1 || a->epi.stats != NULL ||
        a->epi.store != NULL || a->pro.scale != NULL || a->pro.act != DVK_ACT_NONE) {
        return 0;
    }
    dvk_conv_wgmma p = shape_of(a).c;
    const int known = p.epilogue == (int32_t)DVK_WGMMA_LINEAR || p.epilogue == (int32_t)DVK_WGMMA_SLOPE ||
                      p.epilogue == (int32_t)DVK_WGMMA_SLOPE_LAST;
    return known && lay_out(&p, caps->shared_bytes) > 0;
}

/* For one picture: a warpgroup keeps its sums in registers. */
static int64_t sums_chunks(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a).c;
    const int can = p.epilogue == (int32_t)DVK_WGMMA_SLOPE && a->epi.n_res == 0 && p.n == 1;
    return can ? 2 * (int64_t)least(p.jobs, caps->processors) : 0;
}

static int scalable(const void *args, const dvk_cuda_caps *caps) {
    (void)args;
    (void)caps;
    return 1;
}

/* ---- weights: [tap][16 input channels][thread of a warpgroup][8], each thread's part of a left operand ---- */

static size_t packed_bytes(const void *args) {
    (void)args;
    return (size_t)DVK_HELD_STEPS * THREADS * 16;
}

static int64_t pack_units(const void *args) {
    (void)args;
    return DVK_HELD_STEPS;
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    for (int64_t step = first; step < last; step++) {
        for (int thread = 0; thread < THREADS; thread++) {
            for (int e = 0; e < 8; e++) { /* two columns of each 8 x 8 quarter: rows first, then columns */
                const int64_t o = thread / 32 * 16 + thread % 32 / 4 + e / 2 % 2 * 8;
                const int64_t i = step % 4 * 16 + e / 4 * 8 + thread % 4 * 2 + e % 2;
                const float v = o < a->y.c ? w[(o * CHANNELS + i) * DVK_HELD_TAPS + step / 4] : 0.0f;
                dvk_store(dst, a->compute, (step * THREADS + thread) * 8 + e, v);
            }
        }
    }
}

/* ---- cost: tiles of the busiest block; the constants are of an H200 ---- */

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a).c;
    const double products = 2.0 * CHANNELS * DVK_WGMMA_TILE_W * DVK_WGMMA_TILE_H * CHANNELS * DVK_HELD_TAPS;
    const double job = products / (1e3 * TERM(tensor) * caps->tensor_tflops / caps->processors) + TERM(epilogue) +
                       TERM(residual) * a->epi.n_res;
    double bytes = view_bytes(&a->x) + view_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += view_bytes(&a->epi.res[i]);
    }
    const double work = (double)blocks_of(p.jobs, caps->processors) * job,
                 memory = bytes / (TERM(memory) * caps->memory_gbs);
    return TERM(launch) + (work > memory ? work : memory);
}

/* ---- launch ---- */

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    dvk_conv_held h = shape_of(a);
    dvk_conv_wgmma *p = &h.c;
    const int32_t shared = lay_out(p, q->caps->shared_bytes);
    static const char *const names[2][3] = {{"conv_held_bf16", "conv_held_bf16_add", "conv_held_bf16_sums"},
                                            {"conv_held_f16", "conv_held_f16_add", "conv_held_f16_sums"}};
    const int kind = a->epi.sums != NULL ? 2 : a->epi.n_res > 0;
    (void)scratch;
    p->epi = epi_of(a);
    p->w = a->w;
    p->sums = a->epi.sums;
    p->fresh = a->scaled;
    h.backwards = a->backwards;
    int r = map_of(q, &a->x, 1, 0, p->pitch, p->patch_pixels / p->pitch, &p->x);
    r = r == 0 ? map_of(q, &a->y, 1, 0, DVK_WGMMA_TILE_W, DVK_WGMMA_PIECE_H, &p->y[0]) : r;
    if (r == 0 && a->epi.n_res > 0) {
        r = map_of(q, &a->epi.res[0], 1, 0, DVK_WGMMA_TILE_W, DVK_WGMMA_PIECE_H, &p->res[0]);
    }
    if (r != 0) {
        return r;
    }
    void *list[] = {&h};
    const dvk_launch l = {.module = "conv_wgmma_held_sm90",
                          .function = names[a->compute == DVK_F16][kind],
                          .grid = {(uint32_t)least(p->jobs, q->caps->processors), 1, 1},
                          .block = {DVK_WGMMA_THREADS, 1, 1},
                          .shared_bytes = (uint32_t)shared,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_conv2d_cuda_wgmma_held = {.op = "conv2d",
                                                    .variant = "cuda/wgmma/held",
                                                    .sm_min = 90,
                                                    .sm_max = 90,
                                                    .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                    .supports = supports,
                                                    .cost = cost,
                                                    .enqueue = enqueue,
                                                    .sums_chunks = sums_chunks,
                                                    .scalable = scalable,
                                                    .turns = 1,
                                                    .packed_bytes = packed_bytes,
                                                    .pack_units = pack_units,
                                                    .pack = pack};
