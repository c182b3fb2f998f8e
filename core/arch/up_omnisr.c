/* up_omnisr.c - OmniSR: attention in windows and over a grid, each followed by attention between the channels of
 * the same pixels. A spatial gate ends each group. docs/arch/up_omnisr.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/swin.h"
#include "core/block/weights.h"
#include "core/base/error.h"

enum { HEADS = 4, SIZE_MIN = 16 };
#define LAYER_NORM_2D_EPS 1e-6f
#define LENGTH_EPS        1e-12f

typedef struct cfg {
    int64_t in, out, features, groups, blocks, window, scale;
    bool biased_positions;
} cfg;

#define BLOCK_0 "residual_layer.0.residual_layer.0.layer."

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    return dv_has(t, BLOCK_0 "0.fn.0.weight") && dv_has(t, "input.weight") && dv_has(t, "up.0.weight") ? 10 : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    c->features = dv_dim(t, "input.weight", 0);
    c->in = dv_dim(t, "input.weight", 1);
    c->groups = dv_sequence_length(t, "residual_layer");
    c->blocks = dv_sequence_length(t, "residual_layer.0.residual_layer") - 1; /* the last one is a convolution */
    c->biased_positions = dv_has(t, BLOCK_0 "2.fn.rel_pos_bias.weight");
    c->window = c->biased_positions ? dv_window_of_table(t, BLOCK_0 "2.fn.rel_pos_bias.weight") : 8;
    if (c->in < 1 || c->in > 4 || c->blocks < 1) {
        return dv_fail(
            DAVY_E_UNSUPPORTED,
            "the OmniSR network has %d input channels and %d blocks in a group; 1 to 4 channels are supported",
            (int)c->in, (int)c->blocks);
    }
    if (c->features % (8 * HEADS) != 0 || c->window < 1 || c->window > DV_MAX_WINDOW) {
        return dv_fail(
            DAVY_E_UNSUPPORTED,
            "the OmniSR network has %d features and windows of %d pixels; a multiple of 32 and 1 to 64 are supported",
            (int)c->features, (int)c->window);
    }
    const int64_t last = dv_dim(t, "up.0.weight", 0);
    if (!dv_scale_and_channels(last, c->in, &c->scale, &c->out)) {
        return dv_fail(DAVY_E_SHAPE, "tensor 'up.0.weight' has %d outputs; expected a square number times the channels",
                       (int)last);
    }
    return DAVY_OK;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d groups, windows of %d, x%d", (int)c->features,
             (int)c->groups, (int)c->window, (int)c->scale);
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->in;
    out->out_channels = (int32_t)c->out;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->scale;
    out->scale_den = 1;
    out->size_multiple = 1; /* the network pads and crops */
    out->size_min = 1;
}

/* Other programs are reported to return black frames in F16. */
static bool wide(const void *config_) {
    (void)config_;
    return true;
}

/* ---- the network ---- */

static dv_value conv(dv_graph *g, dv_value x, const char *prefix, const char *name, int64_t c_out, int32_t k) {
    char full[DV_NAMES_BYTES];
    const dv_conv_opts opts = {.no_bias =
                                   dv_weight_find(g->weights, dv_names_join(full, prefix, name), ".bias") == NULL};
    return dv_conv(g, x, full, c_out, k, &opts);
}

static dv_value depthwise(dv_graph *g, dv_value x, const char *prefix, const char *name) {
    char full[DV_NAMES_BYTES];
    const dv_conv_opts opts = {.no_bias =
                                   dv_weight_find(g->weights, dv_names_join(full, prefix, name), ".bias") == NULL};
    return dv_depthwise(g, x, full, 3, &opts);
}

static dv_value gelu(dv_graph *g, dv_value x) {
    return dv_activation(g, x, DVK_ACT_GELU, 0.0f);
}

