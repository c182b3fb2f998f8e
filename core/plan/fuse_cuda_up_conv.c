/* fuse_cuda_up_conv.c - two convolutions in one where a CUDA kernel of "up_conv" makes both, and what lies between them, a large
 * picture, is not stored: a transposed one with what is added behind it, and one without padding. */
#include <stddef.h>

#include "core/plan/fuse_cuda_parts.h"

enum { PART_FIRST, TAPS = 9 };

static bool bends(const dv_node *node, int32_t residuals) {
    const dvk_act act = node->fused.act.kind;
    return (act == DVK_ACT_NONE || act == DVK_ACT_RELU || act == DVK_ACT_LRELU) && node->fused.n_res == residuals &&
           !node->fused.gate && dv_is_one(node->fused.alpha);
}

static float slope_of(const dv_node *node) {
    const dvk_act act = node->fused.act.kind;
    return act == DVK_ACT_NONE ? 1.0f : act == DVK_ACT_RELU ? 0.0f : node->fused.act.slope;
}

/* 3 x 3 over whole windows, nothing in front, at most a bend behind. */
static bool is_valid_conv(const dv_graph *g, const dv_node *node) {
    if (node->dead || node->op != DV_OP_CONV2D || node->kh != 3 || node->kw != 3 || node->stride > 1 ||
        node->pad_top != 0 || node->pad_left != 0 || node->phased) {
        return false;
    }
    const dv_shape in = dv_shape_of(g, node->in[0]), out = dv_shape_of(g, node->out);
    return out.h == in.h - 2 && out.w == in.w - 2 && dv_begins_plain(node) && !node->fused.mixed &&
           node->fused.upsample <= 1 && node->fused.shuffle <= 1 && node->fused.winograd == 0 &&
           node->fused.scale == DV_NO_VALUE && node->fused.res_scale == DV_NO_VALUE && bends(node, 0);
}

/* A transposed convolution of 2 x 2, and something as large as its result, which is added behind a bend. */
static bool is_up_conv(const dv_graph *g, const dv_node *node) {
    return !node->dead && node->op == DV_OP_CONV2D && node->kh == 1 && node->kw == 1 && node->stride <= 1 &&
           !node->phased && node->fused.upsample <= 1 && node->fused.shuffle == 2 && !node->fused.mixed &&
           dv_begins_plain(node) && node->fused.res_scale == DV_NO_VALUE && bends(node, 1) &&
           (!node->fused.act_last || node->fused.act.kind == DVK_ACT_NONE) && dv_is_one(node->fused.beta[0]) &&
           dv_shape_of(g, node->fused.res[0]).h == dv_shape_of(g, node->out).h;
}

/* The first of two whose second is node k; -1: it is none. */
static int64_t first_of(const dv_graph *g, const dv_memory_plan *place, int64_t k) {
    const dv_node *node = &g->nodes[k];
    if (!is_valid_conv(g, node) || node->out == g->output) {
        return -1;
    }
    const int64_t first = dv_behind(g, place, node->in[0], 1);
    return first >= 0 && is_up_conv(g, &g->nodes[first]) ? first : -1;
}

/* Somebody wants more of the result than the result. */
static bool is_summed(const dv_graph *g, dv_value v) {
    bool yes = false;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        yes = yes || (!node->dead && node->n_in > 0 && node->in[0] == v &&
                      (node->op == DV_OP_GROUP_NORM || (node->op == DV_OP_MEAN && node->fused.mixed)));
    }
    return yes;
}

static double cost_of(const dv_lowering *l, int64_t conv) {
    dv_lowering apart = *l;
    if (dv_lower_try_conv(&apart, conv) != DAVY_OK) {
        return 0.0;
    }
    const dvk_cuda_kernel *k = dv_lower_choose_conv(&apart, &apart.step.args).cuda;
    return k != NULL && k->cost != NULL ? k->cost(&apart.step.args, l->options->caps) : 1e30;
}

static bool gains(const dv_lowering *l, int64_t first, int64_t second) {
    static const float some[1] = {0.0f};
    const dv_graph *g = l->plan->graph;
    dv_args args = {.up_conv = {.w_up = some, .w = some}};
    args.up_conv.x = dv_view_planned(l->place, g->nodes[first].in[0]);
    args.up_conv.res = dv_view_planned(l->place, g->nodes[first].fused.res[0]);
    args.up_conv.y = dv_view_planned(l->place, g->nodes[second].out);
    const dvk_cuda_kernel *k = dv_choose_kernel(l->options, "up_conv", &args).cuda;
    return k != NULL && k->cost(&args, l->options->caps) <= cost_of(l, first) + cost_of(l, second);
}

/* What the first reads, the second does. */
static void take(dv_graph *g, int64_t first, int64_t second) {
    const dv_node *from = &g->nodes[first];
    dv_node *node = &g->nodes[second];
    node->in[0] = from->in[0];
    node->fused.mixed = true;
    node->fused.parts[PART_FIRST] = (int32_t)first;
    node->fused.scale = from->fused.scale;
    node->fused.n_res = from->fused.n_res;
    node->fused.res[0] = from->fused.res[0];
    dv_node_remove(g, first);
    g->nodes[first].fused.n_res = 0;
}

void dv_fold_up_convs(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed) {
    dv_graph *g = plan->graph;
    const dv_lowering l = {.plan = plan, .place = place, .options = options};
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const int64_t first = first_of(g, place, k);
        if (first >= 0 && !is_summed(g, g->nodes[k].out) && gains(&l, first, k)) {
            take(g, first, k);
            *changed = true;
        }
    }
}

#define FIELD(member) ((uint32_t)offsetof(dv_args, member))

static uint64_t macs_of(const dvk_view *y, int64_t more, int64_t each) {
    return (uint64_t)(y->n * (y->h + more) * (y->w + more)) * (uint64_t)each;
}

static void lower_up(dv_lowering *l, const dv_node *first, const dv_node *second) {
    dvk_up_conv_args *a = &l->step.args.up_conv;
    a->slope_up = slope_of(first);
    a->slope = slope_of(second);
    dv_lower_view(l, &a->x, second->in[0]);
    dv_lower_view(l, &a->res, second->fused.res[0]);
    dv_lower_view(l, &a->y, second->out);
    const int64_t middle = a->res.c;
    dv_lower_vector(l, FIELD(up_conv.w_up), first->weight, 4 * middle * a->x.c);
    dv_lower_vector(l, FIELD(up_conv.b_up), first->bias, 4 * middle);
    dv_lower_vector(l, FIELD(up_conv.w), second->weight, a->y.c * middle * TAPS);
    dv_lower_vector(l, FIELD(up_conv.b), second->bias, a->y.c);
    if (second->fused.scale != DV_NO_VALUE) {
        uint64_t at = 0;
        dv_view_of(l->place, second->fused.scale, &at);
        dv_lower_bind(l, DV_BIND_ARENA, FIELD(up_conv.scale), at);
    }
    l->step.bytes += dv_view_bytes(&a->res);
    const uint64_t macs = macs_of(&a->res, 0, middle * a->x.c) + macs_of(&a->y, 0, a->y.c * middle * TAPS);
    dv_lower_commit(l, "up_conv", &a->x, &a->y, 2 * macs);
}

void dv_lower_up_conv(dv_lowering *l) {
    const dv_node *second = dv_lower_now(l);
    const dv_node *first = &l->plan->graph->nodes[second->fused.parts[PART_FIRST]];
    dv_lower_begin(l);
    lower_up(l, first, second);
}
