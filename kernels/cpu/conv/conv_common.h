/* conv_common.h - what every convolution of this folder shares: how a picture is cut into units, how the rectangle of
 * input that a unit reads (its patch) is described, and how output channels are grouped.
 *
 * A unit is a block of output pixels times a range of output-channel panels. A panel is CONV_NZ vectors of output
 * channels, or one vector where that is enough for the rest; its weights lie together, [tap][input channel][lane],
 * zeros behind the last channel. Blocks are cut evenly, so that none is a sliver. */
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
    int64_t ny, nx, np; /* how many blocks down and across, and how many ranges of panels */
    int64_t panels;
    int64_t step_y, step_x; /* blocks start at multiples of these: Winograd's tiles, AMX's */
} conv_tiling;

typedef struct conv_block {
    int64_t n, y, x, h, w; /* output pixels */
    int64_t panel0, panel1;
} conv_block;

/* Input as the micro-kernels see it: the padded, upsampled, prologued rectangle, either the caller's own memory or a
 * copy. */
typedef struct conv_patch {
    const void *data;   /* at the block's first pixel, first tap */
    int64_t row, pixel; /* pitches in elements */
} conv_patch;

/* Which input pixels (upsampled coordinates, possibly outside the picture) a patch holds. */
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

/* Cuts `total` in `parts` whole multiples of `step` (but the last), part i of it in [*from, return value). */
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

/* The largest block of the tiling; its position means nothing. */
static inline conv_block conv_block_largest(const dvk_conv2d_args *a, const conv_tiling *t) {
    const conv_block b = {
        .h = conv_ceil_div(conv_ceil_div(a->y.h, t->step_y), t->ny) * t->step_y,
        .w = conv_ceil_div(conv_ceil_div(a->y.w, t->step_x), t->nx) * t->step_x,
    };
    return b;
}

/* What the output pixels [y, y + h) x [x, x + w) read. */
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

/* Whether the rectangle can be read where it lies: stored as `dtype`, nothing applied, nothing outside. */
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
