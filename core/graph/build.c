/* build.c - one builder per op. A builder checks its operands, finds its parameters and infers its output shape. Only
 * what these functions accept reaches the planner. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/graph/graph_priv.h"

enum { MAX_LABEL = 256 };

bool dv_graph_ready(dv_graph *g, const char *label, dv_value x) {
    if (!dv_graph_ok(g)) {
        return false;
    }
    if (x < 0 || x >= g->n_values) {
        dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "%s: operand %d does not exist", label, (int)x));
        return false;
    }
    return true;
}

dv_value dv_graph_refuse_pair(dv_graph *g, const char *label, dv_shape a, dv_shape b) {
    const int64_t da[4] = {a.n, a.h, a.w, a.c};
    const int64_t db[4] = {b.n, b.h, b.w, b.c};
    char ta[96];
    char tb[96];
    return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "%s: operands of shapes %s and %s do not match", label,
                                    dv_shape_text(ta, sizeof ta, da, 4), dv_shape_text(tb, sizeof tb, db, 4)));
}

dv_value dv_input(dv_graph *g, dv_shape shape) {
    if (dv_graph_ok(g) && g->input != DV_NO_VALUE) {
        return dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "a graph has one input"));
    }
    shape.n *= g->pictures;
    const dv_node *node = dv_graph_append(g, DV_OP_INPUT, "input", NULL, 0, shape);
    if (node != NULL) {
        g->input = node->out;
    }
    return dv_node_out(node);
}

void dv_output(dv_graph *g, dv_value v) {
    if (!dv_graph_ready(g, "output", v)) {
        return;
    }
    if (g->output != DV_NO_VALUE) {
        dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "a graph has one output"));
        return;
    }
    g->output = v;
    g->values[v].uses++;
}

/* The geometry of a convolution: its padding and the size of its result. */
static bool conv_geometry(dv_graph *g, const char *label, const dv_conv_opts *opts, dv_node *node, dv_shape *shape) {
    const int64_t k = node->kh;
    const int64_t around = opts->valid || opts->pad_bottom_right ? 0 : (k - 1) / 2;
    const int64_t pad = opts->pad_bottom_right ? 1 : 2 * around;
    node->stride = opts->stride > 0 ? opts->stride : 1;
    node->pad_top = (int32_t)around;
    node->pad_left = node->pad_top;
    if (shape->h + pad < k || shape->w + pad < k) {
        dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "%s: a picture of %d x %d is too small for a %d x %d convolution", label,
                                 (int)shape->w, (int)shape->h, (int)k, (int)k));
        return false;
    }
    shape->h = (shape->h + pad - k) / node->stride + 1;
    shape->w = (shape->w + pad - k) / node->stride + 1;
    return true;
}

static bool param_has_shape(const dv_graph *g, dv_param p, int32_t ndim, const int64_t *shape) {
    return p >= 0 && p < g->n_params && g->params[p].ndim == ndim &&
           memcmp(g->params[p].shape, shape, (size_t)ndim * sizeof shape[0]) == 0;
}

/* Finds the stored parameters, or checks the derived ones. */
static void conv_params(dv_graph *g, const char *name, const dv_conv_opts *opts, const int64_t *shape, dv_node *node) {
    if (!opts->derived) {
        node->weight = dv_param_suffixed(g, name, ".weight", 4, shape);
        node->bias = opts->no_bias ? DV_NO_PARAM : dv_param_suffixed(g, name, ".bias", 1, shape);
        return;
    }
    node->weight = opts->weight;
    node->bias = opts->bias;
    if (!param_has_shape(g, node->weight, 4, shape) ||
        (node->bias != DV_NO_PARAM && !param_has_shape(g, node->bias, 1, shape))) {
        dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "%s: derived parameters have the wrong shape", name));
    }
}

