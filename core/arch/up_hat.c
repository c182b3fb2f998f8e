/* up_hat.c - HAT, the Hybrid Attention Transformer: SwinIR's blocks with a gated convolution parallel to the
 * attention. The last block of each group has keys beyond its window. docs/arch/up_hat.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/body.h"
#include "core/block/swin.h"
#include "core/block/weights.h"
#include "core/base/error.h"

#define GROUP "layers.0.residual_group."

typedef struct cfg {
    int64_t window, keys;
    dv_body body;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    return dv_has(t, GROUP "overlap_attn.relative_position_bias_table") &&
                   dv_has(t, GROUP "blocks.0.conv_block.cab.0.weight") && dv_has(t, "conv_last.weight")
               ? 10
               : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    static const char table[] = GROUP "blocks.0.attn.relative_position_bias_table";
    static const char overlap[] = GROUP "overlap_attn.relative_position_bias_table";
    static const dv_group_names names = {".residual_group.blocks",
                                         ".residual_group.overlap_attn.relative_position_bias_table", 1, 1};
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    davy_result r = dv_body_find(t, "HAT", &c->body);
    r = r < 0 ? r : dv_window_require(t, table, &c->window);
    if (r < 0) {
        return r;
    }
    c->body.multiple = c->window;
    c->keys = dv_square_root(dv_dim(t, overlap, 0)) + 1 - c->window;
    if (c->keys <= c->window || c->keys > DV_MAX_WINDOW || (c->keys - c->window) % 2 != 0) {
        return dv_fail(DAVY_E_SHAPE, "tensor '%s' has %d rows, which fits no overlap of windows of %d pixels", overlap,
                       (int)dv_dim(t, overlap, 0), (int)c->window);
    }
    return dv_body_groups(t, "HAT", &names, &c->body);
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d groups, window %d, x%d", (int)c->body.features,
             (int)c->body.groups, (int)c->window, (int)c->body.scale);
    dv_body_info(&c->body, out);
}

/* Two convolutions and a gate per channel, from the channel's mean over the picture. Returns x + 0.01 times that;
 * the factor is not in the file. */
static dv_value add_convolved(dv_graph *g, dv_value x, dv_value n, const char *name) {
    char part[DV_NAMES_BYTES];
    const int64_t channels = dv_shape_of(g, n).c;
    const int64_t narrow = dv_dim(g->weights, dv_names_join(part, name, ".cab.0.weight"), 0);
    const int64_t squeezed = dv_dim(g->weights, dv_names_join(part, name, ".cab.3.attention.1.weight"), 0);
    dv_value z = dv_conv(g, n, dv_names_join(part, name, ".cab.0"), narrow, 3, NULL);
    z = dv_conv(g, dv_activation(g, z, DVK_ACT_GELU, 0.0f), dv_names_join(part, name, ".cab.2"), channels, 3, NULL);
    dv_value gate = dv_conv(g, dv_mean(g, z), dv_names_join(part, name, ".cab.3.attention.1"), squeezed, 1, NULL);
    gate = dv_activation(g, gate, DVK_ACT_RELU, 0.0f);
    gate = dv_conv(g, gate, dv_names_join(part, name, ".cab.3.attention.3"), channels, 1, NULL);
    return dv_add(g, 0.01f, dv_multiply(g, z, gate, DVK_ACT_SIGMOID), 1.0f, x);
}

static dv_value add_mlp(dv_graph *g, dv_value x, const char *name) {
    char part[DV_NAMES_BYTES];
    const dv_value n = dv_layer_norm(g, x, dv_names_join(part, name, ".norm2"), DV_SWIN_EPS);
    return dv_add(g, 1.0f, dv_mlp(g, n, dv_names_join(part, name, ".mlp")), 1.0f, x);
}

static dv_value hybrid_block(dv_graph *g, dv_value x, const char *name, const dv_swin_spec *spec) {
    char part[DV_NAMES_BYTES];
    const dv_value n = dv_layer_norm(g, x, dv_names_join(part, name, ".norm1"), DV_SWIN_EPS);
    x = dv_add(g, 1.0f, dv_swin_attention(g, n, dv_names_join(part, name, ".attn"), spec), 1.0f, x);
    x = add_convolved(g, x, n, dv_names_join(part, name, ".conv_block"));
    return add_mlp(g, x, name);
}

/* Keys outside the picture are zeros after the projection, without its bias; they take part in the softmax. */
static dv_value overlapping_block(const cfg *c, dv_graph *g, dv_value x, const char *name, int64_t count) {
    char part[DV_NAMES_BYTES];
    const dv_heads heads = dv_heads_of(g, name, c->body.features, count);
    const dv_window window = {
        .h = (int32_t)c->window, .w = (int32_t)c->window, .keys_h = (int32_t)c->keys, .keys_w = (int32_t)c->keys};
    dv_value qkv[3];
    const dv_value n = dv_layer_norm(g, x, dv_names_join(part, name, ".norm1"), DV_SWIN_EPS);
    dv_split_qkv(g, dv_linear_to_heads(g, n, dv_names_join(part, name, ".qkv"), heads, 3), dv_heads_width(heads), qkv);
    const dv_param table = dv_position_table(g, dv_names_join(part, name, ".relative_position_bias_table"), heads.count,
                                             c->window, c->keys);
    const dv_value y = dv_window_attention(g, qkv, heads.count, dv_heads_scale(heads), &window, table);
    x = dv_add(g, 1.0f, dv_linear_from_heads(g, y, dv_names_join(part, name, ".proj"), heads, c->body.features), 1.0f,
               x);
    return add_mlp(g, x, name);
}

/* x + conv(blocks(x)) */
static dv_value group(const void *config_, dv_graph *g, dv_value x, int64_t index) {
    const cfg *c = config_;
    char name[96];
    dv_value t = x;
    for (int64_t j = 0; j < c->body.depth[index]; j++) {
        const dv_swin_spec spec = {c->body.heads[index], c->window, j % 2 == 0 ? 0 : c->window / 2};
        snprintf(name, sizeof name, "layers.%d.residual_group.blocks.%d", (int)index, (int)j);
        t = hybrid_block(g, t, name, &spec);
    }
    snprintf(name, sizeof name, "layers.%d.residual_group.overlap_attn", (int)index);
    t = overlapping_block(c, g, t, name, c->body.heads[index]);
    snprintf(name, sizeof name, "layers.%d.conv", (int)index);
    return dv_add(g, 1.0f, dv_residual_conv(g, t, name), 1.0f, x);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    const dv_groups groups = {.group = group, .body = &c->body, .cfg = c};
    return dv_body_build(&groups, stage, h, w, g);
}

const dv_arch dv_arch_up_hat = {
    .name = "hat",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = dv_body_wide,
    .range = DAVY_RANGE_UNIT,
};
