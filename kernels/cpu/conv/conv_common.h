/* conv_common.h - shared code of the convolutions of this folder: how a picture is cut into units, the rectangle of
 * input that a unit reads (its patch), and the groups of output channels.
 *
 * A unit is a block of output pixels times a range of output-channel panels. A panel is CONV_NZ vectors of output
 * channels, or one vector if that covers the rest. The weights of a panel are contiguous, [tap][input channel][lane],
 * with zeros behind the last channel. Blocks are cut evenly, so that none is tiny. */
#ifndef DVK_CONV_COMMON_H
#define DVK_CONV_COMMON_H

#include "kernels/dtype.h"
#include "kernels/kernel.h"

#if defined(_MSC_VER) && !defined(__clang__)
#define CONV_INLINE static __forceinline
#else
#define CONV_INLINE static inline __attribute__((always_inline))
#endif

typedef struct conv_tiling {
    int64_t ny, nx, np; /* number of blocks down and across, and of ranges of panels */
    int64_t panels;
    int64_t step_y, step_x; /* blocks start at multiples of these, for the tiles of Winograd and AMX */
} conv_tiling;

typedef struct conv_block {
    int64_t n, y, x, h, w; /* output pixels */
    int64_t panel0, panel1;
} conv_block;

/* The input of the micro-kernels: the rectangle after padding, upsampling and prologue, either in the caller's memory
 * or a copy. */
typedef struct conv_patch {
    const void *data;   /* at the block's first pixel, first tap */
    int64_t row, pixel; /* pitches in elements */
} conv_patch;

/* The rectangle of input pixels of a patch, in upsampled coordinates; it may exceed the picture. */
typedef struct conv_rect {
    int64_t n, y, x, h, w;
} conv_rect;

static inline int64_t conv_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t conv_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t conv_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Blocks of at most h x w pixels and at most `panels` of `all` panels. */
static inline conv_tiling conv_tile(const dvk_conv2d_args *a, int64_t h, int64_t w, int64_t panels, int64_t all) {
    const conv_tiling t = {
        .ny = conv_ceil_div(a->y.h, h),
        .nx = conv_ceil_div(a->y.w, w),
        .np = conv_ceil_div(all, panels),
        .panels = all,
        .step_y = 1,
        .step_x = 1,
    };
    return t;
}

static inline int64_t conv_tiling_units(const dvk_conv2d_args *a, const conv_tiling *t) {
    return a->y.n * t->ny * t->nx * t->np;
}

/* Cuts `total` into `parts` multiples of `step` (the last may be shorter). Part i is [*from, return value). */
static inline int64_t conv_part(int64_t total, int64_t parts, int64_t step, int64_t i, int64_t *from) {
    const int64_t steps = conv_ceil_div(total, step);
    *from = conv_min(steps * i / parts * step, total);
    return conv_min(steps * (i + 1) / parts * step, total);
}

static inline conv_block conv_block_at(const dvk_conv2d_args *a, const conv_tiling *t, int64_t u) {
    conv_block b = {0};
    b.panel1 = conv_part(t->panels, t->np, 1, u % t->np, &b.panel0);
    u /= t->np;
    b.w = conv_part(a->y.w, t->nx, t->step_x, u % t->nx, &b.x) - b.x;
    u /= t->nx;
    b.h = conv_part(a->y.h, t->ny, t->step_y, u % t->ny, &b.y) - b.y;
    b.n = u / t->ny;
    return b;
}

/* The largest block of the tiling; its position is undefined. */
static inline conv_block conv_block_largest(const dvk_conv2d_args *a, const conv_tiling *t) {
    const conv_block b = {
        .h = conv_ceil_div(conv_ceil_div(a->y.h, t->step_y), t->ny) * t->step_y,
        .w = conv_ceil_div(conv_ceil_div(a->y.w, t->step_x), t->nx) * t->step_x,
    };
    return b;
}

/* The rectangle that the output pixels [y, y + h) x [x, x + w) read. */
static inline conv_rect conv_reads(const dvk_conv2d_args *a, const conv_block *b) {
    const conv_rect r = {
        .n = b->n,
        .y = b->y * a->stride - a->pad_top,
        .x = b->x * a->stride - a->pad_left,
        .h = (b->h - 1) * a->stride + a->kh,
        .w = (b->w - 1) * a->stride + a->kw,
    };
    return r;
}

/* 1 if the rectangle can be read in place: stored as `dtype`, no prologue or upsampling, no padding. */
static inline int conv_in_place(const dvk_conv2d_args *a, const conv_rect *r, dvk_dtype dtype) {
    return a->x.dtype == dtype && !a->pro.scale && a->pro.act == DVK_ACT_NONE && a->upsample == 1 && r->y >= 0 &&
           r->x >= 0 && r->y + r->h <= a->x.h && r->x + r->w <= a->x.w;
}

static inline int conv_has_prologue(const dvk_conv2d_args *a) {
    return a->pro.scale != NULL || a->pro.act != DVK_ACT_NONE;
}

static inline size_t conv_align(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

#endif
