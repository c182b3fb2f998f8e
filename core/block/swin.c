/* swin.c - see swin.h. */
#include "core/block/swin.h"

#include <math.h>
#include <string.h>

#include "core/block/derived.h"
#include "core/base/error.h"
#include "core/base/mem.h"

dv_heads dv_heads_of(dv_graph *g, const char *name, int64_t channels, int64_t heads) {
    if (heads < 1 || channels < 1 || channels % heads != 0) {
        dv_graph_fail(
            g, dv_fail(DAVY_E_SHAPE, "'%s': %d channels do not divide into %d heads", name, (int)channels, (int)heads));
        return (dv_heads){1, 8, 8};
    }
    const int64_t dim = channels / heads;
    return (dv_heads){heads, dim, dv_div_up(dim, 8) * 8};
}

float dv_heads_scale(dv_heads h) {
    return (float)(1.0 / sqrt((double)h.dim));
}

/* ---- derived parameters ---- */

/* Reads a tensor of any shape; the builder has checked it. */
static davy_result read_all(const dv_tensors *t, const char *name, float **out, int64_t *count) {
    const dv_tensor_ref *ref = dv_tensors_find(t, name);
    *count = ref != NULL ? dv_tensor_elements(ref) : 0;
    return ref != NULL ? dv_read_tensor(t, name, ref->ndim, ref->shape, out)
                       : dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing", name);
}

typedef struct padding { /* zeros behind every run of values */
    int64_t run, padded;
} padding;

static davy_result derive_padded(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const padding *d = from->how;
    float *values = NULL;
    int64_t count = 0;
    const davy_result r = read_all(t, from->name, &values, &count);
    for (int64_t i = 0; r == DAVY_OK && i < count / d->run; i++) {
        memcpy(dst + i * d->padded, values + i * d->run, (size_t)d->run * sizeof *dst);
        memset(dst + i * d->padded + d->run, 0, (size_t)(d->padded - d->run) * sizeof *dst);
    }
    dv_free(values);
    return r;
}

typedef struct padded_tensor {
    int32_t ndim;
    int64_t stored[4], shape[4]; /* shape in the file, shape of the parameter */
    padding padding;
} padded_tensor;

/* A derived parameter: tensor `name` with padded runs. */
static dv_param param_padded(dv_graph *g, const char *name, const padded_tensor *p) {
    const dv_tensor_ref *ref = dv_weight_require(g, name, "", p->ndim, p->stored);
    if (ref == NULL) {
        return DV_NO_PARAM;
    }
    const dv_derivation from = {ref->name, &p->padding, sizeof p->padding, .derive = derive_padded,
                                .stored = dv_tensor_elements(ref)};
    return dv_param_derived(g, ref->name, &from, p->ndim, p->shape);
}

/* ---- linear layers ---- */

dv_value dv_linear(dv_graph *g, dv_value x, const char *name, int64_t c_out) {
    char bias[DV_NAMES_BYTES];
    const dv_conv_opts opts = {.no_bias = !dv_has(g->weights, dv_names_join(bias, name, ".bias"))};
    return dv_conv(g, x, name, c_out, 1, &opts);
}

dv_value dv_linear_to_heads(dv_graph *g, dv_value x, const char *name, dv_heads heads, int64_t times) {
    const int64_t in = dv_shape_of(g, x).c;
    const int64_t out = times * heads.count * heads.dim;
    const int64_t wide = times * dv_heads_width(heads);
    if (heads.padded == heads.dim || in < 1) {
        return dv_linear(g, x, name, out);
    }
    const padded_tensor weight = {.ndim = 4,
                                  .stored = {out, in, 1, 1},
                                  .shape = {wide, in, 1, 1},
                                  .padding = {heads.dim * in, heads.padded * in}};
    const padded_tensor bias = {.ndim = 1, .stored = {out}, .shape = {wide}, .padding = {heads.dim, heads.padded}};
    char part[DV_NAMES_BYTES];
    dv_conv_opts opts = {.derived = true};
    opts.weight = param_padded(g, dv_names_join(part, name, ".weight"), &weight);
    opts.bias = dv_has(g->weights, dv_names_join(part, name, ".bias")) ? param_padded(g, part, &bias) : DV_NO_PARAM;
    return dv_conv(g, x, name, wide, 1, &opts);
}

dv_value dv_linear_from_heads(dv_graph *g, dv_value x, const char *name, dv_heads heads, int64_t c_out) {
    if (heads.padded == heads.dim) {
        return dv_linear(g, x, name, c_out);
    }
    const padded_tensor weight = {.ndim = 4,
                                  .stored = {c_out, heads.count * heads.dim, 1, 1},
                                  .shape = {c_out, dv_heads_width(heads), 1, 1},
                                  .padding = {heads.dim, heads.padded}};
    char part[DV_NAMES_BYTES];
    dv_conv_opts opts = {.derived = true};
    opts.weight = param_padded(g, dv_names_join(part, name, ".weight"), &weight);
    opts.bias =
        dv_has(g->weights, dv_names_join(part, name, ".bias")) ? dv_param_stored(g, part, 1, &c_out) : DV_NO_PARAM;
    return dv_conv(g, x, name, c_out, 1, &opts);
}

void dv_split_qkv(dv_graph *g, dv_value qkv, int64_t width, dv_value out[3]) {
    for (int i = 0; i < 3; i++) {
        out[i] = dv_slice(g, qkv, i * width, width);
    }
}

/* ---- attention in windows ---- */

