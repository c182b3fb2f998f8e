/* conv_mma.c - host side of "cuda/mma" and "cuda/mma-tf32": block sizes, launch, packed weights. The weights are
 * [phase][chunk of input channels][tap][output channel, to a multiple of 8][input channel of the chunk]. For few input
 * channels they are [phase][output channel][tap][input channel]. Padding is zero. */
#include "kernels/cuda/conv/conv_mma.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_mma, term))

typedef struct conv_block_size {
    int32_t m, n, warps_m, warps_n, mt, nt;
    enum {
        CONV_IS_COMMON,
        CONV_IS_DIRECT,
        CONV_IS_DENSE,
        CONV_IS_FEW
    } kind; /* direct: only if x is copied without conversion */
} conv_block_size;

#define CONV_DIRECT(M, N, WM, WN, MT, NT) {M, N, WM, WN, MT, NT, CONV_IS_DIRECT},
#define CONV_COMMON(M, N, WM, WN, MT, NT) {M, N, WM, WN, MT, NT, CONV_IS_COMMON},
#define CONV_DENSE(M, N, WM, WN, MT, NT)  {M, N, WM, WN, MT, NT, CONV_IS_DENSE},
#define CONV_FEW(M, N, WM, WN, MT, NT)    {M, N, WM, WN, MT, NT, CONV_IS_FEW},
static const conv_block_size conv_blocks[] = {CONV_MMA_DIRECT(CONV_DIRECT) CONV_MMA_COMMON(CONV_COMMON)
                                                  CONV_MMA_DENSE(CONV_DENSE) CONV_MMA_FEW(CONV_FEW)};
enum { CONV_BEHIND = 256 * 128 }; /* bytes behind the weights, which blocks with too many channels read and ignore */
enum { CONV_BLOCKS = sizeof conv_blocks / sizeof conv_blocks[0] };

typedef struct conv_choice {
    dvk_conv_params p;
    conv_block_size size;
    int64_t blocks;
    uint32_t shared;
    double ns;
} conv_choice;

static int conv_is_tf32(const dvk_conv2d_args *a) {
    return a->compute == DVK_TF32;
}

static int32_t conv_channels(const dvk_conv2d_args *a) { /* of a piece of 16 bytes */
    return conv_is_tf32(a) ? 4 : 8;
}

/* Words of k of a convolution of few channels (conv_dense.cuh), 0 if it is another kind. */
static int32_t conv_dense_words(const dvk_conv2d_args *a, const conv_shape *s) {
    const int64_t words = conv_round((int64_t)s->kh * s->kw * conv_ceil(s->c_in, conv_channels(a) / 4), 8);
    return s->c_in <= (conv_is_tf32(a) ? 7 : 8) && words <= 176 ? (int32_t)words : 0;
}

/* Columns of a product over (tap, output channel) (conv_few.cuh), 0 if it is another kind. */
static int32_t conv_few_columns(const dvk_conv2d_args *a, const conv_shape *s) {
    const int32_t columns = s->kh * s->kw * s->c_out;
    return s->c_out <= 4 && columns <= 40 && s->kh * s->kw > 1 && s->stride == 1 && a->upsample == 1 &&
                   a->epi.shuffle <= 1 && conv_dense_words(a, s) == 0
               ? (int32_t)conv_round(columns, 8)
               : 0;
}

static int64_t conv_w_rows(const dvk_conv2d_args *a, const conv_shape *s) {
    const int32_t few = conv_few_columns(a, s);
    return few ? few : conv_round(s->c_out, 8);
}

static uint32_t conv_shared_bytes(const dvk_conv_params *p, const conv_block_size *z) {
    const int64_t weights = ((int64_t)z->n << p->cpp_log2) * 16;
    const int64_t loop = p->patches * conv_patch_bytes(p) + p->stages * weights;
    const int64_t dense =
        4 * ((int64_t)p->k_words + (int64_t)z->n * (p->k_words + 4) + (int64_t)p->patch_pixels * p->pixel_words);
    int64_t out = (int64_t)z->warps_m * z->warps_n * 16 * (8 * z->nt + 8) * 4 + (int64_t)z->warps_m * z->n * 12;
    if (z->kind == CONV_IS_FEW) {
        out = (int64_t)p->patch_pixels * (z->n + 1) * 4;
    }
    return (uint32_t)(conv_head_bytes(p, z->n) + conv_most(z->kind == CONV_IS_DENSE ? dense : loop, out));
}

