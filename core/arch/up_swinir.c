/* up_swinir.c - SwinIR: groups of transformer blocks with attention in windows; every second block's windows are
 * shifted by half a window. Classical, lightweight, real-world and x1 (denoising, JPEG) networks.
 * docs/arch/up_swinir.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/body.h"
#include "core/block/swin.h"
#include "core/block/weights.h"

#define BLOCK "layers.0.residual_group.blocks.0."
#define TABLE "attn.relative_position_bias_table"

typedef struct cfg {
    int64_t window;
    dv_body body;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool ours = dv_has(t, BLOCK "norm1.weight") && dv_has(t, BLOCK "mlp.fc1.bias") && dv_has(t, BLOCK TABLE) &&
                      dv_has(t, BLOCK "attn.qkv.weight") && dv_has(t, "conv_first.weight|conv_first.1.weight");
    return ours && !dv_has(t, "patch_embed.proj.weight") &&                    /* Swin2SR */
                   !dv_has(t, BLOCK "attn.aligned_relative_position_index") && /* SRFormer */
                   !dv_has(t, BLOCK "conv_block.cab.0.weight|layers.0.residual_group.overlap_attn.qkv.weight") /* HAT */
               ? 10
               : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    static const dv_group_names names = {".residual_group.blocks", ".residual_group.blocks.0." TABLE, 1, 1};
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    davy_result r = dv_body_find(t, "SwinIR", &c->body);
    r = r < 0 ? r : dv_window_require(t, BLOCK TABLE, &c->window);
    c->body.multiple = c->window * c->body.unshuffle;
    c->body.range = c->window == 7 ? 255.0f : 1.0f; /* the JPEG networks */
    return r < 0 ? r : dv_body_groups(t, "SwinIR", &names, &c->body);
}

static void info(const void *config_, davy_model_info *out) {
    static const char *const tails[] = {"x1", "pixel shuffle", "direct", "nearest"};
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d layers, window %d, %s, x%d", (int)c->body.features,
             (int)c->body.groups, (int)c->window, tails[c->body.tail.kind], (int)c->body.scale);
    dv_body_info(&c->body, out);
}

/* x + conv(blocks(x)) */
static dv_value group(const void *config_, dv_graph *g, dv_value x, int64_t index) {
    const cfg *c = config_;
    char name[128];
    dv_value t = x;
    for (int64_t j = 0; j < c->body.depth[index]; j++) {
        const dv_swin_spec spec = {c->body.heads[index], c->window, j % 2 == 0 ? 0 : c->window / 2};
        snprintf(name, sizeof name, "layers.%d.residual_group.blocks.%d", (int)index, (int)j);
        t = dv_swin_block(g, t, name, &spec);
    }
    snprintf(name, sizeof name, "layers.%d.conv", (int)index);
    return dv_add(g, 1.0f, dv_residual_conv(g, t, name), 1.0f, x);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    const dv_groups groups = {.group = group, .body = &c->body, .cfg = c};
    return dv_body_build(&groups, stage, h, w, g);
}

const dv_arch dv_arch_up_swinir = {
    .name = "swinir",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = dv_body_wide,
    .range = DAVY_RANGE_UNIT,
};
