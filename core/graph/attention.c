/* attention.c - builders of ops for transformers: layer norm, attention in windows, between channels, and to a
 * dictionary of tokens. */
#include "core/base/error.h"
#include "core/graph/graph_priv.h"

dv_value dv_layer_norm(dv_graph *g, dv_value x, const char *name, float eps) {
    if (!dv_graph_ready(g, name, x)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, x);
    const dv_param gamma = dv_param_suffixed(g, name, ".weight", 1, &shape.c);
    const dv_param beta = dv_param_suffixed(g, name, ".bias", 1, &shape.c);
    char label[256];
    dv_param_base_name(g, gamma, label, sizeof label);
    dv_node *node = dv_graph_append(g, DV_OP_LAYER_NORM, label, &x, 1, shape);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->weight = gamma;
    node->bias = beta;
    node->eps = eps;
    return node->out;
}

/* A stored vector may have trailing axes of one element. */
static davy_result derive_vector(const dv_tensors *weights, const dv_derivation *from, float *dst) {
    const dv_tensor_ref *ref = dv_tensors_find(weights, from->name);
    return ref != NULL ? dv_tensor_read_f32(ref, dst) : dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing", from->name);
}

static dv_param vector_param(dv_graph *g, const char *name, int64_t count) {
    const dv_tensor_ref *ref = dv_weight_find(g->weights, name, "");
    bool vector = ref != NULL && ref->ndim > 1 && ref->shape[0] == count && ref->dtype != DV_STORED_OTHER;
    for (int32_t i = 1; vector && i < ref->ndim; i++) {
        vector = ref->shape[i] == 1;
    }
    if (!vector) {
        return dv_param_stored(g, name, 1, &count); /* fails with the message for a missing tensor or a wrong shape */
    }
    const dv_derivation from = {.name = ref->name, .derive = derive_vector, .stored = count};
    return dv_param_derived(g, ref->name, &from, 1, &count);
}

dv_value dv_rms_norm(dv_graph *g, dv_value x, const char *name, float eps) {
    if (!dv_graph_ready(g, name, x)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, x);
    const dv_param gamma = vector_param(g, name, shape.c);
    char label[256];
    dv_param_base_name(g, gamma, label, sizeof label);
    dv_node *node = dv_graph_append(g, DV_OP_RMS_NORM, label, &x, 1, shape);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->weight = gamma;
    node->eps = eps;
    return node->out;
}

/* True if q, k and v have one shape, heads divide its channels, and the parameter p has `count` values. */
static bool operands_fit(dv_graph *g, const char *label, const dv_value qkv[3], int64_t heads, dv_param p,
                         int64_t count) {
    for (int i = 0; i < 3; i++) {
        if (!dv_graph_ready(g, label, qkv[i])) {
            return false;
        }
    }
    const dv_shape s = dv_shape_of(g, qkv[0]);
    bool fit = heads >= 1 && s.c % heads == 0;
    for (int i = 1; i < 3; i++) {
        fit = fit && dv_shape_equal(s, dv_shape_of(g, qkv[i]));
    }
    if (p != DV_NO_PARAM) {
        int64_t have = 1;
        for (int32_t i = 0; i < g->params[p].ndim; i++) {
            have *= g->params[p].shape[i];
        }
        fit = fit && have == count;
    }
    if (!fit) {
        dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "%s: %d heads do not fit %d channels and their parameters", label,
                                 (int)heads, (int)s.c));
    }
    return fit;
}

/* Fills in the keys' size and the frame if the caller left them at 0. */
static dv_window completed(const dv_window *window, dv_shape s) {
    dv_window w = *window;
    w.keys_h = w.keys_h > 0 ? w.keys_h : w.h;
    w.keys_w = w.keys_w > 0 ? w.keys_w : w.w;
    w.padded_h = w.padded_h > 0 ? w.padded_h : dv_div_up(s.h, w.h) * w.h;
    w.padded_w = w.padded_w > 0 ? w.padded_w : dv_div_up(s.w, w.w) * w.w;
    return w;
}

static bool axis_possible(int64_t size, int64_t padded, int32_t w, int32_t keys, int32_t shift, int32_t cut) {
    return cut >= 0 && cut < w && (cut == 0 || shift > 0) && padded >= size && padded % w == 0 && keys >= w &&
           (keys - w) % 2 == 0 && shift >= 0 && shift < w && (shift == 0 || keys == w);
}