/* Statistics need the channels of a group in one block, and fixed eight channels per lane. */
static int conv_stats_fit(const conv_shape *s, const conv_block_size *z, int64_t groups) {
    return groups > 0 && s->c_out % groups == 0 && (32 % z->nt) == 0 &&
           (z->n >= s->c_out || z->n % (s->c_out / groups) == 0);
}

/* Rate of the tensor cores with mma.sync, in 16-bit TFLOP/s. */
static double conv_peak(const dvk_cuda_caps *caps) {
    return caps->tensor_tflops * TERM(tensor);
}

static double conv_bytes(const dvk_conv2d_args *a) {
    const double x = (double)(a->x.n * a->x.h * a->x.w * a->x.c) * (double)dvk_dtype_size(a->x.dtype);
    const int64_t c = a->epi.shuffle > 1 ? a->y.sw : a->y.c; /* few channels are written with their padding */
    const double y = (double)(a->y.n * a->y.h * a->y.w * c) * (double)dvk_dtype_size(a->y.dtype);
    return x + y * (1.0 + (a->epi.shuffle > 1 ? 0.0 : (double)a->epi.n_res));
}

/* A wide warp reads less shared memory for the same products. A single block per multiprocessor leaves it idle during
 * prologue and epilogue. */
static double conv_use(const conv_block_size *z, int32_t resident, int32_t stages, const dvk_cuda_caps *caps) {
    const double rows = 16.0 * z->mt, columns = 8.0 * z->nt;
    const double reads = (rows + columns) / (rows * columns) * 32.0; /* 1 for a warp of 64 x 64 */
    const double width = reads > 1.0 ? 1.0 / reads : 1.0;
    const int32_t warps = z->warps_m * z->warps_n * resident;
    return width *
           (warps < 8       ? TERM(few_warps)
            : resident == 1 ? TERM(one_block)
                            : 1.0) *
           (stages > 3 ? TERM(four_stages) : 1.0);
}

static double conv_estimate(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, const conv_choice *c) {
    const conv_block_size *z = &c->size;
    const int32_t regs = z->mt * z->nt >= 32 ? 255 : z->mt * z->nt >= 16 ? 168 : 128; /* as in conv_tile */
    const int32_t threads = 32 * z->warps_m * z->warps_n;
    const int64_t by_shared = ((int64_t)caps->shared_bytes + 1024) / ((int64_t)c->shared + 1024);
    const int32_t resident = (int32_t)conv_most(1, conv_least(by_shared, 65536 / (regs * threads)));
    double k = (double)conv_round(c->p.c_in, conv_channels(a) * 2) * c->p.taps;
    if (z->kind == CONV_IS_DENSE) {
        k = (double)c->p.k_words * conv_channels(a) / 4.0;
    }
    k += 32.0 * conv_channels(a); /* overhead of a block */
    const int converts = !c->p.direct && z->kind != CONV_IS_DENSE;
    const double flops = 2.0 * z->m * z->n * k * (conv_is_tf32(a) ? 2.0 : 1.0) * (converts ? TERM(converts) : 1.0);
    const double per_sm = conv_peak(caps) * 1e3 / caps->processors * conv_use(z, resident, c->p.stages, caps);
    const double waves = (double)conv_ceil(c->blocks, caps->processors);
    const double memory = conv_bytes(a) / (caps->memory_gbs * TERM(memory));
    const double products = waves * flops / per_sm;
    return TERM(launch) + (products > memory ? products : memory);
}

static int conv_block_serves(const dvk_conv2d_args *a, const conv_shape *s, const conv_block_size *z) {
    const int32_t few = conv_few_columns(a, s);
    if ((conv_dense_words(a, s) > 0) != (z->kind == CONV_IS_DENSE) || (few > 0) != (z->kind == CONV_IS_FEW) ||
        (few && (few > z->n || a->epi.stats))) {
        return 0;
    }
    return !a->epi.stats || conv_stats_fit(s, z, a->epi.stats_groups);
}

