/* lower_move.c - the steps that only move pixels: resampling, padding, and the copies that a concat still needs. */
#include "core/plan/lower.h"
#include "kernels/dtype.h"

void dv_lower_resample(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_resample_args *a = &l->step.args.resample;
    a->r = node->r;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    if (node->n_in > 1 && node->in[1] != DV_NO_VALUE) {
        dv_lower_view(l, &a->res, node->in[1]);
        l->step.bytes += dv_view_bytes(&a->res);
    }
    dv_lower_commit(l, dv_op_name(node->op), &a->x, &a->y, 0);
}

void dv_lower_fold(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_fold_args *a = &l->step.args.fold;
    *a = (dvk_fold_args){.r = node->r, .heads = node->heads, .top = node->pad_top, .left = node->pad_left};
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, dv_op_name(node->op), &a->x, &a->y, 0);
}

void dv_lower_pad(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_pad_args *a = &l->step.args.pad;
    a->mode = node->pad_mode;
    a->top = node->pad_top;
    a->left = node->pad_left;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, "pad", &a->x, &a->y, 0);
}

/* Copies the inputs that were not written into their slice of the result. */
void dv_lower_concat(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_place out = l->place->places[node->out];
    int64_t channel = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dv_place in = l->place->places[node->in[i]];
        const int64_t channels = dv_lower_shape(l, node->in[i]).c;
        if (in.buffer != out.buffer || in.channel != out.channel + channel || in.y != out.y || in.x != out.x) {
            dv_lower_begin(l);
            dvk_pointwise_args *a = &l->step.args.pointwise;
            a->epi.alpha = 1.0f;
            dv_lower_view(l, &a->x, node->in[i]);
            dv_lower_view(l, &a->y, node->out);
            a->y.c = channels;
            if (l->result == DAVY_OK) {
                const uint64_t ahead = (uint64_t)channel * dvk_dtype_size(a->y.dtype);
                l->plan->binds[l->plan->n_binds - 1].at += ahead;
                a->y.data = (char *)a->y.data + (l->options->caps != NULL ? ahead : 0);
            }
            dv_lower_commit(l, "pointwise", &a->x, &a->y, 0);
        }
        channel += channels;
    }
}
