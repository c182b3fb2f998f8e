/* up_dat.c - DAT, the Dual Aggregation Transformer: blocks that attend to pixels of oblong windows in turn with blocks
 * that attend between channels, each with a depthwise convolution beside it. docs/arch/up_dat.md. */
#include "core/arch.h"

#include <stdio.h>
#include <string.h>

#include "core/block/dat.h"
#include "core/block/tail.h"
#include "core/block/weights.h"
#include "core/error.h"

#define BLOCK "layers.0.blocks.0."

enum { MAX_LAYERS = 32, MAX_DEPTH = 64 };

typedef struct cfg {
    int64_t features, in, layers;
    int64_t split[2]; /* height and width of the first half's windows; the second half's are turned */
    bool assumed;     /* nothing said what the split is */
    uint8_t depth[MAX_LAYERS], heads[MAX_LAYERS];
    dv_tail tail;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    return dv_has(t, "before_RG.1.weight") && dv_has(t, BLOCK "ffn.sg.norm.weight") &&
                   dv_has(t, BLOCK "attn.attns.0.rpe_biases|" BLOCK "attn.attns.0.pos.pos_proj.weight") &&
                   !dv_has(t, BLOCK "gamma") /* RGT */
               ? 10
               : 0;
}

/* Files of training tools keep what belongs to a window: all offsets, (2 h - 1)(2 w - 1), and with them an index of h w
 * pixels. Without that, the sides are taken for powers of two; always, the first for the smaller one. */
static bool stored_split(const dv_tensors *t, cfg *c) {
    const int64_t offsets = dv_dim(t, BLOCK "attn.attns.0.rpe_biases", 0);
    const int64_t pixels = dv_dim(t, BLOCK "attn.attns.0.relative_position_index", 0);
    for (int64_t h = 1; h <= DV_MAX_WINDOW; h++) {
        for (int64_t w = h; w <= DV_MAX_WINDOW; w++) {
            const bool fits = pixels > 0 ? h * w == pixels : (h & (h - 1)) == 0 && (w & (w - 1)) == 0;
            if (fits && (2 * h - 1) * (2 * w - 1) == offsets) {
                c->split[0] = h;
                c->split[1] = w;
                return true;
            }
        }
    }
    return false;
}

static davy_result find_split(const dv_probe *probe, cfg *c) {
    c->split[0] = 8;
    c->split[1] = 32;
    if (probe->split[0] > 0) {
        memcpy(c->split, probe->split, sizeof c->split);
    } else {
        c->assumed = !stored_split(probe->tensors, c);
    }
    const int64_t least = dv_min(c->split[0], c->split[1]);
    const int64_t most = dv_max(c->split[0], c->split[1]);
    if (least < 1 || most > DV_MAX_WINDOW || most % least != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a DAT network with windows of %d x %d", (int)c->split[0], (int)c->split[1]);
    }
    return DAVY_OK;
}

static davy_result groups_of(const dv_tensors *t, cfg *c) {
    char name[128];
    c->layers = dv_sequence_length(t, "layers");
    if (c->layers < 1 || c->layers > MAX_LAYERS) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a DAT network of %d groups", (int)c->layers);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        snprintf(name, sizeof name, "layers.%d.blocks", (int)i);
        const int64_t depth = dv_sequence_length(t, name);
        snprintf(name, sizeof name, "layers.%d.blocks.0.attn.attns.0.pos.pos3.2.weight", (int)i);
        const int64_t heads = 2 * dv_dim(t, name, 0);
        if (depth < 1 || depth > MAX_DEPTH || heads < 2 || heads > 255) {
            return dv_fail(DAVY_E_UNSUPPORTED, "group %d of a DAT network has %d blocks of %d heads", (int)i,
                           (int)depth, (int)heads);
        }
        c->depth[i] = (uint8_t)depth;
        c->heads[i] = (uint8_t)heads;
    }
    return DAVY_OK;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    c->features = dv_dim(t, "conv_first.weight", 0);
    c->in = dv_dim(t, "conv_first.weight", 1);
    if (c->in < 1 || c->in > 4) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a DAT network with %d input channels", (int)c->in);
    }
    davy_result r = find_split(probe, c);
    r = r == DAVY_OK ? dv_tail_find(t, c->in, &c->tail) : r;
    return r == DAVY_OK ? groups_of(t, c) : r;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d groups, split %dx%d%s, x%d", (int)c->features,
             (int)c->layers, (int)c->split[0], (int)c->split[1], c->assumed ? " assumed" : "", (int)c->tail.scale);
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->in;
    out->out_channels = (int32_t)c->tail.out;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->tail.scale;
    out->scale_den = 1;
    out->size_multiple = 1;
    out->size_min = 1;
}

