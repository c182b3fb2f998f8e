/* fuse_cuda.h - passes that let CUDA kernels absorb neighbouring steps. They rewrite a plan's graph before its nodes
 * are lowered. If a pass merges several nodes into one, that node names the function that lowers it (cuda_node.h). */
#ifndef DV_PLAN_FUSE_CUDA_H
#define DV_PLAN_FUSE_CUDA_H

#include "core/plan/lowering.h"

/* ---- passes ----
 * Each rewrites the plan's graph and the table of dv_cuda_node. *changed: the values must be placed again. */

/* fuse_cuda.c: pixel shuffles behind convolutions, products with a convolution's result */
davy_result dv_fuse_convs(dv_lowering *l, bool *changed);
/* fuse_se.c: squeeze and excitation */
davy_result dv_fuse_se(dv_lowering *l, bool *changed);
/* fuse_pair.c: two convolutions in one step, and the neighbours of a depthwise convolution */
void dv_fuse_pairs(dv_lowering *l, bool *changed);
/* fuse_swin.c: the halves of transformer blocks */
void dv_fuse_swin(dv_lowering *l, bool *changed);
/* fuse_winograd.c: convolutions over time that read transformed frames */
davy_result dv_fuse_winograd(dv_lowering *l, bool *changed);

/* Call these after the values are placed. The first decides how each group norm gets its statistics (`conv` and
 * `chunks` of place->norms). The second adds the buffers of squeeze and excitation. The third decides whether the last
 * convolution stores the output (plan->direct); the output's buffer is then empty. */
davy_result dv_fuse_statistics(dv_lowering *l);
davy_result dv_place_se(dv_lowering *l);
davy_result dv_fuse_store(dv_lowering *l);

/* ---- queries and edits of nodes that the passes share ---- */

static inline bool dv_is_one(float v) {
    return !(v < 1.0f) && !(v > 1.0f);
}

/* Whether a node has no prologue. */
static inline bool dv_begins_plain(const dv_node *node) {
    return node->fused.norm < 0 && node->fused.pro_scale == DV_NO_PARAM && node->fused.pro_shift == DV_NO_PARAM &&
           node->fused.pro_act.kind == DVK_ACT_NONE;
}

/* A 1x1 convolution without a prologue. */
static inline bool dv_reads_plain_1x1(const dv_memory_plan *place, const dv_node *node) {
    const dv_cuda_node *cuda = dv_cuda_of(place, node);
    return !node->dead && node->op == DV_OP_CONV2D && node->kh == 1 && node->kw == 1 && node->stride <= 1 &&
           !node->phased && node->fused.upsample <= 1 && cuda->shuffle <= 1 && cuda->lower == NULL &&
           dv_begins_plain(node);
}

/* A 1x1 convolution without a prologue; its epilogue is at most a bias, an activation and residuals. */
static inline bool dv_is_linear(const dv_memory_plan *place, const dv_node *node) {
    return dv_reads_plain_1x1(place, node) && !node->fused.gate && dv_is_one(node->fused.alpha);
}

/* Whether a linear node adds at most one residual, with factor 1. */
static inline bool dv_adds_one(const dv_node *node) {
    return node->fused.n_res == 0 || (node->fused.n_res == 1 && dv_is_one(node->fused.beta[0]));
}

/* The live node that computes v, if v has exactly `readers` readers; else -1. */
static inline int64_t dv_behind(const dv_memory_plan *place, dv_value v, int32_t readers) {
    const dv_graph *g = place->graph;
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

/* Node `keep` moves to the place of node `at` in the order and computes its result. All its operands exist there. */
static inline void dv_take_place(dv_lowering *l, int64_t keep, int64_t at) {
    dv_graph *g = l->plan->graph;
    dv_node *other = &g->nodes[at];
    dv_node *node = &g->nodes[keep];
    g->values[node->out].uses = 0;
    node->out = other->out;
    other->dead = true;
    other->n_in = 0;
    other->out = DV_NO_VALUE;
    const dv_node moved = *node;
    *node = *other; /* dead, but it owns its label */
    *other = moved;
    g->values[moved.out].producer = (int32_t)at;
    const dv_cuda_node cuda = l->cuda[keep];
    l->cuda[keep] = l->cuda[at];
    l->cuda[at] = cuda;
}

#endif
