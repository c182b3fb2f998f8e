/* conv_host.h - host code shared by the universal convolutions: conversion of an op's arguments to dvk_conv_params, and
 * the combination of weights for an upsampled input. */
#ifndef DVK_CUDA_CONV_HOST_H
#define DVK_CUDA_CONV_HOST_H

#include <stddef.h>
#include <string.h>

#include "kernels/conv_form.h"
#include "kernels/cuda/conv/conv_common.h"
#include "kernels/cuda/cuda.h"
#include "kernels/dtype.h"

/* 1 if the residual has the size of the shuffled result; for kernels that support it. */
static inline int conv_adds_behind_shuffle(const dvk_conv2d_args *a) {
    return a->epi.shuffle > 1 && a->epi.n_res > 0 && a->epi.res[0].h == a->y.h && a->epi.res[0].w == a->y.w;
}

/* The convolution that is run, as far as weights and blocks depend on it. */
typedef struct conv_shape {
    int64_t n, out_h, out_w; /* of one phase */
    int32_t c_in, c_out, kh, kw, stride, phases;
    int32_t flat; /* conv_flat */
} conv_shape;

static inline int64_t conv_ceil(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t conv_round(int64_t a, int64_t b) {
    return conv_ceil(a, b) * b;
}

static inline int64_t conv_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t conv_most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline conv_shape conv_shape_of(const dvk_conv2d_args *a) {
    const int64_t r = a->epi.shuffle > 1 ? a->epi.shuffle : 1;
    conv_shape s = {
        .n = a->y.n,
        .out_h = a->y.h / r,
        .out_w = a->y.w / r,
        .c_in = (int32_t)a->x.c,
        .c_out = (int32_t)(a->y.c * r * r),
        .kh = a->kh,
        .kw = a->kw,
        .stride = a->stride,
        .phases = 1,
        .flat = conv_flat(a),
    };
    if (conv_by_phases(a)) {
        s.phases = 4;
        s.kh = s.kw = 2;
        s.out_h = a->x.h;
        s.out_w = a->x.w;
    }
    if (s.flat == 2) {
        s.out_w *= s.n;
        s.n = 1;
    }
    if (s.flat) {
        s.out_w *= s.out_h;
        s.out_h = 1;
    }
    return s;
}

static inline dvk_conv_div conv_divisor(int64_t by) {
    const dvk_conv_div d = {(uint32_t)by, by == 1 ? 0 : (uint32_t)(((uint64_t)1 << 32) / (uint64_t)by + 1)};
    return d;
}

static inline dvk_conv_view conv_view_of(const dvk_view *v) {
    const int64_t each = v->dtype == DVK_F32 ? 4 : 8;
    const dvk_conv_view r = {
        .data = v->data,
        .sn = v->sn,
        .sh = v->sh,
        .sw = v->sw,
        .dtype = (int32_t)v->dtype,
        .vec = (uintptr_t)v->data % 16 == 0 && v->sw % each == 0 && v->sh % each == 0 && v->sn % each == 0,
    };
    return r;
}

/* Sets blocks of `pixels` (a power of two) pixels. Their rows have 16 pixels, or 8 if the block is small or the picture
 * narrow. */
static inline void conv_place_blocks(dvk_conv_params *p, const conv_shape *s, int32_t pixels) {
    int32_t log2 = s->out_w <= 8 || pixels <= 64 ? 3 : 4;
    while (s->flat && 1 << log2 < pixels) {
        log2++;
    }
    p->tile_w_log2 = log2;
    p->tile_h = pixels >> log2;
    p->tiles_x = conv_divisor(conv_ceil(s->out_w, (int64_t)1 << log2));
    p->tiles = conv_divisor((int64_t)p->tiles_x.by * conv_ceil(s->out_h, p->tile_h));
    const int alone = s->kh == 1 && s->kw == 1; /* only every stride-th pixel is read */
    p->pixel_step = alone ? s->stride : 1;
    p->stride = alone ? 1 : s->stride;
    const int32_t w = ((1 << log2) - 1) * p->stride + s->kw, h = (p->tile_h - 1) * p->stride + s->kh;
    p->plane = p->stride == 2 ? (w + 1) / 2 : 0;
    p->patch_w = conv_divisor(p->plane ? 2 * p->plane : w);
    p->patch_pixels = (int32_t)p->patch_w.by * h;
}

/* log2 of the 16-byte pieces of a pixel that are in shared memory at a time: of `bytes` in total, fewer if patches are
 * large. It depends only on the arguments, because packed weights depend on it. */
static inline int32_t conv_pieces_log2(const conv_shape *s, int64_t bytes) {
    const int64_t st = s->kh == 1 && s->kw == 1 ? 1 : s->stride;
    const int64_t patch = (7 * st + s->kh) * (15 * st + s->kw);
    const int32_t most = patch > 700 ? 1 : patch > 330 ? 2 : 3;
    const int32_t want = bytes <= 32 ? 1 : bytes <= 64 ? 2 : 3;
    return want < most ? want : most;
}

static inline void conv_set_pieces(dvk_conv_params *p, int32_t log2, int32_t channels) {
    p->cpp_log2 = log2;
    p->chunks = (int32_t)conv_ceil(p->c_in, (int64_t)channels << log2);
}

static inline void conv_fill_epilogue(const dvk_conv2d_args *a, const conv_shape *s, dvk_dtype dtype, dvk_conv_epi *e) {
    const dvk_epilogue *from = &a->epi;
    e->y = conv_view_of(&a->y);
    e->n_res = from->n_res;
    e->fast = a->y.dtype == dtype && e->y.vec && s->c_out % 8 == 0 && from->shuffle <= 1;
    for (int32_t i = 0; i < from->n_res; i++) {
        e->res[i] = conv_view_of(&from->res[i]);
        e->beta[i] = from->beta[i];
        e->fast = e->fast && from->res[i].dtype == dtype && e->res[i].vec;
    }
    e->bias = from->bias;
    e->slopes = from->slopes;
    e->alpha = from->gate ? 1.0f : from->alpha;
    e->slope = from->slope;
    e->act = from->gate ? 0 : (int32_t)from->act;
    e->act_last = from->act_last && !from->gate;
    e->gate = from->gate;
    e->shuffle = from->shuffle > 1 ? (int32_t)from->shuffle : 1;
    e->c_out = s->c_out;
    e->whole = (from->shuffle == 2 || from->shuffle == 4) && a->y.dtype == dtype && dtype != DVK_F32 && e->y.vec &&
               a->y.sw == 8 && a->y.c <= 4 &&
               (from->n_res == 0 || (from->res[0].dtype == dtype && e->res[0].vec && from->res[0].sw >= 8));
    e->step = s->phases == 4 ? 2 : 1;
    if (from->stats) {
        e->stats = from->stats;
        e->groups = (int32_t)from->stats_groups;
        e->group_channels = s->c_out / e->groups;
    }
}

/* Everything except w_phase, w_rows and the rings. `dtype`: the type of a piece, with `channels` channels. */
static inline void conv_fill(const dvk_conv2d_args *a, const conv_shape *s, int32_t pixels, int32_t n_tile,
                             dvk_dtype dtype, int32_t channels, dvk_conv_params *p) {
    memset(p, 0, sizeof *p);
    p->x = conv_view_of(&a->x);
    p->w = a->w;
    p->scale = a->pro.scale;
    p->shift = a->pro.shift;
    p->pro_act = (int32_t)a->pro.act;
    p->vectors_aligned = (uintptr_t)a->pro.scale % 16 == 0 && (uintptr_t)a->pro.shift % 16 == 0 && s->c_in % 4 == 0;
    p->direct = a->x.dtype == dtype && p->x.vec && !a->pro.scale && a->pro.act == DVK_ACT_NONE;
    p->c_in = s->c_in;
    p->up_shift = s->phases == 1 && a->upsample == 2;
    p->in_h = s->flat ? 1 : (int32_t)a->x.h << p->up_shift;
    p->in_w = s->flat ? (int32_t)s->out_w : (int32_t)a->x.w << p->up_shift;
    p->out_h = (int32_t)s->out_h;
    p->out_w = (int32_t)s->out_w;
    p->kw = s->kw;
    p->taps = s->kh * s->kw;
    p->pad_top = a->pad_top;
    p->pad_left = a->pad_left;
    p->phases = s->phases;
    conv_place_blocks(p, s, pixels);
    p->n_tiles = conv_divisor(conv_ceil(s->c_out, n_tile));
    conv_set_pieces(p, conv_pieces_log2(s, conv_round(s->c_in, channels) * 16 / channels), channels);
    conv_fill_epilogue(a, s, dtype, &p->epi);
}

/* Shared memory at the start: offsets of the patch's pixels, bias and slopes. */
static inline int64_t conv_head_bytes(const dvk_conv_params *p, int32_t n) {
    return conv_round((int64_t)p->patch_pixels * 4, 128) + conv_round((int64_t)n * 8, 128);
}

static inline int64_t conv_patch_bytes(const dvk_conv_params *p) {
    return conv_round(((int64_t)p->patch_pixels << p->cpp_log2) * 16, 128);
}

/* 1 if offsets within a block fit 32 bits, which device code assumes. */
static inline int conv_offsets_fit(const dvk_conv2d_args *a, const dvk_conv_params *p) {
    const int64_t patch_rows = p->patch_pixels / (int64_t)p->patch_w.by;
    const int64_t rows = p->tile_h * conv_most(a->epi.shuffle, p->epi.step);
    int64_t most = a->y.sh;
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        most = conv_most(most, a->epi.res[i].sh);
    }
    return p->in_h == 1 || (patch_rows * a->x.sh * 4 <= INT32_MAX && rows * most <= INT32_MAX);
}

