/* fuse_cuda_depthwise.c - layer norm, 1x1 convolution, depthwise convolution and, behind the product of its halves, another
 * 1x1 convolution, or the first two convolutions with their activations, where a CUDA kernel of "norm_depthwise" makes
 * all of them at once. */
#include <stddef.h>

#include "core/plan/fuse_cuda_parts.h"

enum { PART_NORM, PART_IN, PART_DEPTHWISE }; /* no norm: -1 */

static bool ends_with(const dv_node *node, dvk_act act) {
    return node->fused.act.kind == act && node->fused.n_res == 0 && !node->fused.gate && dv_is_one(node->fused.alpha);
}

/* Norm, if there is one, and 1x1 convolution ahead of depthwise node `at`. */
static bool find_parts(const dv_graph *g, const dv_memory_plan *place, int64_t at, int32_t *parts) {
    const dv_node *depthwise = &g->nodes[at];
    if (depthwise->dead || depthwise->fused.mixed || depthwise->op != DV_OP_DEPTHWISE || depthwise->kh != 3 ||
        depthwise->kw != 3 || depthwise->stride != 1 || depthwise->pad_top != 1 || depthwise->pad_left != 1 ||
        !dv_begins_plain(depthwise)) {
        return false;
    }
    const int64_t in = dv_behind(g, place, depthwise->in[0], 1);
    if (in < 0 || !dv_is_linear(&g->nodes[in])) {
        return false;
    }
    parts[PART_NORM] = -1;
    parts[PART_IN] = (int32_t)in;
    parts[PART_DEPTHWISE] = (int32_t)at;
    if (!depthwise->fused.paired && ends_with(depthwise, DVK_ACT_GELU)) {
        return ends_with(&g->nodes[in], DVK_ACT_GELU);
    }
    const int64_t norm = dv_behind(g, place, g->nodes[in].in[0], 1);
    parts[PART_NORM] = (int32_t)norm;
    return norm >= 0 && g->nodes[norm].op == DV_OP_LAYER_NORM && ends_with(&g->nodes[in], DVK_ACT_NONE) &&
           (depthwise->fused.paired || ends_with(depthwise, DVK_ACT_NONE));
}

/* What the first of them reads. */
static dv_value start_of(const dv_graph *g, const int32_t *parts) {
    return g->nodes[parts[parts[PART_NORM] >= 0 ? PART_NORM : PART_IN]].in[0];
}

/* The 1x1 convolution that alone reads a product of halves and at most adds one value; -1: none. */
static int64_t mix_behind(const dv_graph *g, int64_t depthwise) {
    const dv_value v = g->nodes[depthwise].out;
    if (g->values[v].uses != 1 || v == g->output) {
        return -1;
    }
    for (int64_t k = depthwise + 1; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (dv_is_linear(node) && node->in[0] == v) {
            return node->fused.act.kind == DVK_ACT_NONE && dv_adds_one(node) && node->out != g->output ? k : -1;
        }
    }
    return -1;
}

static bool served(const dv_lowering *l, const int32_t *parts, int64_t last) {
    static const float some[1] = {0.0f};
    const dv_graph *g = l->plan->graph;
    const dv_node *node = &g->nodes[last];
    const dv_node *depthwise = &g->nodes[parts[PART_DEPTHWISE]];
    dv_args args = {.norm_depthwise = {.gamma = some, .beta = some, .w_in = some, .w_depth = some}};
    dvk_norm_depthwise_args *a = &args.norm_depthwise;
    a->x = dv_view_planned(l->place, start_of(g, parts));
    a->y = dv_view_planned(l->place, node->out);
    a->hidden = dv_shape_of(g, depthwise->in[0]).c;
    a->act = depthwise->fused.act.kind;
    a->act_in = g->nodes[parts[PART_IN]].fused.act.kind;
    a->plain = parts[PART_NORM] < 0;
    a->w_out = depthwise->fused.paired ? some : NULL;
    if (node->fused.n_res == 1) {
        a->res = dv_view_planned(l->place, node->fused.res[0]);
    }
    return dv_choose_kernel(l->options, "norm_depthwise", &args).cuda != NULL;
}

static void take(dv_graph *g, const int32_t *parts, int64_t last) {
    const dv_value x = start_of(g, parts);
    for (int i = PART_NORM; i <= PART_DEPTHWISE; i++) {
        if (parts[i] >= 0 && parts[i] != last) {
            dv_node_remove(g, parts[i]);
        }
        g->nodes[last].fused.parts[i] = parts[i];
    }
    g->nodes[last].in[0] = x;
    g->nodes[last].fused.mixed = true;
}

void dv_fold_depthwise(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed) {
    dv_graph *g = plan->graph;
    const dv_lowering l = {.plan = plan, .place = place, .options = options};
    for (int64_t k = 0; k < g->n_nodes; k++) {
        int32_t parts[3];
        if (!find_parts(g, place, k, parts)) {
            continue;
        }
        const int64_t last = g->nodes[k].fused.paired ? mix_behind(g, k) : k;
        if (last >= 0 && g->nodes[last].out != g->output && served(&l, parts, last)) {
            take(g, parts, last);
            *changed = true;
        }
    }
}

#define FIELD(member) ((uint32_t)offsetof(dv_args, member))

void dv_lower_norm_depthwise(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    const dv_node *node = dv_lower_now(l);
    const int32_t norm = node->fused.parts[PART_NORM];
    const dv_node *in = &g->nodes[node->fused.parts[PART_IN]];
    const dv_node *depthwise = &g->nodes[node->fused.parts[PART_DEPTHWISE]];
    const int64_t c = dv_lower_shape(l, node->in[0]).c;
    dv_lower_begin(l);
    dvk_norm_depthwise_args *a = &l->step.args.norm_depthwise;
    a->hidden = g->params[depthwise->weight].shape[1];
    a->act = depthwise->fused.act.kind;
    a->act_in = in->fused.act.kind;
    a->plain = norm < 0;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    if (norm >= 0) {
        a->eps = g->nodes[norm].eps;
        dv_lower_vector(l, FIELD(norm_depthwise.gamma), g->nodes[norm].weight, c);
        dv_lower_vector(l, FIELD(norm_depthwise.beta), g->nodes[norm].bias, c);
    }
    dv_lower_vector(l, FIELD(norm_depthwise.w_in), in->weight, a->hidden * c);
    dv_lower_vector(l, FIELD(norm_depthwise.b_in), in->bias, a->hidden);
    dv_lower_vector(l, FIELD(norm_depthwise.w_depth), depthwise->weight, 9 * a->hidden);
    dv_lower_vector(l, FIELD(norm_depthwise.b_depth), depthwise->bias, a->hidden);
    uint64_t macs = (uint64_t)a->hidden * (uint64_t)(c + 9);
    if (node != depthwise) {
        dv_lower_vector(l, FIELD(norm_depthwise.w_out), node->weight, a->y.c * a->hidden / 2);
        dv_lower_vector(l, FIELD(norm_depthwise.b_out), node->bias, a->y.c);
        macs += (uint64_t)(a->y.c * a->hidden / 2);
    }
    if (node->fused.n_res == 1) {
        dv_lower_view(l, &a->res, node->fused.res[0]);
        l->step.bytes += dv_view_bytes(&a->res);
    }
    dv_lower_commit(l, "norm_depthwise", &a->x, &a->y, 2 * macs * (uint64_t)(a->y.n * a->y.h * a->y.w));
}
