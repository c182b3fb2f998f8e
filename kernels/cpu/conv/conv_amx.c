/* conv_amx.c - direct convolution on AMX tiles: bf16 products, f32 sums.
 *
 * A step multiplies 32 input channels: two tiles of 16 pixels times two tiles of weights, [16 channel pairs][16
 * outputs][2]. The pixels are loaded straight from the channels-last rows of the patch. If the channels are no multiple
 * of 32, a step takes 32 consecutive values of the row, across taps. Values beyond the last tap are multiplied with
 * zero weights.
 * The tile configuration belongs to the thread, and a unit may run on any thread. The configuration is therefore loaded
 * and released around the units. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/conv/conv_math_tmpl.h"
#include "kernels/cpu/conv/conv_epi_tmpl.h"
#include "kernels/cpu/conv/conv_pack_tmpl.h"
#include "kernels/cpu/simd/simd_amx.h"

enum {
    AMX_STEP = 32,  /* input values of a step */
    AMX_TILE = 16,  /* pixels or outputs per tile */
    AMX_PANEL = 32, /* outputs of a panel: two tiles */
    AMX_WEIGHTS = AMX_STEP * AMX_TILE,
    AMX_WIDTH = 128,               /* maximum block width in pixels */
    AMX_PATCH = 320 * 1024,        /* approximate values of a patch */
    AMX_PRODUCTS = 1024 * 1000000, /* approximate products of a unit: 1 to 5 ms */
};

typedef struct amx_steps {
    int64_t rows, taps, len; /* tap rows, stops in a row, steps of 32 values from each stop */
} amx_steps;

static int64_t amx_whole(const dvk_conv2d_args *a) {
    return a->x.c % AMX_STEP == 0;
}

static amx_steps amx_steps_of(const dvk_conv2d_args *a) {
    if (amx_whole(a)) {
        return (amx_steps){.rows = a->kh, .taps = a->kw, .len = a->x.c / AMX_STEP};
    }
    return (amx_steps){.rows = a->kh, .taps = 1, .len = conv_ceil_div(a->x.c * a->kw, AMX_STEP)};
}

static int64_t amx_depth(const dvk_conv2d_args *a) { /* steps of one output */
    const amx_steps s = amx_steps_of(a);
    return s.rows * s.taps * s.len;
}

static conv_tiling amx_tiling(const dvk_conv2d_args *a) {
    const int64_t all = conv_ceil_div(a->y.c, AMX_PANEL);
    const int64_t width = conv_min(a->y.w, AMX_WIDTH);
    const int64_t line = (width * a->stride + a->kw) * a->x.c;
    const int64_t per_row = width * amx_depth(a) * AMX_STEP * AMX_PANEL;
    int64_t height = conv_max(1, conv_min(a->y.h, (AMX_PATCH / line - a->kh) / a->stride));
    height = conv_max(1, conv_min(height, AMX_PRODUCTS / per_row));
    const int64_t panels = conv_max(1, conv_min(all, AMX_PRODUCTS / (per_row * height)));
    conv_tiling t = conv_tile(a, height, width, panels, all);
    t.step_x = AMX_TILE;
    return t;
}

static int64_t amx_units(const void *args) {
    const conv_tiling t = amx_tiling(args);
    return conv_tiling_units(args, &t);
}

/* The rectangle that a block reads; tiles cover multiples of 16 pixels. */
static conv_rect amx_reads(const dvk_conv2d_args *a, const conv_block *b) {
    conv_block whole = *b;
    whole.w = conv_ceil_div(b->w, AMX_TILE) * AMX_TILE;
    return conv_reads(a, &whole);
}

/* Size of the largest patch in values, with the overrun of the last step. */
static int64_t amx_patch_values(const dvk_conv2d_args *a) {
    const conv_tiling t = amx_tiling(a);
    const conv_block largest = conv_block_largest(a, &t);
    const conv_rect r = amx_reads(a, &largest);
    return r.h * r.w * a->x.c + AMX_STEP;
}

static size_t amx_scratch_bytes(const void *args) {
    return conv_align((size_t)amx_patch_values(args) * sizeof(uint16_t)) + 4 * AMX_TILE * AMX_PANEL * sizeof(float);
}

