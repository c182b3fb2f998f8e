/* conv_f32.c - host side of "cuda/simt": launch and weights, [phase][chunk of input channels][tap][input channel of the
 * chunk][output channel, to a multiple of 8]. */
#include "kernels/cuda/conv/conv_f32.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_f32, term))

enum { CONV_PER_PIECE = 4, CONV_TURING_SHARED = 64 * 1024 };

typedef struct conv_choice {
    dvk_conv_params p;
    int32_t n;
    int64_t blocks;
    uint32_t shared;
    double ns;
} conv_choice;

static int64_t conv_row(const conv_shape *s) {
    return conv_round(s->c_out, 8);
}

/* log2 of the pieces of a pixel in shared memory at a time. On Turing, which has the least shared memory, two patches
 * and two steps of weights of the widest block must fit. Packed weights depend on this number and serve every device. */
static int32_t conv_pieces(const conv_shape *s) {
    const int64_t st = s->kh == 1 && s->kw == 1 ? 1 : s->stride;
    const int64_t across = conv_round(15 * st + s->kw, st) * (7 * st + s->kh);
    const int64_t down = conv_round(7 * st + s->kw, st) * (15 * st + s->kh);
    const int64_t patch = conv_most(across, down);
    const int64_t head = conv_round(patch * 4, 128) + 64 * 8;
    int32_t log2 = s->c_in <= 8 ? 1 : s->c_in <= 16 ? 2 : 3;
    while (log2 > 1 && ((2 * patch + 2 * 64) << log2) * 16 + 2 * 128 + head > CONV_TURING_SHARED) {
        log2--;
    }
    return log2;
}

static uint32_t conv_shared_bytes(const dvk_conv_params *p, int32_t n) {
    const int64_t weights = ((int64_t)n * 16) << p->cpp_log2;
    const int64_t loop = p->patches * conv_patch_bytes(p) + p->stages * weights;
    const int64_t out = 4 * 16 * ((int64_t)n + 8) * 4 + 4 * (int64_t)n * 12;
    return (uint32_t)(conv_head_bytes(p, n) + conv_most(loop, out));
}

static double conv_estimate(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, const conv_choice *c) {
    const int32_t resident = (int32_t)(((int64_t)caps->shared_bytes + 1024) / ((int64_t)c->shared + 1024));
    const double use = (c->n == 64   ? TERM(simt_64)
                        : c->n == 32 ? TERM(simt_32)
                                     : TERM(simt_8)) *
                       (resident >= 3   ? 1.0
                        : resident == 2 ? TERM(two_blocks)
                                        : TERM(one_block));
    const double k = (double)conv_round(c->p.c_in, 4) * c->p.taps;
    const double flops = 2.0 * CONV_F32_PIXELS * c->n * (k + 64);
    const double products =
        (double)conv_ceil(c->blocks, caps->processors) * flops * caps->processors / (caps->simt_tflops * 1e3 * use);
    const double values = (double)(a->x.n * a->x.h * a->x.w * a->x.c + a->y.n * a->y.h * a->y.w * a->y.c);
    const double memory = values * 4.0 / (caps->memory_gbs * TERM(memory));
    return TERM(launch) + (products > memory ? products : memory);
}

static int conv_stats_fit(const conv_shape *s, int32_t n, int64_t groups) {
    return groups > 0 && s->c_out % groups == 0 && (n >= s->c_out || n % (s->c_out / groups) == 0);
}

static void conv_choose(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, conv_choice *best) {
    static const int32_t sizes[] = {64, 32, 8};
    const conv_shape s = conv_shape_of(a);
    conv_choice c;
    memset(best, 0, sizeof *best);
    for (int32_t i = 0; i < 3; i++) {
        c.n = sizes[i];
        if (a->epi.stats && !conv_stats_fit(&s, c.n, a->epi.stats_groups)) {
            continue;
        }
        conv_fill(a, &s, CONV_F32_PIXELS, c.n, DVK_F32, CONV_PER_PIECE, &c.p);
        conv_set_pieces(&c.p, conv_pieces(&s), CONV_PER_PIECE);
        c.p.w_rows = (int32_t)conv_row(&s);
        c.p.w_phase = (((int64_t)c.p.chunks * c.p.taps * c.p.w_rows) << c.p.cpp_log2) * 16;
        c.blocks = s.n * c.p.phases * c.p.tiles.by * c.p.n_tiles.by;
        for (int32_t stages = 3; stages >= 2; stages--) {
            conv_set_rings(&c.p, stages, CONV_F32_THREADS);
            c.shared = conv_shared_bytes(&c.p, c.n);
            if (c.shared > (uint32_t)caps->shared_bytes) {
                continue;
            }
            c.ns = conv_estimate(a, caps, &c);
            if (best->blocks == 0 || c.ns < best->ns) {
                *best = c;
            }
        }
    }
}

