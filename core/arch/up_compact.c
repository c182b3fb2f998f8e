/* up_compact.c - SRVGGNetCompact: Real-ESRGAN's animevideov3 and general-x4v3, the Compact, UltraCompact and
 * SuperUltraCompact families, davy-live. A chain of 3x3 convolutions with PReLU at the input's size, then one pixel
 * shuffle. The input's nearest neighbour is added. docs/arch/up_compact.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/weights.h"
#include "core/base/error.h"

typedef struct cfg {
    int64_t features, convs, in, out, scale; /* convs: convolutions between the first and the last */
} cfg;

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool conv = dv_dim(t, "body.0.weight", 3) == 3;
    return conv && dv_dim(t, "body.1.weight", 0) > 0 && dv_dim(t, "body.1.weight", 1) == 0 ? 10 : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    const int64_t last = dv_sequence_length(t, "body") - 1;
    char name[64];
    snprintf(name, sizeof name, "body.%d.weight", (int)last);
    c->features = dv_dim(t, "body.0.weight", 0);
    c->in = dv_dim(t, "body.0.weight", 1);
    if (last < 2 || last % 2 != 0) {
        return dv_fail(DAVY_E_SHAPE, "body has %d layers; expected a convolution and pairs of PReLU and convolution",
                       (int)last + 1);
    }
    c->convs = (last - 2) / 2;
    if (!dv_scale_and_channels(dv_dim(t, name, 0), c->in, &c->scale, &c->out)) {
        return dv_fail(DAVY_E_SHAPE, "tensor '%s' has %d outputs; expected a square number times the channels", name,
                       (int)dv_dim(t, name, 0));
    }
    if (c->in != c->out) { /* the enlarged input is added to the output */
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the Compact network has %d input and %d output channels; both must be equal", (int)c->in,
                       (int)c->out);
    }
    return DAVY_OK;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, %d convolutions, x%d", (int)c->features, (int)c->convs,
             (int)c->scale);
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->in;
    out->out_channels = (int32_t)c->out;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->scale;
    out->scale_den = 1;
    out->size_multiple = 1;
    out->size_min = 1;
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const dv_shape shape = {1, h, w, c->in};
    const dv_value input = dv_input(g, shape);
    const int64_t last = 2 * c->convs + 2;
    dv_value x = input;
    char name[64];
    for (int64_t i = 0; i < last; i += 2) {
        snprintf(name, sizeof name, "body.%d", (int)i);
        x = dv_conv(g, x, name, c->features, 3, NULL);
        snprintf(name, sizeof name, "body.%d", (int)i + 1);
        x = dv_prelu(g, x, name);
    }
    snprintf(name, sizeof name, "body.%d", (int)last);
    x = dv_conv(g, x, name, c->out * c->scale * c->scale, 3, NULL);
    dv_output(g, dv_pixel_shuffle(g, x, c->scale, input));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_compact = {
    .name = "compact",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .range = DAVY_RANGE_UNIT,
};