static conv_patch amx_patch(const dvk_conv2d_args *a, const conv_block *b, void *scratch) {
    const conv_rect r = amx_reads(a, b);
    /* A copy is faster even if the picture could be read in place, unless there is only one tap: tile loads stall on
     * everything outside L2. */
    if (a->kh * a->kw == 1 && amx_whole(a) && conv_in_place(a, &r, DVK_BF16)) {
        const uint16_t *x = (const uint16_t *)a->x.data + r.n * a->x.sn + r.y * a->x.sh + r.x * a->x.sw;
        return (conv_patch){.data = x, .row = a->x.sh, .pixel = a->x.sw};
    }
    const conv_copy k = {.a = a, .rect = r, .pitch = a->x.c, .dtype = DVK_BF16, .dst = scratch};
    conv_copy_patch(&k);
    memset((uint16_t *)scratch + r.h * r.w * a->x.c, 0, AMX_STEP * sizeof(uint16_t));
    return (conv_patch){.data = scratch, .row = r.w * a->x.c, .pixel = a->x.c};
}

/* Operands of one call: weights, and pitches in 2-byte values. The epilogue of the previous call's sums, `rest`, runs
 * meanwhile, a few pixels after each step. This overlaps the tile unit with the vector units. */
typedef struct amx_mk {
    const dvk_conv2d_args *a;
    amx_steps steps;
    const uint16_t *w;
    int64_t pixel, row, tap;
    float *sums; /* [pixel][AMX_PANEL] */
    conv_span rest;
    int64_t some; /* pixels of `rest` to finish per step */
} amx_mk;

static inline void amx_finish(amx_mk *k, int64_t pixels) {
    conv_span s = k->rest;
    s.pixels = conv_min(pixels, s.pixels);
    if (s.pixels > 0) {
        conv_epilogue(k->a, &s);
        k->rest.sums += s.pixels * AMX_PANEL;
        k->rest.x += s.pixels;
        k->rest.pixels -= s.pixels;
    }
}

/* Up to 32 pixels times 32 or 16 outputs. mt and nt, the numbers of tiles of pixels and outputs, are constants at each
 * call. */
CONV_INLINE void amx_mk_body(amx_mk *k, const uint16_t *a, int mt, int nt) {
    const size_t pitch = (size_t)k->pixel * sizeof(uint16_t);
    const uint16_t *w = k->w;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t y = 0; y < k->steps.rows; y++) {
        for (int64_t x = 0; x < k->steps.taps; x++) {
            const uint16_t *p = a + y * k->row + x * k->tap;
            for (int64_t i = 0; i < k->steps.len; i++, p += AMX_STEP, w += nt * AMX_WEIGHTS) {
                tile_load(4, p, pitch);
                tile_load(6, w, 64);
                _tile_dpbf16ps(0, 4, 6);
                if (nt > 1) {
                    tile_load(7, w + AMX_WEIGHTS, 64);
                    _tile_dpbf16ps(1, 4, 7);
                }
                if (mt > 1) {
                    tile_load(5, p + AMX_TILE * k->pixel, pitch);
                    _tile_dpbf16ps(2, 5, 6);
                }
                if (mt > 1 && nt > 1) {
                    _tile_dpbf16ps(3, 5, 7);
                }
                amx_finish(k, k->some);
            }
        }
    }
    tile_store(0, k->sums, AMX_PANEL * sizeof(float));
    if (nt > 1) {
        tile_store(1, k->sums + AMX_TILE, AMX_PANEL * sizeof(float));
    }
    if (mt > 1) {
        tile_store(2, k->sums + AMX_TILE * AMX_PANEL, AMX_PANEL * sizeof(float));
    }
    if (mt > 1 && nt > 1) {
        tile_store(3, k->sums + AMX_TILE * AMX_PANEL + AMX_TILE, AMX_PANEL * sizeof(float));
    }
}

static void amx_mk_run(amx_mk *k, const uint16_t *a, int64_t pixels, int64_t outputs) {
    if (outputs > AMX_TILE) {
        pixels > AMX_TILE ? amx_mk_body(k, a, 2, 2) : amx_mk_body(k, a, 1, 2);
    } else {
        pixels > AMX_TILE ? amx_mk_body(k, a, 2, 1) : amx_mk_body(k, a, 1, 1);
    }
}

