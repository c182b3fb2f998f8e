/* graph.c - the graph itself: nodes, values, the sticky error. A build emits hundreds of nodes and an architecture
 * reads best without a check after each of them, so the first mistake stays in the graph and everything after it is a
 * no-op. */
#include "core/graph/graph_priv.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"

/* No tensor of this size fits any memory; below it, products with small factors cannot overflow 64 bits. */
#define MAX_ELEMENTS ((uint64_t)1 << 46)

const dv_op_info dv_op_infos[DV_OPS] = {
    {.name = "?"},
#define DV_OP(NAME, name, REACH, TRAIT, flops, show, lower) {#name, DV_REACH_##REACH, DV_TRAIT_##TRAIT},
#include "core/graph/ops.def"
};

const char *dv_op_name(dv_op op) {
    return dv_op_infos[op < DV_OPS ? op : DV_OP_NONE].name;
}

davy_result dv_graph_create(const dv_tensors *weights, dv_graph **out) {
    dv_graph *g = dv_calloc(1, sizeof *g);
    if (g == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a graph");
    }
    g->weights = weights;
    g->pictures = 1;
    g->input = DV_NO_VALUE;
    g->output = DV_NO_VALUE;
    *out = g;
    return DAVY_OK;
}

void dv_graph_release(dv_graph *g) {
    if (g == NULL) {
        return;
    }
    for (int64_t i = 0; i < g->n_nodes; i++) {
        dv_free(g->nodes[i].label);
    }
    for (int64_t i = 0; i < g->n_params; i++) {
        dv_free(g->params[i].label);
        dv_free(g->params[i].key);
        dv_free(g->params[i].constant);
    }
    dv_free(g->nodes);
    dv_free(g->values);
    dv_free(g->params);
    dv_free(g);
}

bool dv_graph_ok(const dv_graph *g) {
    return g->result == DAVY_OK;
}

dv_value dv_graph_fail(dv_graph *g, davy_result r) {
    if (g->result == DAVY_OK) {
        g->result = r;
        dv_error_get(&g->error);
    }
    return DV_NO_VALUE;
}

davy_result dv_graph_check(dv_graph *g) {
    if (g->result != DAVY_OK) {
        dv_error_set(&g->error);
        return g->result;
    }
    if (g->input == DV_NO_VALUE || g->output == DV_NO_VALUE) {
        return dv_fail(DAVY_E_INTERNAL, "the graph has no %s", g->input == DV_NO_VALUE ? "input" : "output");
    }
    return DAVY_OK;
}

dv_shape dv_shape_of(const dv_graph *g, dv_value v) {
    const dv_shape none = {0, 0, 0, 0};
    return v >= 0 && v < g->n_values ? g->values[v].shape : none;
}

bool dv_shape_equal(dv_shape a, dv_shape b) {
    return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c;
}

static bool shape_possible(dv_shape s) {
    const int64_t dims[4] = {s.n, s.h, s.w, s.c};
    uint64_t elements = 1;
    for (int i = 0; i < 4; i++) {
        if (dims[i] < 1 || dims[i] > INT32_MAX || !dv_mul_u64(elements, (uint64_t)dims[i], &elements)) {
            return false;
        }
    }
    return elements <= MAX_ELEMENTS;
}

static void clear_attributes(dv_node *node) {
    const dv_act none = {DVK_ACT_NONE, 0.0f, DV_NO_PARAM};
    node->weight = DV_NO_PARAM;
    node->bias = DV_NO_PARAM;
    node->act = none;
    node->fused.norm_of = DV_NO_VALUE;
    node->fused.norm = -1;
    node->fused.pro_scale = DV_NO_PARAM;
    node->fused.pro_shift = DV_NO_PARAM;
    node->fused.pro_act = none;
    node->fused.act = none;
    node->fused.res[0] = DV_NO_VALUE;
    node->fused.res[1] = DV_NO_VALUE;
    node->fused.alpha = 1.0f;
}

/* Room for one more node and value, so that appending cannot fail half-way. */
static bool reserve(dv_graph *g) {
    dv_node *nodes = dv_grow(g->nodes, g->n_nodes + 1, &g->cap_nodes, sizeof *nodes);
    if (nodes != NULL) {
        g->nodes = nodes;
    }
    dv_value_info *values = dv_grow(g->values, g->n_values + 1, &g->cap_values, sizeof *values);
    if (values != NULL) {
        g->values = values;
    }
    return nodes != NULL && values != NULL && g->n_nodes < INT32_MAX;
}

dv_node *dv_graph_append(dv_graph *g, dv_op op, const char *label, const dv_value *in, int32_t n_in, dv_shape shape) {
    if (!dv_graph_ok(g)) {
        return NULL;
    }
    for (int32_t i = 0; i < n_in; i++) {
        if (in[i] < 0 || in[i] >= g->n_values) {
            dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "%s: input %d does not exist", label, (int)i));
            return NULL;
        }
    }
    if (!shape_possible(shape)) {
        dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "%s: a result of %lld x %lld pixels with %lld channels is not possible",
                                 label, (long long)shape.w, (long long)shape.h, (long long)shape.c));
        return NULL;
    }
    char *name = reserve(g) ? dv_strdup(label) : NULL;
    if (name == NULL) {
        dv_graph_fail(g, dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a graph"));
        return NULL;
    }
    dv_node *node = &g->nodes[g->n_nodes];
    memset(node, 0, sizeof *node);
    clear_attributes(node);
    node->op = op;
    node->label = name;
    node->n_in = n_in;
    node->out = (dv_value)g->n_values;
    for (int32_t i = 0; i < DV_MAX_INPUTS; i++) {
        node->in[i] = i < n_in ? in[i] : DV_NO_VALUE;
    }
    for (int32_t i = 0; i < n_in; i++) {
        g->values[in[i]].uses++;
    }
    const dv_value_info value = {shape, (int32_t)g->n_nodes, 0};
    g->values[g->n_values] = value;
    g->n_values++;
    g->n_nodes++;
    return node;
}
