/* dat.c - see dat.h. */
#include "core/block/dat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/block/derived.h"
#include "core/block/weights.h"

#define NORM_EPS 1e-5

/* ---- batch norm ---- */

typedef struct folded {        /* a convolution, named by the derivation, and the norm behind it */
    int64_t out, in, taps;     /* stored shape: [out, in, taps] */
    int64_t dim, padded;       /* of the heads of the padded side */
    char norm[DV_NAMES_BYTES]; /* prefix of the norm; empty: none */
} folded;

static davy_result read_part(const dv_tensors *t, const char *name, const char *part, int32_t ndim,
                             const int64_t *shape, float **out) {
    char full[DV_NAMES_BYTES];
    return dv_read_tensor(t, dv_names_join(full, name, part), ndim, shape, out);
}

/* y = x * scale + shift. If a file lacks the norm's running statistics, their values before training (mean 0,
 * variance 1) are used. */
static davy_result norm_factors(const dv_tensors *t, const folded *f, float **scale, float **shift) {
    char part[DV_NAMES_BYTES];
    float *mean = NULL;
    float *var = NULL;
    if (f->norm[0] == '\0') {
        *scale = *shift = NULL;
        return DAVY_OK;
    }
    davy_result r = read_part(t, f->norm, ".weight", 1, &f->out, scale);
    r = r < 0 ? r : read_part(t, f->norm, ".bias", 1, &f->out, shift);
    if (r == DAVY_OK && dv_has(t, dv_names_join(part, f->norm, ".running_mean"))) {
        r = dv_read_tensor(t, part, 1, &f->out, &mean);
    }
    if (r == DAVY_OK && dv_has(t, dv_names_join(part, f->norm, ".running_var"))) {
        r = dv_read_tensor(t, part, 1, &f->out, &var);
    }
    for (int64_t i = 0; r == DAVY_OK && i < f->out; i++) {
        const double s = (double)(*scale)[i] / sqrt((var != NULL ? (double)var[i] : 1.0) + NORM_EPS);
        (*shift)[i] = (float)((double)(*shift)[i] - (mean != NULL ? (double)mean[i] * s : 0.0));
        (*scale)[i] = (float)s;
    }
    dv_free(mean);
    dv_free(var);
    return r;
}

static int64_t padded_at(const folded *f, int64_t channel) {
    return channel / f->dim * f->padded + channel % f->dim;
}

/* 1x1: [out][in, padded]; depthwise (in 1): [taps][out, padded] */
static davy_result derive_weight(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const folded *f = from->how;
    const bool depthwise = f->taps > 1;
    const int64_t side = depthwise ? 3 : 1;
    const int64_t shape[4] = {f->out, f->in, side, side};
    const int64_t wide = (depthwise ? f->out : f->in) / f->dim * f->padded;
    float *w = NULL;
    float *scale = NULL;
    float *shift = NULL;
    davy_result r = read_part(t, from->name, ".weight", 4, shape, &w);
    r = r < 0 ? r : norm_factors(t, f, &scale, &shift);
    if (r == DAVY_OK) {
        memset(dst, 0, (size_t)(wide * (depthwise ? f->taps : f->out)) * sizeof *dst);
    }
    for (int64_t i = 0; r == DAVY_OK && i < f->out * f->in * f->taps; i++) {
        const int64_t o = i / (f->in * f->taps);
        const int64_t to = depthwise ? i % f->taps * wide + padded_at(f, o) : o * wide + padded_at(f, i % f->in);
        dst[to] = scale != NULL ? w[i] * scale[o] : w[i];
    }
    dv_free(w);
    dv_free(scale);
    dv_free(shift);
    return r;
}

static davy_result derive_bias(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const folded *f = from->how;
    const bool depthwise = f->taps > 1;
    float *b = NULL;
    float *scale = NULL;
    float *shift = NULL;
    davy_result r = read_part(t, from->name, ".bias", 1, &f->out, &b);
    r = r < 0 ? r : norm_factors(t, f, &scale, &shift);
    if (r == DAVY_OK) {
        memset(dst, 0, (size_t)(depthwise ? f->out / f->dim * f->padded : f->out) * sizeof *dst);
    }
    for (int64_t o = 0; r == DAVY_OK && o < f->out; o++) {
        dst[depthwise ? padded_at(f, o) : o] = scale != NULL ? b[o] * scale[o] + shift[o] : b[o];
    }
    dv_free(b);
    dv_free(scale);
    dv_free(shift);
    return r;
}

