/* int8.h - convolutions with products of 8-bit integers, DVK_INT8. The reference, the CPU kernels and the CUDA kernels
 * share these definitions, so that they give the same result.
 *
 * The weights of an output channel o are v = round(W / u[o]) with u[o] = its largest |W| / 127. For nearest x 2 before
 * 3 x 3 they are those of four convolutions of 2 x 2 (conv_form.h).
 * The result is cut into blocks of 16 x 16 pixels, or of 8 x 32 if it is at most 8 wide. A matrix product (conv_flat)
 * runs over the line of a picture's pixels, in blocks of 256. The inputs x' = pro(x) of a block share one factor:
 *     f = 127 / m, rounded to 11 bits, at most 2^15
 * m is the largest |x'| in the cells of 8 x 4 pixels that the taps of the whole block touch.
 *     y = epi( sum of round(x' f) v * (u[o] * (1 / f)) ), sums exact, halves to even, products and factors f32
 * If m is not finite, the whole block is NaN. */
#ifndef DVK_INT8_H
#define DVK_INT8_H

#include <math.h>

#include "kernels/conv_form.h"
#include "kernels/dtype.h"

enum { DVK_INT8_CELL_W = 8, DVK_INT8_CELL_H = 4 };

/* INT8 serves convolutions between layers. First and last convolutions have few channels or other value ranges. The
 * sums fit 32 bits, also for pixels from 0 to 255. The CUDA kernels need multiples of 16 channels. */
static inline int dvk_int8_serves(const dvk_conv2d_args *a) {
    const dvk_prologue *pro = &a->pro;
    return a->x.c >= 32 && a->y.c >= 32 && a->epi.shuffle <= 1 && a->kh == a->kw && (a->kh == 1 || a->kh == 3) &&
           a->x.c * a->kh * a->kw <= INT32_MAX / (255 * 127) && a->stride <= 2 &&
           (a->upsample == 1 || conv_by_phases(a)) && a->epi.gate <= 1 &&
           (pro->act == DVK_ACT_NONE || pro->act == DVK_ACT_RELU || (pro->act == DVK_ACT_SILU && pro->scale != NULL));
}

/* The form of a convolution: `phases` convolutions like `args`, whose pointers are those of phase 0, in blocks of h x w
 * pixels. A phase has separate paddings and writes every second row and column. */
typedef struct dvk_int8_form {
    dvk_conv2d_args args;
    int64_t block_h, block_w;
    int32_t phases;
} dvk_int8_form;

static inline void dvk_int8_line(dvk_view *v) {
    v->w *= v->h;
    v->h = 1;
    v->sh = v->w * v->sw;
}

static inline void dvk_int8_thin(dvk_view *v) {
    v->h /= 2;
    v->w /= 2;
    v->sh *= 2;
    v->sw *= 2;
}

static inline dvk_int8_form dvk_int8_form_of(const dvk_conv2d_args *a) {
    dvk_int8_form f = {.args = *a, .block_h = 16, .block_w = 16, .phases = 1};
    dvk_conv2d_args *b = &f.args;
    const int flat = conv_flat(a) != 0;
    if (conv_by_phases(a)) {
        f.phases = 4;
        b->kh = b->kw = 2;
        b->upsample = 1;
        dvk_int8_thin(&b->y);
        for (int32_t i = 0; i < a->epi.n_res; i++) {
            dvk_int8_thin(&b->epi.res[i]);
        }
    } else if (flat) {
        dvk_int8_line(&b->x);
        dvk_int8_line(&b->y);
        for (int32_t i = 0; i < a->epi.n_res; i++) {
            dvk_int8_line(&b->epi.res[i]);
        }
    }
    if (flat) {
        f.block_h = 1;
        f.block_w = 256;
    } else if (b->y.w <= 8) {
        f.block_h = 32;
        f.block_w = 8;
    }
    return f;
}

static inline void dvk_int8_move(dvk_view *v, int32_t phase) { /* with doubled strides */
    const int64_t at = (phase >> 1) * v->sh / 2 + (phase & 1) * v->sw / 2;
    v->data = v->data != NULL ? (char *)v->data + at * (int64_t)dvk_dtype_size(v->dtype) : NULL;
}

