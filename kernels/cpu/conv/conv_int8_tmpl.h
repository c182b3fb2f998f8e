/* conv_int8_tmpl.h - direct convolution with products of 8-bit integers, as defined in kernels/int8.h. A unit is a
 * strip of blocks. First the maxima of its cells are computed. Then each block is rounded into scratch and multiplied
 * panel by panel with the micro-kernel of conv_mk_tmpl.h. For that kernel, a slot of four bytes holds I8_SLOT channels,
 * and a float holds the bits of an integer sum. Packed weights of a phase: panels as in conv_direct_tmpl.h, then for
 * each output the unit of its weights and a correction of its sums for the offset of pixels. The includer has included
 * a conv_vec_*.h and conv_int8_vec.h. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/conv/conv_math_tmpl.h"
#include "kernels/cpu/conv/conv_epi_tmpl.h"
#include "kernels/cpu/conv/conv_mk_tmpl.h"
#include "kernels/cpu/conv/conv_panel_tmpl.h"
#include "kernels/int8.h"

#define I8_STEP 16 /* channels that are rounded at once, padded with zeros */

enum { I8_PRODUCTS = 256 * 1000000 }; /* approximate products of a unit: 1 to 4 ms */

typedef struct i8_plan {
    dvk_int8_form form;
    int64_t slots, depth;   /* per pixel, over all taps */
    int64_t across, strips; /* blocks per row, and units per row */
    int64_t down;
    int64_t panels, ranges; /* panels, and ranges of panels */
    int64_t lanes;          /* of all panels */
    int64_t reach_h, reach_w;
    int64_t cells_w;      /* maximum per strip */
    size_t cells, sums;   /* byte offsets in the scratch, behind the patch */
    size_t phase, scales; /* bytes of a phase's weights, and offset behind the panels */
} i8_plan;

static i8_plan i8_plan_of(const dvk_conv2d_args *args) {
    i8_plan p = {.form = dvk_int8_form_of(args)};
    const dvk_conv2d_args *a = &p.form.args;
    p.slots = conv_ceil_div(a->x.c, I8_STEP) * I8_STEP / I8_SLOT;
    p.depth = p.slots * a->kh * a->kw;
    p.across = conv_ceil_div(a->y.w, p.form.block_w);
    p.down = conv_ceil_div(a->y.h, p.form.block_h);
    p.panels = conv_panels(a->y.c);
    const int64_t each = p.form.block_h * p.form.block_w * CONV_PANEL * p.depth * I8_SLOT;
    p.ranges = conv_ceil_div(p.panels, conv_max(1, I8_PRODUCTS / each));
    p.strips = p.ranges > 1 ? p.across : conv_ceil_div(p.across, conv_max(1, I8_PRODUCTS / (each * p.panels)));
    p.reach_h = (p.form.block_h - 1) * a->stride + a->kh;
    p.reach_w = (p.form.block_w - 1) * a->stride + a->kw;
    const int64_t blocks = conv_ceil_div(p.across, p.strips);
    p.cells_w = ((blocks - 1) * p.form.block_w * a->stride + p.reach_w) / DVK_INT8_CELL_W + 2;
    p.cells = conv_align((size_t)(p.reach_h * p.reach_w * p.slots) * sizeof(float));
    p.sums = p.cells + conv_align((size_t)((p.reach_h / DVK_INT8_CELL_H + 2) * p.cells_w) * sizeof(float));
    p.scales = (size_t)conv_panels_size(a->y.c, p.depth) * sizeof(float);
    p.lanes = conv_ceil_div(a->y.c, CONV_VW) * CONV_VW;
    p.phase = p.scales + 2 * sizeof(float) * (size_t)p.lanes;
    return p;
}

static int i8_supports(const void *args) {
    return dvk_int8_serves(args);
}

static int64_t i8_units(const void *args) {
    const i8_plan p = i8_plan_of(args);
    return p.form.args.y.n * p.form.phases * p.down * p.strips * p.ranges;
}

static size_t i8_scratch_bytes(const void *args) {
    const i8_plan p = i8_plan_of(args);
    return p.sums + (size_t)(p.form.block_w * CONV_PANEL) * sizeof(float);
}

/* ---- pixels ---- */

/* x' of the channels from c on, zeros behind `lanes` of them. `type` (except among 16-bit types), `scaled` and `act`
 * are constants at each call. */
