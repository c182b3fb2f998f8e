/* conv_8bit_mma.c - host side of "cuda/fp8/mma" and "cuda/int8/mma": block sizes, launches and packed weights. The
 * weights are [phase][chunk of input channels][tap][output channel, to a multiple of 8][input channel of the chunk] of
 * E4M3 or 8-bit integers. Padding follows, which blocks with too many channels read and ignore. At the end is
 * [phase][output channel] of the value of one unit of a sum. */
#include "kernels/cuda/conv/conv_8bit_mma.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_8bit_host.h"
#include "kernels/cuda/conv/conv_host.h"
#include "kernels/int8.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_8bit_mma, term))

extern const dvk_cuda_kernel dvk_conv2d_cuda_fp8_mma;
extern const dvk_cuda_kernel dvk_conv2d_cuda_int8_mma;

typedef struct conv_block_size {
    int32_t m, n, warps_m, warps_n, mt, nt;
} conv_block_size;

#define CONV_BLOCK(M, N, WM, WN, MT, NT) {M, N, WM, WN, MT, NT},
static const conv_block_size conv_blocks[] = {CONV_8BIT_BLOCKS(CONV_BLOCK)};
enum { CONV_BLOCKS = sizeof conv_blocks / sizeof conv_blocks[0] };
enum { CONV_BEHIND = 128 * 128 };

typedef struct conv_choice {
    dvk_conv_params p;
    conv_block_size size;
    int64_t blocks;
    uint32_t shared;
    double ns;
} conv_choice;

static int conv_is_int8(const dvk_conv2d_args *a) {
    return a->compute == DVK_INT8;
}

/* bf16 has no prologue. Values behind the last channel have zero weights, so they are arbitrary in products, but not in
 * the maximum for the scale. */
static int conv_int8_serves(const dvk_conv2d_args *a, const dvk_cuda_caps *caps) {
    const int plain = a->pro.scale == NULL && a->pro.act == DVK_ACT_NONE;
    return a->compute == DVK_INT8 && dvk_int8_serves(a) && a->x.dtype == a->y.dtype &&
           (a->x.dtype == DVK_F16 || (a->x.dtype == DVK_BF16 && plain && caps->sm >= 80)) && a->y.c % 4 == 0 &&
           (a->x.c % CONV_8BIT_CHANNELS == 0 || (a->x.c % 4 == 0 && a->pro.scale == NULL));
}

/* Rows of weights, one for each output channel. */
static int64_t conv_rows(const conv_shape *s) {
    return conv_round(s->c_out, 8);
}

static const char *conv_module(const dvk_conv2d_args *a) {
    return conv_is_int8(a) ? "conv_int8_mma" : "conv_fp8_mma";
}

static const char *conv_stored(const dvk_conv2d_args *a) {
    return a->x.dtype == DVK_BF16 ? "_bf16" : "";
}

/* 1 if x is scaled by its maxima, which a first launch computes. */
static int conv_measures(const dvk_conv2d_args *a) {
    return conv_is_int8(a) || a->pro.scale == NULL;
}

/* A matrix product runs over each picture separately: pictures do not share factors. */
static conv_shape conv_8bit_shape(const dvk_conv2d_args *a) {
    conv_shape s = conv_shape_of(a);
    if (s.flat == 2) {
        s.flat = 1;
        s.n = a->y.n;
        s.out_w /= s.n;
    }
    return s;
}

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

/* log2 of the pieces of a pixel that are in shared memory at a time. At most 64 channels: larger patches leave a
 * multiprocessor with one block. */
static int32_t conv_8bit_pieces(const conv_shape *s) {
    return (int32_t)conv_least(conv_pieces_log2(s, conv_round(s->c_in, CONV_8BIT_CHANNELS)), 2);
}

/* Rate of mma.sync for f16 in TFLOP/s, as in conv_mma.c. */
static double conv_peak_f16(const dvk_cuda_caps *caps) {
    return caps->tensor_tflops * TERM(tensor);
}

static double conv_peak(const dvk_conv2d_args *a, const dvk_cuda_caps *caps) {
    return conv_peak_f16(caps) * (conv_is_int8(a) ? TERM(int8_gain) : TERM(fp8_gain));
}

