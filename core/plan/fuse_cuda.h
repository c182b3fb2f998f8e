/* fuse_cuda.h - what CUDA kernels take over from the steps around them: passes that rewrite a plan's graph before its nodes are
 * lowered, the steps of the nodes that they have made, and what they ask of nodes. */
#ifndef DV_PLAN_FUSE_CUDA_H
#define DV_PLAN_FUSE_CUDA_H

#include "core/plan/lowering.h"

/* ---- passes ---- */

/* Rewrites the plan's graph where a convolution's kernel shuffles pixels itself; *changed: place the values anew. */
davy_result dv_fold_shuffles(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for products that a kernel makes along with one of their factors (fuse_cuda.c). */
davy_result dv_fold_products(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for pictures whose channels are scaled by what becomes of their means (fuse_se.c); then, once the values are
 * placed again, buffers for that. */
davy_result dv_fold_excites(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
davy_result dv_place_excites(dv_plan *plan, dv_memory_plan *place, const dv_plan_options *options);
/* The same for two convolutions in one (fuse_pair.c). */
void dv_fold_up_convs(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for two of which the first's result is wanted, too (fuse_pair.c). */
void dv_fold_conv_downs(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for what leads to a depthwise convolution, and for what follows its paired halves (fuse_pair.c). */
void dv_fold_depthwise(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for the halves of transformer blocks (fuse_swin.c). */
void dv_fold_swin(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for what leads to the frames of a convolution over time, where its kernel reads them transformed
 * (fuse_winograd.c). */
davy_result dv_fold_winograd(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* Decides how each group norm gets its statistics: `conv` and `chunks` of place->norms. */
davy_result dv_fold_norms(dv_plan *plan, dv_memory_plan *place, const dv_plan_options *options);
/* Sets plan->direct, and the output's buffer takes no room, where the last convolution's kernel can store it. */
davy_result dv_fold_store(dv_plan *plan, dv_memory_plan *place, const dv_plan_options *options);

/* ---- the steps of nodes that compute several ---- */

void dv_lower_norm_depthwise(dv_lowering *l); /* fuse_pair.c */
void dv_lower_up_conv(dv_lowering *l);
void dv_lower_conv_down(dv_lowering *l);
void dv_lower_swin(dv_lowering *l);   /* fuse_swin.c */
void dv_lower_excite(dv_lowering *l); /* fuse_se.c */

/* ---- nodes ---- */

static inline bool dv_is_one(float v) {
    return !(v < 1.0f) && !(v > 1.0f);
}

/* Whether a node takes what it reads as it is. */
static inline bool dv_begins_plain(const dv_node *node) {
    return node->fused.norm < 0 && node->fused.pro_scale == DV_NO_PARAM && node->fused.pro_shift == DV_NO_PARAM &&
           node->fused.pro_act.kind == DVK_ACT_NONE;
}

/* A 1x1 convolution and nothing in front of it. */
static inline bool dv_reads_plain_1x1(const dv_node *node) {
    return !node->dead && node->op == DV_OP_CONV2D && node->kh == 1 && node->kw == 1 && node->stride <= 1 &&
           !node->phased && node->fused.upsample <= 1 && node->fused.shuffle <= 1 && !node->fused.mixed &&
           dv_begins_plain(node);
}

/* Behind it a bias, an activation and residuals at most. */
static inline bool dv_is_linear(const dv_node *node) {
    return dv_reads_plain_1x1(node) && !node->fused.gate && dv_is_one(node->fused.alpha);
}

/* Whether all that a linear node adds is one value, or nothing. */
static inline bool dv_adds_one(const dv_node *node) {
    return node->fused.n_res == 0 || (node->fused.n_res == 1 && dv_is_one(node->fused.beta[0]));
}

/* The live node that makes v, which so many read; -1: none. */
static inline int64_t dv_behind(const dv_graph *g, const dv_memory_plan *place, dv_value v, int32_t readers) {
    const int64_t k = place->producer[v];
    return k >= 0 && !g->nodes[k].dead && g->values[v].uses == readers && v != g->output ? k : -1;
}

static inline void dv_node_remove(dv_graph *g, int64_t k) {
    dv_node *node = &g->nodes[k];
    g->values[node->out].uses = 0;
    node->dead = true;
    node->n_in = 0;
    node->out = DV_NO_VALUE;
}

/* Node `keep` makes what node `at` made, in its place of the order: all it reads is there by then. */
static inline void dv_take_place(dv_graph *g, int64_t keep, int64_t at) {
    dv_node *other = &g->nodes[at];
    dv_node *node = &g->nodes[keep];
    g->values[node->out].uses = 0;
    node->out = other->out;
    other->dead = true;
    other->n_in = 0;
    other->out = DV_NO_VALUE;
    const dv_node moved = *node;
    *node = *other; /* dead, but owns its label */
    *other = moved;
    g->values[moved.out].producer = (int32_t)at;
}

#endif
