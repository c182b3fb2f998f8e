/* up_swinir.c - SwinIR: groups of transformer blocks whose attention stays in windows, every second block's windows
 * shifted by half a one; classical, lightweight, real-world and x1 (denoising, JPEG) networks. docs/arch/up_swinir.md. */
#include "core/arch.h"

#include <stdio.h>

#include "core/block/swin.h"
#include "core/block/tail.h"
#include "core/block/weights.h"
#include "core/error.h"

#define BLOCK "layers.0.residual_group.blocks.0."

enum { MAX_LAYERS = 16, MAX_DEPTH = 64 };

typedef struct cfg {
    int64_t features, in, window, unshuffle, scale, layers;
    uint8_t depth[MAX_LAYERS], heads[MAX_LAYERS];
    float range;
    dv_tail tail;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool ours = dv_has(t, BLOCK "norm1.weight") && dv_has(t, BLOCK "mlp.fc1.bias") &&
                      dv_has(t, BLOCK "attn.relative_position_bias_table") && dv_has(t, BLOCK "attn.qkv.weight") &&
                      dv_has(t, "conv_first.weight|conv_first.1.weight");
    return ours && !dv_has(t, "patch_embed.proj.weight") &&                    /* Swin2SR */
                   !dv_has(t, BLOCK "attn.aligned_relative_position_index") && /* SRFormer */
                   !dv_has(t, BLOCK "conv_block.cab.0.weight|layers.0.residual_group.overlap_attn.qkv.weight") /* HAT */
               ? 10
               : 0;
}

static davy_result layers_of(const dv_tensors *t, cfg *c) {
    char name[128];
    c->layers = dv_sequence_length(t, "layers");
    if (c->layers < 1 || c->layers > MAX_LAYERS) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a SwinIR network of %d layers", (int)c->layers);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        snprintf(name, sizeof name, "layers.%d.residual_group.blocks", (int)i);
        const int64_t depth = dv_sequence_length(t, name);
        snprintf(name, sizeof name, "layers.%d.residual_group.blocks.0.attn.relative_position_bias_table", (int)i);
        const int64_t heads = dv_dim(t, name, 1);
        if (depth < 1 || depth > MAX_DEPTH || heads < 1 || heads > 255) {
            return dv_fail(DAVY_E_UNSUPPORTED, "layer %d of a SwinIR network has %d blocks of %d heads", (int)i,
                           (int)depth, (int)heads);
        }
        c->depth[i] = (uint8_t)depth;
        c->heads[i] = (uint8_t)heads;
    }
    return DAVY_OK;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    static const char first[] = "conv_first.weight|conv_first.1.weight";
    cfg *c = out;
    c->features = dv_dim(t, first, 0);
    c->unshuffle = 1;
    int64_t in = dv_dim(t, first, 1);
    if (dv_has(t, "conv_first.1.weight")) {
        c->unshuffle = in % 3 == 0 ? dv_square_root(in / 3) : 0;
        in = 3;
    }
    c->in = in;
    c->window = dv_window_of_table(t, BLOCK "attn.relative_position_bias_table");
    c->range = c->window == 7 ? 255.0f : 1.0f; /* the JPEG networks */
    if (in < 1 || in > 4 || c->unshuffle < 1 || c->unshuffle > 8) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a SwinIR network with %d input channels", (int)dv_dim(t, first, 1));
    }
    if (c->window < 2) {
        return dv_fail(DAVY_E_SHAPE, "tensor '%s' has %d rows, which is no window's",
                       BLOCK "attn.relative_position_bias_table",
                       (int)dv_dim(t, BLOCK "attn.relative_position_bias_table", 0));
    }
    if (dv_has(t, "absolute_pos_embed")) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a SwinIR network with absolute positions, which fit one size only");
    }
    davy_result r = dv_tail_find(t, c->in, &c->tail);
    if (r == DAVY_OK && c->tail.scale % c->unshuffle != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a SwinIR network that makes pictures smaller");
    }
    c->scale = c->tail.scale / c->unshuffle;
    return r == DAVY_OK ? layers_of(t, c) : r;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    static const char *const tails[] = {"x1", "pixel shuffle", "direct", "nearest"};
    snprintf(out->variant, sizeof out->variant, "%d features, %d layers, window %d, %s, x%d", (int)c->features,
             (int)c->layers, (int)c->window, tails[c->tail.kind], (int)c->scale);
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->in;
    out->out_channels = (int32_t)c->tail.out;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->scale;
    out->scale_den = 1;
    out->size_multiple = 1;
    out->size_min = 1;
}

/* x + conv(blocks(x)) */
static dv_value layer(const cfg *c, dv_graph *g, dv_value x, int64_t index) {
    char name[128];
    dv_value t = x;
    for (int64_t j = 0; j < c->depth[index]; j++) {
        const dv_swin_spec spec = {c->heads[index], c->window, j % 2 == 0 ? 0 : c->window / 2};
        snprintf(name, sizeof name, "layers.%d.residual_group.blocks.%d", (int)index, (int)j);
        t = dv_swin_block(g, t, name, &spec);
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
    const dv_value picture = dv_pad_picture(g, dv_input(g, shape), c->window * c->unshuffle);
    const dv_value normal = dv_take_mean(g, picture, c->range, rgb);
    const dv_value small = c->unshuffle > 1 ? dv_pixel_unshuffle(g, normal, c->unshuffle) : normal;
    const dv_value f = dv_conv(g, small, "conv_first|conv_first.1", c->features, 3, NULL);
    dv_value x = f;
    if (dv_has(g->weights, "patch_embed.norm.weight")) {
        x = dv_layer_norm(g, x, "patch_embed.norm", DV_SWIN_EPS);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        x = layer(c, g, x, i);
    }
    x = dv_layer_norm(g, x, "norm", DV_SWIN_EPS);
    x = dv_add(g, 1.0f, dv_residual_conv(g, x, "conv_after_body"), 1.0f, f);
    x = dv_tail_build(g, x, &c->tail);
    if (c->tail.kind == DV_TAIL_NONE) {
        x = dv_add(g, 1.0f, x, 1.0f, normal);
    }
    x = dv_give_mean(g, x, c->range, rgb);
    dv_output(g, dv_crop_to(g, x, h * c->scale, w * c->scale));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_swinir = {
    .name = "swinir",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = wide,
    .range = DAVY_RANGE_UNIT,
};
