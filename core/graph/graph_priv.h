/* graph_priv.h - what the files of this room share and nobody else needs. */
#ifndef DV_GRAPH_PRIV_H
#define DV_GRAPH_PRIV_H

#include "core/graph/graph.h"

/* Appends a node with one output of the given shape and all attributes at "none"; NULL after an error, which is sticky.
 * Missing inputs and shapes that cannot be (a side below 1, more elements than any memory) are refused here. */
dv_node *dv_graph_append(dv_graph *g, dv_op op, const char *label, const dv_value *in, int32_t n_in, dv_shape shape);

/* Of an appended node; NULL: none. */
static inline dv_value dv_node_out(const dv_node *node) {
    return node != NULL ? node->out : DV_NO_VALUE;
}

/* dv_fail's code, made sticky. */
bool dv_graph_ok(const dv_graph *g);

/* Every op's first question: did something fail before, and is the operand there? */
bool dv_graph_ready(dv_graph *g, const char *label, dv_value x);
/* Fails the graph: these two shapes do not fit into one op. */
dv_value dv_graph_refuse_pair(dv_graph *g, const char *label, dv_shape a, dv_shape b);

bool dv_shape_equal(dv_shape a, dv_shape b);
const char *dv_act_name(dvk_act act);

/* "conv2d" or the label of the param without ".weight": what nodes are called. 0-terminated, cut to size. */
void dv_param_base_name(const dv_graph *g, dv_param p, char *out, size_t size);

/* <names>.weight and .bias, as dv_param_stored has it, with the suffix on every alternative. */
dv_param dv_param_suffixed(dv_graph *g, const char *names, const char *suffix, int32_t ndim, const int64_t *shape);

/* A parameter with p's values times 2^exponent. */
dv_param dv_param_scaled(dv_graph *g, dv_param p, int32_t exponent);

#endif
