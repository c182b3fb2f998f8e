/* conv_wgmma_host.h - shared code of the host sides of conv_wgmma and conv_wgmma_rows. */
#ifndef DVK_CUDA_CONV_WGMMA_HOST_H
#define DVK_CUDA_CONV_WGMMA_HOST_H

#include <string.h>

#include "kernels/cuda/conv/conv_wgmma.h"
#include "kernels/cuda/cuda.h"
#include "kernels/dtype.h"

static inline int64_t blocks_of(int64_t n, int64_t per) {
    return (n + per - 1) / per;
}

static inline int is_half(dvk_dtype t) {
    return t == DVK_F16 || t == DVK_BF16;
}

/* 1 if a tensor map can describe v. */
static inline int mappable(const dvk_view *v) {
    return is_half(v->dtype) && (uintptr_t)v->data % 16 == 0 && (v->w == 1 || v->sw % 8 == 0) &&
           (v->h == 1 || v->sh % 8 == 0) && (v->n == 1 || v->sn % 8 == 0);
}

/* 1 if a copy of whole pieces of 16 bytes may end with v's last channel: the pieces are full, or padding follows. */
static inline int ends_alone(const dvk_view *v) {
    return v->c % 8 == 0 || v->sw == blocks_of(v->c, 8) * 8;
}

static inline int vectored(const dvk_view *v) {
    const int64_t per = v->dtype == DVK_F32 ? 4 : 8;
    return (uintptr_t)v->data % 16 == 0 && (v->w == 1 || v->sw % per == 0) && (v->h == 1 || v->sh % per == 0) &&
           (v->n == 1 || v->sn % per == 0);
}

static inline dvk_conv_view view_of(const dvk_view *v) {
    return (dvk_conv_view){
        .data = v->data, .sn = v->sn, .sh = v->sh, .sw = v->sw, .dtype = (int32_t)v->dtype, .vec = vectored(v)};
}

static inline int32_t least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* Output channels, before a pixel shuffle. */
static inline int64_t channels_of(const dvk_conv2d_args *a) {
    return a->epi.shuffle > 1 ? a->y.c * a->epi.shuffle * a->epi.shuffle : a->y.c;
}

static inline int32_t stat_channels(const dvk_conv2d_args *a, int64_t groups) {
    return groups > 0 ? (int32_t)(a->y.c / groups) : 0;
}

static inline dvk_wgmma_epilogue epilogue_of(const dvk_conv2d_args *a) {
    const dvk_epilogue *e = &a->epi;
    int plain = mappable(&a->y) && ends_alone(&a->y) && a->y.dtype == a->compute && e->shuffle <= 1 &&
                (e->n_res == 0 || a->upsample == 1);
    for (int32_t i = 0; i < e->n_res; i++) {
        plain = plain && mappable(&e->res[i]) && e->res[i].dtype == a->compute;
    }
    if (!plain) {
        return DVK_WGMMA_ANY;
    }
    if (e->gate >= 2) {
        return e->act == DVK_ACT_SIGMOID || e->act == DVK_ACT_TANH ? DVK_WGMMA_TIMES : DVK_WGMMA_ANY;
    }
    if (e->gate) {
        return e->n_res == 1 ? DVK_WGMMA_GATE : DVK_WGMMA_ANY;
    }
    switch (e->act) {
    case DVK_ACT_NONE:
        return e->stats != NULL ? DVK_WGMMA_STATISTICS : DVK_WGMMA_LINEAR;
    case DVK_ACT_RELU:
    case DVK_ACT_LRELU:
    case DVK_ACT_PRELU:
        return e->act_last ? DVK_WGMMA_SLOPE_LAST : DVK_WGMMA_SLOPE;
    case DVK_ACT_SILU:
        return e->act_last ? DVK_WGMMA_ANY : DVK_WGMMA_SILU;
    case DVK_ACT_GELU:
    case DVK_ACT_SIGMOID:
    case DVK_ACT_TANH:
    case DVK_ACT_MISH:
        return e->n_res > 0 ? DVK_WGMMA_ANY : DVK_WGMMA_CURVE;
    default:
        return DVK_WGMMA_ANY;
    }
}

/* 1 if statistics are supported: a group must be within the sixteen channels of a warp. */
static inline int has_statistics(const dvk_conv2d_args *a, const dvk_conv_wgmma *p) {
    const int32_t per = stat_channels(a, a->epi.stats_groups);
    return (p->epilogue == (int32_t)DVK_WGMMA_LINEAR || p->epilogue == (int32_t)DVK_WGMMA_STATISTICS) &&
           a->epi.n_res <= 1 && (a->epi.stats_groups == 0 || per == 1 || per == 2 || per == 4 || per == 8 || per == 16);
}