dv_value dv_conv(dv_graph *g, dv_value x, const char *name, int64_t c_out, int32_t k, const dv_conv_opts *opts) {
    static const dv_conv_opts usual;
    if (!dv_graph_ready(g, name, x)) {
        return DV_NO_VALUE;
    }
    opts = opts != NULL ? opts : &usual;
    dv_shape shape = dv_shape_of(g, x);
    const int64_t weight_shape[4] = {c_out, shape.c, k, k};
    dv_node attributes = {.kh = k, .kw = k};
    char label[MAX_LABEL];
    dv_printable(label, sizeof label, name, strlen(name));
    conv_params(g, name, opts, weight_shape, &attributes);
    if (!dv_graph_ok(g) || !conv_geometry(g, label, opts, &attributes, &shape)) {
        return DV_NO_VALUE;
    }
    if (!opts->derived) {
        dv_param_base_name(g, attributes.weight, label, sizeof label);
    }
    shape.c = c_out;
    dv_node *node = dv_graph_append(g, DV_OP_CONV2D, label, &x, 1, shape);
    if (node != NULL) {
        node->weight = attributes.weight;
        node->bias = attributes.bias;
        node->kh = k;
        node->kw = k;
        node->stride = attributes.stride;
        node->pad_top = attributes.pad_top;
        node->pad_left = attributes.pad_left;
    }
    return dv_node_out(node);
}

dv_value dv_conv_phased(dv_graph *g, dv_value x, const char *label, int64_t c_out, const dv_conv_opts *opts) {
    if (!dv_graph_ready(g, label, x)) {
        return DV_NO_VALUE;
    }
    const dv_param weight = opts->weight, bias = opts->bias;
    const dv_shape in = dv_shape_of(g, x);
    const int64_t shape[4] = {4 * c_out, in.c, 2, 2};
    if (!param_has_shape(g, weight, 4, shape) || bias == DV_NO_PARAM || c_out % g->params[bias].shape[0] != 0) {
        return dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "%s: derived parameters have the wrong shape", label));
    }
    const dv_shape out = {in.n, 2 * in.h, 2 * in.w, c_out};
    dv_node *node = dv_graph_append(g, DV_OP_CONV2D, label, &x, 1, out);
    if (node != NULL) {
        node->weight = weight;
        node->bias = bias;
        node->kh = node->kw = 2;
        node->stride = 1;
        node->pad_top = node->pad_left = 1;
        node->phased = true;
        node->fused.upsample = 2;
    }
    return dv_node_out(node);
}

static dv_value append_act(dv_graph *g, dv_value x, const char *label, dv_act act) {
    dv_node *node = dv_graph_append(g, DV_OP_ACT, label, &x, 1, dv_shape_of(g, x));
    if (node != NULL) {
        node->act = act;
    }
    return dv_node_out(node);
}

dv_value dv_activation(dv_graph *g, dv_value x, dvk_act kind, float slope) {
    if (!dv_graph_ready(g, dv_act_name(kind), x)) {
        return DV_NO_VALUE;
    }
    if (kind == DVK_ACT_NONE || kind == DVK_ACT_PRELU) {
        return dv_graph_fail(
            g, dv_fail(DAVY_E_INTERNAL, "activation '%s': dv_activation does not build it", dv_act_name(kind)));
    }
    const dv_act act = {kind, slope, DV_NO_PARAM};
    return append_act(g, x, dv_act_name(kind), act);
}

/* One slope for all channels, stored as [1]. */
static davy_result derive_repeated(const dv_tensors *weights, const dv_derivation *from, float *dst) {
    const int64_t count = *(const int64_t *)from->how;
    const char *name = from->name;
    const dv_tensor_ref *ref = dv_tensors_find(weights, name);
    float value = 0.0f;
    if (ref == NULL || dv_tensor_elements(ref) != 1) {
        return dv_fail(DAVY_E_TENSOR, "tensor '%s' is not a single number", name);
    }
    const davy_result r = dv_tensor_read_f32(ref, &value);
    for (int64_t i = 0; r == DAVY_OK && i < count; i++) {
        dst[i] = value;
    }
    return r;
}

static dv_param repeated_slope(dv_graph *g, const dv_tensor_ref *ref, int64_t channels) {
    char label[MAX_LABEL];
    const int n = snprintf(label, sizeof label, "%lld:%s", (long long)channels, ref->name);
    if (n < 0 || (size_t)n >= sizeof label) {
        dv_graph_fail(g, dv_fail(DAVY_E_FORMAT, "a PReLU tensor has a name of more than %d bytes", MAX_LABEL));
        return DV_NO_PARAM;
    }
    const dv_derivation from = {ref->name, &channels, sizeof channels, .derive = derive_repeated};
    return dv_param_derived(g, label, &from, 1, &channels);
}

