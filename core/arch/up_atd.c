/* up_atd.c - ATD, the Adaptive Token Dictionary. Beside attention in windows, each pixel attends to the tokens of a
 * dictionary. Pixels most similar to the same token also attend to each other, anywhere in the picture.
 * docs/arch/up_atd.md. */
#include "core/arch/arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/block/body.h"
#include "core/block/derived.h"
#include "core/block/swin.h"
#include "core/block/weights.h"
#include "core/base/error.h"
#include "core/base/mem.h"

#define GROUP "layers.0.residual_group."
#define TABLE "attn_win.relative_position_bias_table"

enum { CATEGORY = 256, CATEGORY_LIGHT = 128, LIGHT_FEATURES = 48, ROW = 16 };

typedef struct cfg {
    int64_t window, tokens, category;
    dv_body body;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    return dv_has(t, GROUP "td") && dv_has(t, GROUP "layers.0.attn_atd.wq.weight") &&
                   dv_has(t, GROUP "layers.0.wqkv.weight")
               ? 10
               : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    static const dv_group_names names = {".residual_group.layers", ".residual_group.layers.0." TABLE, 1, 1};
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    davy_result r = dv_body_find(t, "ATD", &c->body);
    r = r < 0 ? r : dv_window_require(t, GROUP "layers.0." TABLE, &c->window);
    c->tokens = dv_dim(t, GROUP "td", 0);
    if (r == DAVY_OK && (c->tokens < 2 || c->tokens > 1024 || c->window % 4 != 0)) {
        r = dv_fail(
            DAVY_E_UNSUPPORTED,
            "the ATD network has %d tokens and windows of %d; 2 to 1024 tokens and multiples of 4 are supported",
            (int)c->tokens, (int)c->window);
    }
    /* The file does not give the number of pixels per category. */
    const bool light = c->body.tail.kind == DV_TAIL_DIRECT && c->body.features == LIGHT_FEATURES;
    c->category = light ? CATEGORY_LIGHT : CATEGORY;
    c->body.multiple = c->window;
    c->body.mirrored = true;
    c->body.plain = dv_has(t, "no_norm");
    return r < 0 ? r : dv_body_groups(t, "ATD", &names, &c->body);
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d groups, window %d, %d tokens, x%d",
             (int)c->body.features, (int)c->body.groups, (int)c->window, (int)c->tokens, (int)c->body.scale);
    dv_body_info(&c->body, out);
}

/* ---- parameters ---- */

/* 1 + scale * ln(count), each scale kept between 0 and 1 */
static davy_result derive_factors(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const int64_t count = *(const int64_t *)from->how;
    float *scale = NULL;
    const davy_result r = dv_read_tensor(t, from->name, 1, &count, &scale);
    for (int64_t i = 0; r == DAVY_OK && i < count; i++) {
        dst[i] = 1.0f + fminf(fmaxf(scale[i], 0.0f), 1.0f) * (float)log((double)count);
    }
    dv_free(scale);
    return r;
}

/* Factors e^scale, at most 100, for queries; 1 for keys and values */
static davy_result derive_logit_scale(const dv_tensors *t, const dv_derivation *from, float *dst) {
    static const int64_t shape[2] = {1, 1};
    const int64_t width = *(const int64_t *)from->how;
    float *scale = NULL;
    const davy_result r = dv_read_tensor(t, from->name, 2, shape, &scale);
    for (int64_t i = 0; r == DAVY_OK && i < 3 * width; i++) {
        dst[i] = i < width ? fminf(expf(scale[0]), 100.0f) : 1.0f;
    }
    dv_free(scale);
    return r;
}

/* A vector derived from tensor `ref`. Fills in the name and size of `from`. */
static dv_param derived(dv_graph *g, const dv_tensor_ref *ref, dv_derivation from, int64_t count) {
    if (ref == NULL) {
        return DV_NO_PARAM;
    }
    from.name = ref->name;
    from.stored = dv_tensor_elements(ref);
    return dv_param_derived(g, ref->name, &from, 1, &count);
}

/* ---- the three attentions ---- */

typedef struct layer {
    const cfg *c;
    const char *name;
    dv_heads heads;
    int64_t shift;
} layer;

static dv_value in_windows(const layer *l, dv_graph *g, const dv_value qkv[3]) {
    const dv_window window = {.h = (int32_t)l->c->window,
                              .w = (int32_t)l->c->window,
                              .shift_y = (int32_t)l->shift,
                              .shift_x = (int32_t)l->shift};
    char part[DV_NAMES_BYTES];
    const dv_param table =
        dv_position_table(g, dv_names_join(part, l->name, "." TABLE), l->heads.count, l->c->window, l->c->window);
    const dv_value y = dv_window_attention(g, qkv, l->heads.count, dv_heads_scale(l->heads), &window, table);
    return dv_linear_from_heads(g, y, dv_names_join(part, l->name, ".attn_win.proj"), l->heads, l->c->body.features);
}

/* The similarity of each pixel to each token. */
static dv_value shares_of(const layer *l, dv_graph *g, dv_value x, dv_value tokens) {
    char part[DV_NAMES_BYTES];
    const int64_t narrow = dv_dim(g->weights, dv_names_join(part, l->name, ".attn_atd.wq.weight"), 0);
    const dv_value q = dv_linear(g, x, dv_names_join(part, l->name, ".attn_atd.wq"), narrow);
    const dv_value k = dv_linear(g, tokens, dv_names_join(part, l->name, ".attn_atd.wk"), narrow);
    const int64_t count = l->c->tokens;
    const dv_derivation from = {.how = &count, .how_bytes = sizeof count, .derive = derive_factors};
    const dv_tensor_ref *scale = dv_weight_require(g, dv_names_join(part, l->name, ".attn_atd.scale"), "", 1, &count);
    const dv_param factors = derived(g, scale, from, count);
    return dv_similarity(g, q, k, factors);
}

