/* conv_int8.c - reference of the convolution with products of 8-bit integers, exactly as kernels/int8.h defines it. One
 * unit is a block of the result. Packed weights: units u, [phase][output], then integers, [phase][output][tap][input]. */
#include "kernels/int8.h"
#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

typedef struct block {
    dvk_conv2d_args args; /* of the block's phase */
    int32_t phase;
    int64_t n, y, x, h, w; /* pixels of the result */
    int64_t rows, columns; /* of x that the block reads */
} block;

static int supports(const void *args) {
    return dvk_int8_serves(args);
}

static int64_t across(const dvk_int8_form *f) {
    return (f->args.y.w + f->block_w - 1) / f->block_w;
}

static int64_t down(const dvk_int8_form *f) {
    return (f->args.y.h + f->block_h - 1) / f->block_h;
}

static int64_t units(const void *args) {
    const dvk_int8_form f = dvk_int8_form_of(args);
    return f.args.y.n * f.phases * down(&f) * across(&f);
}

static block block_of(const dvk_int8_form *f, int64_t unit) {
    block b = {.x = unit % across(f) * f->block_w};
    unit /= across(f);
    b.y = unit % down(f) * f->block_h;
    unit /= down(f);
    b.phase = (int32_t)(unit % f->phases);
    b.n = unit / f->phases;
    b.args = dvk_int8_phase(f, b.phase);
    b.h = b.y + f->block_h < b.args.y.h ? f->block_h : b.args.y.h - b.y;
    b.w = b.x + f->block_w < b.args.y.w ? f->block_w : b.args.y.w - b.x;
    b.rows = (b.h - 1) * b.args.stride + b.args.kh;
    b.columns = (b.w - 1) * b.args.stride + b.args.kw;
    return b;
}

static size_t scratch_bytes(const void *args) {
    const dvk_int8_form f = dvk_int8_form_of(args);
    const int64_t rows = (f.block_h - 1) * f.args.stride + f.args.kh;
    const int64_t columns = (f.block_w - 1) * f.args.stride + f.args.kw;
    return (size_t)(rows * columns * f.args.x.c);
}

static float input_at(const dvk_conv2d_args *a, int64_t n, int64_t y, int64_t x, int64_t c) {
    return dvk_prologue_at(&a->pro, dvk_load(a->x.data, a->x.dtype, dvk_at(&a->x, n, y, x) + c), n, c, a->x.c);
}

static float largest(const dvk_int8_form *f, const block *b) {
    const dvk_int8_cells cells = dvk_int8_touches(&b->args, f->block_h, f->block_w, b->y, b->x);
    float most = 0.0f;
    for (int64_t y = cells.y0 * DVK_INT8_CELL_H; y < cells.y1 * DVK_INT8_CELL_H && y < b->args.x.h; y++) {
        for (int64_t x = cells.x0 * DVK_INT8_CELL_W; x < cells.x1 * DVK_INT8_CELL_W && x < b->args.x.w; x++) {
            for (int64_t c = 0; c < b->args.x.c; c++) {
                const float v = fabsf(input_at(&b->args, b->n, y, x, c));
                most = v > most || v != v ? v : most;
            }
        }
    }
    return most;
}

static void quantise(const block *b, float factor, int8_t *to) {
    const dvk_conv2d_args *a = &b->args;
    for (int64_t i = 0; i < b->rows * b->columns; i++, to += a->x.c) {
        const int64_t y = b->y * a->stride - a->pad_top + i / b->columns;
        const int64_t x = b->x * a->stride - a->pad_left + i % b->columns;
        const int inside = y >= 0 && x >= 0 && y < a->x.h && x < a->x.w;
        for (int64_t c = 0; c < a->x.c; c++) {
            to[c] = inside ? dvk_int8_round(input_at(a, b->n, y, x, c) * factor) : 0;
        }
    }
}

static int32_t sum(const block *b, const int8_t *q, const int8_t *w, int64_t y, int64_t x) {
    const dvk_conv2d_args *a = &b->args;
    int32_t all = 0;
    for (int64_t tap = 0; tap < a->kh * a->kw; tap++, w += a->x.c) {
        const int64_t row = y * a->stride + tap / a->kw, column = x * a->stride + tap % a->kw;
        const int8_t *v = q + (row * b->columns + column) * a->x.c;
        for (int64_t i = 0; i < a->x.c; i++) {
            all += v[i] * w[i];
        }
    }
    return all;
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_int8_form f = dvk_int8_form_of(args);
    const int64_t terms = f.args.kh * f.args.kw * f.args.x.c;
    const float *unit = f.args.w;
    const int8_t *weights = (const int8_t *)(unit + f.phases * f.args.y.c);
    for (int64_t u = first; u < last; u++) {
        const block b = block_of(&f, u);
        const dvk_view *y = &b.args.y;
        const int8_t *w = weights + b.phase * y->c * terms;
        const float most = largest(&f, &b), value = dvk_int8_value(most);
        quantise(&b, value == value ? dvk_int8_factor(most) : 0.0f, scratch);
        for (int64_t i = 0; i < b.h * b.w * y->c; i++) {
            const int64_t o = i % y->c, row = i / y->c / b.w, column = i / y->c % b.w;
            const float s = (float)sum(&b, scratch, w + o * terms, row, column) * (unit[b.phase * y->c + o] * value);
            dvk_store(y->data, y->dtype, dvk_at(y, b.n, b.y + row, b.x + column) + o,
                      dvk_epilogue_at(&b.args.epi, s, b.n, b.y + row, b.x + column, o));
        }
    }
}

static size_t packed_bytes(const void *args) {
    const dvk_int8_form f = dvk_int8_form_of(args);
    const int64_t rows = f.phases * f.args.y.c;
    return (size_t)(rows * f.args.kh * f.args.kw * f.args.x.c) + (size_t)rows * sizeof(float);
}

static int64_t pack_units(const void *args) {
    const dvk_int8_form f = dvk_int8_form_of(args);
    return f.phases * f.args.y.c;
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const dvk_int8_form f = dvk_int8_form_of(a);
    const int32_t taps = f.args.kh * f.args.kw;
    for (int64_t row = first; row < last; row++) {
        const int64_t o = row % a->y.c;
        const int32_t phase = (int32_t)(row / a->y.c);
        const float unit = dvk_int8_unit_of(a, f.phases, w, o, phase);
        int8_t *to = (int8_t *)((float *)dst + f.phases * a->y.c) + row * taps * a->x.c;
        ((float *)dst)[row] = unit;
        for (int32_t tap = 0; tap < taps; tap++) {
            for (int64_t i = 0; i < a->x.c; i++) {
                *to++ = dvk_int8_round(dvk_int8_weight(a, f.phases, w, o, i, phase, tap) / unit);
            }
        }
    }
}

const dvk_kernel dvk_conv2d_ref_int8 = {
    .op = "conv2d",
    .variant = "ref/int8",
    .compute = DVK_INT8,
    .supports = supports,
    .units = units,
    .scratch_bytes = scratch_bytes,
    .run = run,
    .packed_bytes = packed_bytes,
    .pack_units = pack_units,
    .pack = pack,
};
