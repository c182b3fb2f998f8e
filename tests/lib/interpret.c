/* interpret.c - see interpret.h. */
#include "tests/lib/interpret.h"

size_t in_count(dv_shape s) {
    return (size_t)(s.n * s.h * s.w * s.c);
}

static float in_act(const interpreter *it, const dv_act *act, float x, int64_t c) {
    switch (act->kind) {
    case DVK_ACT_RELU:
        return x > 0.0f ? x : 0.0f;
    case DVK_ACT_LRELU:
        return x >= 0.0f ? x : x * act->slope;
    case DVK_ACT_PRELU:
        return x >= 0.0f ? x : x * it->params[act->slopes][c];
    case DVK_ACT_SILU:
        return x / (1.0f + expf(-x));
    case DVK_ACT_CLAMP3:
        return 3.0f * tanhf(x / 3.0f);
    case DVK_ACT_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case DVK_ACT_SIGMOID:
        return 1.0f / (1.0f + expf(-x));
    case DVK_ACT_TANH:
        return tanhf(x);
    case DVK_ACT_MISH:
        return x * tanhf(log1pf(expf(x)));
    case DVK_ACT_NONE:
        break;
    }
    return x;
}

static float in_prologue(const interpreter *it, const dv_node *node, float x, int64_t c) {
    if (node->fused.norm >= 0) {
        x = x * it->scale[node->fused.norm][c] + it->shift[node->fused.norm][c];
    } else if (node->fused.pro_scale != DV_NO_PARAM) {
        x = x * it->params[node->fused.pro_scale][c] + it->params[node->fused.pro_shift][c];
    }
    return in_act(it, &node->fused.pro_act, x, c);
}

static float in_epilogue(const interpreter *it, const dv_node *node, float x, size_t i, int64_t c) {
    if (node->bias != DV_NO_PARAM && (node->op == DV_OP_CONV2D || node->op == DV_OP_DEPTHWISE)) {
        x += it->params[node->bias][c % it->g->params[node->bias].shape[0]]; /* repeated for frames side by side */
    }
    if (node->fused.gate) {
        return (x + it->values[node->fused.res[0]][i]) * (1.0f / (1.0f + expf(-x)) - 0.5f);
    }
    if (!node->fused.act_last) {
        x = in_act(it, &node->fused.act, x, c);
    }
    x *= node->fused.alpha;
    for (int32_t k = 0; k < node->fused.n_res; k++) {
        x += node->fused.beta[k] * it->values[node->fused.res[k]][i];
    }
    return node->fused.act_last ? in_act(it, &node->fused.act, x, c) : x;
}

static void in_conv(const interpreter *it, const dv_node *node, dv_shape x, dv_shape y, float *out) {
    const int64_t up = node->fused.upsample > 1 ? node->fused.upsample : 1;
    const int64_t taps = (int64_t)node->kh * node->kw;
    float *ready = malloc(in_count(x) * sizeof *ready);
    float *w =
        malloc((size_t)(taps * x.c * y.c) * sizeof *w); /* tap, input, output: the inner loop runs over outputs */
    for (size_t i = 0; i < in_count(x); i++) {
        ready[i] = in_prologue(it, node, it->values[node->in[0]][i], (int64_t)i % x.c);
    }
    for (int64_t o = 0; o < y.c; o++) {
        for (int64_t i = 0; i < x.c * taps; i++) {
            w[((i % taps) * x.c + i / taps) * y.c + o] = it->params[node->weight][o * x.c * taps + i];
        }
    }
    for (int64_t p = 0; p < y.h * y.w; p++) {
        float *dst = out + p * y.c;
        memset(dst, 0, (size_t)y.c * sizeof *dst);
        for (int64_t tap = 0; tap < taps; tap++) {
            const int64_t iy = p / y.w * node->stride + tap / node->kw - node->pad_top;
            const int64_t ix = p % y.w * node->stride + tap % node->kw - node->pad_left;
            if (iy < 0 || ix < 0 || iy >= x.h * up || ix >= x.w * up) {
                continue;
            }
            const float *src = ready + (iy / up * x.w + ix / up) * x.c;
            for (int64_t i = 0; i < x.c; i++) {
                const float *row = w + (tap * x.c + i) * y.c;
                for (int64_t o = 0; o < y.c; o++) {
                    dst[o] += src[i] * row[o];
                }
            }
        }
        for (int64_t o = 0; o < y.c; o++) {
            dst[o] = in_epilogue(it, node, dst[o], (size_t)(p * y.c + o), o);
        }
    }
    free(ready);
    free(w);
}

