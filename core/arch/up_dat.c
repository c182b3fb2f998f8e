/* up_dat.c - DAT, the Dual Aggregation Transformer. Blocks with attention in oblong windows alternate with blocks
 * with attention between channels. Each has a parallel depthwise convolution. docs/arch/up_dat.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/body.h"
#include "core/block/dat.h"
#include "core/block/weights.h"
#include "core/base/error.h"

#define BLOCK "layers.0.blocks.0."

typedef struct cfg {
    dv_window_split split;
    dv_body body;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    return dv_has(t, "before_RG.1.weight") && dv_has(t, BLOCK "ffn.sg.norm.weight") &&
                   dv_has(t, BLOCK "attn.attns.0.rpe_biases|" BLOCK "attn.attns.0.pos.pos_proj.weight") &&
                   !dv_has(t, BLOCK "gamma") /* RGT */
               ? 10
               : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    static const dv_group_names names = {".blocks", ".blocks.0.attn.attns.0.pos.pos3.2.weight", 0, 2};
    cfg *c = out;
    davy_result r = dv_body_find(probe->tensors, "DAT", &c->body);
    r = r < 0 ? r : dv_window_split_find(probe, "DAT", &c->split);
    return r < 0 ? r : dv_body_groups(probe->tensors, "DAT", &names, &c->body);
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d groups, split %dx%d%s, x%d", (int)c->body.features,
             (int)c->body.groups, (int)c->split.side[0], (int)c->split.side[1], c->split.assumed ? " assumed" : "",
             (int)c->body.scale);
    dv_body_info(&c->body, out);
}

/* ---- attention ---- */

static dv_value between_channels(dv_graph *g, const dv_value qkv[3], const char *name, dv_heads heads) {
    const int64_t shape[3] = {heads.count, 1, 1};
    char part[DV_NAMES_BYTES];
    const dv_param temperature = dv_param_stored(g, dv_names_join(part, name, ".temperature"), 3, shape);
    const dv_channel_heads opts = {
        .heads = heads.count, .dim = heads.dim, .eps = 1e-12f, .temperature = temperature}; /* over the whole picture */
    return dv_channel_attention(g, qkv, &opts);
}

/* ---- the two gates ---- */

/* One factor per channel, from the channels' means. */
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

/* One factor per pixel, from its channels. */
static dv_value pixel_gate(dv_graph *g, dv_value x, const char *name, dv_heads heads) {
    char conv[DV_NAMES_BYTES];
    char norm[DV_NAMES_BYTES];
    dv_names_join(conv, name, ".spatial_interaction.0");
    const int64_t narrow = dv_dim(g->weights, dv_names_join(norm, conv, ".weight"), 0);
    dv_value t = dv_conv_norm(g, x, conv, dv_names_join(norm, name, ".spatial_interaction.1"), heads, narrow);
    t = dv_activation(g, t, DVK_ACT_GELU, 0.0f);
    return dv_linear(g, t, dv_names_join(conv, name, ".spatial_interaction.3"), 1);
}

/* proj(attention * gate + convolved * gate). Blocks alternate between attention in windows and between channels. In
 * the first the attention gets the channel gate, in the second the pixel gate; the convolution gets the other one. */
static dv_value attention(const cfg *c, dv_graph *g, dv_value x, const char *name, int64_t index, int64_t block) {
    const bool spatial = block % 2 == 0, shifted = dv_window_split_shifts(index, block);
    char part[DV_NAMES_BYTES];
    char norm[DV_NAMES_BYTES];
    const dv_heads heads = dv_heads_of(g, name, c->body.features, c->body.heads[index]);
    dv_value qkv[3];
    dv_split_qkv(g, dv_linear_to_heads(g, x, dv_names_join(part, name, ".qkv"), heads, 3), dv_heads_width(heads), qkv);
    dv_value convolved = dv_depthwise_norm(g, qkv[2], dv_names_join(part, name, ".dwconv.0"),
                                           dv_names_join(norm, name, ".dwconv.1"), heads);
    convolved = dv_activation(g, convolved, DVK_ACT_GELU, 0.0f);
    const dv_value seen = spatial ? dv_window_split_attention(g, qkv, name, &c->split, heads, shifted)
                                  : between_channels(g, qkv, name, heads);
    const dv_value of_channels = channel_gate(g, spatial ? convolved : seen, name, heads);
    const dv_value of_pixels = pixel_gate(g, spatial ? seen : convolved, name, heads);
    const dv_value a = dv_multiply(g, seen, spatial ? of_channels : of_pixels, DVK_ACT_SIGMOID);
    const dv_value b = dv_multiply(g, convolved, spatial ? of_pixels : of_channels, DVK_ACT_SIGMOID);
    return dv_linear_from_heads(g, dv_add(g, 1.0f, a, 1.0f, b), dv_names_join(part, name, ".proj"), heads,
                                c->body.features);
}

/* x + conv(blocks(x)) */
static dv_value group(const void *config_, dv_graph *g, dv_value x, int64_t index) {
    const cfg *c = config_;
    char name[96];
    char part[DV_NAMES_BYTES];
    dv_value t = x;
    for (int64_t b = 0; b < c->body.depth[index]; b++) {
        snprintf(name, sizeof name, "layers.%d.blocks.%d", (int)index, (int)b);
        dv_value n = dv_layer_norm(g, t, dv_names_join(part, name, ".norm1"), DV_SWIN_EPS);
        n = attention(c, g, n, dv_names_join(part, name, ".attn"), index, b);
        t = dv_add(g, 1.0f, n, 1.0f, t);
        n = dv_layer_norm(g, t, dv_names_join(part, name, ".norm2"), DV_SWIN_EPS);
        t = dv_add(g, 1.0f, dv_gated_mlp(g, n, dv_names_join(part, name, ".ffn")), 1.0f, t);
    }
    snprintf(name, sizeof name, "layers.%d.conv", (int)index);
    return dv_add(g, 1.0f, dv_residual_conv(g, t, name), 1.0f, x);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    const dv_groups groups = {.group = group, .body = &c->body, .cfg = c};
    return dv_body_build(&groups, stage, h, w, g);
}

const dv_arch dv_arch_up_dat = {
    .name = "dat",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = dv_body_wide,
    .range = DAVY_RANGE_UNIT,
};