static dv_value of_tokens(const layer *l, dv_graph *g, dv_value shares, dv_value tokens) {
    char part[DV_NAMES_BYTES];
    return dv_mix(g, shares, dv_linear(g, tokens, dv_names_join(part, l->name, ".attn_atd.wv"), l->c->body.features));
}

/* Sorts pixels by their most similar token into rows of 16. Each `category` of them form a window. */
static dv_value in_categories(const layer *l, dv_graph *g, dv_value qkv, dv_value shares) {
    static const int64_t one[2] = {1, 1};
    const dv_shape s = dv_shape_of(g, shares);
    const int64_t size = dv_max(dv_min(l->c->category, s.h * s.w), ROW);
    const int64_t count = dv_div_up(s.h * s.w, size);
    const int64_t width = dv_heads_width(l->heads);
    const dv_window window = {.h = (int32_t)(size / ROW), .w = ROW};
    char part[DV_NAMES_BYTES];
    dv_value of[3];
    const dv_derivation from = {.how = &width, .how_bytes = sizeof width, .derive = derive_logit_scale};
    const dv_tensor_ref *stored =
        dv_weight_require(g, dv_names_join(part, l->name, ".attn_aca.logit_scale"), "", 2, one);
    const dv_param scale = derived(g, stored, from, 3 * width);
    const dv_value order = dv_order(g, shares, count * size / ROW, ROW);
    dv_split_qkv(g, dv_gather(g, qkv, order, scale), width, of);
    dv_value y = dv_window_attention(g, of, l->heads.count, 1.0f, &window, DV_NO_PARAM);
    y = dv_linear_from_heads(g, y, dv_names_join(part, l->name, ".attn_aca.proj"), l->heads, l->c->body.features);
    return dv_scatter(g, y, order, s.h, s.w);
}

/* ---- layers ---- */

/* The dictionary, updated by the picture. norm3's bias shifts all exponents of a token by the same amount, so it
 * has no effect. */
static dv_value refined(const layer *l, dv_graph *g, dv_value tokens, dv_value shares, dv_value x) {
    const int64_t column[2] = {l->c->tokens, 1};
    char part[DV_NAMES_BYTES];
    dv_refinement how = {.eps = DV_SWIN_EPS};
    how.gamma = dv_param_stored(g, dv_names_join(part, l->name, ".norm3.weight"), 1, column);
    how.sigma = dv_param_stored(g, dv_names_join(part, l->name, ".sigma"), 2, column);
    return dv_refine(g, tokens, shares, x, &how);
}

static dv_value transform(const layer *l, dv_graph *g, dv_value x, dv_value *tokens, bool last) {
    char part[DV_NAMES_BYTES];
    dv_value of[3];
    dv_value n = dv_layer_norm(g, x, dv_names_join(part, l->name, ".norm1"), DV_SWIN_EPS);
    const dv_value qkv = dv_linear_to_heads(g, n, dv_names_join(part, l->name, ".wqkv"), l->heads, 3);
    const dv_value shares = shares_of(l, g, n, *tokens);
    dv_split_qkv(g, qkv, dv_heads_width(l->heads), of);
    x = dv_add(g, 1.0f, in_windows(l, g, of), 1.0f, x);
    x = dv_add(g, 1.0f, of_tokens(l, g, shares, *tokens), 1.0f, x);
    x = dv_add(g, 1.0f, in_categories(l, g, qkv, shares), 1.0f, x);
    n = dv_layer_norm(g, x, dv_names_join(part, l->name, ".norm2"), DV_SWIN_EPS);
    x = dv_add(g, 1.0f, dv_mixing_mlp(g, n, dv_names_join(part, l->name, ".convffn")), 1.0f, x);
    *tokens = last ? *tokens : refined(l, g, *tokens, shares, x);
    return x;
}

/* x + conv(layers(x)); each group begins with its own dictionary. */
static dv_value group(const void *config_, dv_graph *g, dv_value x, int64_t index) {
    const cfg *c = config_;
    const int64_t shape[2] = {c->tokens, c->body.features};
    char name[96];
    snprintf(name, sizeof name, "layers.%d.residual_group.td", (int)index);
    dv_value tokens = dv_tokens(g, dv_param_stored(g, name, 2, shape), shape[0], shape[1]);
    dv_value t = x;
    for (int64_t j = 0; j < c->body.depth[index]; j++) {
        snprintf(name, sizeof name, "layers.%d.residual_group.layers.%d", (int)index, (int)j);
        const layer l = {.c = c,
                         .name = name,
                         .heads = dv_heads_of(g, name, c->body.features, c->body.heads[index]),
                         .shift = j % 2 == 0 ? 0 : c->window / 2};
        t = transform(&l, g, t, &tokens, j == c->body.depth[index] - 1);
    }
    snprintf(name, sizeof name, "layers.%d.conv", (int)index);
    return dv_add(g, 1.0f, dv_residual_conv(g, t, name), 1.0f, x);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    const dv_groups groups = {.group = group, .body = &c->body, .cfg = c};
    return dv_body_build(&groups, stage, h, w, g);
}

const dv_arch dv_arch_up_atd = {
    .name = "atd",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = dv_body_wide,
    .range = DAVY_RANGE_UNIT,
};