/* Each parity of the result's rows and columns has weights of its own. */
static void in_conv_phased(const interpreter *it, const dv_node *node, dv_shape x, dv_shape y, float *out) {
    for (int64_t i = 0; i < y.h * y.w * y.c; i++) {
        const int64_t oy = i / y.c / y.w, ox = i / y.c % y.w, o = i % y.c;
        const float *w = it->params[node->weight] + ((oy % 2 * 2 + ox % 2) * y.c + o) * x.c * 4;
        float sum = 0.0f;
        for (int64_t k = 0; k < x.c * 4; k++) {
            const int64_t iy = (oy + 1) / 2 - 1 + k / 2 % 2, ix = (ox + 1) / 2 - 1 + k % 2;
            if (iy >= 0 && ix >= 0 && iy < x.h && ix < x.w) {
                const float v = it->values[node->in[0]][(iy * x.w + ix) * x.c + k / 4];
                sum += w[k] * in_prologue(it, node, v, k / 4);
            }
        }
        out[i] = in_epilogue(it, node, sum, (size_t)i, o);
    }
}

static void in_norm(const interpreter *it, int64_t index, dv_shape x) {
    const dv_node *node = &it->g->nodes[index];
    const float *src = it->values[node->in[0]];
    const int64_t each = x.c / node->groups;
    it->scale[index] = malloc((size_t)x.c * sizeof(float));
    it->shift[index] = malloc((size_t)x.c * sizeof(float));
    for (int64_t group = 0; group < node->groups; group++) {
        double sum = 0.0;
        double squares = 0.0;
        for (int64_t p = 0; p < x.h * x.w; p++) {
            for (int64_t c = group * each; c < (group + 1) * each; c++) {
                sum += (double)src[p * x.c + c];
                squares += (double)src[p * x.c + c] * (double)src[p * x.c + c];
            }
        }
        const double count = (double)(x.h * x.w * each);
        const double mean = sum / count;
        const double factor = 1.0 / sqrt(squares / count - mean * mean + (double)node->eps);
        for (int64_t c = group * each; c < (group + 1) * each; c++) {
            const double s = factor * (double)it->params[node->weight][c];
            it->scale[index][c] = (float)s;
            it->shift[index][c] = (float)((double)it->params[node->bias][c] - mean * s);
        }
    }
}

/* Ops that move pixels: one output element. */
static float in_moved(const interpreter *it, const dv_node *node, dv_shape y, int64_t oy, int64_t ox, int64_t c) {
    const dv_shape x = dv_shape_of(it->g, node->in[0]);
    const float *src = it->values[node->in[0]];
    const int64_t r = node->r;
    switch (node->op) {
    case DV_OP_UPSAMPLE:
        return src[(oy / r * x.w + ox / r) * x.c + c];
    case DV_OP_PIXEL_SHUFFLE: {
        const float v = src[(oy / r * x.w + ox / r) * x.c + c * r * r + oy % r * r + ox % r];
        return node->n_in > 1 ? v + it->values[node->in[1]][(oy / r * x.w + ox / r) * y.c + c] : v;
    }
    case DV_OP_PIXEL_UNSHUFFLE:
        return src[((oy * r + c % (r * r) / r) * x.w + ox * r + c % r) * x.c + c / (r * r)];
    case DV_OP_FOLD:
        return im_fold(node, src, x, y, oy, ox, c);
    case DV_OP_UNFOLD:
        return im_unfold(node, src, x, y, oy, ox, c);
    case DV_OP_CONCAT:
        for (int32_t k = 0; k < node->n_in; k++) {
            const int64_t channels = dv_shape_of(it->g, node->in[k]).c;
            if (c < channels) {
                return it->values[node->in[k]][(oy * y.w + ox) * channels + c];
            }
            c -= channels;
        }
        return 0.0f;
    case DV_OP_PAD:
        return im_pad(node, src, x, oy, ox, c);
    case DV_OP_CROP:
        return src[((oy + node->pad_top) * x.w + ox + node->pad_left) * x.c + c];
    case DV_OP_SLICE:
        return src[(oy * x.w + ox) * x.c + node->first + c];
    case DV_OP_DEPTHWISE:
        return ig_depthwise(node, src, x, it->params[node->weight], oy, ox, c);
    case DV_OP_MULTIPLY: {
        const dv_shape g = dv_shape_of(it->g, node->in[1]);
        const int64_t at = (g.h > 1 ? oy : 0) * g.w + (g.w > 1 ? ox : 0);
        const float gate = it->values[node->in[1]][at * g.c + (g.c > 1 ? c : 0)];
        return src[(oy * x.w + ox) * x.c + c] * in_act(it, &node->act, gate, c);
    }
    case DV_OP_MEAN:
        return ig_mean(src, x, c);
    case DV_OP_MAX_POOL:
        return ig_max(node, src, x, oy, ox, c);
    case DV_OP_RESIZE:
        return ig_resize(src, x, y, oy, ox, c);
    case DV_OP_DYSAMPLE:
        return ig_dysample(node, src, x, it->values[node->in[1]], oy, ox, c, y.c);
    default:
        return src[(oy * x.w + ox) * x.c + c];
    }
}