/* Statistics chunks: one per tile. */
static inline int64_t stats_chunks_of(const dvk_conv2d_args *a, const dvk_conv_wgmma *p) {
    return has_statistics(a, p) ? (int64_t)p->tiles_x * p->tiles_y * p->phases : 0;
}

static inline double view_bytes(const dvk_view *v) {
    return (double)v->n * (double)v->h * (double)v->w * (double)v->c * (double)dvk_dtype_size(v->dtype);
}

/* A tensor map with boxes of channels, columns and rows of every `step`th pixel, from one of a phase on. If a pixel of
 * a box is as large as a swizzle, that swizzle is used. */
static inline int map_of_box(dvk_queue *q, const dvk_view *v, int32_t step, int32_t phase, const int32_t *box,
                             dvk_wgmma_map *out) {
    const int64_t size = (int64_t)dvk_dtype_size(v->dtype), row = box[0] * size;
    dvk_tensor_map_desc d = {.dtype = v->dtype,
                             .rank = 4,
                             .size = {v->c, blocks_of(v->w, step), blocks_of(v->h, step), v->n},
                             .stride_bytes = {v->sw * step * size, v->sh * step * size, v->sn * size},
                             .box = {box[0], box[1], box[2], 1},
                             .swizzle_bytes = (row & (row - 1)) == 0 ? (int32_t)row : 0};
    d.data = (const char *)v->data + ((phase >> 1) * v->sh + (phase & 1) * v->sw) * size;
    for (int i = 1; i < 4; i++) { /* the stride of a dimension of size one is unused, but must be valid */
        if (d.size[i] == 1) {
            d.stride_bytes[i - 1] = 16;
        }
    }
    dvk_tensor_map map;
    const int r = q->tensor_map(q, &d, &map);
    memcpy(out->opaque, map.opaque, sizeof map.opaque);
    return r;
}

/* A map of boxes of 64 channels and w x h pixels. */
static inline int map_of(dvk_queue *q, const dvk_view *v, int32_t step, int32_t phase, int32_t w, int32_t h,
                         dvk_wgmma_map *out) {
    return map_of_box(q, v, step, phase, (const int32_t[]){DVK_WGMMA_CHUNK, w, h}, out);
}

static inline dvk_conv_epi epi_of(const dvk_conv2d_args *a) {
    const dvk_epilogue *e = &a->epi;
    dvk_conv_epi r = {.y = view_of(&a->y),
                      .bias = e->bias,
                      .slopes = e->slopes,
                      .stats = e->stats,
                      .beta = {e->beta[0], e->beta[1]},
                      .alpha = e->alpha,
                      .slope = e->slope,
                      .act = (int32_t)e->act,
                      .n_res = e->n_res,
                      .act_last = e->act_last,
                      .gate = e->gate,
                      .shuffle = e->shuffle > 1 ? (int32_t)e->shuffle : 1,
                      .groups = (int32_t)e->stats_groups,
                      .group_channels = stat_channels(a, e->stats_groups),
                      .c_out = (int32_t)channels_of(a),
                      .step = a->upsample};
    for (int32_t i = 0; i < e->n_res; i++) {
        r.res[i] = view_of(&e->res[i]);
    }
    return r;
}

static inline int can_index(const dvk_conv2d_args *a) {
    const int64_t limit = INT32_MAX / 8;
    const int adds_behind_shuffle = a->epi.shuffle > 1 && a->epi.n_res > 0 && a->epi.res[0].h == a->y.h;
    return !adds_behind_shuffle && a->pad_top >= 0 && a->pad_left >= 0 && a->x.n == a->y.n && a->x.h * a->x.w < limit &&
           a->y.h * a->y.w < limit && a->y.n * a->y.h * a->y.w < limit * 64 && a->pro.act != DVK_ACT_LRELU &&
           a->pro.act != DVK_ACT_PRELU;
}

static inline int can_map(const dvk_conv2d_args *a) {
    return is_half(a->x.dtype) && a->x.dtype == a->compute && mappable(&a->x) && can_index(a) &&
           (a->pro.scale == NULL || a->x.c % 8 == 0);
}

/* 1 if both kernels support a convolution's input, independent of its taps. */
static inline int can_read(const dvk_conv2d_args *a) {
    return can_map(a) && a->stride == 1;
}

#endif
