/* fold_depthwise.c - layer norm, 1x1 convolution, depthwise convolution and, behind the product of its halves, another 1x1
 * convolution, where a CUDA kernel of "norm_depthwise" makes all of them at once. */
#include <stddef.h>

#include "core/lower.h"

enum { PART_NORM, PART_IN, PART_DEPTHWISE };

static bool is_one(float v) {
    return !(v < 1.0f) && !(v > 1.0f);
}

static bool begins_plain(const dv_node *node) {
    return node->fused.norm < 0 && node->fused.pro_scale == DV_NO_PARAM && node->fused.pro_shift == DV_NO_PARAM &&
           node->fused.pro_act.kind == DVK_ACT_NONE;
}

static bool ends_plain(const dv_node *node) {
    return node->fused.act.kind == DVK_ACT_NONE && node->fused.n_res == 0 && !node->fused.gate &&
           is_one(node->fused.alpha);
}

static bool is_mix(const dv_node *node) { /* a 1x1 convolution and nothing in front of it */
    return !node->dead && node->op == DV_OP_CONV2D && node->kh == 1 && node->kw == 1 && node->stride <= 1 &&
           node->fused.upsample <= 1 && node->fused.shuffle <= 1 && begins_plain(node);
}

/* The live node that makes v, which nobody else reads; -1: none. */
static int64_t alone_behind(const dv_graph *g, const dv_placement *place, dv_value v) {
    const int64_t k = place->producer[v];
    return k >= 0 && !g->nodes[k].dead && g->values[v].uses == 1 && v != g->output ? k : -1;
}

/* Norm and 1x1 convolution ahead of depthwise node `at`. */
static bool find_parts(const dv_graph *g, const dv_placement *place, int64_t at, int32_t *parts) {
    const dv_node *depthwise = &g->nodes[at];
    if (depthwise->dead || depthwise->op != DV_OP_DEPTHWISE || depthwise->kh != 3 || depthwise->kw != 3 ||
        depthwise->stride != 1 || depthwise->pad_top != 1 || depthwise->pad_left != 1 || !begins_plain(depthwise) ||
        (!depthwise->fused.paired && !ends_plain(depthwise))) {
        return false;
    }
    const int64_t in = alone_behind(g, place, depthwise->in[0]);
    if (in < 0 || !is_mix(&g->nodes[in]) || !ends_plain(&g->nodes[in])) {
        return false;
    }
    const int64_t norm = alone_behind(g, place, g->nodes[in].in[0]);
    if (norm < 0 || g->nodes[norm].op != DV_OP_LAYER_NORM) {
        return false;
    }
    parts[PART_NORM] = (int32_t)norm;
    parts[PART_IN] = (int32_t)in;
    parts[PART_DEPTHWISE] = (int32_t)at;
    return true;
}

/* The 1x1 convolution that alone reads a product of halves and at most adds one value; -1: none. */
static int64_t mix_behind(const dv_graph *g, int64_t depthwise) {
    const dv_value v = g->nodes[depthwise].out;
    if (g->values[v].uses != 1 || v == g->output) {
        return -1;
    }
    for (int64_t k = depthwise + 1; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (is_mix(node) && node->in[0] == v) {
            const bool adds = node->fused.n_res == 1 && is_one(node->fused.beta[0]);
            return node->fused.act.kind == DVK_ACT_NONE && !node->fused.gate && is_one(node->fused.alpha) &&
                           (adds || node->fused.n_res == 0) && node->out != g->output
                       ? k
                       : -1;
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
    a->x = dv_view_planned(l->place, g->nodes[parts[PART_NORM]].in[0]);
    a->y = dv_view_planned(l->place, node->out);
    a->hidden = dv_shape_of(g, depthwise->in[0]).c;
    a->eps = g->nodes[parts[PART_NORM]].eps;
    a->act = depthwise->fused.act.kind;
    a->w_out = depthwise->fused.paired ? some : NULL;
    if (node->fused.n_res == 1) {
        a->res = dv_view_planned(l->place, node->fused.res[0]);
    }
    return dv_choose_kernel(l->options, "norm_depthwise", &args).cuda != NULL;
}

static void bury(dv_graph *g, int64_t k) {
    dv_node *node = &g->nodes[k];
    g->values[node->out].uses = 0;
    node->dead = true;
    node->n_in = 0;
    node->out = DV_NO_VALUE;
}

static void take(dv_graph *g, const int32_t *parts, int64_t last) {
    const dv_value x = g->nodes[parts[PART_NORM]].in[0];
    for (int i = PART_NORM; i <= PART_DEPTHWISE; i++) {
        if (parts[i] != last) {
            bury(g, parts[i]);
        }
        g->nodes[last].fused.parts[i] = parts[i];
    }
    g->nodes[last].in[0] = x;
    g->nodes[last].fused.mixed = true;
}

void dv_fold_depthwise(dv_plan *plan, const dv_placement *place, const dv_plan_options *options, bool *changed) {
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
    const dv_node *norm = &g->nodes[node->fused.parts[PART_NORM]];
    const dv_node *in = &g->nodes[node->fused.parts[PART_IN]];
    const dv_node *depthwise = &g->nodes[node->fused.parts[PART_DEPTHWISE]];
    const int64_t c = dv_lower_shape(l, node->in[0]).c;
    dv_lower_begin(l);
    dvk_norm_depthwise_args *a = &l->step.args.norm_depthwise;
    a->hidden = g->params[depthwise->weight].shape[1];
    a->eps = norm->eps;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(norm_depthwise.gamma), norm->weight, c);
    dv_lower_vector(l, FIELD(norm_depthwise.beta), norm->bias, c);
    dv_lower_vector(l, FIELD(norm_depthwise.w_in), in->weight, a->hidden * c);
    dv_lower_vector(l, FIELD(norm_depthwise.b_in), in->bias, a->hidden);
    dv_lower_vector(l, FIELD(norm_depthwise.w_depth), depthwise->weight, 9 * a->hidden);
    dv_lower_vector(l, FIELD(norm_depthwise.b_depth), depthwise->bias, a->hidden);
    uint64_t macs = (uint64_t)a->hidden * (uint64_t)(c + 9);
    if (node != depthwise) {
        a->act = depthwise->fused.act.kind;
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
