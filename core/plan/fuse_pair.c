/* fuse_pair.c - merges two convolutions into one step if a CUDA kernel computes both. The value between them then is
 * not stored, or is stored but not read again.
 *   "up_conv"         a transposed convolution with the addition behind it, then one without padding.
 *   "conv_down"       a convolution without padding whose result others read too, then one of stride 2 that reads it.
 *                     The first node computes both results.
 *   "norm_depthwise"  a layer norm, a 1x1 and a depthwise convolution, and another 1x1 behind the product of the
 *                     halves. Or a 1x1 and a depthwise convolution with their activations. */
#include <stddef.h>

#include "core/plan/choose.h"
#include "core/plan/fuse_cuda.h"
#include "core/plan/lower.h"

#define FIELD(member) ((uint32_t)offsetof(dvk_args, member))

enum { TAPS = 9 };

/* ---- conditions for both pairs of convolutions ---- */

/* Its epilogue is at most an activation with one slope, and exactly `residuals` residuals. */
static bool ends_with_slope(const dv_node *node, int32_t residuals) {
    const dvk_act act = node->fused.act.kind;
    return (act == DVK_ACT_NONE || act == DVK_ACT_RELU || act == DVK_ACT_LRELU) && node->fused.n_res == residuals &&
           !node->fused.gate && dv_is_one(node->fused.alpha);
}

static float slope_of(const dv_node *node) {
    const dvk_act act = node->fused.act.kind;
    return act == DVK_ACT_NONE ? 1.0f : act == DVK_ACT_RELU ? 0.0f : node->fused.act.slope;
}

/* A k x k convolution without padding. */
static bool is_valid_conv(const dv_memory_plan *place, const dv_node *node, int32_t k, int32_t stride) {
    const dv_graph *g = place->graph;
    const dv_cuda_node *cuda = dv_cuda_of(place, node);
    if (node->dead || node->op != DV_OP_CONV2D || node->kh != k || node->kw != k ||
        (node->stride > 1 ? node->stride : 1) != stride || node->pad_top != 0 || node->pad_left != 0 || node->phased) {
        return false;
    }
    const dv_shape in = dv_shape_of(g, node->in[0]), out = dv_shape_of(g, node->out);
    return out.h == (in.h - k) / stride + 1 && out.w == (in.w - k) / stride + 1 && dv_begins_plain(node) &&
           cuda->lower == NULL && node->fused.upsample <= 1 && cuda->shuffle <= 1 && cuda->winograd == 0 &&
           cuda->scale == DV_NO_VALUE && cuda->res_scale == DV_NO_VALUE && ends_with_slope(node, 0);
}

/* Whether a node needs the value's statistics or channel sums. The kernels of single convolutions write these; the
 * merged kernels do not. */
static bool is_summed(const dv_memory_plan *place, dv_value v) {
    const dv_graph *g = place->graph;
    bool yes = false;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        yes = yes || (!node->dead && node->n_in > 0 && node->in[0] == v &&
                      (node->op == DV_OP_GROUP_NORM || (node->op == DV_OP_MEAN && place->cuda[k].lower != NULL)));
    }
    return yes;
}

static double cost_of(const dv_lowering *l, int64_t conv) {
    dv_lowering apart = *l;
    if (dv_lower_try_conv(&apart, conv) < 0) {
        return 0.0;
    }
    const dvk_cuda_kernel *k = dv_lower_choose_conv(&apart, &apart.step.args).cuda;
    return k != NULL && k->cost != NULL ? k->cost(&apart.step.args, l->options->caps) : 1e30;
}

static uint64_t macs_of(const dvk_view *y, int64_t c_in, int64_t taps) {
    return (uint64_t)(y->n * y->h * y->w) * (uint64_t)(y->c * c_in * taps);
}

/* ---- up_conv ---- */

enum { PART_FIRST };

/* A 2 x 2 transposed convolution; a residual as large as its result is added behind the activation. */
static bool is_up_conv(const dv_memory_plan *place, const dv_node *node) {
    const dv_graph *g = place->graph;
    const dv_cuda_node *cuda = dv_cuda_of(place, node);
    return !node->dead && node->op == DV_OP_CONV2D && node->kh == 1 && node->kw == 1 && node->stride <= 1 &&
           !node->phased && node->fused.upsample <= 1 && cuda->shuffle == 2 && cuda->lower == NULL &&
           dv_begins_plain(node) && cuda->res_scale == DV_NO_VALUE && ends_with_slope(node, 1) &&
           (!node->fused.act_last || node->fused.act.kind == DVK_ACT_NONE) && dv_is_one(node->fused.beta[0]) &&
           dv_shape_of(g, node->fused.res[0]).h == dv_shape_of(g, node->out).h;
}

