/* up_srformer.c - SRFormer: SwinIR's groups with permuted attention, where four pixels of a window are one key, and
 * a depthwise convolution in the MLP. Classical, lightweight and real-world networks. docs/arch/up_srformer.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/body.h"
#include "core/block/swin.h"
#include "core/block/weights.h"
#include "core/base/error.h"

#define BLOCKS "layers.0.residual_group.blocks."
#define TABLE  "attn.relative_position_bias_table"

typedef struct cfg {
    int64_t permuted; /* side of a window in keys; twice that in pixels */
    bool shifts;
    dv_body body;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    return dv_has(t, BLOCKS "0.norm1.weight") && dv_has(t, BLOCKS "0.attn.q.weight") &&
                   dv_has(t, BLOCKS "0.attn.kv.weight") && dv_has(t, BLOCKS "0." TABLE) &&
                   dv_has(t, BLOCKS "0.mlp.dwconv.depthwise_conv.0.weight") && dv_has(t, "conv_first.weight")
               ? 10
               : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    static const dv_group_names names = {".residual_group.blocks", ".residual_group.blocks.0." TABLE, 1, 1};
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    davy_result r = dv_body_find(t, "SRFormer", &c->body);
    r = r < 0 ? r : dv_window_require(t, BLOCKS "0." TABLE, &c->permuted);
    if (r == DAVY_OK && c->body.features % 4 != 0) {
        r = dv_fail(DAVY_E_UNSUPPORTED, "the SRFormer network has %d features; a multiple of 4 is needed",
                    (int)c->body.features);
    }
    /* A file with window buffers also has masks, unless the network was trained on pictures of a window's size. */
    c->shifts = dv_has(t, BLOCKS "1.attn_mask") || !dv_has(t, BLOCKS "0.attn.aligned_relative_position_index");
    c->body.multiple = 2 * c->permuted;
    return r < 0 ? r : dv_body_groups(t, "SRFormer", &names, &c->body);
}

static void info(const void *config_, davy_model_info *out) {
    static const char *const tails[] = {"x1", "pixel shuffle", "direct", "nearest"};
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d layers, window %d, %s, x%d", (int)c->body.features,
             (int)c->body.groups, 2 * (int)c->permuted, tails[c->body.tail.kind], (int)c->body.scale);
    dv_body_info(&c->body, out);
}

/* A key or value of C channels is four pixels of C/4 channels side by side. So a picture of queries becomes four
 * pictures of half the size that attend to the same keys. An odd shift is a number of folded pixels minus one whole
 * pixel. Then the queries in the first rows (or columns) of folded pixels end their region one pixel later than the
 * keys. */
static dv_value attention(const cfg *c, dv_graph *g, dv_value x, const char *name, int64_t head_count, int64_t shift) {
    char part[DV_NAMES_BYTES];
    const int64_t before = shift % 2;
    const int32_t half = (int32_t)(shift + before) / 2;
    const dv_heads heads = dv_heads_of(g, name, c->body.features, head_count);
    const dv_heads both = dv_heads_of(g, name, c->body.features / 2, 2); /* keys, values */
    const int64_t width = dv_heads_width(heads);
    const dv_value q = dv_linear_to_heads(g, x, dv_names_join(part, name, ".q"), heads, 1);
    const dv_value kv = dv_linear_to_heads(g, x, dv_names_join(part, name, ".kv"), both, 1);
    const dv_value queries = dv_fold(g, q, 2, before, 1, 4 * width);
    const dv_value keys = dv_fold(g, dv_slice(g, kv, 0, both.dim), 2, before, heads.count, heads.padded);
    const dv_value values = dv_fold(g, dv_slice(g, kv, both.padded, both.dim), 2, before, heads.count, heads.padded);
    const dv_param table = dv_position_table(g, dv_names_join(part, name, ".relative_position_bias_table"), heads.count,
                                             c->permuted, c->permuted);
    dv_value parts[4];
    for (int i = 0; i < 4; i++) {
        const dv_window window = {.h = (int32_t)c->permuted,
                                  .w = (int32_t)c->permuted,
                                  .shift_y = half,
                                  .shift_x = half,
                                  .cut_y = before > 0 && i / 2 == 0 ? half - 1 : 0,
                                  .cut_x = before > 0 && i % 2 == 0 ? half - 1 : 0};
        const dv_value of[3] = {dv_slice(g, queries, i * width, width), keys, values};
        parts[i] = dv_window_attention(g, of, heads.count, dv_heads_scale(heads), &window, table);
    }
    const dv_value y = dv_unfold(g, dv_concat(g, parts, 4), 2, before);
    return dv_linear_from_heads(g, y, dv_names_join(part, name, ".proj"), heads, c->body.features);
}

/* x + conv(blocks(x)) */
static dv_value group(const void *config_, dv_graph *g, dv_value x, int64_t index) {
    const cfg *c = config_;
    char name[128];
    char part[DV_NAMES_BYTES];
    dv_value t = x;
    for (int64_t j = 0; j < c->body.depth[index]; j++) {
        snprintf(name, sizeof name, "layers.%d.residual_group.blocks.%d", (int)index, (int)j);
        dv_value n = dv_layer_norm(g, t, dv_names_join(part, name, ".norm1"), DV_SWIN_EPS);
        n = attention(c, g, n, dv_names_join(part, name, ".attn"), c->body.heads[index],
                      c->shifts && j % 2 == 1 ? c->permuted : 0);
        t = dv_add(g, 1.0f, n, 1.0f, t);
        n = dv_layer_norm(g, t, dv_names_join(part, name, ".norm2"), DV_SWIN_EPS);
        t = dv_add(g, 1.0f, dv_mixing_mlp(g, n, dv_names_join(part, name, ".mlp")), 1.0f, t);
    }
    snprintf(name, sizeof name, "layers.%d.conv", (int)index);
    return dv_add(g, 1.0f, dv_residual_conv(g, t, name), 1.0f, x);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    const dv_groups groups = {.group = group, .body = &c->body, .cfg = c};
    return dv_body_build(&groups, stage, h, w, g);
}

const dv_arch dv_arch_up_srformer = {
    .name = "srformer",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = dv_body_wide,
    .range = DAVY_RANGE_UNIT,
};