static void amx_block(const dvk_conv2d_args *a, const conv_block *b, const conv_patch *patch, float *sums) {
    amx_mk k = {
        .a = a,
        .steps = amx_steps_of(a),
        .pixel = patch->pixel * a->stride,
        .row = patch->row,
        .tap = patch->pixel,
        .sums = sums,
        .some = conv_max(4, conv_ceil_div(2 * AMX_TILE, amx_depth(a))),
    };
    conv_span s = {.pitch = AMX_PANEL, .n = b->n};
    for (int64_t i = b->panel0; i < b->panel1; i++) {
        s.c = i * AMX_PANEL;
        s.count = conv_min(AMX_PANEL, a->y.c - s.c);
        k.w = (const uint16_t *)a->w + s.c * amx_depth(a) * AMX_STEP;
        for (int64_t y = 0; y < b->h; y++) {
            const uint16_t *line = (const uint16_t *)patch->data + y * a->stride * patch->row;
            s.y = b->y + y;
            for (int64_t x = 0; x < b->w; x += 2 * AMX_TILE) {
                s.x = b->x + x;
                s.pixels = conv_min(2 * AMX_TILE, b->w - x);
                amx_mk_run(&k, line + x * k.pixel, s.pixels, s.count);
                amx_finish(&k, 2 * AMX_TILE);
                s.sums = k.sums;
                k.rest = s;
                k.sums = k.sums == sums ? sums + 2 * AMX_TILE * AMX_PANEL : sums;
            }
        }
    }
    amx_finish(&k, 2 * AMX_TILE);
}

static void amx_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_conv2d_args *a = args;
    const conv_tiling t = amx_tiling(a);
    float *sums = (float *)((char *)scratch + conv_align((size_t)amx_patch_values(a) * sizeof(uint16_t)));
    tile_begin();
    for (int64_t u = first; u < last; u++) {
        const conv_block b = conv_block_at(a, &t, u);
        const conv_patch patch = amx_patch(a, &b, scratch);
        amx_block(a, &b, &patch, sums);
    }
    tile_end();
}

static size_t amx_packed_bytes(const void *args) {
    const dvk_conv2d_args *a = args;
    return (size_t)(conv_ceil_div(a->y.c, AMX_TILE) * AMX_TILE * amx_depth(a) * AMX_STEP) * sizeof(uint16_t);
}

static int64_t amx_pack_units(const void *args) {
    return conv_ceil_div(((const dvk_conv2d_args *)args)->y.c, AMX_PANEL);
}

/* Weight of output o for value `at` of tap row ky, counted over the taps of the row. */
static float amx_weight(const dvk_conv2d_args *a, const float *w, int64_t o, int64_t ky, int64_t at) {
    const int64_t kx = at / a->x.c;
    if (o >= a->y.c || kx >= a->kw) {
        return 0.0f;
    }
    return w[((o * a->x.c + at % a->x.c) * a->kh + ky) * a->kw + kx];
}

static void amx_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const int64_t steps = amx_depth(a) / a->kh; /* per tap row */
    for (int64_t i = first; i < last; i++) {
        const int64_t tiles = conv_min(2, conv_ceil_div(a->y.c - i * AMX_PANEL, AMX_TILE));
        uint16_t *d = (uint16_t *)dst + i * AMX_PANEL * amx_depth(a) * AMX_STEP;
        for (int64_t step = 0; step < steps * a->kh; step++) {
            const int64_t at = step % steps * AMX_STEP;
            for (int64_t tile = 0; tile < tiles; tile++) {
                for (int64_t e = 0; e < AMX_WEIGHTS; e++) { /* [pair][output][2] */
                    const int64_t o = i * AMX_PANEL + tile * AMX_TILE + e / 2 % AMX_TILE;
                    *d++ = dvk_f32_to_bf16(amx_weight(a, w, o, step / steps, at + e / (2 * AMX_TILE) * 2 + e % 2));
                }
            }
        }
    }
}

/* Estimated ns: the tile products, plus copies and stores. */
static double amx_cost(const void *args) {
    const dvk_conv2d_args *a = args;
    const double pixels = (double)(a->y.n * a->y.h * conv_ceil_div(a->y.w, AMX_TILE) * AMX_TILE);
    const double wide = (double)(conv_ceil_div(a->y.c, AMX_TILE) * AMX_TILE);
    const double products = pixels * wide * (double)(amx_depth(a) * AMX_STEP);
    return 2.0 * products / CPU_COST(conv2d, products) + pixels * (wide + (double)a->x.c) * CPU_COST(conv2d, moved);
}

const dvk_kernel dvk_conv2d_amx = {
    .op = "conv2d",
    .variant = "cpu/amx",
    .cpu = DVK_CPU_AMX,
    .compute = DVK_BF16,
    .cost = amx_cost,
    .units = amx_units,
    .scratch_bytes = amx_scratch_bytes,
    .run = amx_run,
    .packed_bytes = amx_packed_bytes,
    .pack_units = amx_pack_units,
    .pack = amx_pack,
};