/* The first convolution of an up_conv whose second is node k; -1: none. */
static int64_t first_of_up(const dv_memory_plan *place, int64_t k) {
    const dv_graph *g = place->graph;
    const dv_node *node = &g->nodes[k];
    if (!is_valid_conv(place, node, 3, 1) || node->out == g->output) {
        return -1;
    }
    const int64_t first = dv_behind(place, node->in[0], 1);
    return first >= 0 && is_up_conv(place, &g->nodes[first]) ? first : -1;
}

static bool up_gains(const dv_lowering *l, int64_t first, int64_t second) {
    static const float some[1] = {0.0f};
    const dv_graph *g = l->plan->graph;
    dvk_args args = {.up_conv = {.w_up = some, .w = some}};
    args.up_conv.x = dv_view_planned(l->place, g->nodes[first].in[0]);
    args.up_conv.res = dv_view_planned(l->place, g->nodes[first].fused.res[0]);
    args.up_conv.y = dv_view_planned(l->place, g->nodes[second].out);
    const dvk_cuda_kernel *k = dv_choose_kernel(l->options, "up_conv", &args).cuda;
    return k != NULL && k->cost(&args, l->options->caps) <= cost_of(l, first) + cost_of(l, second);
}

static void lower_up_conv(dv_lowering *l) {
    const dv_cuda_node *cuda = dv_lower_cuda(l);
    const dv_node *second = dv_lower_now(l), *first = &l->plan->graph->nodes[cuda->parts[PART_FIRST]];
    dv_lower_begin(l);
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
    if (cuda->scale != DV_NO_VALUE) {
        uint64_t at = 0;
        dv_view_of(l->place, cuda->scale, &at);
        dv_lower_bind(l, DV_BIND_ARENA, FIELD(up_conv.scale), at);
    }
    l->step.bytes += dv_view_bytes(&a->res);
    const uint64_t macs = macs_of(&a->res, a->x.c, 1) + macs_of(&a->y, middle, TAPS);
    dv_lower_commit(l, "up_conv", &a->x, &a->y, 2 * macs);
}

/* The second node computes both convolutions, from the operand of the first. */
static void take_up(dv_lowering *l, int64_t first, int64_t second) {
    dv_graph *g = l->plan->graph;
    const dv_node *from = &g->nodes[first];
    dv_node *node = &g->nodes[second];
    dv_cuda_node *cuda = &l->cuda[second];
    node->in[0] = from->in[0];
    cuda->lower = lower_up_conv;
    cuda->parts[PART_FIRST] = (int32_t)first;
    cuda->scale = l->cuda[first].scale;
    node->fused.n_res = from->fused.n_res;
    node->fused.res[0] = from->fused.res[0];
    dv_node_remove(g, first);
    g->nodes[first].fused.n_res = 0;
}

static void fuse_up_convs(dv_lowering *l, bool *changed) {
    const dv_graph *g = l->plan->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const int64_t first = first_of_up(l->place, k);
        if (first >= 0 && !is_summed(l->place, g->nodes[k].out) && up_gains(l, first, k)) {
            take_up(l, first, k);
            *changed = true;
        }
    }
}

/* ---- conv_down ---- */

enum { PART_SECOND, PARITIES = 4 };

/* The first convolution of a conv_down whose second is node k; -1: none. */
static int64_t first_of_down(const dv_memory_plan *place, int64_t k) {
    const dv_graph *g = place->graph;
    const dv_node *node = &g->nodes[k];
    if (!is_valid_conv(place, node, 2, 2) || node->out == g->output) {
        return -1;
    }
    const int64_t first = place->producer[node->in[0]];
    return first >= 0 && is_valid_conv(place, &g->nodes[first], 3, 1) ? first : -1;
}

