/* lower_dictionary.c - the steps of networks with a dictionary of tokens. */
#include <stddef.h>

#include "core/plan/lower.h"

#define FIELD(member) ((uint32_t)offsetof(dv_args, member))

/* A copy of a parameter, which lies among the weights as f32. */
static void lower_tokens(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_shape s = dv_lower_shape(l, node->out);
    dv_lower_begin(l);
    dvk_pointwise_args *a = &l->step.args.pointwise;
    a->epi.alpha = 1.0f;
    a->x =
        (dvk_view){.dtype = DVK_F32, .n = 1, .h = 1, .w = s.w, .c = s.c, .sn = s.w * s.c, .sh = s.w * s.c, .sw = s.c};
    dv_lower_vector(l, FIELD(pointwise.x.data), node->weight, s.w * s.c);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, "pointwise", &a->x, &a->y, 0);
}

static uint64_t products(const dvk_view *v, int64_t with) {
    return 2 * (uint64_t)(v->h * v->w) * (uint64_t)v->c * (uint64_t)with;
}

static void lower_similarity(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_similarity_args *a = &l->step.args.similarity;
    dv_lower_view(l, &a->q, node->in[0]);
    dv_lower_view(l, &a->k, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(similarity.factor), node->weight, a->y.c);
    dv_lower_commit(l, "similarity", &a->q, &a->y, products(&a->y, a->q.c));
}

static void lower_mix(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_mix_args *a = &l->step.args.mix;
    dv_lower_view(l, &a->s, node->in[0]);
    dv_lower_view(l, &a->v, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, "mix", &a->s, &a->y, products(&a->y, a->s.c));
}

static void lower_order(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_order_args *a = &l->step.args.order;
    dv_lower_view(l, &a->s, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, "order", &a->s, &a->y, 0);
}

static void lower_gather(dv_lowering *l, const char *op) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_gather_args *a = &l->step.args.gather;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->order, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(gather.scale), node->weight, a->y.c);
    dv_lower_commit(l, op, &a->x, &a->y, 0);
}

static void lower_refine(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_refine_args *a = &l->step.args.refine;
    a->eps = node->eps;
    dv_lower_view(l, &a->t, node->in[0]);
    dv_lower_view(l, &a->s, node->in[1]);
    dv_lower_view(l, &a->x, node->in[2]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(refine.gamma), node->weight, a->s.c);
    dv_lower_vector(l, FIELD(refine.sigma), node->bias, a->s.c);
    l->step.bytes += dv_view_bytes(&a->s);
    dv_lower_commit(l, "refine", &a->x, &a->y, products(&a->x, a->s.c));
}

void dv_lower_dictionary(dv_lowering *l) {
    switch (dv_lower_now(l)->op) {
    case DV_OP_TOKENS:
        lower_tokens(l);
        break;
    case DV_OP_SIMILARITY:
        lower_similarity(l);
        break;
    case DV_OP_MIX:
        lower_mix(l);
        break;
    case DV_OP_ORDER:
        lower_order(l);
        break;
    case DV_OP_SCATTER:
        lower_gather(l, "scatter");
        break;
    case DV_OP_GATHER:
        lower_gather(l, "gather");
        break;
    default:
        lower_refine(l);
        break;
    }
}
