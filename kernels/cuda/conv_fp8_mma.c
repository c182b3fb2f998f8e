/* conv_fp8_mma.c - "cuda/fp8/mma": which block a convolution is cut into, its launches, its packed weights:
 * [phase][chunk of input channels][tap][output channel, to a multiple of 8][input channel of the chunk] of E4M3, room that
 * blocks with too many channels read and ignore, then [phase][output channel] of what a sum counts for. */
#include "kernels/cuda/conv_fp8_mma.h"

#include <stdio.h>

#include "kernels/cuda/conv_fp8_host.h"
#include "kernels/cuda/conv_host.h"

extern const dvk_cuda_kernel dvk_conv2d_cuda_fp8_mma;

typedef struct conv_block_size {
    int32_t m, n, warps_m, warps_n, mt, nt;
} conv_block_size;

#define CONV_BLOCK(M, N, WM, WN, MT, NT) {M, N, WM, WN, MT, NT},
static const conv_block_size conv_blocks[] = {CONV_FP8_BLOCKS(CONV_BLOCK)};
enum { CONV_BLOCKS = sizeof conv_blocks / sizeof conv_blocks[0] };
enum { CONV_BEHIND = 128 * 128, CONV_RANGE_BYTES = 256 };

typedef struct conv_choice {
    dvk_conv_params p;
    conv_block_size size;
    int64_t blocks;
    uint32_t shared;
    double ns;
} conv_choice;

/* ---- the block ---- */

static uint32_t conv_shared_bytes(const dvk_conv_params *p, const conv_block_size *z) {
    const int64_t weights = ((int64_t)z->n << p->cpp_log2) * 16;
    const int64_t loop = p->patches * conv_patch_bytes(p) + p->stages * weights;
    const int64_t out = (int64_t)z->warps_m * z->warps_n * 16 * (8 * z->nt + 8) * 4 + (int64_t)z->warps_m * z->n * 12;
    return (uint32_t)(conv_head_bytes(p, z->n) + conv_most(loop, out));
}

static int conv_stats_fit(const conv_shape *s, const conv_block_size *z, int64_t groups) {
    return groups > 0 && s->c_out % groups == 0 && (z->n >= s->c_out || z->n % (s->c_out / groups) == 0);
}

/* Twice what f16 does with mma.sync, which on 9.0 makes these products of f16's. */
static double conv_peak(const dvk_cuda_caps *caps) {
    const double part = caps->sm == 90 ? 0.4 : caps->sm >= 100 && caps->sm < 120 ? 0.6 : 1.8;
    return caps->tensor_tflops * part;
}

static double conv_bytes(const dvk_conv2d_args *a) {
    const double x = (double)(a->x.n * a->x.h * a->x.w * a->x.c) * 2.0;
    const double y = (double)(a->y.n * a->y.h * a->y.w * a->y.c) * 2.0;
    return x * (a->pro.scale != NULL ? 1.0 : 1.0 + 1.0 / CONV_FP8_ROW_STEP) + y * (1.0 + (double)a->epi.n_res);
}

static double conv_estimate(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, const conv_choice *c) {
    const conv_block_size *z = &c->size;
    const double k = (double)c->p.c_in * c->p.taps + 1024.0; /* what a block costs besides */
    const double reads =
        (16.0 * z->mt + 8.0 * z->nt) / (16.0 * z->mt * 8.0 * z->nt) * 32.0; /* 1 for a warp of 64 x 64 */
    const double per_sm = conv_peak(caps) * 1e3 / caps->processors / (reads > 1.0 ? reads : 1.0);
    const double flops = 2.0 * z->m * z->n * k * 1.4; /* values are converted on the way */
    const double products = (double)conv_ceil(c->blocks, caps->processors) * flops / per_sm;
    const double memory = conv_bytes(a) / (caps->memory_gbs * 0.5);
    return (a->pro.scale != NULL ? 4000.0 : 9000.0) + conv_most_of(products, memory);
}