/* The block's first step: 1x1, depthwise, a gate per channel, 1x1. */
static dv_value local(const cfg *c, dv_graph *g, dv_value x, const char *layer) {
    char name[DV_NAMES_BYTES];
    char weight[DV_NAMES_BYTES];
    dv_names_join(name, layer, "0.fn.");
    dv_value y = gelu(g, conv(g, x, name, "0", c->features, 1));
    y = gelu(g, depthwise(g, y, name, "2"));
    const int64_t hidden = dv_dim(g->weights, dv_names_join(weight, name, "4.gate.1.weight"), 0);
    dv_value gate = conv(g, dv_mean(g, y), name, "4.gate.1", hidden, 1);
    gate = conv(g, dv_activation(g, gate, DVK_ACT_SILU, 0.0f), name, "4.gate.3", c->features, 1);
    y = dv_multiply(g, y, gate, DVK_ACT_SIGMOID);
    return dv_add(g, 1.0f, conv(g, y, name, "5", c->features, 1), 1.0f, x);
}

static dv_value normed(dv_graph *g, dv_value x, const char *step, float eps) {
    char name[DV_NAMES_BYTES];
    return dv_layer_norm(g, x, dv_names_join(name, step, "norm"), eps);
}

static void split(dv_graph *g, dv_value x, int64_t width, dv_value out[3]) {
    for (int i = 0; i < 3; i++) {
        out[i] = dv_slice(g, x, i * width, width);
    }
}

static dv_value attend(const cfg *c, dv_graph *g, dv_value x, const char *step, bool grid) {
    char name[DV_NAMES_BYTES];
    const int32_t w = (int32_t)c->window;
    const dv_window window = {.h = w, .w = w, .grid = grid};
    const dv_heads heads = dv_heads_of(g, step, c->features, HEADS);
    dv_value qkv[3];
    split(g, conv(g, normed(g, x, step, DV_SWIN_EPS), step, "fn.to_qkv", 3 * c->features, 1), c->features, qkv);
    const dv_param bias = c->biased_positions
                              ? dv_position_table(g, dv_names_join(name, step, "fn.rel_pos_bias.weight"), HEADS, w, w)
                              : DV_NO_PARAM;
    const dv_value y = dv_window_attention(g, qkv, HEADS, dv_heads_scale(heads), &window, bias);
    return dv_add(g, 1.0f, conv(g, y, step, "fn.to_out.0", c->features, 1), 1.0f, x);
}

static dv_value attend_channels(const cfg *c, dv_graph *g, dv_value x, const char *step, bool grid) {
    static const int64_t shape[3] = {HEADS, 1, 1};
    char name[DV_NAMES_BYTES];
    const int32_t w = (int32_t)c->window;
    dv_value qkv[3];
    dv_value y = conv(g, normed(g, x, step, LAYER_NORM_2D_EPS), step, "fn.qkv", 3 * c->features, 1);
    split(g, depthwise(g, y, step, "fn.qkv_dwconv"), c->features, qkv);
    const dv_param temperature = dv_param_stored(g, dv_names_join(name, step, "fn.temperature"), 3, shape);
    const dv_channel_heads opts = {.heads = HEADS,
                                   .dim = c->features / HEADS,
                                   .window = {.h = w, .w = w, .grid = grid},
                                   .eps = LENGTH_EPS,
                                   .temperature = temperature};
    y = dv_channel_attention(g, qkv, &opts);
    return dv_add(g, 1.0f, conv(g, y, step, "fn.project_out", c->features, 1), 1.0f, x);
}

/* project_out(gelu(a) * b); a and b are the halves of the preceding result. */
static dv_value feed_forward(const cfg *c, dv_graph *g, dv_value x, const char *step) {
    char weight[DV_NAMES_BYTES];
    const int64_t wide = dv_dim(g->weights, dv_names_join(weight, step, "fn.project_in.weight"), 0);
    dv_value y = conv(g, normed(g, x, step, LAYER_NORM_2D_EPS), step, "fn.project_in", wide, 1);
    y = depthwise(g, y, step, "fn.dwconv");
    y = dv_multiply(g, dv_slice(g, y, wide / 2, wide / 2), dv_slice(g, y, 0, wide / 2), DVK_ACT_GELU);
    return dv_add(g, 1.0f, conv(g, y, step, "fn.project_out", c->features, 1), 1.0f, x);
}