dv_value dv_prelu(dv_graph *g, dv_value x, const char *name) {
    if (!dv_graph_ready(g, name, x)) {
        return DV_NO_VALUE;
    }
    const int64_t channels = dv_shape_of(g, x).c;
    const dv_tensor_ref *ref = dv_weight_find(g->weights, name, ".weight");
    const bool single = ref != NULL && channels > 1 && ref->ndim == 1 && ref->shape[0] == 1;
    dv_act act = {DVK_ACT_PRELU, 0.0f, DV_NO_PARAM};
    char label[MAX_LABEL];
    dv_printable(label, sizeof label, name, strlen(name));
    if (single) {
        act.slopes = repeated_slope(g, ref, channels);
    } else {
        act.slopes = dv_param_suffixed(g, name, ".weight", 1, &channels);
        dv_param_base_name(g, act.slopes, label, sizeof label);
    }
    return dv_graph_ok(g) ? append_act(g, x, label, act) : DV_NO_VALUE;
}

dv_value dv_group_norm(dv_graph *g, dv_value x, const char *name, int64_t groups, float eps) {
    if (!dv_graph_ready(g, name, x)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, x);
    if (groups < 1 || shape.c % groups != 0) {
        return dv_graph_fail(
            g, dv_fail(DAVY_E_SHAPE, "%s: %d channels do not divide into %d groups", name, (int)shape.c, (int)groups));
    }
    const dv_param gamma = dv_param_suffixed(g, name, ".weight", 1, &shape.c);
    const dv_param beta = dv_param_suffixed(g, name, ".bias", 1, &shape.c);
    char label[MAX_LABEL];
    dv_param_base_name(g, gamma, label, sizeof label);
    dv_node *node = dv_graph_append(g, DV_OP_GROUP_NORM, label, &x, 1, shape);
    if (node != NULL) {
        node->weight = gamma;
        node->bias = beta;
        node->groups = groups;
        node->eps = eps;
    }
    return dv_node_out(node);
}

dv_value dv_add(dv_graph *g, float alpha, dv_value a, float beta, dv_value b) {
    if (!dv_graph_ready(g, "add", a) || !dv_graph_ready(g, "add", b)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, a);
    if (!dv_shape_equal(shape, dv_shape_of(g, b))) {
        return dv_graph_refuse_pair(g, "add", shape, dv_shape_of(g, b));
    }
    const dv_value in[2] = {a, b};
    dv_node *node = dv_graph_append(g, DV_OP_ADD, "add", in, 2, shape);
    if (node != NULL) {
        node->alpha = alpha;
        node->beta = beta;
    }
    return dv_node_out(node);
}

dv_value dv_span_gate(dv_graph *g, dv_value t, dv_value x) {
    if (!dv_graph_ready(g, "gate", t) || !dv_graph_ready(g, "gate", x)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, t);
    const dv_value in[2] = {t, x};
    if (!dv_shape_equal(shape, dv_shape_of(g, x))) {
        return dv_graph_refuse_pair(g, "gate", shape, dv_shape_of(g, x));
    }
    return dv_node_out(dv_graph_append(g, DV_OP_GATE, "gate", in, 2, shape));
}

dv_value dv_affine(dv_graph *g, dv_value x, const float *scale, const float *shift) {
    if (!dv_graph_ready(g, "affine", x)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, x);
    char label[2][MAX_LABEL];
    snprintf(label[0], sizeof label[0], "affine%d.scale", (int)g->n_nodes);
    snprintf(label[1], sizeof label[1], "affine%d.shift", (int)g->n_nodes);
    const dv_param ps = dv_param_constant(g, label[0], 1, &shape.c, scale);
    const dv_param pt = dv_param_constant(g, label[1], 1, &shape.c, shift);
    dv_node *node = dv_graph_append(g, DV_OP_AFFINE, "affine", &x, 1, shape);
    if (node != NULL) {
        node->weight = ps;
        node->bias = pt;
    }
    return dv_node_out(node);
}

