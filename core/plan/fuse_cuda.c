/* fuse_cuda.c - steps that a CUDA convolution can take over: the pixel shuffle behind it, the statistics of the group norm
 * behind it, and the "store" behind the last one. Each saves a pass over the largest pictures of a network. Whether it can depends on the kernel that is
 * chosen, so the arguments are made as they will be, but for the offsets in the arena, and the kernel is asked. */
#include <stddef.h>

#include "core/base/error.h"
#include "core/plan/fuse_cuda_parts.h"

enum { STATS_CHUNKS = 512 }; /* pieces of a picture for a step that does nothing but statistics */

/* ---- pixel shuffle ---- */

/* The convolution whose result only this shuffle reads, with nothing between that a shuffle would disturb; -1: none. */
static int64_t conv_before(const dv_graph *g, const dv_memory_plan *place, const dv_node *shuffle) {
    const dv_value v = shuffle->in[0];
    const int64_t k = place->producer[v];
    const dv_node *conv = k >= 0 ? &g->nodes[k] : NULL;
    const bool own_place =
        place->places[shuffle->out].channel == 0 &&
        place->buffers[place->places[shuffle->out].buffer].shape.c == g->values[shuffle->out].shape.c;
    return conv != NULL && conv->op == DV_OP_CONV2D && g->values[v].uses == 1 && v != g->output &&
                   conv->fused.n_res == 0 && !conv->fused.gate && own_place
               ? k
               : -1;
}

static bool has_skip(const dv_node *shuffle) {
    return shuffle->n_in > 1 && shuffle->in[1] != DV_NO_VALUE;
}

static double cost_of(const dv_lowering *l, const dvk_cuda_kernel *k, const void *args) {
    return k->cost != NULL ? k->cost(args, l->options->caps) : 0.0;
}

/* What the shuffle costs as a step. */
static double shuffle_cost(const dv_lowering *l, const dv_node *shuffle) {
    dv_args args = {.resample = {.r = shuffle->r}};
    args.resample.x = dv_view_planned(l->place, shuffle->in[0]);
    args.resample.y = dv_view_planned(l->place, shuffle->out);
    if (has_skip(shuffle)) {
        args.resample.res = dv_view_planned(l->place, shuffle->in[1]);
    }
    const dvk_cuda_kernel *k = dv_choose_kernel(l->options, "pixel_shuffle", &args).cuda;
    return k != NULL ? cost_of(l, k, &args) : 1e30;
}

static davy_result can_shuffle(dv_lowering *l, int64_t k, const dv_node *shuffle, bool *yes) {
    const davy_result r = dv_lower_try_conv(l, k);
    if (r != DAVY_OK) {
        return r;
    }
    dv_args apart = l->step.args;
    const dvk_cuda_kernel *apart_kernel = dv_lower_choose_conv(l, &apart).cuda;
    dvk_conv2d_args *a = &l->step.args.conv;
    a->y = dv_view_planned(l->place, shuffle->out);
    a->epi.shuffle = shuffle->r;
    if (has_skip(shuffle)) {
        a->epi.res[0] = dv_view_planned(l->place, shuffle->in[1]);
        a->epi.beta[0] = 1.0f;
        a->epi.n_res = 1;
    }
    const dvk_cuda_kernel *kernel = dv_lower_choose_conv(l, &l->step.args).cuda;
    *yes = kernel != NULL && (apart_kernel == NULL ||
                              cost_of(l, kernel, a) <= cost_of(l, apart_kernel, &apart) + shuffle_cost(l, shuffle));
    return DAVY_OK;
}

/* The convolution makes the shuffle's result, in its place of the order: the skip is there by then. */
static void take_shuffle(dv_graph *g, int64_t conv, int64_t at) {
    const dv_node *shuffle = &g->nodes[at];
    dv_node *node = &g->nodes[conv];
    node->fused.shuffle = shuffle->r;
    if (has_skip(shuffle)) {
        node->fused.res[0] = shuffle->in[1];
        node->fused.beta[0] = 1.0f;
        node->fused.n_res = 1;
    }
    dv_take_place(g, conv, at);
}

static bool only_adds(const dv_node *add) {
    return add->fused.n_res == 1 && dv_is_one(add->fused.alpha) && dv_is_one(add->fused.beta[0]) && !add->fused.gate &&
           add->fused.act.kind == DVK_ACT_NONE && add->fused.norm < 0 && add->fused.pro_scale == DV_NO_PARAM &&
           add->fused.pro_act.kind == DVK_ACT_NONE;
}

/* Of a convolution that has just taken a shuffle: the addition that alone reads its result, and something of that size
 * besides; -1: none. */
static int64_t add_behind(const dv_graph *g, int64_t conv) {
    const dv_value v = g->nodes[conv].out;
    if (g->nodes[conv].fused.n_res > 0 || g->values[v].uses != 1 || v == g->output) {
        return -1;
    }
    for (int64_t k = conv + 1; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (!node->dead && node->op == DV_OP_ADD && (node->in[0] == v || node->fused.res[0] == v)) {
            return only_adds(node) ? k : -1;
        }
    }
    return -1;
}

static dv_value other_of(const dv_node *add, dv_value v) {
    return add->in[0] == v ? add->fused.res[0] : add->in[0];
}

/* Only kernels made for it can: it saves the addition's three passes. */
static davy_result can_add(dv_lowering *l, int64_t conv, const dv_node *add, bool *yes) {
    const davy_result r = dv_lower_try_conv(l, conv);
    if (r != DAVY_OK) {
        return r;
    }
    dvk_epilogue *e = &l->step.args.conv.epi;
    e->res[0] = dv_view_planned(l->place, other_of(add, l->plan->graph->nodes[conv].out));
    l->step.args.conv.y = dv_view_planned(l->place, add->out);
    e->beta[0] = 1.0f;
    e->n_res = 1;
    *yes = dv_lower_choose_conv(l, &l->step.args).cuda != NULL;
    return DAVY_OK;
}

