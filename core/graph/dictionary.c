/* dictionary.c - builders of what networks with a dictionary of tokens add (ATD): kernels/dictionary.h. */
#include "core/graph/graph_priv.h"

#include "core/base/error.h"

static dv_value out_of(const dv_node *node) {
    return node != NULL ? node->out : DV_NO_VALUE;
}

/* Two operands of as many pictures. */
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

/* Pictures, and tokens of each or of all of them. */
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
    return out_of(node);
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
    return out_of(node);
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
    return out_of(dv_graph_append(g, DV_OP_MIX, "mix", in, 2, (dv_shape){shares.n, shares.h, shares.w, tokens.c}));
}

dv_value dv_order(dv_graph *g, dv_value s, int64_t rows, int64_t width) {
    if (!ready(g, "order", s, s)) {
        return DV_NO_VALUE;
    }
    const int64_t count = pixels(dv_shape_of(g, s));
    const dv_shape shape = {dv_shape_of(g, s).n, rows, width, 1};
    if (pixels(shape) < count || pixels(shape) > 2 * count || count > 1 << 24) {
        return dv_graph_fail(g, dv_fail(DAVY_E_UNSUPPORTED, "order: %lld pixels in %lld places", (long long)count,
                                        (long long)pixels(shape)));
    }
    return out_of(dv_graph_append(g, DV_OP_ORDER, "order", &s, 1, shape));
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
    return out_of(node);
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
    return out_of(dv_graph_append(g, DV_OP_SCATTER, "scatter", in, 2, (dv_shape){from.n, h, w, from.c}));
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
    return out_of(node);
}
