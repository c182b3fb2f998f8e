/* up_waifu2x.c - waifu2x's CUNet (denoising at the picture's size) and UpConv7 (x2). up_cugan.c has its UpCUNet.
 * docs/arch/up_waifu2x.md. */
#include "core/arch/arch.h"

#include <stdio.h>

#include "core/block/cunet.h"
#include "core/block/derived.h"
#include "core/base/error.h"

enum { CUNET_MARGIN = 28, CUNET_ALIGN = 4, UPCONV_MARGIN = 7, UPCONV_LAYERS = 6 };

typedef struct cfg {
    bool cunet;
    int64_t channels;
} cfg;

static bool is_cunet(const dv_tensors *t) {
    return dv_cunet_matches(t) && dv_dim(t, "unet1.conv_bottom.weight", 3) == 3;
}

static bool is_upconv(const dv_tensors *t) {
    return dv_dim(t, "net.0.weight", 3) == 3 && dv_dim(t, "net.10.weight", 3) == 3 &&
           dv_dim(t, "net.12.weight", 3) == 4;
}

static int32_t match(const dv_probe *probe) {
    return is_cunet(probe->tensors) || is_upconv(probe->tensors) ? 10 : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    c->cunet = is_cunet(t);
    c->channels = dv_dim(t, c->cunet ? "unet1.conv1.conv.0.weight" : "net.0.weight", 1);
    const int64_t given =
        c->cunet ? dv_dim(t, "unet2.conv_bottom.weight", 0) : dv_dim(t, "net.12.weight", 1); /* [in, out, 4, 4] */
    if ((c->channels != 1 && c->channels != 3) || c->channels != given) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the waifu2x network has %d channels in and %d out; both must be 1 or both 3", (int)c->channels,
                       (int)given);
    }
    return DAVY_OK;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%s, x%d", c->cunet ? "CUNet" : "UpConv7", c->cunet ? 1 : 2);
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->channels;
    out->out_channels = (int32_t)c->channels;
    out->spatial_factor = 1;
    out->scale_num = c->cunet ? 1 : 2;
    out->scale_den = 1;
    out->size_multiple = 1; /* the network pads and crops */
    out->size_min = 1;
}

static dv_value cunet(const cfg *c, dv_graph *g, dv_value x) {
    const dv_shape in = dv_shape_of(g, x);
    const int64_t h = dv_div_up(in.h, CUNET_ALIGN) * CUNET_ALIGN + 2 * CUNET_MARGIN;
    const int64_t w = dv_div_up(in.w, CUNET_ALIGN) * CUNET_ALIGN + 2 * CUNET_MARGIN;
    const dv_cunet_bottom bottom = {3, 1, 0, c->channels};
    x = dv_pad(g, x, (dv_rect){.top = CUNET_MARGIN, .left = CUNET_MARGIN, .h = h, .w = w}, DVK_PAD_EDGE);
    const dv_value first = dv_cunet_first(g, x, &bottom);
    const dv_value second = dv_cunet_second(g, first, c->channels);
    const dv_shape s = dv_shape_of(g, second);
    x = dv_add(g, 1.0f, second, 1.0f,
               dv_crop(g, first, (dv_rect){.top = DV_CUNET_CUT, .left = DV_CUNET_CUT, .h = s.h, .w = s.w}));
    return dv_crop_to(g, x, in.h, in.w);
}

static dv_value upconv(const cfg *c, dv_graph *g, dv_value x) {
    static const dv_conv_opts valid = {.valid = true};
    const dv_shape in = dv_shape_of(g, x);
    x = dv_pad(
        g, x,
        (dv_rect){
            .top = UPCONV_MARGIN, .left = UPCONV_MARGIN, .h = in.h + 2 * UPCONV_MARGIN, .w = in.w + 2 * UPCONV_MARGIN},
        DVK_PAD_EDGE);
    for (int i = 0; i < UPCONV_LAYERS; i++) {
        char name[32];
        char weight[DV_NAMES_BYTES];
        snprintf(name, sizeof name, "net.%d", 2 * i);
        const int64_t channels = dv_dim(g->weights, dv_names_join(weight, name, ".weight"), 0);
        x = dv_activation(g, dv_conv(g, x, name, channels, 3, &valid), DVK_ACT_LRELU, DV_CUNET_SLOPE);
    }
    const dv_transposed last = {.c_out = c->channels, .k = 4, .stride = 2, .pad = 3};
    return dv_conv_transposed(g, x, "net.12", &last);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const dv_value x = dv_input(g, (dv_shape){1, h, w, c->channels});
    dv_output(g, c->cunet ? cunet(c, g, x) : upconv(c, g, x));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_waifu2x = {
    .name = "waifu2x",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .range = DAVY_RANGE_UNIT,
};