CONV_INLINE conv_vec i8_input(const dvk_conv2d_args *a, int64_t n, int64_t from, int64_t c, int64_t lanes,
                              dvk_dtype type, int scaled, dvk_act act) {
    conv_vec v = cv_get(a->x.data, type, from + c, lanes);
    if (scaled) {
        const int64_t at = n * a->x.c + c;
        v = cv_fma(v, cv_get(a->pro.scale, DVK_F32, at, lanes), cv_get(a->pro.shift, DVK_F32, at, lanes));
    }
    return conv_act(act, v, v);
}

/* The largest |x'| of cells, as the bits of a float. */
CONV_INLINE void i8_measure(const dvk_conv2d_args *a, int64_t n, const dvk_int8_cells *cells, int64_t pitch,
                            float *most, dvk_dtype type, int scaled, dvk_act act) {
    for (int64_t cy = cells->y0; cy < cells->y1; cy++, most += pitch) {
        const int64_t y1 = conv_min((cy + 1) * DVK_INT8_CELL_H, a->x.h);
        for (int64_t cx = cells->x0; cx < cells->x1; cx++) {
            const int64_t x1 = conv_min((cx + 1) * DVK_INT8_CELL_W, a->x.w);
            conv_vec m = cv_set1(0.0f);
            for (int64_t y = cy * DVK_INT8_CELL_H; y < y1; y++) {
                for (int64_t x = cx * DVK_INT8_CELL_W; x < x1; x++) {
                    const int64_t from = n * a->x.sn + y * a->x.sh + x * a->x.sw;
                    int64_t c = 0;
                    for (; c + I8_STEP <= a->x.c; c += CONV_VW) {
                        m = i8_larger(m, i8_input(a, n, from, c, CONV_VW, type, scaled, act));
                    }
                    for (; c < a->x.c; c += CONV_VW) {
                        const int64_t lanes = conv_min(CONV_VW, a->x.c - c);
                        m = i8_larger(m, i8_input(a, n, from, c, lanes, type, scaled, act));
                    }
                }
            }
            most[cx - cells->x0] = i8_largest(m);
        }
    }
}

CONV_INLINE void i8_round(const dvk_conv2d_args *a, const conv_rect *r, float factor, char *dst, dvk_dtype type,
                          int scaled, dvk_act act) {
    const size_t pixel = (size_t)conv_ceil_div(a->x.c, I8_STEP) * (I8_STEP / I8_SLOT) * sizeof(float);
    const int64_t x0 = conv_min(conv_max(r->x, 0), r->x + r->w);
    const int64_t x1 = conv_max(x0, conv_min(r->x + r->w, a->x.w));
    const conv_vec f = cv_set1(factor);
    for (int64_t y = r->y; y < r->y + r->h; y++) {
        if (y < 0 || y >= a->x.h) {
            memset(dst, I8_ZERO, (size_t)r->w * pixel);
            dst += (size_t)r->w * pixel;
            continue;
        }
        memset(dst, I8_ZERO, (size_t)(x0 - r->x) * pixel);
        dst += (size_t)(x0 - r->x) * pixel;
        for (int64_t x = x0; x < x1; x++) {
            const int64_t from = r->n * a->x.sn + y * a->x.sh + x * a->x.sw;
            int64_t c = 0;
            for (; c + I8_STEP <= a->x.c; c += I8_STEP, dst += I8_STEP / I8_SLOT * sizeof(float)) {
                const conv_vec low = i8_input(a, r->n, from, c, CONV_VW, type, scaled, act);
                const conv_vec high =
                    CONV_VW < I8_STEP ? i8_input(a, r->n, from, c + CONV_VW, CONV_VW, type, scaled, act) : low;
                i8_store(dst, cv_mul(low, f), cv_mul(high, f));
            }
            if (c < a->x.c) {
                const int64_t left = a->x.c - c;
                const conv_vec low = i8_input(a, r->n, from, c, conv_min(left, CONV_VW), type, scaled, act);
                const conv_vec high = CONV_VW < I8_STEP && left > CONV_VW
                                          ? i8_input(a, r->n, from, c + CONV_VW, left - CONV_VW, type, scaled, act)
                                          : cv_set1(0.0f);
                i8_store(dst, cv_mul(low, f), cv_mul(high, f));
                dst += I8_STEP / I8_SLOT * sizeof(float);
            }
        }
        memset(dst, I8_ZERO, (size_t)(r->x + r->w - x1) * pixel);
        dst += (size_t)(r->x + r->w - x1) * pixel;
    }
}

