/* window.h - coordinates of the pixels of a window, one axis at a time (op.h, "window_attention"), and of a group
 * ("channel_attention"). */
#ifndef DVK_WINDOW_H
#define DVK_WINDOW_H

#include "kernels/op.h"

typedef struct dvk_window_axis {
    int64_t size, padded, windows;
    int64_t side, keys, shift, grid;
    int64_t cut; /* for queries; `shift` is the cut for keys */
} dvk_window_axis;

static inline dvk_window_axis dvk_window_rows(const dvk_window_attention_args *a) {
    const dvk_window_axis axis = {a->q.h, a->ph,      a->ph / a->wh, a->wh,
                                  a->kh,  a->shift_y, a->grid,       a->cut_y > 0 ? a->cut_y : a->shift_y};
    return axis;
}

static inline dvk_window_axis dvk_window_columns(const dvk_window_attention_args *a) {
    const dvk_window_axis axis = {a->q.w, a->pw,      a->pw / a->ww, a->ww,
                                  a->kw,  a->shift_x, a->grid,       a->cut_x > 0 ? a->cut_x : a->shift_x};
    return axis;
}

/* Coordinate of element i of a window, i from -(keys - side) / 2 on; -1: outside the picture. */
static inline int64_t dvk_window_pixel(const dvk_window_axis *x, int64_t window, int64_t i) {
    const int64_t in_frame = x->grid ? i * x->windows + window : window * x->side + i;
    if (in_frame < 0 || in_frame >= x->padded) {
        return -1;
    }
    const int64_t at = in_frame + x->shift < x->padded ? in_frame + x->shift : in_frame + x->shift - x->padded;
    return at < x->size ? at : -1;
}

/* 0, 1 or 2: the mask separates queries and keys of different regions. cut: x->cut or x->shift */
static inline int dvk_window_region(const dvk_window_axis *x, int64_t cut, int64_t window, int64_t i) {
    const int64_t in_frame = window * x->side + i;
    return x->shift == 0 || in_frame < x->padded - x->side ? 0 : in_frame < x->padded - cut ? 1 : 2;
}

#define DVK_WINDOW_MASK (-100.0f)

/* Pixels that a head of "channel_attention" mixes, step apart, and the first channel of the head. */
typedef struct dvk_channel_group {
    int64_t n, y, x, step_y, step_x, h, w;
    int64_t head, channel;
} dvk_channel_group;

static inline int64_t dvk_channel_groups(const dvk_channel_attention_args *a) { /* of a picture */
    return a->grid ? (int64_t)a->wh * a->ww : a->wh == 0 ? 1 : a->q.h / a->wh * (a->q.w / a->ww);
}

/* index: below n * groups * heads */
static inline dvk_channel_group dvk_channel_group_at(const dvk_channel_attention_args *a, int64_t index) {
    const int64_t groups = dvk_channel_groups(a);
    const int64_t i = index / a->heads % groups;
    dvk_channel_group g = {
        .n = index / a->heads / groups, .step_y = 1, .step_x = 1, .h = a->q.h, .w = a->q.w, .head = index % a->heads};
    if (a->grid) {
        g.y = i / a->ww;
        g.x = i % a->ww;
        g.step_y = a->wh;
        g.step_x = a->ww;
        g.h = a->q.h / a->wh;
        g.w = a->q.w / a->ww;
    } else if (a->wh > 0) {
        g.y = i / (a->q.w / a->ww) * a->wh;
        g.x = i % (a->q.w / a->ww) * a->ww;
        g.h = a->wh;
        g.w = a->ww;
    }
    g.channel = g.head * (a->q.c / a->heads);
    return g;
}

/* Index of the head's first channel at pixel `pixel` of the group. */
static inline int64_t dvk_channel_pixel(const dvk_channel_group *g, const dvk_view *v, int64_t pixel) {
    return g->n * v->sn + (g->y + pixel / g->w * g->step_y) * v->sh + (g->x + pixel % g->w * g->step_x) * v->sw +
           g->channel;
}

#endif
