/* lower_window.c - the steps of transformers: layer norm, attention in windows, attention between channels. */
#include <stddef.h>

#include "core/base/error.h"
#include "core/plan/lower.h"

#define FIELD(member) ((uint32_t)offsetof(dv_args, member))

static void bind_rows(dv_lowering *l, dvk_rows *out, uint32_t field, dv_value v) {
    uint64_t at = 0;
    const dvk_view view = dv_view_of(l->place, v, &at);
    if (view.sh != view.w * view.sw || (view.n > 1 && view.sn != view.h * view.sh)) {
        l->result = dv_fail(DAVY_E_INTERNAL, "%s: the pixels do not lie one behind the other", l->step.label);
        return;
    }
    *out = (dvk_rows){.form = (dvk_form)view.dtype, .row = view.sw, .head = view.c};
    dv_lower_bind(l, DV_BIND_ARENA, field, at);
}

void dv_lower_layer_norm(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_shape s = dv_lower_shape(l, node->out);
    dv_lower_begin(l);
    dvk_row_norm_args *a = &l->step.args.row_norm;
    *a = (dvk_row_norm_args){.m = s.n * s.h * s.w, .heads = 1, .dim = s.c, .eps = node->eps};
    a->center = node->op == DV_OP_LAYER_NORM;
    bind_rows(l, &a->x, FIELD(row_norm.x.data), node->in[0]);
    bind_rows(l, &a->y, FIELD(row_norm.y.data), node->out);
    dv_lower_vector(l, FIELD(row_norm.w), node->weight, s.c);
    dv_lower_vector(l, FIELD(row_norm.b), node->bias, s.c);
    uint64_t at = 0;
    const dvk_view in = dv_view_of(l->place, node->in[0], &at);
    const dvk_view out = dv_view_of(l->place, node->out, &at);
    dv_lower_commit(l, "row_norm", &in, &out, 0);
}

void dv_lower_attention(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_attention_args *a = &l->step.args.attention;
    a->heads = node->heads;
    a->scale = node->scale;
    dv_lower_view(l, &a->q, node->in[0]);
    dv_lower_view(l, &a->k, node->in[1]);
    dv_lower_view(l, &a->v, node->in[2]);
    dv_lower_view(l, &a->y, node->out);
    const uint64_t tokens = (uint64_t)(a->q.h * a->q.w);
    const uint64_t keys = (uint64_t)(a->k.h * a->k.w);
    l->step.bytes += dv_view_bytes(&a->k) + dv_view_bytes(&a->v);
    dv_lower_commit(l, "attention", &a->q, &a->y, 4 * (uint64_t)a->q.n * tokens * keys * (uint64_t)a->q.c);
}

void dv_lower_window_attention(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_window *w = &node->window;
    const int64_t table = node->heads * (w->h + w->keys_h - 1) * (w->w + w->keys_w - 1);
    dv_lower_begin(l);
    dvk_window_attention_args *a = &l->step.args.window;
    *a = (dvk_window_attention_args){.heads = node->heads,
                                     .ph = w->padded_h,
                                     .pw = w->padded_w,
                                     .wh = w->h,
                                     .ww = w->w,
                                     .kh = w->keys_h,
                                     .kw = w->keys_w,
                                     .shift_y = w->shift_y,
                                     .shift_x = w->shift_x,
                                     .grid = w->grid,
                                     .scale = node->scale,
                                     .cut_y = w->cut_y,
                                     .cut_x = w->cut_x};
    dv_lower_view(l, &a->q, node->in[0]);
    dv_lower_view(l, &a->k, node->in[1]);
    dv_lower_view(l, &a->v, node->in[2]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(window.bias), node->weight, table);
    l->step.bytes += dv_view_bytes(&a->k) + dv_view_bytes(&a->v);
    const uint64_t pairs = (uint64_t)(a->q.n * a->ph * a->pw) * (uint64_t)(w->keys_h * w->keys_w);
    dv_lower_commit(l, "window_attention", &a->q, &a->y, 4 * pairs * (uint64_t)a->q.c);
}

void dv_lower_channel_attention(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_channel_attention_args *a = &l->step.args.channel;
    *a = (dvk_channel_attention_args){.heads = node->heads,
                                      .dim = node->groups,
                                      .wh = node->window.h,
                                      .ww = node->window.w,
                                      .grid = node->window.grid,
                                      .eps = node->eps};
    dv_lower_view(l, &a->q, node->in[0]);
    dv_lower_view(l, &a->k, node->in[1]);
    dv_lower_view(l, &a->v, node->in[2]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(channel.temperature), node->weight, node->heads);
    l->step.bytes += dv_view_bytes(&a->k) + dv_view_bytes(&a->v);
    const uint64_t pixels = (uint64_t)(a->q.n * a->q.h * a->q.w);
    dv_lower_commit(l, "channel_attention", &a->q, &a->y,
                    4 * pixels * (uint64_t)a->q.c * (uint64_t)(a->q.c / node->heads));
}