static float in_unfused(const interpreter *it, const dv_node *node, int64_t index, size_t i, int64_t c) {
    const float x = it->values[node->in[0]][i];
    const float y = node->n_in > 1 ? it->values[node->in[1]][i] : 0.0f;
    switch (node->op) {
    case DV_OP_ACT:
        return in_act(it, &node->act, x, c);
    case DV_OP_ADD:
        return node->alpha * x + node->beta * y;
    case DV_OP_GATE:
        return (x + y) * (1.0f / (1.0f + expf(-x)) - 0.5f);
    case DV_OP_AFFINE:
        return x * it->params[node->weight][c] + it->params[node->bias][c];
    default:
        return x * it->scale[index][c] + it->shift[index][c];
    }
}

/* Layer norm, and attention in windows or between channels. Returns 0 for another op. */
static int in_transformer(const interpreter *it, const dv_node *node, dv_shape y, float *out) {
    const float *weight = node->weight != DV_NO_PARAM ? it->params[node->weight] : NULL;
    const float *qkv[3] = {0};
    for (int32_t i = 0; i < 3 && i < node->n_in; i++) {
        qkv[i] = node->in[i] != DV_NO_VALUE ? it->values[node->in[i]] : NULL;
    }
    switch (node->op) {
    case DV_OP_LAYER_NORM:
        iw_layer_norm(node, qkv[0], weight, it->params[node->bias], y, out);
        return 1;
    case DV_OP_WINDOW_ATTENTION:
        iw_window_attention(node, qkv, weight, y, out);
        return 1;
    case DV_OP_CHANNEL_ATTENTION:
        iw_channel_attention(node, qkv, weight, y, out);
        return 1;
    default:
        return 0;
    }
}