/* Checks that every tensor to be read exists in the right shape; otherwise the graph has failed. */
static bool parts_fit(dv_graph *g, const char *conv, const char *norm, const int64_t *shape) {
    static const char *const measured[] = {".running_mean", ".running_var"};
    char name[DV_NAMES_BYTES];
    bool fit = dv_weight_require(g, conv, ".weight", 4, shape) != NULL &&
               dv_weight_require(g, conv, ".bias", 1, shape) != NULL;
    if (norm[0] == '\0') {
        return fit;
    }
    fit = fit && dv_weight_require(g, norm, ".weight", 1, shape) != NULL &&
          dv_weight_require(g, norm, ".bias", 1, shape) != NULL;
    for (int i = 0; fit && i < 2; i++) {
        fit = !dv_has(g->weights, dv_names_join(name, norm, measured[i])) ||
              dv_weight_require(g, name, "", 1, shape) != NULL;
    }
    return fit;
}

typedef struct folded_shape { /* shapes of the derived parameters */
    int64_t weight[4];
    int32_t ndim;
    int64_t bias;
} folded_shape;

static bool folded_params(dv_graph *g, const char *conv, const folded *f, const folded_shape *to, dv_conv_opts *opts) {
    char label[DV_NAMES_BYTES];
    const int64_t side = f->taps > 1 ? 3 : 1;
    const int64_t shape[4] = {f->out, f->in, side, side};
    if (!parts_fit(g, conv, f->norm, shape)) {
        return false;
    }
    const int64_t vectors = f->norm[0] != '\0' ? 3 : 1;
    const dv_derivation of_weight = {conv, f, sizeof *f, .derive = derive_weight, .stored = f->out * f->in * f->taps};
    const dv_derivation of_bias = {conv, f, sizeof *f, .derive = derive_bias, .stored = vectors * f->out};
    *opts = (dv_conv_opts){.derived = true};
    opts->weight = dv_param_derived(g, dv_names_join(label, conv, ".weight"), &of_weight, to->ndim, to->weight);
    opts->bias = dv_param_derived(g, dv_names_join(label, conv, ".bias"), &of_bias, 1, &to->bias);
    return opts->weight != DV_NO_PARAM && opts->bias != DV_NO_PARAM;
}

dv_value dv_conv_norm(dv_graph *g, dv_value x, const char *conv, const char *norm, dv_heads in, int64_t c_out) {
    folded f = {c_out, in.count * in.dim, 1, in.dim, in.padded, {0}};
    snprintf(f.norm, sizeof f.norm, "%s", norm);
    const folded_shape to = {{c_out, dv_heads_width(in), 1, 1}, .ndim = 4, .bias = c_out};
    dv_conv_opts opts;
    return folded_params(g, conv, &f, &to, &opts) ? dv_conv(g, x, conv, c_out, 1, &opts) : DV_NO_VALUE;
}

dv_value dv_depthwise_norm(dv_graph *g, dv_value x, const char *conv, const char *norm, dv_heads heads) {
    folded f = {heads.count * heads.dim, 1, 9, heads.dim, heads.padded, {0}};
    snprintf(f.norm, sizeof f.norm, "%s", norm);
    const folded_shape to = {{9, dv_heads_width(heads)}, .ndim = 2, .bias = dv_heads_width(heads)};
    dv_conv_opts opts;
    return folded_params(g, conv, &f, &to, &opts) ? dv_depthwise(g, x, conv, 3, &opts) : DV_NO_VALUE;
}

dv_value dv_depthwise_heads(dv_graph *g, dv_value x, const char *conv, dv_heads heads) {
    return dv_depthwise_norm(g, x, conv, "", heads);
}

/* ---- position bias ---- */

enum { MAX_HIDDEN = 64 };

typedef struct bias_net {
    int64_t hidden, heads;
    float *proj, *proj_bias;
    float *gain[3], *offset[3], *w[3], *b[3]; /* per layer: layer norm, ReLU, linear */
} bias_net;

static void release(bias_net *n) {
    dv_free(n->proj);
    dv_free(n->proj_bias);
    for (int i = 0; i < 3; i++) {
        dv_free(n->gain[i]);
        dv_free(n->offset[i]);
        dv_free(n->w[i]);
        dv_free(n->b[i]);
    }
}

static davy_result read_net(const dv_tensors *t, const char *name, bias_net *n) {
    const int64_t proj[2] = {n->hidden, 2};
    davy_result r = read_part(t, name, ".pos_proj.weight", 2, proj, &n->proj);
    r = r < 0 ? r : read_part(t, name, ".pos_proj.bias", 1, &n->hidden, &n->proj_bias);
    for (int i = 0; r == DAVY_OK && i < 3; i++) {
        char layer[DV_NAMES_BYTES];
        const int64_t w[2] = {i < 2 ? n->hidden : n->heads, n->hidden};
        snprintf(layer, sizeof layer, "%s.pos%d", name, i + 1);
        r = read_part(t, layer, ".0.weight", 1, &n->hidden, &n->gain[i]);
        r = r < 0 ? r : read_part(t, layer, ".0.bias", 1, &n->hidden, &n->offset[i]);
        r = r < 0 ? r : read_part(t, layer, ".2.weight", 2, w, &n->w[i]);
        r = r < 0 ? r : read_part(t, layer, ".2.bias", 1, w, &n->b[i]);
    }
    return r;
}