/* The convolution of a phase. */
static inline dvk_conv2d_args dvk_int8_phase(const dvk_int8_form *f, int32_t phase) {
    dvk_conv2d_args b = f->args;
    if (f->phases > 1) {
        b.pad_top = 1 - (phase >> 1);
        b.pad_left = 1 - (phase & 1);
        dvk_int8_move(&b.y, phase);
        for (int32_t i = 0; i < b.epi.n_res; i++) {
            dvk_int8_move(&b.epi.res[i], phase);
        }
    }
    return b;
}

/* Cells [y0, y1) x [x0, x1). */
typedef struct dvk_int8_cells {
    int64_t y0, y1, x0, x1;
} dvk_int8_cells;

static inline int64_t dvk_int8_cell_end(int64_t pixel, int64_t size, int64_t cell) {
    const int64_t last = pixel < size ? pixel : size;
    return last > 0 ? (last + cell - 1) / cell : 0;
}

/* The cells that the block at pixel (y, x) of the result reads, in the convolution that is run. */
static inline dvk_int8_cells dvk_int8_touches(const dvk_conv2d_args *b, int64_t block_h, int64_t block_w, int64_t y,
                                              int64_t x) {
    const int64_t top = y * b->stride - b->pad_top, left = x * b->stride - b->pad_left;
    return (dvk_int8_cells){
        .y0 = (top > 0 ? top : 0) / DVK_INT8_CELL_H,
        .x0 = (left > 0 ? left : 0) / DVK_INT8_CELL_W,
        .y1 = dvk_int8_cell_end(top + (block_h - 1) * b->stride + b->kh, b->x.h, DVK_INT8_CELL_H),
        .x1 = dvk_int8_cell_end(left + (block_w - 1) * b->stride + b->kw, b->x.w, DVK_INT8_CELL_W),
    };
}

/* ---- numbers ---- */

/* The factor f for m = `most`, which is not NaN. */
static inline float dvk_int8_factor(float most) {
    const uint32_t u = dvk_bits(most > 127.0f / 32768.0f ? 127.0f / most : 32768.0f);
    return dvk_from_bits((u + 0xfffu + (u >> 13 & 1u)) & ~0x1fffu);
}

/* The value of one integer product for weights of unit 1; `most` is the block's m. */
static inline float dvk_int8_value(float most) {
    return most <= 3.4e38f ? 1.0f / dvk_int8_factor(most) : dvk_from_bits(0x7fc00000u);
}

static inline float dvk_int8_unit(float most) {
    return most < 1e-30f ? 1.0f : most / 127.0f; /* NaN stays */
}

static inline int8_t dvk_int8_round(float v) {
    const float bounded = v < -127.0f ? -127.0f : v > 127.0f ? 127.0f : v;
    return (int8_t)lrintf(v == v ? bounded : 0.0f);
}

/* Weight of output o for input i at a tap of a phase, from f32 OIHW. */
static inline float dvk_int8_weight(const dvk_conv2d_args *a, int32_t phases, const float *w, int64_t o, int64_t i,
                                    int32_t phase, int32_t tap) {
    const float *k = w + (o * a->x.c + i) * a->kh * a->kw;
    return phases > 1 ? conv_phase_weight(k, phase, tap) : k[tap];
}

/* The unit of output o's weights in a phase. */
static inline float dvk_int8_unit_of(const dvk_conv2d_args *a, int32_t phases, const float *w, int64_t o,
                                     int32_t phase) {
    const int32_t taps = phases > 1 ? 4 : a->kh * a->kw;
    float most = 0.0f;
    for (int64_t i = 0; i < a->x.c; i++) {
        for (int32_t tap = 0; tap < taps; tap++) {
            const float v = dvk_int8_weight(a, phases, w, o, i, phase, tap);
            most = v > most ? v : -v > most ? -v : v != v ? v : most;
        }
    }
    return dvk_int8_unit(most);
}

#endif