static void conv_set_block(const dvk_conv2d_args *a, const conv_shape *s, const conv_block_size *z, conv_choice *c) {
    c->size = *z;
    conv_fill(a, s, z->m, z->n, DVK_F16, CONV_FP8_CHANNELS, &c->p);
    c->p.direct = 0;
    c->p.w_rows = s->c_out;
    c->p.w_phase = (((int64_t)c->p.chunks * c->p.taps * c->p.w_rows) << c->p.cpp_log2) * 16;
    c->blocks = s->n * c->p.phases * c->p.tiles.by * c->p.n_tiles.by;
}

/* The block and the depth of its rings that promise the least time; blocks 0: nothing fits. */
static void conv_choose(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, conv_choice *best) {
    const conv_shape s = conv_shape_of(a);
    conv_choice c;
    memset(best, 0, sizeof *best);
    for (int32_t i = 0; i < CONV_BLOCKS; i++) {
        if (a->epi.stats && !conv_stats_fit(&s, &conv_blocks[i], a->epi.stats_groups)) {
            continue;
        }
        conv_set_block(a, &s, &conv_blocks[i], &c);
        for (int32_t stages = 4; stages >= 2; stages--) {
            conv_set_rings(&c.p, stages, 32 * c.size.warps_m * c.size.warps_n);
            c.shared = conv_shared_bytes(&c.p, &c.size);
            c.ns = conv_estimate(a, caps, &c);
            if (c.shared <= (uint32_t)caps->shared_bytes && (best->blocks == 0 || c.ns < best->ns)) {
                *best = c;
            }
        }
    }
}

static int conv_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const int64_t r = a->upsample > 1 ? a->upsample : 1;
    conv_choice c;
    if (!conv_fp8_serves(a) || a->stride > 2 || (r > 1 && !conv_by_phases(a)) || !conv_view_of(&a->x).vec) {
        return 0;
    }
    conv_choose(a, caps, &c);
    return c.blocks > 0 && c.blocks <= INT32_MAX && conv_offsets_fit(a, &c.p) &&
           (a->pro.scale == NULL || c.p.vectors_aligned);
}

static double conv_cost(const void *args, const dvk_cuda_caps *caps) {
    conv_choice c;
    conv_choose(args, caps, &c);
    return c.ns;
}

/* The choice with statistics, whose block the number of chunks follows from. */
static int64_t conv_stats_chunks(const void *args, const dvk_cuda_caps *caps) {
    dvk_conv2d_args a = *(const dvk_conv2d_args *)args;
    static float wanted;
    conv_choice c;
    if (a.epi.stats_groups <= 0) {
        return 0;
    }
    if (!a.epi.stats) {
        a.epi.stats = &wanted; /* any pointer: looked at, never followed */
    }
    conv_choose(&a, caps, &c);
    return c.blocks > 0 ? (int64_t)c.p.phases * c.p.tiles.by : 0;
}

/* ---- launches ---- */

static size_t conv_scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    (void)caps;
    return a->pro.scale != NULL ? 0 : CONV_RANGE_BYTES;
}

/* Weights of all phases, without what lies behind them. */
static size_t conv_weight_bytes(const dvk_conv2d_args *a) {
    const conv_shape s = conv_shape_of(a);
    const int32_t log2 = conv_pieces_log2(&s, s.c_in);
    const int64_t wide = (int64_t)CONV_FP8_CHANNELS << log2;
    return (size_t)(s.phases * conv_ceil(s.c_in, wide) * s.kh * s.kw * s.c_out * wide);
}