#define I8_EACH_PROLOGUE(a, type, f, ...)                                                                              \
    if ((a)->pro.scale != NULL) {                                                                                      \
        (a)->pro.act == DVK_ACT_SILU   ? f(__VA_ARGS__, type, 1, DVK_ACT_SILU)                                         \
        : (a)->pro.act == DVK_ACT_RELU ? f(__VA_ARGS__, type, 1, DVK_ACT_RELU)                                         \
                                       : f(__VA_ARGS__, type, 1, DVK_ACT_NONE);                                        \
    } else {                                                                                                           \
        (a)->pro.act == DVK_ACT_RELU ? f(__VA_ARGS__, type, 0, DVK_ACT_RELU) : f(__VA_ARGS__, type, 0, DVK_ACT_NONE);  \
    }

#define I8_EACH(a, f, ...)                                                                                             \
    if ((a)->x.dtype == DVK_F32) {                                                                                     \
        I8_EACH_PROLOGUE(a, DVK_F32, f, __VA_ARGS__)                                                                   \
    } else {                                                                                                           \
        I8_EACH_PROLOGUE(a, (a)->x.dtype, f, __VA_ARGS__)                                                              \
    }

/* The maximum of the block from (y, x) on, from measured cells. */
static float i8_most(const dvk_int8_cells *of, const dvk_int8_cells *all, int64_t pitch, const float *cells) {
    uint32_t most = 0;
    for (int64_t y = of->y0; y < of->y1; y++) {
        for (int64_t x = of->x0; x < of->x1; x++) {
            const uint32_t v = dvk_bits(cells[(y - all->y0) * pitch + x - all->x0]);
            most = v > most ? v : most;
        }
    }
    return dvk_from_bits(most);
}

/* ---- units ---- */

typedef struct i8_strip { /* a unit */
    dvk_conv2d_args args; /* of the block's phase */
    const char *w;
    int64_t n, y, block0, block1, panel0, panel1;
} i8_strip;

static i8_strip i8_strip_at(const i8_plan *p, int64_t u) {
    i8_strip s = {0};
    s.panel1 = conv_part(p->panels, p->ranges, 1, u % p->ranges, &s.panel0);
    u /= p->ranges;
    s.block1 = conv_part(p->across, p->strips, 1, u % p->strips, &s.block0);
    u /= p->strips;
    s.y = u % p->down * p->form.block_h;
    u /= p->down;
    s.args = dvk_int8_phase(&p->form, (int32_t)(u % p->form.phases));
    s.w = (const char *)p->form.args.w + (size_t)(u % p->form.phases) * p->phase;
    s.n = u / p->form.phases;
    return s;
}

/* Converts the sums of `pixels` pixels to floats. */
static void i8_scale(float *sums, int64_t pixels, int64_t wide, const float *unit, const float *offset, float value) {
    for (int64_t c = 0; c < wide; c += CONV_VW) {
        const conv_vec all = cv_mul(cv_load(unit + c), cv_set1(value)), less = cv_load(offset + c);
        for (int64_t i = 0; i < pixels; i++) {
            cv_store(sums + i * wide + c, cv_mul(i8_value(cv_load(sums + i * wide + c), less), all));
        }
    }
}

static void i8_multiply(const i8_plan *p, const i8_strip *s, const conv_block *b, float value, const float *patch,
                        float *sums) {
    const dvk_conv2d_args *a = &s->args;
    const int64_t columns = (b->w - 1) * a->stride + a->kw;
    conv_mk k = {
        .pixel = p->slots * a->stride,
        .row = columns * p->slots,
        .rows = a->kh,
        .taps = 1, /* the taps of a row are contiguous */
        .len = p->slots * a->kw,
    };
    for (int64_t i = b->panel0; i < b->panel1; i++) {
        const int64_t nz = conv_panel_nz(a->y.c, i), c = i * CONV_PANEL;
        const float *unit = (const float *)(const void *)(s->w + p->scales) + c;
        k.w = (const float *)(const void *)s->w + c * p->depth;
        k.pitch = nz * CONV_VW;
        for (int64_t y = 0; y < b->h; y++) {
            conv_mk_line(&k, patch + y * a->stride * k.row, sums, b->w, nz);
            i8_scale(sums, b->w, k.pitch, unit, unit + p->lanes, value);
            const conv_span span = {
                .sums = sums,
                .pitch = k.pitch,
                .n = b->n,
                .y = b->y + y,
                .x = b->x,
                .pixels = b->w,
                .c = c,
                .count = conv_min(k.pitch, a->y.c - c),
            };
            conv_epilogue(a, &span);
        }
    }
}

