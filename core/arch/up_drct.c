/* up_drct.c - DRCT and DRCT-L: SwinIR's blocks in residual dense groups, where each of five blocks sees what all before
 * it have made. docs/arch/up_drct.md. */
#include "core/arch.h"

#include <stdio.h>

#include "core/block/swin.h"
#include "core/block/tail.h"
#include "core/block/weights.h"
#include "core/error.h"

enum { MAX_LAYERS = 32, BLOCKS = 5 };

typedef struct cfg {
    int64_t features, in, growth, window, layers;
    bool shifts;
    uint8_t heads[MAX_LAYERS][BLOCKS];
    dv_tail tail;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    return dv_has(t, "layers.0.swin1.norm1.weight") && dv_has(t, "layers.0.adjust1.weight") &&
                   dv_has(t, "layers.0.swin5.norm1.weight") && dv_has(t, "layers.0.adjust5.weight")
               ? 10
               : 0;
}

/* Read from the tables: the rule by which the heads were chosen is nobody's business. */
static davy_result read_heads(const dv_tensors *t, cfg *c) {
    char name[96];
    for (int64_t i = 0; i < c->layers; i++) {
        for (int k = 0; k < BLOCKS; k++) {
            snprintf(name, sizeof name, "layers.%d.swin%d.attn.relative_position_bias_table", (int)i, k + 1);
            const int64_t heads = dv_dim(t, name, 1);
            if (heads < 1 || heads > 255) {
                return dv_fail(dv_has(t, name) ? DAVY_E_SHAPE : DAVY_E_TENSOR, "tensor '%s' %s", name,
                               dv_has(t, name) ? "has an impossible shape" : "is missing");
            }
            c->heads[i][k] = (uint8_t)heads;
        }
    }
    return DAVY_OK;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    static const char table[] = "layers.0.swin1.attn.relative_position_bias_table";
    cfg *c = out;
    c->features = dv_dim(t, "conv_first.weight", 0);
    c->in = dv_dim(t, "conv_first.weight", 1);
    c->growth = dv_dim(t, "layers.0.adjust1.weight", 0);
    c->window = dv_window_of_table(t, table);
    c->layers = dv_sequence_length(t, "layers");
    /* The reference takes a file with indices but without masks for one whose pictures were as small as a window. */
    c->shifts = dv_has(t, "layers.0.swin2.attn_mask") || !dv_has(t, "layers.0.swin2.attn.relative_position_index");
    if (c->in < 1 || c->in > 4) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a DRCT network with %d input channels", (int)c->in);
    }
    if (c->window < 2) {
        return dv_fail(DAVY_E_SHAPE, "tensor '%s' has %d rows, which is no window's", table, (int)dv_dim(t, table, 0));
    }
    if (c->layers < 1 || c->layers > MAX_LAYERS) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a DRCT network of %d groups", (int)c->layers);
    }
    if (dv_has(t, "absolute_pos_embed")) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a DRCT network with absolute positions, which fit one size only");
    }
    const davy_result r = dv_tail_find(t, c->in, &c->tail);
    return r == DAVY_OK ? read_heads(t, c) : r;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d groups, window %d, x%d", (int)c->features,
             (int)c->layers, (int)c->window, (int)c->tail.scale);
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->in;
    out->out_channels = (int32_t)c->tail.out;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->tail.scale;
    out->scale_den = 1;
    out->size_multiple = 1;
    out->size_min = 1;
}

/* x + 0.2 * x5 with x_k = adjust_k(swin_k([x, x1, .., x_k-1])); all but the last activated. */
static dv_value group(const cfg *c, dv_graph *g, dv_value x, int64_t index) {
    dv_value parts[BLOCKS + 1] = {x};
    char name[96];
    for (int k = 0; k < BLOCKS; k++) {
        const dv_swin_spec spec = {c->heads[index][k], c->window, k % 2 == 1 && c->shifts ? c->window / 2 : 0};
        const bool last = k == BLOCKS - 1;
        snprintf(name, sizeof name, "layers.%d.swin%d", (int)index, k + 1);
        dv_value t = dv_swin_block(g, k == 0 ? x : dv_concat(g, parts, k + 1), name, &spec);
        snprintf(name, sizeof name, "layers.%d.adjust%d", (int)index, k + 1);
        t = dv_conv(g, t, name, last ? c->features : c->growth, 1, NULL);
        parts[k + 1] = last ? t : dv_activation(g, t, DVK_ACT_LRELU, 0.2f);
    }
    return dv_add(g, 0.2f, parts[BLOCKS], 1.0f, x);
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
    const dv_value picture = dv_take_mean(g, dv_pad_picture(g, dv_input(g, shape), c->window), 1.0f, rgb);
    const dv_value f = dv_conv(g, picture, "conv_first", c->features, 3, NULL);
    dv_value x = f;
    if (dv_has(g->weights, "patch_embed.norm.weight")) {
        x = dv_layer_norm(g, x, "patch_embed.norm", DV_SWIN_EPS);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        x = group(c, g, x, i);
    }
    x = dv_layer_norm(g, x, "norm", DV_SWIN_EPS);
    x = dv_add(g, 1.0f, dv_residual_conv(g, x, "conv_after_body"), 1.0f, f);
    x = dv_tail_build(g, x, &c->tail);
    if (c->tail.kind == DV_TAIL_NONE) {
        x = dv_add(g, 1.0f, x, 1.0f, picture);
    }
    x = dv_give_mean(g, x, 1.0f, rgb);
    dv_output(g, dv_crop_to(g, x, h * c->tail.scale, w * c->tail.scale));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_drct = {
    .name = "drct",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = wide,
    .range = DAVY_RANGE_UNIT,
};