/* Sets all of c except the depth of the rings and its consequences. */
static void conv_set_block(const dvk_conv2d_args *a, const conv_shape *s, const conv_block_size *z, conv_choice *c) {
    const dvk_dtype dtype = conv_is_tf32(a) ? DVK_F32 : a->compute;
    int32_t pixels = z->m;
    c->size = *z;
    if (z->kind == CONV_IS_FEW) { /* as many as a patch of z->m pixels allows */
        const int32_t w = s->out_w <= 8 ? 8 : 16;
        pixels = (z->m / (w + s->kw - 1) - s->kh + 1) * w;
    }
    conv_fill(a, s, pixels, z->n, dtype, conv_channels(a), &c->p);
    c->p.direct = c->p.direct && !conv_is_tf32(a); /* tf32 is rounded during the copy */
    if (z->kind == CONV_IS_FEW) {
        c->p.few_taps = c->p.taps;
        c->p.few_kw = c->p.kw;
        c->p.taps = c->p.kw = 1;
    }
    c->p.w_rows = (int32_t)conv_w_rows(a, s);
    c->p.k_words = conv_dense_words(a, s);
    c->p.pixel_words = (int32_t)conv_ceil(s->c_in, conv_channels(a) / 4);
    c->p.w_phase = c->p.k_words ? (int64_t)c->p.w_rows * c->p.k_words * 4
                                : (((int64_t)c->p.chunks * c->p.taps * c->p.w_rows) << c->p.cpp_log2) * 16;
    c->blocks = s->n * c->p.phases * c->p.tiles.by * c->p.n_tiles.by;
}

static void conv_set_depth(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, int32_t stages, conv_choice *c) {
    conv_set_rings(&c->p, stages, 32 * c->size.warps_m * c->size.warps_n);
    c->shared = conv_shared_bytes(&c->p, &c->size);
    c->ns = conv_estimate(a, caps, c);
}

/* The block and the depth of its rings with the lowest estimated time; blocks 0: nothing fits. */
static void conv_choose(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, conv_choice *best) {
    const conv_shape s = conv_shape_of(a);
    conv_choice c;
    memset(best, 0, sizeof *best);
    for (int32_t i = 0; i < CONV_BLOCKS; i++) {
        if (!conv_block_serves(a, &s, &conv_blocks[i])) {
            continue;
        }
        conv_set_block(a, &s, &conv_blocks[i], &c);
        if (conv_blocks[i].kind == CONV_IS_DIRECT && !c.p.direct) {
            continue;
        }
        for (int32_t stages = 4; stages >= 2; stages--) {
            conv_set_depth(a, caps, stages, &c);
            if (c.shared <= (uint32_t)caps->shared_bytes && (best->blocks == 0 || c.ns < best->ns)) {
                *best = c;
            }
        }
    }
}

static int conv_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    conv_choice c;
    if (a->compute != DVK_F16 && (a->compute != DVK_BF16 || caps->sm < 80) &&
        (a->compute != DVK_TF32 || caps->sm < 80)) {
        return 0;
    }
    conv_choose(a, caps, &c);
    return a->epi.gate <= 1 && !conv_adds_behind_shuffle(a) && c.blocks > 0 && c.blocks <= INT32_MAX &&
           conv_offsets_fit(a, &c.p);
}

static double conv_cost(const void *args, const dvk_cuda_caps *caps) {
    conv_choice c;
    conv_choose(args, caps, &c);
    return c.ns;
}

static void conv_function_name(const dvk_conv2d_args *a, const conv_choice *c, char *name, size_t bytes) {
    const char *type = conv_is_tf32(a) ? "tf32" : a->compute == DVK_BF16 ? "bf16" : "f16";
    const char *kind = c->size.kind == CONV_IS_DENSE ? "dense_" : c->size.kind == CONV_IS_FEW ? "few_" : "";
    const char *pro = c->p.direct || c->size.kind == CONV_IS_DENSE ? "" : "pro_";
    snprintf(name, bytes, "conv_mma_%s_%s%s%dx%d", type, kind, pro, (int)c->size.m, (int)c->size.n);
}