dv_value dv_scale_channels(dv_graph *g, dv_value x, const char *name) {
    if (!dv_graph_ready(g, name, x)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, x);
    char label[64];
    snprintf(label, sizeof label, "affine%d.shift", (int)g->n_nodes);
    float *zeros = dv_calloc((uint64_t)shape.c, sizeof *zeros);
    if (zeros == NULL) {
        return dv_graph_fail(g, dv_fail(DAVY_E_NOMEM_HOST, "out of memory for '%s'", name));
    }
    const dv_param scale = dv_param_stored(g, name, 1, &shape.c);
    const dv_param shift = dv_param_constant(g, label, 1, &shape.c, zeros);
    dv_free(zeros);
    dv_node *node = dv_graph_append(g, DV_OP_AFFINE, "affine", &x, 1, shape);
    if (node != NULL) {
        node->weight = scale;
        node->bias = shift;
    }
    return dv_node_out(node);
}

dv_value dv_attention(dv_graph *g, dv_value q, dv_value k, dv_value v, int64_t heads, float scale) {
    if (!dv_graph_ready(g, "attention", q) || !dv_graph_ready(g, "attention", k) ||
        !dv_graph_ready(g, "attention", v)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, q);
    const dv_shape keys = dv_shape_of(g, k);
    const dv_value in[3] = {q, k, v};
    if (keys.n != shape.n || keys.c != shape.c) {
        return dv_graph_refuse_pair(g, "attention", shape, keys);
    }
    if (!dv_shape_equal(keys, dv_shape_of(g, v))) {
        return dv_graph_refuse_pair(g, "attention", keys, dv_shape_of(g, v));
    }
    if (heads < 1 || shape.c % heads != 0) {
        return dv_graph_fail(
            g, dv_fail(DAVY_E_SHAPE, "attention: %d channels do not divide into %d heads", (int)shape.c, (int)heads));
    }
    dv_node *node = dv_graph_append(g, DV_OP_ATTENTION, "attention", in, 3, shape);
    if (node != NULL) {
        node->heads = heads;
        node->scale = scale;
    }
    return dv_node_out(node);
}

/* ---- depthwise ---- */

/* Stored as [c, 1, k, k]; the kernels read [k * k, c]. */
static davy_result derive_taps(const dv_tensors *weights, const dv_derivation *from, float *dst) {
    const dv_tensor_ref *ref = dv_tensors_find(weights, from->name);
    if (ref == NULL) {
        return dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing", from->name);
    }
    float *stored = dv_calloc((uint64_t)dv_tensor_elements(ref), sizeof *stored);
    if (stored == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the weights of '%s'", from->name);
    }
    const davy_result r = dv_tensor_read_f32(ref, stored);
    const int64_t channels = ref->shape[0];
    const int64_t taps = ref->shape[2] * ref->shape[3];
    for (int64_t i = 0; r == DAVY_OK && i < channels * taps; i++) {
        dst[i % taps * channels + i / taps] = stored[i];
    }
    dv_free(stored);
    return r;
}

static dv_param depthwise_taps(dv_graph *g, const char *name, int64_t channels, int64_t k) {
    const int64_t stored_shape[4] = {channels, 1, k, k};
    const int64_t shape[2] = {k * k, channels};
    const dv_tensor_ref *stored = dv_weight_require(g, name, ".weight", 4, stored_shape);
    if (stored == NULL) {
        return DV_NO_PARAM;
    }
    char label[MAX_LABEL];
    snprintf(label, sizeof label, "%s (taps)", stored->name);
    const dv_derivation from = {.name = stored->name, .derive = derive_taps};
    return dv_param_derived(g, label, &from, 2, shape);
}

dv_value dv_depthwise(dv_graph *g, dv_value x, const char *name, int32_t k, const dv_conv_opts *opts) {
    static const dv_conv_opts usual;
    if (!dv_graph_ready(g, name, x)) {
        return DV_NO_VALUE;
    }
    opts = opts != NULL ? opts : &usual;
    dv_shape shape = dv_shape_of(g, x);
    const int32_t pad = opts->valid ? 0 : (k - 1) / 2;
    char label[MAX_LABEL];
    dv_printable(label, sizeof label, name, strlen(name));
    if (shape.h + 2 * pad < k || shape.w + 2 * pad < k) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "%s: a picture of %d x %d is too small for a %d x %d convolution",
                                        label, (int)shape.w, (int)shape.h, (int)k, (int)k));
    }
    const dv_param weight = opts->derived ? opts->weight : depthwise_taps(g, name, shape.c, k);
    const dv_param bias = opts->derived   ? opts->bias
                          : opts->no_bias ? DV_NO_PARAM
                                          : dv_param_suffixed(g, name, ".bias", 1, &shape.c);
    const int32_t stride = opts->stride > 0 ? opts->stride : 1;
    shape.h = (shape.h + 2 * pad - k) / stride + 1;
    shape.w = (shape.w + 2 * pad - k) / stride + 1;
    dv_node *node = dv_graph_append(g, DV_OP_DEPTHWISE, label, &x, 1, shape);
    if (node != NULL) {
        node->weight = weight;
        node->bias = bias;
        node->kh = k;
        node->kw = k;
        node->stride = stride;
        node->pad_top = pad;
        node->pad_left = pad;
    }
    return dv_node_out(node);
}