/* ns of a block: its products, the overhead of an f16 block, and the conversion of 64 channels of a pixel. */
static double conv_block_ns(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, const conv_choice *c) {
    const conv_block_size *z = &c->size;
    const int32_t regs = z->mt * z->nt >= 32 ? 255 : z->mt * z->nt >= 16 ? 168 : 128; /* as in conv_tile */
    const int32_t threads = 32 * z->warps_m * z->warps_n;
    const int64_t by_shared = ((int64_t)caps->shared_bytes + 1024) / ((int64_t)c->shared + 1024);
    const int64_t resident = conv_most(1, conv_least(by_shared, 65536 / (regs * threads)));
    const double rows = 16.0 * z->mt, columns = 8.0 * z->nt;
    const double reads = (rows + columns) / (rows * columns) * 32.0; /* 1 for a warp of 64 x 64 */
    const double use = (reads > 1.0 ? 1.0 / reads : 1.0) * (resident * threads < 256 ? TERM(few_warps) : 1.0);
    const double flops = 2.0 * z->m * z->n;
    const double k = (double)conv_round(c->p.c_in, 32) * c->p.taps;
    const double per_tera = 1e3 / caps->processors;
    const double convert = (double)c->p.patch_pixels * (double)conv_ceil(c->p.c_in, 64) *
                           (conv_is_int8(a) ? TERM(convert_int8) : TERM(convert_fp8));
    return flops * (k / conv_peak(a, caps) + TERM(block) / conv_peak_f16(caps)) / (per_tera * use) + convert;
}

static double conv_estimate(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, const conv_choice *c) {
    const double x = (double)(a->x.n * a->x.h * a->x.w * a->x.c) * 2.0;
    const double y = (double)(a->y.n * a->y.h * a->y.w * a->y.c) * 2.0 * (1.0 + (double)a->epi.n_res);
    const double blocks = (double)conv_ceil(c->blocks, caps->processors) * conv_block_ns(a, caps, c);
    const double memory = (x + y) / (caps->memory_gbs * TERM(memory));
    const double measure = conv_measures(a) ? TERM(measure) + x / (caps->memory_gbs * TERM(measure_memory)) : 0.0;
    return TERM(launch) + measure + conv_most_of(blocks, memory);
}

static void conv_set_block(const dvk_conv2d_args *a, const conv_shape *s, const conv_block_size *z, conv_choice *c) {
    c->size = *z;
    conv_fill(a, s, z->m, z->n, a->x.dtype, CONV_8BIT_CHANNELS, &c->p);
    conv_set_pieces(&c->p, conv_8bit_pieces(s), CONV_8BIT_CHANNELS);
    c->p.direct = 0;
    c->p.w_rows = (int32_t)conv_rows(s);
    c->p.w_phase = (((int64_t)c->p.chunks * c->p.taps * c->p.w_rows) << c->p.cpp_log2) * 16;
    c->blocks = s->n * c->p.phases * c->p.tiles.by * c->p.n_tiles.by;
}