dv_value dv_window_attention(dv_graph *g, const dv_value qkv[3], int64_t heads, float scale, const dv_window *window,
                             dv_param bias) {
    if (!dv_graph_ready(g, "window_attention", qkv[0])) {
        return DV_NO_VALUE;
    }
    const dv_shape s = dv_shape_of(g, qkv[0]);
    if (window->h < 1 || window->w < 1) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "window_attention: a window without pixels"));
    }
    const dv_window w = completed(window, s);
    const bool whole = w.padded_h == s.h && w.padded_w == s.w && w.shift_y == 0 && w.shift_x == 0 && w.keys_h == w.h &&
                       w.keys_w == w.w;
    if (!axis_possible(s.h, w.padded_h, w.h, w.keys_h, w.shift_y, w.cut_y) ||
        !axis_possible(s.w, w.padded_w, w.w, w.keys_w, w.shift_x, w.cut_x) || (w.grid && !whole)) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "window_attention: windows of %d x %d do not fit %d x %d pixels",
                                        (int)w.w, (int)w.h, (int)s.w, (int)s.h));
    }
    const int64_t table = heads * (w.h + w.keys_h - 1) * (w.w + w.keys_w - 1);
    if (!operands_fit(g, "window_attention", qkv, heads, bias, table)) {
        return DV_NO_VALUE;
    }
    char label[256] = "window_attention";
    if (bias != DV_NO_PARAM) {
        dv_param_base_name(g, bias, label, sizeof label);
    }
    dv_node *node = dv_graph_append(g, DV_OP_WINDOW_ATTENTION, label, qkv, 3, s);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->heads = heads;
    node->scale = scale;
    node->window = w;
    node->weight = bias;
    return node->out;
}

dv_value dv_channel_attention(dv_graph *g, const dv_value qkv[3], const dv_channel_heads *opts) {
    const dv_window *window = &opts->window;
    const int64_t heads = opts->heads, dim = opts->dim;
    if (!operands_fit(g, "channel_attention", qkv, heads, opts->temperature, heads)) {
        return DV_NO_VALUE;
    }
    const dv_shape s = dv_shape_of(g, qkv[0]);
    if (dim < 1 || dim > s.c / heads) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE,
                                        "channel_attention: %d channels per head requested, at most %d exist", (int)dim,
                                        (int)(s.c / heads)));
    }
    const bool everything = window->h == 0 && window->w == 0 && !window->grid;
    if (!everything && (window->h < 1 || window->w < 1 || s.h % window->h != 0 || s.w % window->w != 0)) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "channel_attention: windows of %d x %d do not fit %d x %d pixels",
                                        (int)window->w, (int)window->h, (int)s.w, (int)s.h));
    }
    dv_node *node = dv_graph_append(g, DV_OP_CHANNEL_ATTENTION, "channel_attention", qkv, 3, s);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->heads = heads;
    node->groups = dim;
    node->eps = opts->eps;
    node->window = (dv_window){.h = window->h, .w = window->w, .keys_h = window->h, .keys_w = window->w};
    node->window.grid = window->grid;
    node->weight = opts->temperature;
    return node->out;
}

/* ---- a dictionary of tokens (ATD): kernels/dictionary.h ---- */

/* Both operands must have the same number of pictures. */
static bool ready(dv_graph *g, const char *label, dv_value a, dv_value b) {
    if (!dv_graph_ready(g, label, a) || !dv_graph_ready(g, label, b)) {
        return false;
    }
    if (dv_shape_of(g, a).n != dv_shape_of(g, b).n) {
        dv_graph_refuse_pair(g, label, dv_shape_of(g, a), dv_shape_of(g, b));
        return false;
    }
    return true;
}

/* Tokens may belong to each picture, or be shared by all of them. */
static bool ready_with(dv_graph *g, const char *label, dv_value a, dv_value tokens) {
    const bool of_all = dv_graph_ready(g, label, tokens) && dv_shape_of(g, tokens).n == 1;
    return of_all ? dv_graph_ready(g, label, a) : ready(g, label, a, tokens);
}

static int64_t pixels(dv_shape s) {
    return s.h * s.w;
}

dv_value dv_tokens(dv_graph *g, dv_param tokens, int64_t count, int64_t channels) {
    const dv_shape shape = {1, 1, count, channels};
    if (!dv_graph_ok(g) || tokens == DV_NO_PARAM) {
        return DV_NO_VALUE;
    }
    dv_node *node = dv_graph_append(g, DV_OP_TOKENS, g->params[tokens].label, NULL, 0, shape);
    if (node != NULL) {
        node->weight = tokens;
    }
    return dv_node_out(node);
}