/* The largest value of x into *range. */
static int conv_measure(const dvk_conv2d_args *a, uint32_t *range, dvk_queue *q) {
    dvk_conv_fp8_range p = {.x = conv_view_of(&a->x),
                            .range = range,
                            .rows = (int32_t)conv_ceil(a->x.h, CONV_FP8_ROW_STEP),
                            .w = (int32_t)a->x.w,
                            .octets = (int32_t)(a->x.c / 8)};
    void *params[] = {&p};
    const dvk_launch l = {.module = "conv_fp8_mma",
                          .function = "conv_fp8_range",
                          .grid = {(uint32_t)(a->x.n * p.rows), 1, 1},
                          .block = {CONV_FP8_RANGE_THREADS, 1, 1},
                          .params = params};
    const int r = q->clear(q, range, CONV_RANGE_BYTES);
    return r == 0 ? q->launch(q, &l) : r;
}

static int conv_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    conv_choice c;
    char name[64];
    conv_choose(a, q->caps, &c);
    dvk_conv_fp8_mma p = {.c = c.p, .unit_phase = c.p.w_rows};
    p.unit = (const float *)(const void *)((const char *)a->w + conv_weight_bytes(a) + CONV_BEHIND);
    p.range = a->pro.scale != NULL ? NULL : scratch;
    const int r = p.range != NULL ? conv_measure(a, scratch, q) : 0;
    if (r != 0) {
        return r;
    }
    void *params[] = {&p};
    snprintf(name, sizeof name, "conv_fp8_mma_%dx%d", (int)c.size.m, (int)c.size.n);
    const dvk_launch l = {
        .module = "conv_fp8_mma",
        .function = name,
        .grid = {(uint32_t)c.blocks, 1, 1},
        .block = {(uint32_t)(32 * c.size.warps_m * c.size.warps_n), 1, 1},
        .shared_bytes = c.shared,
        .params = params,
    };
    return q->launch(q, &l);
}

/* ---- weights ---- */

static size_t conv_packed_bytes(const void *args) {
    const conv_shape s = conv_shape_of(args);
    return conv_weight_bytes(args) + CONV_BEHIND + sizeof(float) * (size_t)(s.phases * s.c_out);
}

static int64_t conv_pack_units(const void *args) {
    const conv_shape s = conv_shape_of(args);
    return (int64_t)s.phases * s.c_out / 8;
}

static void conv_pack_row(const dvk_conv2d_args *a, const conv_shape *s, const float *w, unsigned char *dst,
                          int64_t row) {
    const int32_t phase = (int32_t)(row / s->c_out), taps = s->kh * s->kw;
    const int64_t o = row % s->c_out, wide = (int64_t)CONV_FP8_CHANNELS << conv_pieces_log2(s, s->c_in);
    const int64_t steps = conv_ceil(s->c_in, wide) * taps;
    const float unit = conv_fp8_unit(a, s, w, o, phase);
    memcpy(dst + conv_weight_bytes(a) + CONV_BEHIND + (size_t)row * sizeof unit, &unit, sizeof unit);
    for (int64_t step = 0; step < steps; step++) {
        unsigned char *to = dst + ((phase * steps + step) * s->c_out + o) * wide;
        for (int64_t k = 0; k < wide; k++) {
            const int64_t i = step / taps * wide + k;
            to[k] = i < s->c_in ? dvk_f32_to_e4m3(conv_weight(a, s, w, o, i, phase, (int32_t)(step % taps)) / unit) : 0;
        }
    }
}

static void conv_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const conv_shape s = conv_shape_of(args);
    if (last == conv_pack_units(args)) {
        memset((char *)dst + conv_weight_bytes(args), 0, CONV_BEHIND);
    }
    for (int64_t row = first * 8; row < last * 8; row++) {
        conv_pack_row(args, &s, w, dst, row);
    }
}

const dvk_cuda_kernel dvk_conv2d_cuda_fp8_mma = {
    .op = "conv2d",
    .variant = "cuda/fp8/mma",
    .sm_min = 89,
    .computes = DVK_COMPUTES_FP8,
    .supports = conv_supports,
    .cost = conv_cost,
    .scratch_bytes = conv_scratch_bytes,
    .enqueue = conv_enqueue,
    .stats_chunks = conv_stats_chunks,
    .packed_bytes = conv_packed_bytes,
    .pack_units = conv_pack_units,
    .pack = conv_pack,
};
