/* up_spanf3.c - SPAN-F3, the network of newer AnimeJaNai releases: SPAN's blocks with ReLU, gated by a 1x1
 * convolution, at half the picture's size. docs/arch/up_spanf3.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/conv3xc.h"
#include "core/base/error.h"

typedef struct cfg {
    int64_t features, blocks, channels, unshuffle, shuffle, scale;
    bool wrapped; /* conv_1 follows an unshuffle and is named conv_1.1 */
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool ours = dv_has(t, "block_1.att_conv.weight") && dv_has(t, "conv_cat.weight") &&
                      dv_has(t, "block_1.c1_r.sk.weight|block_1.c1_r.eval_conv.weight") &&
                      dv_has(t, "to_pixel.sk.weight|to_pixel.eval_conv.weight");
    return ours ? 10 : 0;
}

/* in = channels * unshuffle^2, out = channels * shuffle^2, for pictures of three channels or one. */
static bool factors(cfg *c, int64_t in, int64_t out) {
    for (int64_t channels = 3; channels >= 1; channels -= 2) {
        if (in % channels == 0 && out % channels == 0) {
            c->channels = channels;
            c->unshuffle = dv_square_root(in / channels);
            c->shuffle = dv_square_root(out / channels);
            if (c->unshuffle > 0 && c->shuffle > 0) {
                return true;
            }
        }
    }
    return false;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    char name[DV_NAMES_BYTES];
    c->wrapped = dv_has(t, dv_conv3xc_weight(name, "conv_1.1"));
    dv_conv3xc_weight(name, c->wrapped ? "conv_1.1" : "conv_1");
    c->features = dv_dim(t, name, 0);
    const int64_t in = dv_dim(t, name, 1);
    const int64_t last = dv_dim(t, dv_conv3xc_weight(name, "to_pixel"), 0);
    if (!factors(c, in, last)) {
        return dv_fail(DAVY_E_SHAPE,
                       "the SPAN-F3 network has %d channels in and %d out; expected square numbers times 3 or 1",
                       (int)in, (int)last);
    }
    if (c->shuffle % c->unshuffle != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the SPAN-F3 network makes pictures smaller (x%d after unshuffle by %d), which is not supported",
                       (int)c->shuffle, (int)c->unshuffle);
    }
    c->scale = c->shuffle / c->unshuffle;
    do {
        c->blocks++;
        snprintf(name, sizeof name, "block_%d.att_conv.weight", (int)c->blocks + 1);
    } while (dv_has(t, name));
    return DAVY_OK;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d blocks, x%d", (int)c->features, (int)c->blocks,
             (int)c->scale);
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->channels;
    out->out_channels = (int32_t)c->channels;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->scale;
    out->scale_den = 1;
    out->size_multiple = 1; /* the network pads and crops */
    out->size_min = 1;
}

static dv_value relu(dv_graph *g, dv_value x) {
    return dv_activation(g, x, DVK_ACT_RELU, 0.0f);
}

/* h' = (h + a3) * tanh(att(a3)). *first is the block's first activation, behind its ReLU. */
static dv_value block(const cfg *c, dv_graph *g, dv_value h, int64_t index, dv_value *first) {
    char name[64];
    snprintf(name, sizeof name, "block_%d.c1_r", (int)index);
    *first = relu(g, dv_conv3xc(g, h, name, c->features));
    snprintf(name, sizeof name, "block_%d.c2_r", (int)index);
    const dv_value a2 = relu(g, dv_conv3xc(g, *first, name, c->features));
    snprintf(name, sizeof name, "block_%d.c3_r", (int)index);
    const dv_value a3 = dv_conv3xc(g, a2, name, c->features);
    snprintf(name, sizeof name, "block_%d.att_conv", (int)index);
    const dv_value gate = dv_conv(g, a3, name, c->features, 1, NULL);
    return dv_multiply(g, dv_add(g, 1.0f, a3, 1.0f, h), gate, DVK_ACT_TANH);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const int64_t k = c->unshuffle;
    dv_value x = dv_input(g, (dv_shape){1, h, w, c->channels});
    if (k > 1) {
        x = dv_pad_to(g, x, dv_div_up(h, k) * k, dv_div_up(w, k) * k, DVK_PAD_REFLECT);
        x = dv_pixel_unshuffle(g, x, k);
    }
    const dv_value f = dv_conv3xc(g, x, c->wrapped ? "conv_1.1" : "conv_1", c->features);
    dv_value after_first = DV_NO_VALUE;
    dv_value first = DV_NO_VALUE;
    x = f;
    for (int64_t i = 1; i <= c->blocks; i++) {
        x = block(c, g, x, i, &first);
        after_first = i == 1 ? x : after_first;
    }
    const dv_value parts[4] = {f, x, after_first, first};
    x = dv_conv(g, dv_concat(g, parts, 4), "conv_cat", c->features, 1, NULL);
    x = dv_conv3xc(g, x, "to_pixel", c->channels * c->shuffle * c->shuffle);
    x = dv_pixel_shuffle(g, x, c->shuffle, DV_NO_VALUE);
    dv_output(g, dv_crop_to(g, x, h * c->scale, w * c->scale));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_spanf3 = {
    .name = "spanf3",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .range = DAVY_RANGE_UNIT,
};