/* In the addition's place of the order: what is added is there by then. */
static void take_add(dv_graph *g, int64_t conv, int64_t at) {
    dv_node *node = &g->nodes[conv];
    node->fused.res[0] = other_of(&g->nodes[at], node->out);
    node->fused.beta[0] = 1.0f;
    node->fused.n_res = 1;
    dv_take_place(g, conv, at);
}

static davy_result fold_add(dv_lowering *l, int64_t conv) {
    dv_graph *g = l->plan->graph;
    const int64_t add = add_behind(g, conv);
    bool yes = false;
    const davy_result r = add >= 0 ? can_add(l, conv, &g->nodes[add], &yes) : DAVY_OK;
    if (yes) {
        take_add(g, conv, add);
    }
    return r;
}

davy_result dv_fold_shuffles(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options,
                             bool *changed) {
    dv_graph *g = plan->graph;
    dv_lowering l = {.plan = plan, .place = place, .options = options};
    *changed = false;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        const bool shuffle = !node->dead && node->op == DV_OP_PIXEL_SHUFFLE;
        const int64_t conv = shuffle ? conv_before(g, place, node) : -1;
        bool yes = false;
        const davy_result r = conv >= 0 ? can_shuffle(&l, conv, node, &yes) : DAVY_OK;
        if (r != DAVY_OK) {
            return r;
        }
        if (yes) {
            take_shuffle(g, conv, k);
            *changed = true;
            const davy_result added = fold_add(&l, k);
            if (added != DAVY_OK) {
                return added;
            }
        }
    }
    return DAVY_OK;
}

/* ---- group norm ---- */

/* The convolution that makes exactly what is normalised; -1: none. */
static int64_t conv_normalised(const dv_graph *g, const dv_memory_plan *place, const dv_node *norm) {
    const dv_value v = norm->in[0];
    const int64_t k = place->producer[v];
    if (k < 0 || g->nodes[k].op != DV_OP_CONV2D || g->nodes[k].fused.shuffle > 1 || g->nodes[k].fused.mixed ||
        place->norms[k].writes > 0) {
        return -1;
    }
    const dv_plan_buffer *b = &place->buffers[place->places[v].buffer];
    const bool whole = place->places[v].channel == 0 && b->shape.c == g->values[v].shape.c;
    return whole || b->ring ? k : -1;
}

/* Chunks of a picture that the convolution's kernel would write; 0: it does not. */
static int64_t chunks_of(const dv_lowering *l, const dv_node *norm) {
    static float somewhere;
    dv_args args = l->step.args;
    const dvk_cuda_kernel *k = dv_lower_choose_conv(l, &args).cuda;
    args.conv.epi.stats = &somewhere;
    args.conv.epi.stats_groups = norm->groups;
    return k == NULL || k->stats_chunks == NULL || (k->supports != NULL && !k->supports(&args, l->options->caps))
               ? 0
               : k->stats_chunks(&args, l->options->caps);
}

davy_result dv_fold_norms(dv_plan *plan, dv_memory_plan *place, const dv_plan_options *options) {
    const dv_graph *g = plan->graph;
    dv_lowering l = {.plan = plan, .place = place, .options = options};
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (node->dead || node->op != DV_OP_GROUP_NORM) {
            continue;
        }
        const int64_t conv = conv_normalised(g, place, node);
        dv_norm_place *norm = &place->norms[k];
        norm->chunks = dv_min(dv_shape_of(g, node->in[0]).h, STATS_CHUNKS);
        if (conv >= 0 && dv_lower_try_conv(&l, conv) != DAVY_OK) {
            return l.result;
        }
        const int64_t chunks = conv >= 0 ? chunks_of(&l, node) : 0;
        if (chunks > 0) {
            norm->conv = (int32_t)conv;
            norm->chunks = chunks;
            place->norms[conv].writes++;
        }
    }
    return DAVY_OK;
}

/* ---- store ---- */

/* The last node of all, a convolution that makes the output, whole and in a buffer of its own; -1: there is none. */
static int64_t conv_last(const dv_graph *g, const dv_memory_plan *place) {
    const int32_t buffer = place->places[g->output].buffer;
    const int64_t conv = place->producer[g->output];
    bool alone = conv >= 0 && g->nodes[conv].op == DV_OP_CONV2D && g->output != g->input;
    for (int64_t v = 0; alone && v < g->n_values; v++) {
        alone = v == g->output || place->places[v].buffer != buffer;
    }
    for (int64_t k = conv + 1; alone && k < g->n_nodes; k++) {
        alone = g->nodes[k].dead;
    }
    return alone ? conv : -1;
}

davy_result dv_fold_store(dv_plan *plan, dv_memory_plan *place, const dv_plan_options *options) {
    dv_lowering l = {.plan = plan, .place = place, .options = options};
    const int64_t conv = conv_last(plan->graph, place);
    const davy_result r = conv >= 0 ? dv_lower_try_conv(&l, conv) : DAVY_OK;
    if (r != DAVY_OK || conv < 0) {
        return r;
    }
    const dvk_cuda_kernel *k = dv_lower_choose_conv(&l, &l.step.args).cuda;
    plan->direct = k != NULL && k->stores != NULL && k->stores(&l.step.args, options->caps);
    if (plan->direct) {
        place->blocks[place->places[plan->graph->output].buffer].bytes = 0;
    }
    return DAVY_OK;
}
