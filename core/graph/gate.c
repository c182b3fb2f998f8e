/* gate.c - builders of what gated networks are made of: depthwise convolutions, products and the small pictures
 * they are multiplied by, sampling at offsets. */
#include "core/graph/graph_priv.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum { MAX_LABEL = 256 };

static dv_value out_of(const dv_node *node) {
    return node != NULL ? node->out : DV_NO_VALUE;
}

/* ---- depthwise ---- */

/* Stored [c, 1, k, k], wanted [k * k, c]: key is the tensor. */
static davy_result derive_taps(const dv_tensors *weights, const char *key, float *dst) {
    const dv_tensor_ref *ref = dv_tensors_find(weights, key);
    if (ref == NULL) {
        return dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing", key);
    }
    float *stored = dv_calloc((uint64_t)dv_tensor_elements(ref), sizeof *stored);
    if (stored == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the weights of '%s'", key);
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
    const dv_tensor_ref *stored = dv_weight_wanted(g, name, ".weight", 4, stored_shape);
    if (stored == NULL) {
        return DV_NO_PARAM;
    }
    char label[MAX_LABEL];
    snprintf(label, sizeof label, "%s (taps)", stored->name);
    return dv_param_derived(g, label, stored->name, 2, shape, derive_taps);
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
    return out_of(node);
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
    return out_of(node);
}

dv_value dv_mean(dv_graph *g, dv_value x) {
    if (!dv_graph_ready(g, "mean", x)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, x);
    return out_of(dv_graph_append(g, DV_OP_MEAN, "mean", &x, 1, (dv_shape){shape.n, 1, 1, shape.c}));
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
    return out_of(node);
}

/* ---- sampling ---- */

dv_value dv_resize(dv_graph *g, dv_value x, int64_t h, int64_t w) {
    if (!dv_graph_ready(g, "resize", x)) {
        return DV_NO_VALUE;
    }
    dv_shape shape = dv_shape_of(g, x);
    shape.h = h;
    shape.w = w;
    return out_of(dv_graph_append(g, DV_OP_RESIZE, "resize", &x, 1, shape));
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
    return out_of(node);
}