/* The block and the depth of its rings with the lowest estimated time; blocks 0: nothing fits. */
static void conv_choose(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, conv_choice *best) {
    const conv_shape s = conv_8bit_shape(a);
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
    if (!(conv_is_int8(a) ? conv_int8_serves(a, caps) : conv_8bit_serves(a, DVK_FP8, 32)) || a->stride > 2 ||
        (r > 1 && !conv_by_phases(a)) || !conv_view_of(&a->x).vec) {
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

/* The choice with statistics; its block determines the number of chunks. */
static int64_t conv_stats_chunks(const void *args, const dvk_cuda_caps *caps) {
    dvk_conv2d_args a = *(const dvk_conv2d_args *)args;
    static float wanted;
    conv_choice c;
    if (a.epi.stats_groups <= 0) {
        return 0;
    }
    if (!a.epi.stats) {
        a.epi.stats = &wanted; /* any non-NULL pointer; never dereferenced */
    }
    conv_choose(&a, caps, &c);
    return c.blocks > 0 ? (int64_t)c.p.phases * c.p.tiles.by : 0;
}

/* ---- launches ---- */

/* The cells of x in the coordinates of the convolution. */
static dvk_conv_8bit_cells conv_cells_of(const dvk_conv2d_args *a) {
    const conv_shape s = conv_8bit_shape(a);
    dvk_conv_8bit_cells p = {.x = conv_view_of(&a->x),
                             .scale = a->pro.scale,
                             .shift = a->pro.shift,
                             .h = s.flat ? 1 : (int32_t)a->x.h,
                             .w = s.flat ? (int32_t)s.out_w : (int32_t)a->x.w,
                             .channels = s.c_in,
                             .pro_act = (int32_t)a->pro.act};
    p.cells_h = (int32_t)conv_ceil(p.h, CONV_8BIT_CELL_H);
    p.cells_w = (int32_t)conv_ceil(p.w, CONV_8BIT_CELL_W);
    p.count = s.n * p.cells_h * p.cells_w;
    return p;
}

static size_t conv_scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return conv_measures(args) ? sizeof(uint32_t) * (size_t)conv_cells_of(args).count : 0;
}

/* Weights of all phases, without the padding behind them. */
static size_t conv_weight_bytes(const dvk_conv2d_args *a) {
    const conv_shape s = conv_8bit_shape(a);
    const int64_t wide = (int64_t)CONV_8BIT_CHANNELS << conv_8bit_pieces(&s);
    return (size_t)(s.phases * conv_ceil(s.c_in, wide) * s.kh * s.kw * conv_rows(&s) * wide);
}

static int conv_measure(dvk_conv_8bit_cells *p, const dvk_conv2d_args *a, dvk_queue *q) {
    char name[64];
    void *params[] = {p};
    snprintf(name, sizeof name, "%s%s_cells", conv_module(a), conv_stored(a));
    const dvk_launch l = {.module = conv_module(a),
                          .function = name,
                          .grid = {(uint32_t)conv_ceil(p->count, CONV_8BIT_CELL_THREADS / 32), 1, 1},
                          .block = {CONV_8BIT_CELL_THREADS, 1, 1},
                          .params = params};
    return q->launch(q, &l);
}

static int conv_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    conv_choice c;
    char name[64];
    conv_choose(a, q->caps, &c);
    const dvk_int8_form form = dvk_int8_form_of(a);
    dvk_conv_8bit_mma p = {.c = c.p,
                           .unit_phase = c.p.w_rows,
                           .block_w = (int32_t)form.block_w,
                           .block_h = (int32_t)form.block_h,
                           .reach_w = (int32_t)(form.block_w - 1) * form.args.stride + form.args.kw,
                           .reach_h = (int32_t)(form.block_h - 1) * form.args.stride + form.args.kh};
    p.unit = (const float *)(const void *)((const char *)a->w + conv_weight_bytes(a) + CONV_BEHIND);
    if (conv_measures(a)) {
        dvk_conv_8bit_cells cells = conv_cells_of(a);
        cells.cells = scratch;
        p.cells = scratch;
        p.cells_w = cells.cells_w;
        p.cells_h = cells.cells_h;
        const int r = conv_measure(&cells, a, q);
        if (r != 0) {
            return r;
        }
    }
    void *params[] = {&p};
    snprintf(name, sizeof name, "%s%s_%dx%d", conv_module(a), conv_stored(a), (int)c.size.m, (int)c.size.n);
    const dvk_launch l = {
        .module = conv_module(a),
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
    const conv_shape s = conv_8bit_shape(args);
    return conv_weight_bytes(args) + CONV_BEHIND + sizeof(float) * (size_t)(s.phases * conv_rows(&s));
}

static int64_t conv_pack_units(const void *args) {
    const conv_shape s = conv_8bit_shape(args);
    return s.phases * conv_rows(&s) / 8;
}

static void conv_pack_row(const dvk_conv2d_args *a, const conv_shape *s, const float *w, unsigned char *dst,
                          int64_t row) {
    const int64_t rows = conv_rows(s);
    const int32_t phase = (int32_t)(row / rows), taps = s->kh * s->kw;
    const int64_t o = row % rows, wide = (int64_t)CONV_8BIT_CHANNELS << conv_8bit_pieces(s);
    const int64_t steps = conv_ceil(s->c_in, wide) * taps;
    const float most = o < s->c_out ? conv_8bit_largest(a, s, w, o, phase) : 0.0f;
    const float unit = conv_is_int8(a) ? dvk_int8_unit(most) : conv_fp8_unit(most);
    memcpy(dst + conv_weight_bytes(a) + CONV_BEHIND + (size_t)row * sizeof unit, &unit, sizeof unit);
    for (int64_t step = 0; step < steps; step++) {
        unsigned char *to = dst + ((phase * steps + step) * rows + o) * wide;
        for (int64_t k = 0; k < wide; k++) {
            const int64_t i = step / taps * wide + k;
            const int there = i < s->c_in && o < s->c_out;
            const float v = there ? conv_weight(a, s, w, o, i, phase, (int32_t)(step % taps)) / unit : 0.0f;
            to[k] = conv_is_int8(a) ? (uint8_t)dvk_int8_round(v) : dvk_f32_to_e4m3(v);
        }
    }
}

static void conv_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const conv_shape s = conv_8bit_shape(args);
    if (last == conv_pack_units(args)) {
        memset((char *)dst + conv_weight_bytes(args), 0, CONV_BEHIND);
    }
    for (int64_t row = first * 8; row < last * 8; row++) {
        conv_pack_row(args, &s, w, dst, row);
    }
}

#define CONV_8BIT_FUNCTIONS                                                                                            \
    .supports = conv_supports, .cost = conv_cost, .scratch_bytes = conv_scratch_bytes, .enqueue = conv_enqueue,        \
    .stats_chunks = conv_stats_chunks, .packed_bytes = conv_packed_bytes, .pack_units = conv_pack_units,               \
    .pack = conv_pack

const dvk_cuda_kernel dvk_conv2d_cuda_fp8_mma = {
    .op = "conv2d", .variant = "cuda/fp8/mma", .sm_min = 89, .computes = DVK_COMPUTES_FP8, CONV_8BIT_FUNCTIONS};
const dvk_cuda_kernel dvk_conv2d_cuda_int8_mma = {
    .op = "conv2d", .variant = "cuda/int8/mma", .sm_min = 75, .computes = DVK_COMPUTES_INT8, CONV_8BIT_FUNCTIONS};