static bool down_gains(const dv_lowering *l, int64_t first, int64_t second) {
    static const float some[1] = {0.0f};
    const dv_graph *g = l->plan->graph;
    dvk_args args = {.conv_down = {.w = some, .w_down = some}};
    args.conv_down.x = dv_view_planned(l->place, g->nodes[first].in[0]);
    args.conv_down.y = dv_view_planned(l->place, g->nodes[first].out);
    args.conv_down.z = dv_view_planned(l->place, g->nodes[second].out);
    const dvk_cuda_kernel *k = dv_choose_kernel(l->options, "conv_down", &args).cuda;
    return k != NULL && k->cost(&args, l->options->caps) <= cost_of(l, first) + cost_of(l, second);
}

static void lower_conv_down(dv_lowering *l) {
    const dv_cuda_node *cuda = dv_lower_cuda(l);
    const dv_node *first = dv_lower_now(l), *second = &l->plan->graph->nodes[cuda->parts[PART_SECOND]];
    dv_lower_begin(l);
    dvk_conv_down_args *a = &l->step.args.conv_down;
    a->slope = slope_of(first);
    a->slope_down = slope_of(second);
    dv_lower_view(l, &a->x, first->in[0]);
    dv_lower_view(l, &a->y, first->out);
    dv_lower_view(l, &a->z, cuda->also);
    dv_lower_vector(l, FIELD(conv_down.w), first->weight, a->y.c * a->x.c * TAPS);
    dv_lower_vector(l, FIELD(conv_down.b), first->bias, a->y.c);
    dv_lower_vector(l, FIELD(conv_down.w_down), second->weight, a->z.c * a->y.c * PARITIES);
    dv_lower_vector(l, FIELD(conv_down.b_down), second->bias, a->z.c);
    l->step.bytes += dv_view_bytes(&a->z);
    const uint64_t macs = macs_of(&a->y, a->x.c, TAPS) + macs_of(&a->z, a->y.c, PARITIES);
    dv_lower_commit(l, "conv_down", &a->x, &a->y, 2 * macs);
}

/* The first node computes both convolutions, so the second's result exists earlier. */
static void take_down(dv_lowering *l, int64_t first, int64_t second) {
    dv_graph *g = l->plan->graph;
    dv_cuda_node *cuda = &l->cuda[first];
    const dv_value also = g->nodes[second].out;
    const int32_t uses = g->values[also].uses;
    cuda->lower = lower_conv_down;
    cuda->parts[PART_SECOND] = (int32_t)second;
    cuda->also = also;
    g->values[g->nodes[first].out].uses--;
    dv_node_remove(g, second);
    g->values[also].uses = uses;
    g->values[also].producer = (int32_t)first;
}

static void fuse_conv_downs(dv_lowering *l, bool *changed) {
    const dv_graph *g = l->plan->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const int64_t first = first_of_down(l->place, k);
        if (first >= 0 && !is_summed(l->place, g->nodes[k].out) && !is_summed(l->place, g->nodes[first].out) &&
            down_gains(l, first, k)) {
            take_down(l, first, k);
            *changed = true;
        }
    }
}

/* ---- norm_depthwise ---- */

enum { PART_NORM, PART_IN, PART_DEPTHWISE }; /* PART_NORM is -1 without a norm */

static bool ends_with(const dv_node *node, dvk_act act) {
    return node->fused.act.kind == act && node->fused.n_res == 0 && !node->fused.gate && dv_is_one(node->fused.alpha);
}

/* Finds the optional norm and the 1x1 convolution ahead of depthwise node `at`. */
static bool find_parts(const dv_memory_plan *place, int64_t at, int32_t *parts) {
    const dv_graph *g = place->graph;
    const dv_cuda_node *cuda = &place->cuda[at];
    const dv_node *depthwise = &g->nodes[at];
    if (depthwise->dead || cuda->lower != NULL || depthwise->op != DV_OP_DEPTHWISE || depthwise->kh != 3 ||
        depthwise->kw != 3 || depthwise->stride != 1 || depthwise->pad_top != 1 || depthwise->pad_left != 1 ||
        !dv_begins_plain(depthwise)) {
        return false;
    }
    const int64_t in = dv_behind(place, depthwise->in[0], 1);
    if (in < 0 || !dv_is_linear(place, &g->nodes[in])) {
        return false;
    }
    parts[PART_NORM] = -1;
    parts[PART_IN] = (int32_t)in;
    parts[PART_DEPTHWISE] = (int32_t)at;
    if (!cuda->paired && ends_with(depthwise, DVK_ACT_GELU)) {
        return ends_with(&g->nodes[in], DVK_ACT_GELU);
    }
    const int64_t norm = dv_behind(place, g->nodes[in].in[0], 1);
    parts[PART_NORM] = (int32_t)norm;
    return norm >= 0 && g->nodes[norm].op == DV_OP_LAYER_NORM && ends_with(&g->nodes[in], DVK_ACT_NONE) &&
           (cuda->paired || ends_with(depthwise, DVK_ACT_NONE));
}