static dv_value block(const cfg *c, dv_graph *g, dv_value x, const char *layer) {
    char step[DV_NAMES_BYTES];
    x = local(c, g, x, layer);
    for (int half = 0; half < 2; half++) { /* windows, then the grid */
        x = attend(c, g, x, dv_names_join(step, layer, half == 0 ? "2." : "8."), half == 1);
        x = feed_forward(c, g, x, dv_names_join(step, layer, half == 0 ? "4." : "10."));
        x = attend_channels(c, g, x, dv_names_join(step, layer, half == 0 ? "5." : "11."), half == 1);
        x = feed_forward(c, g, x, dv_names_join(step, layer, half == 0 ? "6." : "12."));
    }
    return x;
}

/* "Enhanced spatial attention": a gate computed from a much smaller picture. */
static dv_value spatial_gate(const cfg *c, dv_graph *g, dv_value x, const char *esa) {
    static const dv_conv_opts halves = {.valid = true, .stride = 2};
    char name[DV_NAMES_BYTES];
    const dv_shape s = dv_shape_of(g, x);
    const int64_t few = dv_dim(g->weights, dv_names_join(name, esa, "conv1.weight"), 0);
    const dv_value first = conv(g, x, esa, "conv1", few, 1);
    dv_value y = dv_conv(g, first, dv_names_join(name, esa, "conv2"), few, 3, &halves);
    y = conv(g, dv_max_pool(g, y, 7, 3), esa, "conv3", few, 3);
    y = dv_add(g, 1.0f, conv(g, first, esa, "conv_f", few, 1), 1.0f, dv_resize(g, y, s.h, s.w));
    return dv_multiply(g, x, conv(g, y, esa, "conv4", c->features, 1), DVK_ACT_SIGMOID);
}

static dv_value group(const cfg *c, dv_graph *g, dv_value input, int64_t index) {
    char name[DV_NAMES_BYTES];
    dv_value x = input;
    for (int64_t i = 0; i < c->blocks; i++) {
        snprintf(name, sizeof name, "residual_layer.%d.residual_layer.%d.layer.", (int)index, (int)i);
        x = block(c, g, x, name);
    }
    snprintf(name, sizeof name, "residual_layer.%d.residual_layer.%d", (int)index, (int)c->blocks);
    x = dv_add(g, 1.0f, conv(g, x, name, "", c->features, 1), 1.0f, input);
    snprintf(name, sizeof name, "residual_layer.%d.esa.", (int)index);
    return spatial_gate(c, g, x, name);
}

static int64_t padded(const cfg *c, int64_t side) {
    return dv_div_up(dv_max(side, SIZE_MIN), c->window) * c->window;
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    dv_value x = dv_input(g, (dv_shape){1, h, w, c->in});
    x = dv_pad_to(g, x, dv_max(h, SIZE_MIN), dv_max(w, SIZE_MIN), DVK_PAD_REFLECT); /* the gates need this size */
    x = dv_pad_to(g, x, padded(c, h), padded(c, w), DVK_PAD_ZERO);
    const dv_value first = conv(g, x, "input", "", c->features, 3);
    x = first;
    for (int64_t i = 0; i < c->groups; i++) {
        x = group(c, g, x, i);
    }
    x = dv_add(g, 1.0f, conv(g, x, "output", "", c->features, 3), 1.0f, first);
    x = conv(g, x, "up.0", "", c->out * c->scale * c->scale, 3);
    x = dv_pixel_shuffle(g, x, c->scale, DV_NO_VALUE);
    dv_output(g, dv_crop_to(g, x, h * c->scale, w * c->scale));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_omnisr = {
    .name = "omnisr",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = wide,
    .range = DAVY_RANGE_UNIT,
};