static void i8_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const i8_plan p = i8_plan_of(args);
    float *cells = (float *)(void *)((char *)scratch + p.cells);
    float *sums = (float *)(void *)((char *)scratch + p.sums);
    const int64_t h = p.form.block_h, w = p.form.block_w;
    for (int64_t u = first; u < last; u++) {
        const i8_strip s = i8_strip_at(&p, u);
        const dvk_conv2d_args *a = &s.args;
        dvk_int8_cells all = dvk_int8_touches(a, h, w, s.y, s.block0 * w);
        all.x1 = dvk_int8_touches(a, h, w, s.y, (s.block1 - 1) * w).x1;
        I8_EACH(a, i8_measure, a, s.n, &all, p.cells_w, cells)
        for (int64_t i = s.block0; i < s.block1; i++) {
            const conv_block b = {.n = s.n,
                                  .y = s.y,
                                  .x = i * w,
                                  .h = conv_min(h, a->y.h - s.y),
                                  .w = conv_min(w, a->y.w - i * w),
                                  .panel0 = s.panel0,
                                  .panel1 = s.panel1};
            const dvk_int8_cells touched = dvk_int8_touches(a, h, w, s.y, b.x);
            const float most = i8_most(&touched, &all, p.cells_w, cells), value = dvk_int8_value(most);
            const float factor = value == value ? dvk_int8_factor(most) : 0.0f;
            const conv_rect r = conv_reads(a, &b);
            I8_EACH(a, i8_round, a, &r, factor, scratch)
            i8_multiply(&p, &s, &b, value, scratch, sums);
        }
    }
}

/* ---- weights ---- */

static size_t i8_packed_bytes(const void *args) {
    const i8_plan p = i8_plan_of(args);
    return p.phase * (size_t)p.form.phases;
}

static int64_t i8_pack_units(const void *args) {
    const i8_plan p = i8_plan_of(args);
    return p.panels * p.form.phases;
}

/* Packs output o, or zeros behind the last: its integers, `wide` slots apart, its unit and the correction of its sums. */
static void i8_pack_output(const dvk_conv2d_args *a, const i8_plan *p, const float *w, int64_t o, int32_t phase,
                           char *to, int64_t wide, float *unit) {
    const int64_t taps = p->form.args.kh * p->form.args.kw, each = p->slots * I8_SLOT;
    int32_t sum = 0;
    unit[o] = o < a->y.c ? dvk_int8_unit_of(a, p->form.phases, w, o, phase) : 1.0f;
    for (int64_t k = 0; k < taps * each; k++) {
        const int there = o < a->y.c && k % each < a->x.c;
        const float v =
            there ? dvk_int8_weight(a, p->form.phases, w, o, k % each, phase, (int32_t)(k / each)) / unit[o] : 0.0f;
        const int8_t q = dvk_int8_round(v);
        i8_put(to + (size_t)(k / I8_SLOT * wide) * sizeof(float), k % I8_SLOT, q);
        sum += q;
    }
    const int32_t offset = sum * I8_OFFSET;
    memcpy(unit + p->lanes + o, &offset, sizeof offset);
}

static void i8_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const i8_plan p = i8_plan_of(a);
    for (int64_t u = first; u < last; u++) {
        const int32_t phase = (int32_t)(u / p.panels);
        const int64_t i = u % p.panels, wide = conv_panel_nz(a->y.c, i) * CONV_VW;
        char *of = (char *)dst + (size_t)phase * p.phase;
        char *panel = of + (size_t)(i * CONV_PANEL * p.depth) * sizeof(float);
        for (int64_t o = 0; o < wide; o++) {
            i8_pack_output(a, &p, w, i * CONV_PANEL + o, phase, panel + (size_t)o * sizeof(float), wide,
                           (float *)(void *)(of + p.scales));
        }
    }
}

/* Estimated ns: products, measuring and rounding pixels, finishing sums. */
static double i8_cost(const void *args) {
    const i8_plan p = i8_plan_of(args);
    const dvk_conv2d_args *a = &p.form.args;
    const double in = (double)(a->x.n * a->x.h * a->x.w) * (double)a->x.c;
    const double out = (double)(a->y.n * a->y.h * a->y.w) * (double)p.form.phases;
    const double each =
        a->pro.act == DVK_ACT_SILU ? CPU_COST(conv2d_int8, measure_silu) : CPU_COST(conv2d_int8, measure);
    return 2.0 * out * (double)a->y.c * (double)(p.depth * I8_SLOT) / CPU_COST(conv2d_int8, products) +
           out * (double)a->y.c * CPU_COST(conv2d_int8, finish) + in * each * (double)(p.ranges * p.form.phases);
}

#define I8_FUNCTIONS                                                                                                   \
    .compute = DVK_INT8, .supports = i8_supports, .cost = i8_cost, .units = i8_units,                                  \
    .scratch_bytes = i8_scratch_bytes, .run = i8_run, .packed_bytes = i8_packed_bytes, .pack_units = i8_pack_units,    \
    .pack = i8_pack