static int conv_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    conv_choice c;
    char name[64];
    void *params[] = {&c.p};
    (void)scratch;
    conv_choose(a, q->caps, &c);
    conv_function_name(a, &c, name, sizeof name);
    const dvk_launch l = {
        .module = conv_is_tf32(a) ? "conv_mma_tf32" : "conv_mma",
        .function = name,
        .grid = {(uint32_t)c.blocks, 1, 1},
        .block = {(uint32_t)(32 * c.size.warps_m * c.size.warps_n), 1, 1},
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

/* ---- weights ---- */

/* Weights as rows of `wide` input channels: [phase][step][output channel][wide]. With few channels there is one step,
 * and a row runs over (tap, channel). */
typedef struct conv_packing {
    conv_shape s;
    int64_t wide, steps, rows;
    int32_t taps, pixel; /* pixel: channels per tap in a dense row, else 0 */
    int32_t few;         /* rows are (tap, output channel) */
} conv_packing;

static conv_packing conv_packing_of(const dvk_conv2d_args *a) {
    conv_packing k = {.s = conv_shape_of(a)};
    const int32_t per = conv_channels(a), words = conv_dense_words(a, &k.s);
    k.taps = k.s.kh * k.s.kw;
    k.rows = conv_w_rows(a, &k.s);
    if (words) {
        k.pixel = (int32_t)conv_round(k.s.c_in, per / 4);
        k.wide = (int64_t)words * (per / 4);
        k.steps = 1;
    } else {
        k.wide = (int64_t)per << conv_pieces_log2(&k.s, conv_round(k.s.c_in, per) * 16 / per);
        k.few = conv_few_columns(a, &k.s) > 0;
        k.steps = conv_ceil(k.s.c_in, k.wide) * (k.few ? 1 : k.taps);
    }
    return k;
}

static size_t conv_packed_bytes(const void *args) {
    const conv_packing k = conv_packing_of(args);
    return (size_t)(k.s.phases * k.steps * k.rows * k.wide) * 16 / (size_t)conv_channels(args) + CONV_BEHIND;
}

static int64_t conv_pack_units(const void *args) {
    const conv_shape s = conv_shape_of(args);
    return conv_w_rows(args, &s) / 8;
}

static uint32_t conv_tf32_bits(float f) {
    const uint32_t u = dvk_bits(f);
    return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & 0xffffe000u;
}

static void conv_store_weight(const dvk_conv2d_args *a, void *dst, int64_t at, float f) {
    if (conv_is_tf32(a)) {
        ((uint32_t *)dst)[at] = conv_tf32_bits(f);
    } else {
        dvk_store(dst, a->compute, at, f);
    }
}

static void conv_pack_row(const dvk_conv2d_args *a, const conv_packing *k, const float *w, void *dst, int32_t phase,
                          int64_t step, int64_t row) {
    const int64_t at = ((phase * k->steps + step) * k->rows + row) * k->wide;
    const int64_t o = k->few ? row % k->s.c_out : row;
    for (int64_t i = 0; i < k->wide; i++) {
        int64_t channel = step / k->taps * k->wide + i, tap = step % k->taps;
        if (k->pixel) {
            channel = i % k->pixel;
            tap = i / k->pixel;
        } else if (k->few) {
            channel = step * k->wide + i;
            tap = row / k->s.c_out;
        }
        const int there = o < k->s.c_out && channel < k->s.c_in && tap < k->taps;
        conv_store_weight(a, dst, at + i, there ? conv_weight(a, &k->s, w, o, channel, phase, (int32_t)tap) : 0.0f);
    }
}

static void conv_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const conv_packing k = conv_packing_of(args);
    if (last == conv_pack_units(args)) {
        memset((char *)dst + conv_packed_bytes(args) - CONV_BEHIND, 0, CONV_BEHIND);
    }
    for (int32_t phase = 0; phase < k.s.phases; phase++) {
        for (int64_t step = 0; step < k.steps; step++) {
            for (int64_t row = first * 8; row < last * 8; row++) {
                conv_pack_row(args, &k, w, dst, phase, step, row);
            }
        }
    }
}

const dvk_cuda_kernel dvk_conv2d_cuda_mma = {
    .op = "conv2d",
    .variant = "cuda/mma",
    .sm_min = 75,
    .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
    .supports = conv_supports,
    .cost = conv_cost,
    .enqueue = conv_enqueue,
    .stats_chunks = conv_stats_chunks,
    .packed_bytes = conv_packed_bytes,
    .pack_units = conv_pack_units,
    .pack = conv_pack,
};

const dvk_cuda_kernel dvk_conv2d_cuda_mma_tf32 = {
    .op = "conv2d",
    .variant = "cuda/mma-tf32",
    .sm_min = 80,
    .computes = DVK_COMPUTES_TF32,
    .supports = conv_supports,
    .cost = conv_cost,
    .enqueue = conv_enqueue,
    .stats_chunks = conv_stats_chunks,
    .packed_bytes = conv_packed_bytes,
    .pack_units = conv_pack_units,
    .pack = conv_pack,
};
