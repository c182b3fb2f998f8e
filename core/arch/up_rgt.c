/* up_rgt.c - RGT, the Recursive Generalization Transformer. DAT's attention in oblong windows alternates with
 * attention of all pixels to a repeatedly reduced picture. docs/arch/up_rgt.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/body.h"
#include "core/block/dat.h"
#include "core/block/weights.h"
#include "core/base/error.h"

#define BLOCK "layers.0.blocks.0."

enum { FACTOR = 4, TIMES = 2 }; /* factor of one reduction; least number of reductions */

typedef struct cfg {
    dv_window_split split;
    dv_body body;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    return dv_has(t, "before_RG.1.weight") && dv_has(t, BLOCK "gamma") && dv_has(t, BLOCK "mlp.sg.norm.weight") &&
                   dv_has(t, BLOCK "attn.attns.0.rpe_biases|" BLOCK "attn.attns.0.pos.pos_proj.weight")
               ? 10
               : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    static const dv_group_names names = {".blocks", ".blocks.0.attn.attns.0.pos.pos3.2.weight", 0, 2};
    cfg *c = out;
    davy_result r = dv_body_find(probe->tensors, "RGT", &c->body);
    r = r < 0 ? r : dv_window_split_find(probe, "RGT", &c->split);
    return r < 0 ? r : dv_body_groups(probe->tensors, "RGT", &names, &c->body);
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d groups of %d, split %dx%d%s, x%d",
             (int)c->body.features, (int)c->body.groups, (int)c->body.depth[0], (int)c->split.side[0],
             (int)c->split.side[1], c->split.assumed ? " assumed" : "", (int)c->body.scale);
    dv_body_info(&c->body, out);
}

/* proj(windows + depthwise(v)) */
static dv_value local_attention(const cfg *c, dv_graph *g, dv_value x, const char *name, int64_t head_count,
                                bool shifted) {
    char part[DV_NAMES_BYTES];
    const dv_heads heads = dv_heads_of(g, name, c->body.features, head_count);
    dv_value qkv[3];
    dv_split_qkv(g, dv_linear_to_heads(g, x, dv_names_join(part, name, ".qkv"), heads, 3), dv_heads_width(heads), qkv);
    const dv_value beside = dv_depthwise_heads(g, qkv[2], dv_names_join(part, name, ".get_v"), heads);
    const dv_value seen = dv_window_split_attention(g, qkv, name, &c->split, heads, shifted);
    return dv_linear_from_heads(g, dv_add(g, 1.0f, beside, 1.0f, seen), dv_names_join(part, name, ".proj"), heads,
                                c->body.features);
}

/* Number of reductions: two, three if the longer side is at least 1024 pixels, and so on. The picture never shrinks
 * to nothing, where the reference would fail. */
static int times_of(dv_shape s) {
    int times = TIMES;
    int64_t longest = 1024;
    for (int64_t least = 64; dv_max(s.h, s.w) >= longest && dv_min(s.h, s.w) >= least; least *= FACTOR) {
        times++;
        longest *= FACTOR;
    }
    return times;
}

/* A small picture with fewer channels that represents all of x. */
static dv_value generalised(dv_graph *g, dv_value x, const char *name, int64_t narrow) {
    static const dv_conv_opts step = {.stride = FACTOR, .valid = true};
    char part[DV_NAMES_BYTES];
    const int times = times_of(dv_shape_of(g, x));
    for (int i = 0; i < times; i++) {
        x = dv_depthwise(g, x, dv_names_join(part, name, ".reduction1"), FACTOR, &step);
    }
    x = dv_depthwise(g, x, dv_names_join(part, name, ".dwconv"), 3, NULL);
    x = dv_conv(g, x, dv_names_join(part, name, ".conv"), narrow, 1, NULL);
    x = dv_layer_norm(g, x, dv_names_join(part, name, ".norm_act.0"), DV_SWIN_EPS);
    return dv_activation(g, x, DVK_ACT_GELU, 0.0f);
}

/* Queries and keys have fewer channels than values; their heads are padded to the same size. */
static dv_value global_attention(const cfg *c, dv_graph *g, dv_value x, const char *name, int64_t head_count) {
    char part[DV_NAMES_BYTES];
    const int64_t narrow = dv_dim(g->weights, dv_names_join(part, name, ".conv.weight"), 0);
    const dv_heads heads = dv_heads_of(g, name, c->body.features, head_count);
    dv_heads thin = dv_heads_of(g, name, narrow, head_count);
    if (thin.dim > heads.padded) {
        return dv_graph_fail(g, dv_fail(DAVY_E_UNSUPPORTED,
                                        "tensor '%s' has %d outputs; at most the %d features are supported", part,
                                        (int)narrow, (int)c->body.features));
    }
    thin.padded = heads.padded;
    const dv_value small = generalised(g, x, name, narrow);
    const dv_value q = dv_linear_to_heads(g, x, dv_names_join(part, name, ".q"), thin, 1);
    const dv_value k = dv_linear_to_heads(g, small, dv_names_join(part, name, ".k"), thin, 1);
    dv_value v = dv_linear_to_heads(g, small, dv_names_join(part, name, ".v"), heads, 1);
    v = dv_add(g, 1.0f, dv_depthwise_heads(g, v, dv_names_join(part, name, ".cpe"), heads), 1.0f, v);
    const dv_value y = dv_attention(g, q, k, v, heads.count, dv_heads_scale(thin));
    return dv_linear_from_heads(g, y, dv_names_join(part, name, ".proj"), heads, c->body.features);
}

/* x + conv(blocks(x)); each block finally adds its input, scaled per channel. */
static dv_value group(const void *config_, dv_graph *g, dv_value x, int64_t index) {
    const cfg *c = config_;
    char name[96];
    char part[DV_NAMES_BYTES];
    dv_value t = x;
    for (int64_t b = 0; b < c->body.depth[index]; b++) {
        const dv_value begin = t;
        snprintf(name, sizeof name, "layers.%d.blocks.%d", (int)index, (int)b);
        dv_value n = dv_layer_norm(g, t, dv_names_join(part, name, ".norm1"), DV_SWIN_EPS);
        dv_names_join(part, name, ".attn");
        n = b % 2 == 0 ? local_attention(c, g, n, part, c->body.heads[index], dv_window_split_shifts(index, b))
                       : global_attention(c, g, n, part, c->body.heads[index]);
        t = dv_add(g, 1.0f, n, 1.0f, t);
        n = dv_layer_norm(g, t, dv_names_join(part, name, ".norm2"), DV_SWIN_EPS);
        t = dv_add(g, 1.0f, dv_gated_mlp(g, n, dv_names_join(part, name, ".mlp")), 1.0f, t);
        t = dv_add(g, 1.0f, dv_scale_channels(g, begin, dv_names_join(part, name, ".gamma")), 1.0f, t);
    }
    snprintf(name, sizeof name, "layers.%d.conv", (int)index);
    return dv_add(g, 1.0f, dv_residual_conv(g, t, name), 1.0f, x);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    const dv_groups groups = {.group = group, .body = &c->body, .cfg = c};
    return dv_body_build(&groups, stage, h, w, g);
}

const dv_arch dv_arch_up_rgt = {
    .name = "rgt",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = dv_body_wide,
    .range = DAVY_RANGE_UNIT,
};