static void in_node(interpreter *it, int64_t index) {
    const dv_node *node = &it->g->nodes[index];
    const dv_shape y = dv_shape_of(it->g, node->out);
    float *out = malloc(in_count(y) * sizeof *out);
    it->values[node->out] = out;
    if (node->op == DV_OP_GROUP_NORM) {
        in_norm(it, index, y);
    }
    id_operands dictionary = {.node = node,
                              .weight = node->weight != DV_NO_PARAM ? it->params[node->weight] : NULL,
                              .bias = node->bias != DV_NO_PARAM ? it->params[node->bias] : NULL};
    for (int32_t i = 0; i < 3 && i < node->n_in; i++) {
        dictionary.in[i] = node->in[i] != DV_NO_VALUE ? it->values[node->in[i]] : NULL;
        dictionary.shapes[i] = dv_shape_of(it->g, node->in[i]);
    }
    if (id_node(&dictionary, y, out)) {
        return;
    }
    if (in_transformer(it, node, y, out)) {
        return;
    }
    if (node->op == DV_OP_CONV2D) {
        (node->phased ? in_conv_phased : in_conv)(it, node, dv_shape_of(it->g, node->in[0]), y, out);
    } else if (node->op == DV_OP_ATTENTION) {
        iw_attention(node, it->values[node->in[0]], it->values[node->in[1]], it->values[node->in[2]],
                     dv_shape_of(it->g, node->in[1]), y, out);
    } else {
        const int pointwise = node->op == DV_OP_ACT || node->op == DV_OP_ADD || node->op == DV_OP_GATE ||
                              node->op == DV_OP_AFFINE || node->op == DV_OP_GROUP_NORM;
        for (size_t i = 0; i < in_count(y); i++) {
            const int64_t c = (int64_t)i % y.c;
            if (!pointwise) {
                out[i] = in_moved(it, node, y, (int64_t)i / y.c / y.w, (int64_t)i / y.c % y.w, c);
                if (node->op == DV_OP_DEPTHWISE || node->op == DV_OP_MULTIPLY) {
                    out[i] = in_epilogue(it, node, out[i], i, c); /* only the bias, unless fused */
                }
            } else if (it->g->fused) {
                out[i] = in_epilogue(it, node, in_prologue(it, node, it->values[node->in[0]][i], c), i, c);
            } else {
                out[i] = in_unfused(it, node, index, i, c);
            }
        }
    }
}

int in_params(interpreter *it) {
    for (int64_t i = 0; i < it->g->n_params; i++) {
        const dv_param_info *p = &it->g->params[i];
        size_t count = 1;
        for (int32_t k = 0; k < p->ndim; k++) {
            count *= (size_t)p->shape[k];
        }
        it->params[i] = malloc(count * sizeof(float));
        davy_result r = DAVY_OK;
        if (p->ref != NULL) {
            r = dv_tensor_read_f32(p->ref, it->params[i]);
        } else if (p->from != NULL && p->from->derive != NULL) {
            r = p->from->derive(it->g->weights, p->from, it->params[i]);
        } else if (p->from != NULL) {
            for (int32_t k = 0; k < p->from->shares && r == DAVY_OK; k++) {
                r = p->from->derive_share(it->g->weights, p->from, k, 0, it->params[i]);
            }
        } else {
            memcpy(it->params[i], p->constant, count * sizeof(float));
        }
        if (r != DAVY_OK) {
            return 0;
        }
        for (size_t k = 0; k < count; k++) {
            it->params[i][k] = ldexpf(it->params[i][k], p->exponent);
        }
    }
    return 1;
}

int in_run(interpreter *it, const dv_graph *g, const float *input) {
    *it = (interpreter){.g = g};
    it->values = calloc((size_t)g->n_values, sizeof *it->values);
    it->params = calloc((size_t)g->n_params + 1, sizeof *it->params);
    it->scale = calloc((size_t)g->n_nodes, sizeof *it->scale);
    it->shift = calloc((size_t)g->n_nodes, sizeof *it->shift);
    const int ok = in_params(it);
    for (int64_t i = 0; ok && i < g->n_nodes; i++) {
        const dv_node *node = &g->nodes[i];
        if (node->op == DV_OP_INPUT) {
            it->values[node->out] = malloc(in_count(dv_shape_of(g, node->out)) * sizeof(float));
            memcpy(it->values[node->out], input, in_count(dv_shape_of(g, node->out)) * sizeof(float));
        } else if (!node->dead) {
            in_node(it, i);
        }
    }
    return ok;
}

void in_release(interpreter *it) {
    for (int64_t i = 0; i < it->g->n_values; i++) {
        free(it->values[i]);
    }
    for (int64_t i = 0; i < it->g->n_params; i++) {
        free(it->params[i]);
    }
    for (int64_t i = 0; i < it->g->n_nodes; i++) {
        free(it->scale[i]);
        free(it->shift[i]);
    }
    free(it->values);
    free(it->params);
    free(it->scale);
    free(it->shift);
}

int interpret(const dv_graph *g, const float *input, float *output) {
    interpreter it;
    const int ok = in_run(&it, g, input);
    if (ok) {
        memcpy(output, it.values[g->output], in_count(dv_shape_of(g, g->output)) * sizeof(float));
    }
    in_release(&it);
    return ok;
}