/* ---- gates ---- */

dv_value dv_multiply(dv_graph *g, dv_value x, dv_value gate, dvk_act act) {
    if (!dv_graph_ready(g, "multiply", x) || !dv_graph_ready(g, "multiply", gate)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, x);
    const dv_shape other = dv_shape_of(g, gate);
    const bool pixels = (other.h == shape.h && other.w == shape.w) || (other.h == 1 && other.w == 1);
    if (other.n != shape.n || !pixels || (other.c != shape.c && other.c != 1)) {
        return dv_graph_refuse_pair(g, "multiply", shape, other);
    }
    const dv_value in[2] = {x, gate};
    dv_node *node = dv_graph_append(g, DV_OP_MULTIPLY, "multiply", in, 2, shape);
    if (node != NULL) {
        node->act = (dv_act){act, 0.0f, DV_NO_PARAM};
    }
    return dv_node_out(node);
}

dv_value dv_mean(dv_graph *g, dv_value x) {
    if (!dv_graph_ready(g, "mean", x)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, x);
    return dv_node_out(dv_graph_append(g, DV_OP_MEAN, "mean", &x, 1, (dv_shape){shape.n, 1, 1, shape.c}));
}

dv_value dv_max_pool(dv_graph *g, dv_value x, int32_t k, int32_t stride) {
    if (!dv_graph_ready(g, "max_pool", x)) {
        return DV_NO_VALUE;
    }
    dv_shape shape = dv_shape_of(g, x);
    if (shape.h < k || shape.w < k) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "max_pool: %d x %d is smaller than %d x %d", (int)shape.w,
                                        (int)shape.h, (int)k, (int)k));
    }
    shape.h = (shape.h - k) / stride + 1;
    shape.w = (shape.w - k) / stride + 1;
    dv_node *node = dv_graph_append(g, DV_OP_MAX_POOL, "max_pool", &x, 1, shape);
    if (node != NULL) {
        node->kh = k;
        node->kw = k;
        node->stride = stride;
    }
    return dv_node_out(node);
}

/* ---- sampling ---- */

dv_value dv_resize(dv_graph *g, dv_value x, int64_t h, int64_t w) {
    if (!dv_graph_ready(g, "resize", x)) {
        return DV_NO_VALUE;
    }
    dv_shape shape = dv_shape_of(g, x);
    shape.h = h;
    shape.w = w;
    return dv_node_out(dv_graph_append(g, DV_OP_RESIZE, "resize", &x, 1, shape));
}

dv_value dv_dysample(dv_graph *g, dv_value x, dv_value offset, int64_t groups, int64_t r, bool sum) {
    if (!dv_graph_ready(g, "dysample", x) || !dv_graph_ready(g, "dysample", offset)) {
        return DV_NO_VALUE;
    }
    dv_shape shape = dv_shape_of(g, x);
    const dv_shape other = dv_shape_of(g, offset);
    if (other.n != shape.n || other.h != shape.h || other.w != shape.w || groups < 1 || shape.c % groups != 0 ||
        r < 1 || other.c != 2 * groups * r * r) {
        return dv_graph_refuse_pair(g, "dysample", shape, other);
    }
    shape.h *= r;
    shape.w *= r;
    shape.c /= sum ? groups : 1;
    const dv_value in[2] = {x, offset};
    dv_node *node = dv_graph_append(g, DV_OP_DYSAMPLE, "dysample", in, 2, shape);
    if (node != NULL) {
        node->r = r;
        node->groups = groups;
    }
    return dv_node_out(node);
}