static void linear(const float *w, const float *b, const double *x, int64_t in, int64_t out, double *y) {
    for (int64_t o = 0; o < out; o++) {
        y[o] = (double)b[o];
        for (int64_t i = 0; i < in; i++) {
            y[o] += (double)w[o * in + i] * x[i];
        }
    }
}

static void norm_relu(const float *gain, const float *offset, int64_t n, double *x) {
    double mean = 0.0;
    double var = 0.0;
    for (int64_t i = 0; i < n; i++) {
        mean += x[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        var += (x[i] - mean) * (x[i] - mean) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = fmax((x[i] - mean) / sqrt(var + NORM_EPS) * (double)gain[i] + (double)offset[i], 0.0);
    }
}

typedef struct dynamic_bias {
    int64_t hidden, heads, h, w;
} dynamic_bias;

static davy_result derive_dynamic(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const dynamic_bias *d = from->how;
    bias_net n = {.hidden = d->hidden, .heads = d->heads};
    const int64_t rows = 2 * d->h - 1;
    const int64_t columns = 2 * d->w - 1;
    const davy_result r = read_net(t, from->name, &n);
    for (int64_t i = 0; r == DAVY_OK && i < rows * columns; i++) {
        const double at[2] = {(double)(i / columns - d->h + 1), (double)(i % columns - d->w + 1)};
        double x[MAX_HIDDEN];
        double y[MAX_HIDDEN];
        linear(n.proj, n.proj_bias, at, 2, n.hidden, x);
        for (int k = 0; k < 3; k++) {
            const int64_t out = k < 2 ? n.hidden : n.heads;
            norm_relu(n.gain[k], n.offset[k], n.hidden, x);
            linear(n.w[k], n.b[k], x, n.hidden, out, y);
            memcpy(x, y, (size_t)out * sizeof *x);
        }
        for (int64_t head = 0; head < n.heads; head++) {
            dst[head * rows * columns + i] = (float)x[head];
        }
    }
    release(&n);
    return r;
}

static bool net_fits(dv_graph *g, const char *name, int64_t hidden, int64_t heads) {
    const int64_t proj[2] = {hidden, 2};
    bool fits = dv_weight_require(g, name, ".pos_proj.weight", 2, proj) != NULL &&
                dv_weight_require(g, name, ".pos_proj.bias", 1, &hidden) != NULL;
    for (int i = 0; fits && i < 3; i++) {
        char layer[DV_NAMES_BYTES];
        const int64_t w[2] = {i < 2 ? hidden : heads, hidden};
        snprintf(layer, sizeof layer, "%s.pos%d", name, i + 1);
        fits = dv_weight_require(g, layer, ".0.weight", 1, &hidden) != NULL &&
               dv_weight_require(g, layer, ".0.bias", 1, &hidden) != NULL &&
               dv_weight_require(g, layer, ".2.weight", 2, w) != NULL &&
               dv_weight_require(g, layer, ".2.bias", 1, w) != NULL;
    }
    return fits;
}

dv_param dv_dynamic_bias(dv_graph *g, const char *name, int64_t heads, int64_t h, int64_t w) {
    char tensor[DV_NAMES_BYTES];
    const int64_t hidden = dv_dim(g->weights, dv_names_join(tensor, name, ".pos_proj.weight"), 0);
    const int64_t shape[3] = {heads, 2 * h - 1, 2 * w - 1};
    if (hidden > MAX_HIDDEN || heads > MAX_HIDDEN) {
        dv_graph_fail(g, dv_fail(DAVY_E_UNSUPPORTED, "tensor '%s' has %d rows; at most %d are supported", tensor,
                                 (int)hidden, MAX_HIDDEN));
        return DV_NO_PARAM;
    }
    if (!net_fits(g, name, hidden, heads)) {
        return DV_NO_PARAM;
    }
    const dynamic_bias how = {hidden, heads, h, w};
    /* three layers, each with a norm of two vectors */
    const int64_t stored = hidden * 3 + 3 * 2 * hidden + 2 * hidden * (hidden + 1) + heads * (hidden + 1);
    const dv_derivation from = {name, &how, sizeof how, .derive = derive_dynamic, .stored = stored};
    return dv_param_derived(g, name, &from, 3, shape);
}

/* ---- windows split between the heads, and the gated MLP ---- */

#define FIRST "layers.0.blocks.0.attn.attns.0."

/* Files of training tools store buffers of a window: all offsets, (2 h - 1)(2 w - 1), and often an index of h w
 * pixels. Without the index, the sides are assumed to be powers of two. The first side is always assumed to be the
 * smaller one. */
static bool stored_split(const dv_tensors *t, dv_window_split *split) {
    const int64_t offsets = dv_dim(t, FIRST "rpe_biases", 0);
    const int64_t pixels = dv_dim(t, FIRST "relative_position_index", 0);
    for (int64_t h = 1; h <= DV_MAX_WINDOW; h++) {
        for (int64_t w = h; w <= DV_MAX_WINDOW; w++) {
            const bool fits = pixels > 0 ? h * w == pixels : (h & (h - 1)) == 0 && (w & (w - 1)) == 0;
            if (fits && (2 * h - 1) * (2 * w - 1) == offsets) {
                split->side[0] = h;
                split->side[1] = w;
                return true;
            }
        }
    }
    return false;
}

davy_result dv_window_split_find(const dv_probe *probe, const char *family, dv_window_split *out) {
    *out = (dv_window_split){.side = {8, 32}};
    if (probe->split[0] > 0) {
        memcpy(out->side, probe->split, sizeof out->side);
    } else {
        out->assumed = !stored_split(probe->tensors, out);
    }
    const int64_t least = dv_min(out->side[0], out->side[1]);
    const int64_t most = dv_max(out->side[0], out->side[1]);
    if (least < 1 || most > DV_MAX_WINDOW || most % least != 0) {
        return dv_fail(
            DAVY_E_UNSUPPORTED,
            "the %s network has windows of %d x %d; the longer side must be a multiple of the shorter, at most 64",
            family, (int)out->side[0], (int)out->side[1]);
    }
    return DAVY_OK;
}

bool dv_window_split_shifts(int64_t group, int64_t block) {
    return group % 2 == 0 ? block > 0 && (block - 2) % 4 == 0 : block % 4 == 0;
}

dv_value dv_window_split_attention(dv_graph *g, const dv_value qkv[3], const char *name, const dv_window_split *split,
                                   dv_heads heads, bool shifted) {
    const dv_shape s = dv_shape_of(g, qkv[0]);
    const int64_t most = dv_max(split->side[0], split->side[1]);
    const int64_t half = dv_heads_width(heads) / 2;
    dv_value parts[2];
    for (int i = 0; i < 2; i++) {
        char bias[DV_NAMES_BYTES];
        const int64_t h = split->side[i];
        const int64_t w = split->side[1 - i];
        const dv_window window = {.h = (int32_t)h,
                                  .w = (int32_t)w,
                                  .shift_y = shifted ? (int32_t)h / 2 : 0,
                                  .shift_x = shifted ? (int32_t)w / 2 : 0,
                                  .padded_h = dv_div_up(s.h, most) * most,
                                  .padded_w = dv_div_up(s.w, most) * most};
        dv_value of[3];
        for (int k = 0; k < 3; k++) {
            of[k] = dv_slice(g, qkv[k], i * half, half);
        }
        snprintf(bias, sizeof bias, "%s.attns.%d.pos", name, i);
        parts[i] = dv_window_attention(g, of, heads.count / 2, dv_heads_scale(heads), &window,
                                       dv_dynamic_bias(g, bias, heads.count / 2, h, w));
    }
    return dv_concat(g, parts, 2);
}

/* u2 begins at a multiple of 8 channels, as kernels need; so do heads. */
dv_value dv_gated_mlp(dv_graph *g, dv_value x, const char *name) {
    char part[DV_NAMES_BYTES];
    const int64_t outputs = dv_dim(g->weights, dv_names_join(part, name, ".fc1.weight"), 0);
    const dv_heads halves = dv_heads_of(g, part, outputs, 2);
    dv_value u = dv_linear_to_heads(g, x, dv_names_join(part, name, ".fc1"), halves, 1);
    u = dv_activation(g, u, DVK_ACT_GELU, 0.0f);
    const dv_value second = dv_slice(g, u, halves.padded, halves.dim);
    dv_value gate = dv_layer_norm(g, second, dv_names_join(part, name, ".sg.norm"), DV_SWIN_EPS);
    gate = dv_depthwise(g, gate, dv_names_join(part, name, ".sg.conv"), 3, NULL);
    u = dv_multiply(g, dv_slice(g, u, 0, halves.dim), gate, DVK_ACT_NONE);
    return dv_linear(g, u, dv_names_join(part, name, ".fc2"), dv_shape_of(g, x).c);
}
