/* up_span.c - SPAN, the Swift Parameter-free Attention Network: blocks of three 3x3 convolutions whose output gates
 * itself. Trained as 1x1 -> 3x3 -> 1x1 plus a 1x1 skip, it runs as the single 3x3 convolution that these add up to.
 * docs/arch/up_span.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/conv3xc.h"
#include "core/base/error.h"

enum { BLOCKS = 6 };

typedef struct cfg {
    int64_t features, in, out, scale;
    bool normalises;
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool ours = dv_has(t, "conv_1.sk.weight|conv_1.eval_conv.weight") &&
                      dv_has(t, "block_1.c1_r.sk.weight|block_1.c1_r.eval_conv.weight") &&
                      dv_has(t, "conv_2.sk.weight|conv_2.eval_conv.weight") && dv_has(t, "conv_cat.weight") &&
                      dv_has(t, "upsampler.0.weight");
    return ours && !dv_has(t, "block_1.att_conv.weight") ? 10 : 0; /* with that tensor: SPAN-F3 */
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    static const char first[] = "conv_1.sk.weight|conv_1.eval_conv.weight";
    cfg *c = out;
    c->features = dv_dim(t, first, 0);
    c->in = dv_dim(t, first, 1);
    c->normalises = !dv_has(t, "no_norm");
    const int64_t last = dv_dim(t, "upsampler.0.weight", 0);
    if (c->in < 1 || c->in > 4) {
        return dv_fail(DAVY_E_UNSUPPORTED, "the SPAN network has %d input channels; 1 to 4 are supported", (int)c->in);
    }
    if (!dv_scale_and_channels(last, c->in, &c->scale, &c->out)) {
        return dv_fail(DAVY_E_SHAPE,
                       "tensor 'upsampler.0.weight' has %d outputs; expected a square number times the channels",
                       (int)last);
    }
    return DAVY_OK;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, x%d%s", (int)c->features, (int)c->scale,
             c->normalises ? "" : ", no norm");
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->in;
    out->out_channels = (int32_t)c->out;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->scale;
    out->scale_den = 1;
    out->size_multiple = 1;
    out->size_min = 1;
}

/* (x - mean) * 255; the file contains neither number. Networks that are not RGB have no mean. */
static dv_value normalise(const cfg *c, dv_graph *g, dv_value x) {
    static const float mean[3] = {0.4488f, 0.4371f, 0.4040f};
    float scale[4] = {255.0f, 255.0f, 255.0f, 255.0f};
    float shift[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int i = 0; i < 3 && c->in == 3; i++) {
        shift[i] = -mean[i] * 255.0f;
    }
    return c->normalises ? dv_affine(g, x, scale, shift) : x;
}

/* h' = (a3 + h) * (sigmoid(a3) - 0.5). *first is the block's first activation. The network's tail reads it after
 * its SiLU, since the reference applies that in place. */
static dv_value block(const cfg *c, dv_graph *g, dv_value h, int index, dv_value *first) {
    char name[64];
    snprintf(name, sizeof name, "block_%d.c1_r", index);
    *first = dv_activation(g, dv_conv3xc(g, h, name, c->features), DVK_ACT_SILU, 0.0f);
    snprintf(name, sizeof name, "block_%d.c2_r", index);
    const dv_value a2 = dv_activation(g, dv_conv3xc(g, *first, name, c->features), DVK_ACT_SILU, 0.0f);
    snprintf(name, sizeof name, "block_%d.c3_r", index);
    return dv_span_gate(g, dv_conv3xc(g, a2, name, c->features), h);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const dv_shape shape = {1, h, w, c->in};
    const dv_value f = dv_conv3xc(g, normalise(c, g, dv_input(g, shape)), "conv_1", c->features);
    dv_value x = f;
    dv_value after_first = DV_NO_VALUE;
    dv_value first = DV_NO_VALUE;
    for (int i = 1; i <= BLOCKS; i++) {
        x = block(c, g, x, i, &first);
        after_first = i == 1 ? x : after_first;
    }
    const dv_value parts[4] = {f, dv_conv3xc(g, x, "conv_2", c->features), after_first, first};
    x = dv_conv(g, dv_concat(g, parts, 4), "conv_cat", c->features, 1, NULL);
    x = dv_conv(g, x, "upsampler.0", c->out * c->scale * c->scale, 3, NULL);
    dv_output(g, dv_pixel_shuffle(g, x, c->scale, DV_NO_VALUE));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_span = {
    .name = "span",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .range = DAVY_RANGE_UNIT,
};
