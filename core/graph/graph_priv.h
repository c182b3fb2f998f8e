/* graph_priv.h - functions that only the files of core/graph share. */
#ifndef DV_GRAPH_PRIV_H
#define DV_GRAPH_PRIV_H

#include "core/graph/graph.h"

/* Appends a node with one output of the given shape; all attributes are "none". Returns NULL after an error, which is
 * sticky. An input that does not exist or an impossible shape (a side below 1, more elements than any memory) is an
 * error. */
dv_node *dv_graph_append(dv_graph *g, dv_op op, const char *label, const dv_value *in, int32_t n_in, dv_shape shape);

/* The value that an appended node computes; DV_NO_VALUE for NULL. */
static inline dv_value dv_node_out(const dv_node *node) {
    return node != NULL ? node->out : DV_NO_VALUE;
}

/* True while no builder has failed. */
bool dv_graph_ok(const dv_graph *g);

/* Every builder calls this first: false if the graph has failed before or x does not exist (which fails the graph). */
bool dv_graph_ready(dv_graph *g, const char *label, dv_value x);
/* Fails the graph: one op cannot take operands of these two shapes. */
dv_value dv_graph_refuse_pair(dv_graph *g, const char *label, dv_shape a, dv_shape b);

bool dv_shape_equal(dv_shape a, dv_shape b);
const char *dv_act_name(dvk_act act);

/* Writes the base name of nodes: the parameter's label without ".weight". 0-terminated, cut to size. */
void dv_param_base_name(const dv_graph *g, dv_param p, char *out, size_t size);

/* <names>.weight or .bias as dv_param_stored finds it; the suffix is appended to every alternative. */
dv_param dv_param_suffixed(dv_graph *g, const char *names, const char *suffix, int32_t ndim, const int64_t *shape);

/* A parameter with p's values times 2^exponent. */
dv_param dv_param_scaled(dv_graph *g, dv_param p, int32_t exponent);

#endif
