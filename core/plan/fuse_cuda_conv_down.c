/* fuse_cuda_conv_down.c - two convolutions in one where a CUDA kernel of "conv_down" makes both: one without padding whose
 * result others want too, and the one of a stride of two that reads it. The first makes both results. */
#include <stddef.h>

#include "core/plan/fuse_cuda_parts.h"

enum { PART_SECOND, TAPS = 9, PARITIES = 4 };

/* Nothing but a bend behind it. */
static bool bends(const dv_node *node) {
    const dvk_act act = node->fused.act.kind;
    return (act == DVK_ACT_NONE || act == DVK_ACT_RELU || act == DVK_ACT_LRELU) && node->fused.n_res == 0 &&
           !node->fused.gate && dv_is_one(node->fused.alpha);
}

static float slope_of(const dv_node *node) {
    const dvk_act act = node->fused.act.kind;
    return act == DVK_ACT_NONE ? 1.0f : act == DVK_ACT_RELU ? 0.0f : node->fused.act.slope;
}

/* k x k over whole windows, as far as they go. */
static bool is_valid_conv(const dv_graph *g, const dv_node *node, int32_t k, int32_t stride) {
    if (node->dead || node->op != DV_OP_CONV2D || node->kh != k || node->kw != k ||
        (node->stride > 1 ? node->stride : 1) != stride || node->pad_top != 0 || node->pad_left != 0 || node->phased) {
        return false;
    }
    const dv_shape in = dv_shape_of(g, node->in[0]), out = dv_shape_of(g, node->out);
    return out.h == (in.h - k) / stride + 1 && out.w == (in.w - k) / stride + 1 && dv_begins_plain(node) &&
           !node->fused.mixed && node->fused.upsample <= 1 && node->fused.shuffle <= 1 && node->fused.winograd == 0 &&
           node->fused.scale == DV_NO_VALUE && node->fused.res_scale == DV_NO_VALUE && bends(node);
}

/* The first of two whose second is node k; -1: it is none. */
static int64_t first_of(const dv_graph *g, const dv_memory_plan *place, int64_t k) {
    const dv_node *node = &g->nodes[k];
    if (!is_valid_conv(g, node, 2, 2) || node->out == g->output) {
        return -1;
    }
    const int64_t first = place->producer[node->in[0]];
    return first >= 0 && is_valid_conv(g, &g->nodes[first], 3, 1) ? first : -1;
}

/* Whether somebody sums the value's pixels, which the plain kernels do by the way. */
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
    dv_args args = {.conv_down = {.w = some, .w_down = some}};
    args.conv_down.x = dv_view_planned(l->place, g->nodes[first].in[0]);
    args.conv_down.y = dv_view_planned(l->place, g->nodes[first].out);
    args.conv_down.z = dv_view_planned(l->place, g->nodes[second].out);
    const dvk_cuda_kernel *k = dv_choose_kernel(l->options, "conv_down", &args).cuda;
    return k != NULL && k->cost(&args, l->options->caps) <= cost_of(l, first) + cost_of(l, second);
}

/* What the second makes, the first does, earlier. */
static void take(dv_graph *g, int64_t first, int64_t second) {
    dv_node *from = &g->nodes[second];
    dv_node *node = &g->nodes[first];
    const int32_t uses = g->values[from->out].uses;
    node->fused.mixed = true;
    node->fused.parts[PART_SECOND] = (int32_t)second;
    node->fused.also = from->out;
    g->values[node->out].uses--;
    dv_node_remove(g, second);
    g->values[node->fused.also].uses = uses;
    g->values[node->fused.also].producer = (int32_t)first;
}

void dv_fold_conv_downs(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed) {
    dv_graph *g = plan->graph;
    const dv_lowering l = {.plan = plan, .place = place, .options = options};
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const int64_t first = first_of(g, place, k);
        if (first >= 0 && !is_summed(g, g->nodes[k].out) && !is_summed(g, g->nodes[first].out) && gains(&l, first, k)) {
            take(g, first, k);
            *changed = true;
        }
    }
}

#define FIELD(member) ((uint32_t)offsetof(dv_args, member))

static uint64_t macs_of(const dvk_view *y, int64_t c_in, int64_t taps) {
    return (uint64_t)(y->n * y->h * y->w) * (uint64_t)(y->c * c_in * taps);
}

static void lower_down(dv_lowering *l, const dv_node *first, const dv_node *second) {
    dvk_conv_down_args *a = &l->step.args.conv_down;
    a->slope = slope_of(first);
    a->slope_down = slope_of(second);
    dv_lower_view(l, &a->x, first->in[0]);
    dv_lower_view(l, &a->y, first->out);
    dv_lower_view(l, &a->z, first->fused.also);
    dv_lower_vector(l, FIELD(conv_down.w), first->weight, a->y.c * a->x.c * TAPS);
    dv_lower_vector(l, FIELD(conv_down.b), first->bias, a->y.c);
    dv_lower_vector(l, FIELD(conv_down.w_down), second->weight, a->z.c * a->y.c * PARITIES);
    dv_lower_vector(l, FIELD(conv_down.b_down), second->bias, a->z.c);
    l->step.bytes += dv_view_bytes(&a->z);
    const uint64_t macs = macs_of(&a->y, a->x.c, TAPS) + macs_of(&a->z, a->y.c, PARITIES);
    dv_lower_commit(l, "conv_down", &a->x, &a->y, 2 * macs);
}

void dv_lower_conv_down(dv_lowering *l) {
    const dv_node *first = dv_lower_now(l);
    const dv_node *second = &l->plan->graph->nodes[first->fused.parts[PART_SECOND]];
    dv_lower_begin(l);
    lower_down(l, first, second);
}
