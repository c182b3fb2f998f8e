/* graph.c - the graph itself: nodes, values, the sticky error. A network has hundreds of nodes, and architectures are
 * easier to read without a check after each. Therefore the graph stores the first mistake, and every later call is a
 * no-op. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/graph/graph_priv.h"

/* No memory holds a tensor of this size. Below it, products with small factors cannot overflow 64 bits. */
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
        dv_free(g->params[i].from);
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
    if (g->result < 0) {
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

/* Reserves room for one more node and value, so that an append cannot fail half-way. */
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

/* ---- parameters: only names and shapes are read here; core/exec/weights.c reads the data ---- */

enum { MAX_NAME = 256, MAX_SHAPE_TEXT = 96 };

/* Writes the alternative that starts at `names`, with the suffix. Returns the start of the next one, NULL at the end.
 * A name longer than in any real file becomes empty, so no lookup finds it. */
static const char *next_name(const char *names, const char *suffix, char *out, size_t size) {
    const char *bar = strchr(names, '|');
    const size_t len = bar != NULL ? (size_t)(bar - names) : strlen(names);
    if (len + strlen(suffix) < size) {
        memcpy(out, names, len);
        memcpy(out + len, suffix, strlen(suffix) + 1);
    } else {
        out[0] = '\0';
    }
    return bar != NULL ? bar + 1 : NULL;
}

const dv_tensor_ref *dv_weight_find(const dv_tensors *weights, const char *names, const char *suffix) {
    char name[MAX_NAME];
    const dv_tensor_ref *found = NULL;
    while (names != NULL && found == NULL) {
        names = next_name(names, suffix, name, sizeof name);
        found = name[0] != '\0' ? dv_tensors_find(weights, name) : NULL;
    }
    return found;
}

static dv_param fail_param(dv_graph *g, davy_result r) {
    dv_graph_fail(g, r);
    return DV_NO_PARAM;
}

/* The function that a pickle would have to call to make this tensor; NULL: none. The meta key holds the tensor's name
 * before unwrapping, or the name of an object around the tensor. */
static const char *unsafe_global(const dv_tensors *weights, const char *name) {
    const size_t length = strlen(name);
    for (int64_t i = 0; i < weights->n_meta; i++) {
        const char *key = weights->meta[i].key;
        if (strncmp(key, "unsafe.", 7) != 0) {
            continue;
        }
        key += 7;
        const size_t stored = strlen(key);
        const bool same = stored == length ? strcmp(key, name) == 0
                          : stored > length
                              ? key[stored - length - 1] == '.' && strcmp(key + stored - length, name) == 0
                              : strncmp(key, name, stored) == 0 && name[stored] == '.';
        if (same) {
            return weights->meta[i].value;
        }
    }
    return NULL;
}

static davy_result missing(const dv_tensors *weights, const char *names, const char *suffix) {
    char first[MAX_NAME];
    const char *rest = next_name(names, suffix, first, sizeof first);
    const char *global = unsafe_global(weights, first);
    if (global != NULL) {
        return dv_fail(
            DAVY_E_UNSAFE,
            "tensor '%s' is built by the pickle's call of %s, which davy does not run; convert the file to safetensors",
            first, global);
    }
    if (rest == NULL) {
        return dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing", first);
    }
    return dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing, and so is '%s%s'", first, rest, suffix);
}

static bool same_shape(const dv_param_info *p, int32_t ndim, const int64_t *shape) {
    return p->ndim == ndim && memcmp(p->shape, shape, (size_t)ndim * sizeof shape[0]) == 0;
}

/* A 1x1 convolution may be stored as a matrix [o, i]. */
static bool stored_shape_fits(const dv_tensor_ref *ref, int32_t ndim, const int64_t *shape) {
    for (int32_t i = 0; i < ref->ndim && i < ndim; i++) {
        if (ref->shape[i] != shape[i]) {
            return false;
        }
    }
    return ref->ndim == ndim || (ref->ndim == 2 && ndim == 4 && shape[2] == 1 && shape[3] == 1);
}

/* The parameter with this stored tensor; DV_NO_PARAM: none yet. */
static dv_param known_ref(const dv_graph *g, const dv_tensor_ref *ref) {
    for (int64_t i = 0; i < g->n_params; i++) {
        if (g->params[i].ref == ref) {
            return (dv_param)i;
        }
    }
    return DV_NO_PARAM;
}

/* The derived or constant parameter with this label; DV_NO_PARAM: none. */
static dv_param known_label(const dv_graph *g, const char *label) {
    for (int64_t i = 0; i < g->n_params; i++) {
        if (g->params[i].ref == NULL && strcmp(g->params[i].label, label) == 0) {
            return (dv_param)i;
        }
    }
    return DV_NO_PARAM;
}

/* Takes ownership of the derivation and the constant, also on failure. */
static dv_param append(dv_graph *g, const char *label, int32_t ndim, const int64_t *shape, dv_param_info info) {
    dv_param_info *params = dv_grow(g->params, g->n_params + 1, &g->cap_params, sizeof *params);
    if (params != NULL) {
        g->params = params;
    }
    info.label = dv_strdup(label);
    if (params == NULL || info.label == NULL || g->n_params >= INT32_MAX) {
        dv_free(info.label);
        dv_free(info.from);
        dv_free(info.constant);
        return fail_param(g, dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the parameters of a graph"));
    }
    info.ndim = ndim;
    memcpy(info.shape, shape, (size_t)ndim * sizeof shape[0]);
    params[g->n_params] = info;
    return (dv_param)g->n_params++;
}

static bool arguments_fine(dv_graph *g, const char *label, int32_t most, int32_t ndim, const int64_t *shape) {
    if (!dv_graph_ok(g)) {
        return false;
    }
    bool fine = ndim >= 1 && ndim <= most;
    for (int32_t i = 0; fine && i < ndim; i++) {
        fine = shape[i] >= 1;
    }
    if (!fine) {
        dv_graph_fail(
            g, dv_fail(DAVY_E_SHAPE, "'%s': %d dimensions are too many, or one of them is below 1", label, (int)ndim));
    }
    return fine;
}

static const dv_tensor_ref *fail_tensor(dv_graph *g, davy_result r) {
    dv_graph_fail(g, r);
    return NULL;
}

const dv_tensor_ref *dv_weight_require(dv_graph *g, const char *names, const char *suffix, int32_t ndim,
                                       const int64_t *shape) {
    if (!arguments_fine(g, names, 5, ndim, shape)) {
        return NULL;
    }
    const dv_tensor_ref *ref = dv_weight_find(g->weights, names, suffix);
    if (ref == NULL) {
        return fail_tensor(g, missing(g->weights, names, suffix));
    }
    char name[MAX_NAME];
    dv_printable(name, sizeof name, ref->name, strlen(ref->name));
    if (!stored_shape_fits(ref, ndim, shape)) {
        char found[MAX_SHAPE_TEXT];
        char expected[MAX_SHAPE_TEXT];
        dv_shape_text(found, sizeof found, ref->shape, ref->ndim);
        dv_shape_text(expected, sizeof expected, shape, ndim);
        return fail_tensor(g, dv_fail(DAVY_E_SHAPE, "tensor '%s' has shape %s, expected %s", name, found, expected));
    }
    if (ref->dtype == DV_STORED_OTHER) {
        return fail_tensor(
            g, dv_fail(DAVY_E_UNSUPPORTED,
                       "tensor '%s' is stored as %s, which davy cannot read; convert it to F32, F16 or BF16", name,
                       ref->dtype_name));
    }
    return ref;
}

dv_param dv_param_suffixed(dv_graph *g, const char *names, const char *suffix, int32_t ndim, const int64_t *shape) {
    const dv_tensor_ref *ref = dv_weight_require(g, names, suffix, ndim, shape);
    if (ref == NULL) {
        return DV_NO_PARAM;
    }
    const dv_param p = known_ref(g, ref);
    const dv_param_info info = {.ref = ref};
    return p != DV_NO_PARAM ? p : append(g, ref->name, ndim, shape, info);
}

dv_param dv_param_stored(dv_graph *g, const char *name, int32_t ndim, const int64_t *shape) {
    return dv_param_suffixed(g, name, "", ndim, shape);
}

/* For a label that exists already: the same derivation is shared, another one is the caller's mistake. */
static dv_param shared(dv_graph *g, dv_param p, int32_t ndim, const int64_t *shape, const dv_derivation *from) {
    const dv_param_info *have = &g->params[p];
    const bool same =
        have->from != NULL && have->from->derive == from->derive && have->from->derive_share == from->derive_share;
    if (!same || !same_shape(have, ndim, shape)) {
        return fail_param(g, dv_fail(DAVY_E_INTERNAL, "'%s': two different parameters have this label", have->label));
    }
    return p;
}

/* Copies a derivation with its name and `how` into one block of memory; NULL: out of memory. */
static dv_derivation *copy_derivation(const dv_derivation *from) {
    const size_t length = strlen(from->name) + 1;
    dv_derivation *copy = dv_calloc(1, sizeof *copy + from->how_bytes + length);
    if (copy != NULL) {
        char *how = (char *)(copy + 1), *name = how + from->how_bytes;
        if (from->how_bytes > 0) {
            memcpy(how, from->how, from->how_bytes);
        }
        memcpy(name, from->name, length);
        *copy = *from;
        copy->name = name;
        copy->how = how;
    }
    return copy;
}

dv_param dv_param_derived(dv_graph *g, const char *label, const dv_derivation *from, int32_t ndim,
                          const int64_t *shape) {
    if (!arguments_fine(g, label, 4, ndim, shape)) {
        return DV_NO_PARAM;
    }
    const dv_param p = known_label(g, label);
    if (p != DV_NO_PARAM) {
        return shared(g, p, ndim, shape, from);
    }
    const dv_param_info info = {.from = copy_derivation(from), .stored = from->stored};
    if (info.from == NULL) {
        return fail_param(g, dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the parameters of a graph"));
    }
    return append(g, label, ndim, shape, info);
}

dv_param dv_param_constant(dv_graph *g, const char *label, int32_t ndim, const int64_t *shape, const float *values) {
    if (!arguments_fine(g, label, 4, ndim, shape)) {
        return DV_NO_PARAM;
    }
    uint64_t count = 1;
    for (int32_t i = 0; i < ndim; i++) {
        if (!dv_mul_u64(count, (uint64_t)shape[i], &count)) {
            return fail_param(g, dv_fail(DAVY_E_SHAPE, "constant '%s' is too large", label));
        }
    }
    const dv_param p = known_label(g, label);
    if (p != DV_NO_PARAM) {
        const bool equal = g->params[p].constant != NULL && same_shape(&g->params[p], ndim, shape) &&
                           memcmp(g->params[p].constant, values, (size_t)count * sizeof *values) == 0;
        return equal ? p
                     : fail_param(g, dv_fail(DAVY_E_INTERNAL, "'%s': two different constants have this label", label));
    }
    const dv_param_info info = {.constant = dv_calloc(count, sizeof *values)};
    if (info.constant == NULL) {
        return fail_param(g, dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the parameters of a graph"));
    }
    memcpy(info.constant, values, (size_t)count * sizeof *values);
    return append(g, label, ndim, shape, info);
}

static dv_param append_scaled(dv_graph *g, const dv_param_info *from, const char *label, int32_t exponent) {
    uint64_t count = 1;
    for (int32_t i = 0; i < from->ndim; i++) {
        count *= (uint64_t)from->shape[i];
    }
    dv_param_info info = {.ref = from->ref, .exponent = exponent};
    info.from = from->from != NULL ? copy_derivation(from->from) : NULL;
    info.constant = from->constant != NULL ? dv_calloc(count, sizeof *info.constant) : NULL;
    if ((info.from == NULL) != (from->from == NULL) || (info.constant == NULL) != (from->constant == NULL)) {
        dv_free(info.from);
        dv_free(info.constant);
        return fail_param(g, dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the parameters of a graph"));
    }
    if (info.constant != NULL) {
        memcpy(info.constant, from->constant, (size_t)count * sizeof *info.constant);
    }
    const dv_param_info old = *from; /* append() may move the array */
    return append(g, label, old.ndim, old.shape, info);
}

dv_param dv_param_scaled(dv_graph *g, dv_param p, int32_t exponent) {
    if (exponent == 0 || p == DV_NO_PARAM || !dv_graph_ok(g)) {
        return p;
    }
    char *label = dv_sprintf("%s * 2^%d", g->params[p].label, (int)exponent);
    if (label == NULL) {
        return fail_param(g, dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the parameters of a graph"));
    }
    dv_param found = DV_NO_PARAM;
    for (int64_t i = 0; i < g->n_params && found == DV_NO_PARAM; i++) {
        found = strcmp(g->params[i].label, label) == 0 ? (dv_param)i : DV_NO_PARAM;
    }
    if (found == DV_NO_PARAM) {
        found = append_scaled(g, &g->params[p], label, exponent);
    }
    dv_free(label);
    return found;
}

void dv_param_base_name(const dv_graph *g, dv_param p, char *out, size_t size) {
    const char *label = p >= 0 && p < g->n_params ? g->params[p].label : "";
    size_t len = strlen(label);
    const char *tail = strrchr(label, '.');
    if (tail != NULL && strcmp(tail, ".weight") == 0) {
        len = (size_t)(tail - label);
    }
    dv_printable(out, size, label, len);
}