/* Copies the arguments with statistics enabled; their block determines the number of chunks. 0: statistics are not
 * supported. */
static inline int conv_with_stats(const void *args, dvk_conv2d_args *with) {
    static float wanted;
    *with = *(const dvk_conv2d_args *)args;
    if (!with->epi.stats) {
        with->epi.stats = &wanted; /* any non-NULL pointer; never dereferenced */
    }
    return with->epi.stats_groups > 0 && with->epi.shuffle <= 1;
}

/* Sets the depths of the rings. A patch must be complete `stages` - 1 steps after its last part was issued. */
static inline void conv_set_rings(dvk_conv_params *p, int32_t stages, int32_t threads) {
    const int64_t pieces = (int64_t)p->patch_pixels << p->cpp_log2;
    p->stages = stages;
    p->patches = p->chunks == 1 ? 1 : (int32_t)conv_ceil(stages - 1, p->taps) + 1;
    p->window = p->chunks == 1 ? 0 : (p->patches - 1) * p->taps - (stages - 2);
    p->portion = p->window ? (int32_t)conv_round(conv_ceil(pieces, p->window), threads) : 0;
}

/* One tap of the convolution that is run, from f32 OIHW; phases add the taps that meet the same small pixel. */
static inline float conv_weight(const dvk_conv2d_args *a, const conv_shape *s, const float *w, int64_t o, int64_t i,
                                int32_t phase, int32_t tap) {
    if (a->phased) {
        return w[((phase * (int64_t)s->c_out + o) * s->c_in + i) * 4 + tap];
    }
    const float *k = w + (o * s->c_in + i) * a->kh * a->kw;
    if (s->phases == 1) {
        return k[tap];
    }
    return conv_phase_weight(k, phase, tap);
}

#endif