int64_t dv_window_of_table(const dv_tensors *t, const char *name) {
    const int64_t side = dv_square_root(dv_dim(t, name, 0));
    return side % 2 == 1 && side < 2 * DV_MAX_WINDOW ? (side + 1) / 2 : 0;
}

davy_result dv_window_require(const dv_tensors *t, const char *name, int64_t *out) {
    *out = dv_window_of_table(t, name);
    return *out >= 2 ? DAVY_OK
                     : dv_fail(DAVY_E_SHAPE, "tensor '%s' has %d rows; expected (2 w - 1)^2 for a window of side w",
                               name, (int)dv_dim(t, name, 0));
}

typedef struct position_table {
    int64_t window, keys, heads;
} position_table;

/* Value [head][u][v] belongs to u = yi - yj + keys - 1 (v alike), for query i and key j. */
static davy_result derive_table(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const position_table *d = from->how;
    const int64_t side = d->window + d->keys - 1;
    float *table = NULL;
    int64_t count = 0;
    const davy_result r = read_all(t, from->name, &table, &count);
    for (int64_t i = 0; r == DAVY_OK && i < d->heads * side * side; i++) {
        const int64_t u = i / side % side;
        const int64_t v = i % side;
        int64_t row = u * side + v;
        if (d->keys > d->window) { /* the index counts from key to query; negative ones wrap to the table's end */
            row = (d->window - u) * side + d->window - v;
            row = row < 0 ? row + side * side : row;
        }
        dst[i] = table[row * d->heads + i / (side * side)];
    }
    dv_free(table);
    return r;
}

dv_param dv_position_table(dv_graph *g, const char *name, int64_t heads, int64_t window, int64_t keys) {
    const int64_t side = window + keys - 1;
    const int64_t stored[2] = {side * side, heads};
    const int64_t shape[3] = {heads, side, side};
    const dv_tensor_ref *ref = dv_weight_require(g, name, "", 2, stored);
    if (ref == NULL) {
        return DV_NO_PARAM;
    }
    const position_table how = {window, keys, heads};
    const dv_derivation from = {ref->name, &how, sizeof how, .derive = derive_table};
    return dv_param_derived(g, ref->name, &from, 3, shape);
}

dv_value dv_swin_attention(dv_graph *g, dv_value x, const char *name, const dv_swin_spec *spec) {
    const int64_t channels = dv_shape_of(g, x).c;
    const dv_heads heads = dv_heads_of(g, name, channels, spec->heads);
    const dv_window window = {.h = (int32_t)spec->window,
                              .w = (int32_t)spec->window,
                              .shift_y = (int32_t)spec->shift,
                              .shift_x = (int32_t)spec->shift};
    char part[DV_NAMES_BYTES];
    dv_value qkv[3];
    dv_split_qkv(g, dv_linear_to_heads(g, x, dv_names_join(part, name, ".qkv"), heads, 3), dv_heads_width(heads), qkv);
    const dv_param table = dv_position_table(g, dv_names_join(part, name, ".relative_position_bias_table"), heads.count,
                                             spec->window, spec->window);
    const dv_value y = dv_window_attention(g, qkv, heads.count, dv_heads_scale(heads), &window, table);
    return dv_linear_from_heads(g, y, dv_names_join(part, name, ".proj"), heads, channels);
}

dv_value dv_mlp(dv_graph *g, dv_value x, const char *name) {
    char part[DV_NAMES_BYTES];
    const int64_t hidden = dv_dim(g->weights, dv_names_join(part, name, ".fc1.weight"), 0);
    const dv_value t = dv_activation(g, dv_linear(g, x, dv_names_join(part, name, ".fc1"), hidden), DVK_ACT_GELU, 0.0f);
    return dv_linear(g, t, dv_names_join(part, name, ".fc2"), dv_shape_of(g, x).c);
}

dv_value dv_mixing_mlp(dv_graph *g, dv_value x, const char *name) {
    static const char conv[] = ".dwconv.depthwise_conv.0";
    char part[DV_NAMES_BYTES];
    char weight[DV_NAMES_BYTES];
    const int64_t hidden = dv_dim(g->weights, dv_names_join(part, name, ".fc1.weight"), 0);
    const int64_t side = dv_dim(g->weights, dv_names_join(weight, dv_names_join(part, name, conv), ".weight"), 2);
    if (side % 2 != 1 || side > DV_MAX_WINDOW) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "tensor '%s' has a side of %d; expected an odd number up to 64",
                                        weight, (int)side));
    }
    const dv_value u = dv_activation(g, dv_linear(g, x, dv_names_join(part, name, ".fc1"), hidden), DVK_ACT_GELU, 0.0f);
    dv_value t = dv_depthwise(g, u, dv_names_join(part, name, conv), (int32_t)side, NULL);
    t = dv_add(g, 1.0f, dv_activation(g, t, DVK_ACT_GELU, 0.0f), 1.0f, u);
    return dv_linear(g, t, dv_names_join(part, name, ".fc2"), dv_shape_of(g, x).c);
}

dv_value dv_swin_block(dv_graph *g, dv_value x, const char *name, const dv_swin_spec *spec) {
    char part[DV_NAMES_BYTES];
    dv_value n = dv_layer_norm(g, x, dv_names_join(part, name, ".norm1"), DV_SWIN_EPS);
    x = dv_add(g, 1.0f, dv_swin_attention(g, n, dv_names_join(part, name, ".attn"), spec), 1.0f, x);
    n = dv_layer_norm(g, x, dv_names_join(part, name, ".norm2"), DV_SWIN_EPS);
    return dv_add(g, 1.0f, dv_mlp(g, n, dv_names_join(part, name, ".mlp")), 1.0f, x);
}