/* The operand of the first part. */
static dv_value start_of(const dv_graph *g, const int32_t *parts) {
    return g->nodes[parts[parts[PART_NORM] >= 0 ? PART_NORM : PART_IN]].in[0];
}

/* The 1x1 convolution that is the only reader of a product of halves and adds at most one value; -1: none. */
static int64_t mix_behind(const dv_memory_plan *place, int64_t depthwise) {
    const dv_graph *g = place->graph;
    const dv_value v = g->nodes[depthwise].out;
    if (g->values[v].uses != 1 || v == g->output) {
        return -1;
    }
    for (int64_t k = depthwise + 1; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (dv_is_linear(place, node) && node->in[0] == v) {
            return node->fused.act.kind == DVK_ACT_NONE && dv_adds_one(node) && node->out != g->output ? k : -1;
        }
    }
    return -1;
}

static bool has_depthwise_kernel(const dv_lowering *l, const int32_t *parts, int64_t last) {
    static const float some[1] = {0.0f};
    const dv_graph *g = l->plan->graph;
    const dv_node *node = &g->nodes[last];
    const dv_node *depthwise = &g->nodes[parts[PART_DEPTHWISE]];
    dvk_args args = {.norm_depthwise = {.gamma = some, .beta = some, .w_in = some, .w_depth = some}};
    dvk_norm_depthwise_args *a = &args.norm_depthwise;
    a->x = dv_view_planned(l->place, start_of(g, parts));
    a->y = dv_view_planned(l->place, node->out);
    a->hidden = dv_shape_of(g, depthwise->in[0]).c;
    a->act = depthwise->fused.act.kind;
    a->act_in = g->nodes[parts[PART_IN]].fused.act.kind;
    a->plain = parts[PART_NORM] < 0;
    a->w_out = l->cuda[parts[PART_DEPTHWISE]].paired ? some : NULL;
    if (node->fused.n_res == 1) {
        a->res = dv_view_planned(l->place, node->fused.res[0]);
    }
    return dv_choose_kernel(l->options, "norm_depthwise", &args).cuda != NULL;
}

static void lower_norm_depthwise(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    const dv_node *node = dv_lower_now(l);
    const int32_t *parts = dv_lower_cuda(l)->parts;
    const int32_t norm = parts[PART_NORM];
    const dv_node *in = &g->nodes[parts[PART_IN]];
    const dv_node *depthwise = &g->nodes[parts[PART_DEPTHWISE]];
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

static void take_depthwise(dv_lowering *l, const int32_t *parts, int64_t last) {
    dv_graph *g = l->plan->graph;
    const dv_value x = start_of(g, parts);
    for (int i = PART_NORM; i <= PART_DEPTHWISE; i++) {
        if (parts[i] >= 0 && parts[i] != last) {
            dv_node_remove(g, parts[i]);
        }
        l->cuda[last].parts[i] = parts[i];
    }
    g->nodes[last].in[0] = x;
    l->cuda[last].lower = lower_norm_depthwise;
}

static void fuse_depthwise(dv_lowering *l, bool *changed) {
    const dv_graph *g = l->plan->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        int32_t parts[3];
        if (!find_parts(l->place, k, parts)) {
            continue;
        }
        const int64_t last = l->cuda[k].paired ? mix_behind(l->place, k) : k;
        if (last >= 0 && g->nodes[last].out != g->output && has_depthwise_kernel(l, parts, last)) {
            take_depthwise(l, parts, last);
            *changed = true;
        }
    }
}

/* ---- all of it ---- */

void dv_fuse_pairs(dv_lowering *l, bool *changed) {
    fuse_up_convs(l, changed);
    fuse_conv_downs(l, changed);
    fuse_depthwise(l, changed);
}