/* ---- attention ---- */

/* Half of the heads in windows of h x w, the others in windows of w x h. */
static dv_value in_windows(const cfg *c, dv_graph *g, const dv_value qkv[3], const char *name, dv_heads heads,
                           bool shifted) {
    const dv_shape s = dv_shape_of(g, qkv[0]);
    const int64_t most = dv_max(c->split[0], c->split[1]);
    const int64_t half = dv_heads_width(heads) / 2;
    dv_value parts[2];
    for (int i = 0; i < 2; i++) {
        char bias[DV_NAMES_BYTES];
        const int64_t h = c->split[i];
        const int64_t w = c->split[1 - i];
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

static dv_value between_channels(dv_graph *g, const dv_value qkv[3], const char *name, dv_heads heads) {
    const dv_window whole = {0};
    const int64_t shape[3] = {heads.count, 1, 1};
    char part[DV_NAMES_BYTES];
    const dv_param temperature = dv_param_stored(g, dv_names_join(part, name, ".temperature"), 3, shape);
    return dv_channel_attention(g, qkv, heads.count, heads.dim, &whole, 1e-12f, temperature);
}

/* ---- the two gates ---- */

/* One number for each channel, of their means. */
static dv_value channel_gate(dv_graph *g, dv_value x, const char *name, dv_heads heads) {
    char conv[DV_NAMES_BYTES];
    char norm[DV_NAMES_BYTES];
    dv_names_join(conv, name, ".channel_interaction.1");
    const int64_t narrow = dv_dim(g->weights, dv_names_join(norm, conv, ".weight"), 0);
    dv_value t =
        dv_conv_norm(g, dv_mean(g, x), conv, dv_names_join(norm, name, ".channel_interaction.2"), heads, narrow);
    t = dv_activation(g, t, DVK_ACT_GELU, 0.0f);
    return dv_linear_to_heads(g, t, dv_names_join(conv, name, ".channel_interaction.4"), heads, 1);
}

/* One number for each pixel, of its channels. */
static dv_value pixel_gate(dv_graph *g, dv_value x, const char *name, dv_heads heads) {
    char conv[DV_NAMES_BYTES];
    char norm[DV_NAMES_BYTES];
    dv_names_join(conv, name, ".spatial_interaction.0");
    const int64_t narrow = dv_dim(g->weights, dv_names_join(norm, conv, ".weight"), 0);
    dv_value t = dv_conv_norm(g, x, conv, dv_names_join(norm, name, ".spatial_interaction.1"), heads, narrow);
    t = dv_activation(g, t, DVK_ACT_GELU, 0.0f);
    return dv_linear(g, t, dv_names_join(conv, name, ".spatial_interaction.3"), 1);
}

/* proj(attention * gate + convolved * gate): which gate is whose depends on what the attention sees. */
static dv_value attention(const cfg *c, dv_graph *g, dv_value x, const char *name, int64_t head_count, bool spatial,
                          bool shifted) {
    char part[DV_NAMES_BYTES];
    char norm[DV_NAMES_BYTES];
    const dv_heads heads = dv_heads_of(g, name, c->features, head_count);
    dv_value qkv[3];
    dv_split_qkv(g, dv_linear_to_heads(g, x, dv_names_join(part, name, ".qkv"), heads, 3), dv_heads_width(heads), qkv);
    dv_value convolved = dv_depthwise_norm(g, qkv[2], dv_names_join(part, name, ".dwconv.0"),
                                           dv_names_join(norm, name, ".dwconv.1"), heads);
    convolved = dv_activation(g, convolved, DVK_ACT_GELU, 0.0f);
    const dv_value seen = spatial ? in_windows(c, g, qkv, name, heads, shifted) : between_channels(g, qkv, name, heads);
    const dv_value of_channels = channel_gate(g, spatial ? convolved : seen, name, heads);
    const dv_value of_pixels = pixel_gate(g, spatial ? seen : convolved, name, heads);
    const dv_value a = dv_multiply(g, seen, spatial ? of_channels : of_pixels, DVK_ACT_SIGMOID);
    const dv_value b = dv_multiply(g, convolved, spatial ? of_pixels : of_channels, DVK_ACT_SIGMOID);
    return dv_linear_from_heads(g, dv_add(g, 1.0f, a, 1.0f, b), dv_names_join(part, name, ".proj"), heads, c->features);
}

/* fc2(u1 * depthwise(norm u2)), [u1, u2] = gelu(fc1 x); u2 begins where kernels like it, as heads do. */
static dv_value gated_mlp(dv_graph *g, dv_value x, const char *name) {
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

/* x + conv(blocks(x)); every fourth block's windows are shifted, counted through groups of odd and even number. */
static dv_value group(const cfg *c, dv_graph *g, dv_value x, int64_t index) {
    char name[96];
    char part[DV_NAMES_BYTES];
    dv_value t = x;
    for (int64_t b = 0; b < c->depth[index]; b++) {
        const bool shifted = index % 2 == 0 ? b > 0 && (b - 2) % 4 == 0 : b % 4 == 0;
        snprintf(name, sizeof name, "layers.%d.blocks.%d", (int)index, (int)b);
        dv_value n = dv_layer_norm(g, t, dv_names_join(part, name, ".norm1"), DV_SWIN_EPS);
        n = attention(c, g, n, dv_names_join(part, name, ".attn"), c->heads[index], b % 2 == 0, shifted);
        t = dv_add(g, 1.0f, n, 1.0f, t);
        n = dv_layer_norm(g, t, dv_names_join(part, name, ".norm2"), DV_SWIN_EPS);
        t = dv_add(g, 1.0f, gated_mlp(g, n, dv_names_join(part, name, ".ffn")), 1.0f, t);
    }
    snprintf(name, sizeof name, "layers.%d.conv", (int)index);
    return dv_add(g, 1.0f, dv_residual_conv(g, t, name), 1.0f, x);
}

/* The sums that run past the blocks leave the range of F16. */
static bool wide(const void *config_) {
    (void)config_;
    return true;
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const dv_shape shape = {1, h, w, c->in};
    const bool rgb = c->in == 3 && c->tail.out == 3;
    const dv_value picture = dv_take_mean(g, dv_pad_picture(g, dv_input(g, shape), 1), 1.0f, rgb);
    const dv_value f = dv_conv(g, picture, "conv_first", c->features, 3, NULL);
    dv_value x = dv_layer_norm(g, f, "before_RG.1", DV_SWIN_EPS);
    for (int64_t i = 0; i < c->layers; i++) {
        x = group(c, g, x, i);
    }
    x = dv_layer_norm(g, x, "norm", DV_SWIN_EPS);
    x = dv_add(g, 1.0f, dv_residual_conv(g, x, "conv_after_body"), 1.0f, f);
    x = dv_give_mean(g, dv_tail_build(g, x, &c->tail), 1.0f, rgb);
    dv_output(g, dv_crop_to(g, x, h * c->tail.scale, w * c->tail.scale));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_dat = {
    .name = "dat",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = wide,
    .range = DAVY_RANGE_UNIT,
};
