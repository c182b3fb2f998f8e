/* fuse_cuda_parts.h - what folding nodes into one another asks of them, and does to them (fold*.c). */
#ifndef DV_FOLD_PARTS_H
#define DV_FOLD_PARTS_H

#include "core/plan/lower.h"

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
