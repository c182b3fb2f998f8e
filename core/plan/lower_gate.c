/* lower_gate.c - the steps of gated networks: depthwise convolutions, products, pooling, sampling. */
#include <stddef.h>

#include "core/plan/lower.h"

#define FIELD(member) ((uint32_t)offsetof(dv_args, member))

void dv_lower_depthwise(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_depthwise_args *a = &l->step.args.depthwise;
    a->kh = node->kh;
    a->kw = node->kw;
    a->paired = node->fused.paired;
    a->stride = node->stride;
    a->pad_top = node->pad_top;
    a->pad_left = node->pad_left;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    const int64_t taps = (int64_t)node->kh * node->kw;
    dv_lower_vector(l, FIELD(depthwise.w), node->weight, taps * a->x.c);
    dv_lower_vector(l, FIELD(depthwise.epi.bias), node->bias, a->x.c);
    dv_lower_fused(l, &a->pro, &a->epi);
    const uint64_t elements = (uint64_t)(a->y.n * a->y.h * a->y.w) * (uint64_t)a->x.c;
    dv_lower_commit(l, "depthwise", &a->x, &a->y, 2 * elements * (uint64_t)taps);
}

void dv_lower_multiply(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_multiply_args *a = &l->step.args.multiply;
    dvk_prologue none = {0}; /* fuse.c puts nothing in front of a product */
    a->act = node->act.kind;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->g, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_fused(l, &none, &a->epi);
    l->step.bytes += dv_view_bytes(&a->g);
    dv_lower_commit(l, "multiply", &a->x, &a->y, 0);
}

void dv_lower_pool(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_pool_args *a = &l->step.args.pool;
    a->k = node->kh;
    a->stride = node->stride;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, dv_op_name(node->op), &a->x, &a->y, 0);
}

void dv_lower_dysample(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_dysample_args *a = &l->step.args.dysample;
    a->groups = node->groups;
    a->r = node->r;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->offset, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    l->step.bytes += dv_view_bytes(&a->offset);
    dv_lower_commit(l, "dysample", &a->x, &a->y, 0);
}