dv_value dv_similarity(dv_graph *g, dv_value q, dv_value k, dv_param factor) {
    if (!ready_with(g, "similarity", q, k)) {
        return DV_NO_VALUE;
    }
    const dv_shape pixel = dv_shape_of(g, q);
    const dv_shape tokens = dv_shape_of(g, k);
    if (pixel.c != tokens.c) {
        return dv_graph_refuse_pair(g, "similarity", pixel, tokens);
    }
    const dv_value in[2] = {q, k};
    dv_node *node = dv_graph_append(g, DV_OP_SIMILARITY, "similarity", in, 2,
                                    (dv_shape){pixel.n, pixel.h, pixel.w, pixels(tokens)});
    if (node != NULL) {
        node->weight = factor;
    }
    return dv_node_out(node);
}

dv_value dv_mix(dv_graph *g, dv_value s, dv_value v) {
    if (!ready_with(g, "mix", s, v)) {
        return DV_NO_VALUE;
    }
    const dv_shape shares = dv_shape_of(g, s);
    const dv_shape tokens = dv_shape_of(g, v);
    if (shares.c != pixels(tokens)) {
        return dv_graph_refuse_pair(g, "mix", shares, tokens);
    }
    const dv_value in[2] = {s, v};
    return dv_node_out(dv_graph_append(g, DV_OP_MIX, "mix", in, 2, (dv_shape){shares.n, shares.h, shares.w, tokens.c}));
}

dv_value dv_order(dv_graph *g, dv_value s, int64_t rows, int64_t width) {
    if (!ready(g, "order", s, s)) {
        return DV_NO_VALUE;
    }
    const int64_t count = pixels(dv_shape_of(g, s));
    const dv_shape shape = {dv_shape_of(g, s).n, rows, width, 1};
    if (pixels(shape) < count || pixels(shape) > 2 * count || count > 1 << 24) {
        return dv_graph_fail(
            g,
            dv_fail(
                DAVY_E_UNSUPPORTED,
                "order: %lld pixels do not fit %lld places; needed are 1 to 2 places per pixel and at most 2^24 pixels",
                (long long)count, (long long)pixels(shape)));
    }
    return dv_node_out(dv_graph_append(g, DV_OP_ORDER, "order", &s, 1, shape));
}

dv_value dv_gather(dv_graph *g, dv_value x, dv_value order, dv_param scale) {
    if (!ready(g, "gather", x, order)) {
        return DV_NO_VALUE;
    }
    const dv_shape places = dv_shape_of(g, order);
    const dv_shape from = dv_shape_of(g, x);
    if (pixels(places) < pixels(from) || places.c != 1) {
        return dv_graph_refuse_pair(g, "gather", from, places);
    }
    const dv_value in[2] = {x, order};
    dv_node *node = dv_graph_append(g, DV_OP_GATHER, "gather", in, 2, (dv_shape){from.n, places.h, places.w, from.c});
    if (node != NULL) {
        node->weight = scale;
    }
    return dv_node_out(node);
}

dv_value dv_scatter(dv_graph *g, dv_value x, dv_value order, int64_t h, int64_t w) {
    if (!ready(g, "scatter", x, order)) {
        return DV_NO_VALUE;
    }
    const dv_shape from = dv_shape_of(g, x);
    const dv_shape places = dv_shape_of(g, order);
    if (from.h != places.h || from.w != places.w || places.c != 1 || h * w > pixels(places)) {
        return dv_graph_refuse_pair(g, "scatter", from, places);
    }
    const dv_value in[2] = {x, order};
    return dv_node_out(dv_graph_append(g, DV_OP_SCATTER, "scatter", in, 2, (dv_shape){from.n, h, w, from.c}));
}

dv_value dv_refine(dv_graph *g, dv_value tokens, dv_value s, dv_value x, const dv_refinement *how) {
    if (!ready(g, "refine", s, x) || !ready_with(g, "refine", s, tokens)) {
        return DV_NO_VALUE;
    }
    const dv_shape shape = dv_shape_of(g, tokens);
    const dv_shape shares = dv_shape_of(g, s);
    const dv_shape picture = dv_shape_of(g, x);
    if (shares.c != pixels(shape) || picture.c != shape.c || picture.h != shares.h || picture.w != shares.w) {
        return dv_graph_refuse_pair(g, "refine", shares, picture);
    }
    const dv_value in[3] = {tokens, s, x};
    dv_node *node = dv_graph_append(g, DV_OP_REFINE, "refine", in, 3, (dv_shape){shares.n, shape.h, shape.w, shape.c});
    if (node != NULL) {
        node->weight = how->gamma;
        node->bias = how->sigma;
        node->eps = how->eps;
    }
    return dv_node_out(node);
}
