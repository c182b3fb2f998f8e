/* memory_types.c - what memory.c has to know of every value before it decides: who makes it, who reads it last, and as what it
 * is stored. */
#include "core/plan/memory_priv.h"

/* ---- uses ---- */

static void note_use(dv_memory_plan *p, dv_value v, int64_t node) {
    if (v != DV_NO_VALUE && p->last_use[v] < node) {
        p->last_use[v] = node;
    }
}

static bool reads_rows(dv_op op) {
    return op == DV_OP_LAYER_NORM || op == DV_OP_RMS_NORM;
}

static void find_uses(dv_memory_plan *p) {
    const dv_graph *g = p->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (node->dead) {
            continue;
        }
        if (node->out != DV_NO_VALUE) {
            p->producer[node->out] = (int32_t)k;
        }
        if (node->fused.also != DV_NO_VALUE) {
            p->producer[node->fused.also] = (int32_t)k;
        }
        if (reads_rows(node->op)) {
            p->by_rows[node->in[0]] = p->by_rows[node->out] = true;
        }
        for (int32_t i = 0; i < node->n_in; i++) {
            note_use(p, node->in[i], k);
        }
        for (int32_t i = 0; i < node->fused.n_res; i++) {
            note_use(p, node->fused.res[i], k);
        }
        note_use(p, node->fused.norm_of, k);
        if (dv_frames_of_bands(p, node) != NULL) {
            note_use(p, dv_frames_of_bands(p, node)->in[0], k);
        }
        note_use(p, node->fused.scale, k);
        note_use(p, node->fused.res_scale, k);
    }
    note_use(p, g->output, g->n_nodes);
}

/* ---- types ---- */

/* From the output back to the convolutions that give it, and through 1x1 ones, which only mix channels. */
static void mark_output_f32(dv_memory_plan *p, dv_value v) {
    const dv_node *node = dv_place_producer(p, v);
    if (p->dtypes[v] == DVK_F32 && v != p->graph->output) {
        return;
    }
    p->dtypes[v] = DVK_F32;
    if ((node->op == DV_OP_CONV2D && node->kh > 1) || node->op == DV_OP_ATTENTION || node->op == DV_OP_INPUT) {
        return;
    }
    const int32_t n_in = node->op == DV_OP_DYSAMPLE ? 1 : node->n_in; /* not the offsets */
    for (int32_t i = 0; i < n_in; i++) {
        if (node->in[i] != DV_NO_VALUE) {
            mark_output_f32(p, node->in[i]);
        }
    }
    for (int32_t i = 0; i < node->fused.n_res; i++) {
        mark_output_f32(p, node->fused.res[i]);
    }
}

/* What decides who belongs to which token, and the few tokens themselves, is f32. */
static void mark_dictionary_f32(dv_memory_plan *p) {
    for (int64_t k = 0; k < p->graph->n_nodes; k++) {
        const dv_node *node = &p->graph->nodes[k];
        const dv_op op = node->op;
        if (node->dead) {
            continue;
        }
        if (op == DV_OP_TOKENS || op == DV_OP_SIMILARITY || op == DV_OP_ORDER || op == DV_OP_REFINE) {
            p->dtypes[node->out] = DVK_F32;
        }
        if (op == DV_OP_SIMILARITY) {
            p->dtypes[node->in[0]] = DVK_F32;
        }
        if (op == DV_OP_SIMILARITY || op == DV_OP_MIX) {
            p->dtypes[node->in[1]] = DVK_F32;
        }
    }
}

/* Transformed frames are f16 whatever the network's values are stored as. */
static void mark_winograd_f16(dv_memory_plan *p) {
    for (int64_t k = 0; k < p->graph->n_nodes; k++) {
        const dv_node *node = &p->graph->nodes[k];
        if (!node->dead && node->fused.winograd > 0 && node->op != DV_OP_CONV2D) {
            p->dtypes[node->out] = DVK_F16;
        }
    }
}

void dv_place_types(dv_memory_plan *p) {
    const dv_graph *g = p->graph;
    for (int64_t v = 0; v < g->n_values; v++) {
        const dv_shape s = g->values[v].shape;
        p->dtypes[v] = s.h * s.w == 1 ? DVK_F32 : p->storage.dtype; /* a mean and what is made of it: few numbers */
    }
    p->dtypes[g->input] = DVK_F32;
    find_uses(p);
    mark_dictionary_f32(p);
    mark_output_f32(p, g->output);
    mark_winograd_f16(p);
}
