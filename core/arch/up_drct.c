/* up_drct.c - DRCT and DRCT-L: SwinIR's blocks in residual dense groups. Each of a group's five blocks reads the
 * results of all blocks before it. docs/arch/up_drct.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/body.h"
#include "core/block/swin.h"
#include "core/block/weights.h"
#include "core/base/error.h"

enum { BLOCKS = 5 };

typedef struct cfg {
    int64_t growth, window;
    bool shifts;
    uint8_t heads[DV_MAX_GROUPS][BLOCKS];
    dv_body body;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    return dv_has(t, "layers.0.swin1.norm1.weight") && dv_has(t, "layers.0.adjust1.weight") &&
                   dv_has(t, "layers.0.swin5.norm1.weight") && dv_has(t, "layers.0.adjust5.weight")
               ? 10
               : 0;
}

/* Reads the heads from the tables, so the rule by which they were chosen is not needed. */
static davy_result read_heads(const dv_tensors *t, cfg *c) {
    char name[96];
    for (int64_t i = 0; i < c->body.groups; i++) {
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
    cfg *c = out;
    davy_result r = dv_body_find(t, "DRCT", &c->body);
    r = r < 0 ? r : dv_window_require(t, "layers.0.swin1.attn.relative_position_bias_table", &c->window);
    c->body.multiple = c->window;
    c->growth = dv_dim(t, "layers.0.adjust1.weight", 0);
    /* If a file has indices but no masks, the reference assumes training on pictures of a window's size. */
    c->shifts = dv_has(t, "layers.0.swin2.attn_mask") || !dv_has(t, "layers.0.swin2.attn.relative_position_index");
    return r < 0 ? r : read_heads(t, c);
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d groups, window %d, x%d", (int)c->body.features,
             (int)c->body.groups, (int)c->window, (int)c->body.scale);
    dv_body_info(&c->body, out);
}

/* x + 0.2 * x5 with x_k = adjust_k(swin_k([x, x1, .., x_k-1])); an activation follows all but the last. */
static dv_value group(const void *config_, dv_graph *g, dv_value x, int64_t index) {
    const cfg *c = config_;
    dv_value parts[BLOCKS + 1] = {x};
    char name[96];
    for (int k = 0; k < BLOCKS; k++) {
        const dv_swin_spec spec = {c->heads[index][k], c->window, k % 2 == 1 && c->shifts ? c->window / 2 : 0};
        const bool last = k == BLOCKS - 1;
        snprintf(name, sizeof name, "layers.%d.swin%d", (int)index, k + 1);
        dv_value t = dv_swin_block(g, k == 0 ? x : dv_concat(g, parts, k + 1), name, &spec);
        snprintf(name, sizeof name, "layers.%d.adjust%d", (int)index, k + 1);
        t = dv_conv(g, t, name, last ? c->body.features : c->growth, 1, NULL);
        parts[k + 1] = last ? t : dv_activation(g, t, DVK_ACT_LRELU, 0.2f);
    }
    return dv_add(g, 0.2f, parts[BLOCKS], 1.0f, x);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    const dv_groups groups = {.group = group, .body = &c->body, .cfg = c};
    return dv_body_build(&groups, stage, h, w, g);
}

const dv_arch dv_arch_up_drct = {
    .name = "drct",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = dv_body_wide,
    .range = DAVY_RANGE_UNIT,
};
