/* rescale.c - keeps values within the range of F16. In some autoencoders (SDXL's) the residual sums grow beyond 65504.
 * A group norm ignores the scale of its input if eps has the same scale. Therefore those sums, and other values that
 * group norms read, are stored times a power of two. Convolutions that compute such values get smaller weights and
 * biases. Convolutions that read them but compute others get larger weights. Additions and upsampling stay unchanged.
 * A power of two leaves the mantissas unchanged. */
#include <math.h>

#include "core/graph/graph_priv.h"

#include "core/base/error.h"
#include "core/base/mem.h"

/* SUM: for sums of many blocks (3e5 in SDXL's decoder) and convolutions of them. SINGLE: for one convolution of
 * normalised values. */
enum { SUM_EXPONENT = -6, SINGLE_EXPONENT = -4 };

typedef struct value { /* values that need the same scale form a group, named after one member */
    dv_value group;
    /* properties of the group, stored at that member: */
    bool fixed, normalised, summed;
    int32_t exponent;
} value;

static dv_value find(value *values, dv_value v) {
    while (values[v].group != v) {
        values[v].group = values[values[v].group].group;
        v = values[v].group;
    }
    return v;
}

static void join(value *values, dv_value a, dv_value b) {
    values[find(values, a)].group = find(values, b);
}

/* Frame ops keep the scale, too. All slices of a clip need the same scales, including the first, whose frames are
 * taken apart. */
static bool keeps_scale(dv_op op) {
    return op == DV_OP_ADD || op == DV_OP_UPSAMPLE || op == DV_OP_TAKE_FRAMES || op == DV_OP_JOIN_FRAMES;
}

static void make_groups(const dv_graph *g, value *values) {
    for (int64_t i = 0; i < g->n_values; i++) {
        values[i].group = (dv_value)i;
    }
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        for (int32_t i = 0; i < node->n_in && keeps_scale(node->op); i++) {
            join(values, node->in[i], node->out);
        }
    }
}

/* Collects the requirements of nodes on the groups of their operands and results. */
static void look(const dv_graph *g, value *values) {
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        const bool makes = node->op == DV_OP_CONV2D || keeps_scale(node->op);
        value *out = &values[find(values, node->out)];
        out->fixed = out->fixed || !makes;
        out->summed = out->summed || node->op == DV_OP_ADD;
        for (int32_t i = 0; i < node->n_in; i++) {
            if (node->in[i] == DV_NO_VALUE) {
                continue;
            }
            value *in = &values[find(values, node->in[i])];
            in->normalised = in->normalised || node->op == DV_OP_GROUP_NORM;
            in->fixed = in->fixed || !(makes || node->op == DV_OP_GROUP_NORM);
        }
    }
    values[find(values, g->input)].fixed = true;
    values[find(values, g->output)].fixed = true;
}

/* A convolution of sums gets the exponent of sums, since its results are as large. */
static void choose(const dv_graph *g, value *values) {
    for (int64_t i = 0; i < g->n_values; i++) {
        if (!values[i].fixed && values[i].normalised) {
            values[i].exponent = values[i].summed ? SUM_EXPONENT : SINGLE_EXPONENT;
        }
    }
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        value *out = &values[find(values, node->out)];
        if (node->op == DV_OP_CONV2D && out->exponent == SINGLE_EXPONENT &&
            values[find(values, node->in[0])].exponent == SUM_EXPONENT) {
            out->exponent = SUM_EXPONENT;
        }
    }
}

static int32_t exponent_of(value *values, dv_value v) {
    return values[find(values, v)].exponent;
}

static void apply(dv_graph *g, value *values) {
    for (int64_t k = 0; k < g->n_nodes; k++) {
        dv_node *node = &g->nodes[k];
        const int32_t in = node->n_in > 0 ? exponent_of(values, node->in[0]) : 0;
        const int32_t out = exponent_of(values, node->out);
        if (node->op == DV_OP_GROUP_NORM) {
            node->eps = ldexpf(node->eps, 2 * in);
        } else if (node->op == DV_OP_CONV2D) {
            node->weight = dv_param_scaled(g, node->weight, out - in);
            node->bias = dv_param_scaled(g, node->bias, out);
        }
    }
}

davy_result dv_rescale(dv_graph *g) {
    davy_result r = dv_graph_check(g);
    if (r < 0) {
        return r;
    }
    value *values = dv_calloc((uint64_t)g->n_values, sizeof *values);
    if (values == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a graph");
    }
    make_groups(g, values);
    look(g, values);
    choose(g, values);
    apply(g, values);
    dv_free(values);
    return dv_graph_check(g);
}