static int conv_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    conv_choice c;
    conv_choose(a, caps, &c);
    return a->epi.gate <= 1 && !conv_adds_behind_shuffle(a) && c.blocks > 0 && c.blocks <= INT32_MAX &&
           conv_offsets_fit(a, &c.p);
}

static double conv_cost(const void *args, const dvk_cuda_caps *caps) {
    conv_choice c;
    conv_choose(args, caps, &c);
    return c.ns;
}

static int conv_enqueue(const void *args, void *scratch, dvk_queue *q) {
    conv_choice c;
    char name[32];
    void *params[] = {&c.p};
    (void)scratch;
    conv_choose(args, q->caps, &c);
    snprintf(name, sizeof name, "conv_f32_%s%d", c.p.direct ? "" : "pro_", (int)c.n);
    const dvk_launch l = {
        .module = "conv_f32",
        .function = name,
        .grid = {(uint32_t)c.blocks, 1, 1},
        .block = {CONV_F32_THREADS, 1, 1},
        .shared_bytes = c.shared,
        .params = params,
    };
    return q->launch(q, &l);
}

static int64_t conv_stats_chunks(const void *args, const dvk_cuda_caps *caps) {
    dvk_conv2d_args a;
    conv_choice c;
    if (!conv_with_stats(args, &a)) {
        return 0;
    }
    conv_choose(&a, caps, &c);
    return c.blocks > 0 ? (int64_t)c.p.phases * c.p.tiles.by : 0;
}

static void conv_packing(const dvk_conv2d_args *a, conv_shape *s, int64_t *wide, int64_t *chunks) {
    *s = conv_shape_of(a);
    *wide = CONV_PER_PIECE << conv_pieces(s);
    *chunks = conv_ceil(s->c_in, *wide);
}

static size_t conv_packed_bytes(const void *args) {
    conv_shape s;
    int64_t wide, chunks;
    conv_packing(args, &s, &wide, &chunks);
    return (size_t)(s.phases * chunks * s.kh * s.kw * conv_row(&s) * wide) * sizeof(float);
}

static int64_t conv_pack_units(const void *args) {
    const conv_shape s = conv_shape_of(args);
    return conv_row(&s) / 8;
}

static void conv_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    conv_shape s;
    int64_t wide, chunks;
    conv_packing(a, &s, &wide, &chunks);
    const int32_t taps = s.kh * s.kw;
    for (int32_t phase = 0; phase < s.phases; phase++) {
        for (int64_t row = 0; row < chunks * taps * wide; row++) {
            float *to = (float *)dst + (phase * chunks * taps * wide + row) * conv_row(&s);
            const int64_t i = row / (wide * taps) * wide + row % wide;
            const int32_t tap = (int32_t)(row / wide % taps);
            for (int64_t o = first * 8; o < last * 8; o++) {
                to[o] = o < s.c_out && i < s.c_in ? conv_weight(a, &s, w, o, i, phase, tap) : 0.0f;
            }
        }
    }
}

const dvk_cuda_kernel dvk_conv2d_cuda_simt = {
    .op = "conv2d",
    .variant = "cuda/simt",
    .sm_min = 75,
    .computes = DVK_COMPUTES_ANY,
    .supports = conv_supports,
    .cost = conv_cost,
    .enqueue = conv_enqueue,
    .stats_chunks = conv_stats_chunks,
    .packed_bytes = conv_packed_bytes,
    .pack_units = conv_pack_units,
    .pack = conv_pack,
};
