/* up_cugan.c - Real-CUGAN (UpCunet x2, x3, x4 and the fast x2), and waifu2x's UpCUNet, which is the x2 with other
 * weights. docs/arch/up_cugan.md. */
#include "core/arch/arch.h"

#include <stdio.h>
#include <string.h>

#include "core/block/cunet.h"
#include "core/base/error.h"

typedef enum kind { TIMES_2, TIMES_3, TIMES_4, FAST_2 } kind;

/* Pixels around the picture, the multiple of its sides, and the last layer of the first network. */
static const struct kind_facts {
    int32_t scale, margin, align;
    dv_cunet_bottom bottom; /* channels 0: those of the picture */
} facts[] = {
    [TIMES_2] = {2, 18, 2, {4, 2, 3, 0}},
    [TIMES_3] = {3, 14, 4, {5, 3, 2, 0}},
    [TIMES_4] = {4, 19, 2, {4, 2, 3, 64}},
    [FAST_2] = {2, 38, 4, {4, 2, 3, 64}},
};

typedef struct cfg {
    kind kind;
    int64_t channels;
    bool pro;  /* pictures are scaled to 0.15 to 0.85 */
    bool edge; /* waifu2x repeats the edge around a picture; Real-CUGAN reflects */
} cfg;

static int32_t match(const dv_probe *probe) {
    const int64_t k = dv_dim(probe->tensors, "unet1.conv_bottom.weight", 3);
    return dv_cunet_matches(probe->tensors) && (k == 4 || k == 5) ? 10 : 0; /* 3: waifu2x's CUNet */
}

/* nunif's files have names such as scale2x.pth, but store the network's name beside the dict of tensors. */
static bool is_waifu2x(const dv_probe *probe) {
    const char *name = dv_tensors_meta(probe->tensors, "value.name");
    return strstr(probe->file_name, "waifu2x") != NULL || (name != NULL && strncmp(name, "waifu2x.", 8) == 0);
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    const int64_t in = dv_dim(t, "unet1.conv1.conv.0.weight", 1);
    const int64_t last = dv_dim(t, "conv_final.weight", 0); /* 0: no such tensor */
    const int64_t given = last > 0 ? last / 4 : dv_dim(t, "unet2.conv_bottom.weight", 0);
    c->kind = last > 0                                        ? (last == in ? FAST_2 : TIMES_4)
              : dv_dim(t, "unet1.conv_bottom.weight", 3) == 5 ? TIMES_3
                                                              : TIMES_2;
    c->channels = c->kind == FAST_2 ? in / 4 : in;
    c->pro = dv_has(t, "pro") || dv_tensors_meta(t, "value.pro") != NULL; /* published files have a number there */
    c->edge = c->kind == TIMES_2 && is_waifu2x(probe);                    /* no tensor distinguishes them */
    if ((c->channels != 1 && c->channels != 3) || c->channels != given) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the Real-CUGAN network has %d channels in and %d out; both must be 1 or both 3",
                       (int)c->channels, (int)given);
    }
    return DAVY_OK;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%s%s, x%d%s", c->edge ? "UpCUNet" : "UpCunet", c->pro ? " pro" : "",
             (int)facts[c->kind].scale, c->kind == FAST_2 ? " fast" : "");
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->channels;
    out->out_channels = (int32_t)c->channels;
    out->spatial_factor = 1;
    out->scale_num = facts[c->kind].scale;
    out->scale_den = 1;
    out->size_multiple = 1; /* the network pads and crops */
    out->size_min = 1;
}

static dv_value affine(const cfg *c, dv_graph *g, dv_value x, float scale, float shift) {
    const float scales[3] = {scale, scale, scale};
    const float shifts[3] = {shift, shift, shift};
    return c->pro ? dv_affine(g, x, scales, shifts) : x;
}

/* The sum of both networks, conv_final and a shuffle. The picture's nearest neighbour is added. */
static dv_value finish(const cfg *c, dv_graph *g, dv_value sum, dv_value picture) {
    static const dv_conv_opts valid = {.valid = true};
    const dv_value small = c->kind == TIMES_4 ? dv_upsample(g, picture, 2) : picture;
    const dv_shape s = dv_shape_of(g, small);
    const dv_value part = dv_crop(g, sum,
                                  /* the input that conv_final needs for exactly the picture */
                                  (dv_rect){.top = 1, .left = 1, .h = s.h + 2, .w = s.w + 2});
    return dv_pixel_shuffle(g, dv_conv(g, part, "conv_final", 4 * c->channels, 3, &valid), 2, small);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const struct kind_facts *f = &facts[c->kind];
    const int64_t to_h = dv_div_up(h, f->align) * f->align + 2 * f->margin;
    const int64_t to_w = dv_div_up(w, f->align) * f->align + 2 * f->margin;
    const dv_value picture = affine(c, g, dv_input(g, (dv_shape){1, h, w, c->channels}), 0.7f, 0.15f);
    dv_value x = dv_pad(g, picture, (dv_rect){.top = f->margin, .left = f->margin, .h = to_h, .w = to_w},
                        c->edge ? DVK_PAD_EDGE : DVK_PAD_REFLECT);
    x = c->kind == FAST_2 ? dv_pixel_unshuffle(g, x, 2) : x;
    dv_cunet_bottom bottom = f->bottom;
    bottom.channels = bottom.channels > 0 ? bottom.channels : c->channels;
    const dv_value first = dv_cunet_first(g, x, &bottom);
    const dv_value second = dv_cunet_second(g, first, bottom.channels);
    const dv_shape s = dv_shape_of(g, second);
    x = dv_add(g, 1.0f, second, 1.0f,
               dv_crop(g, first, (dv_rect){.top = DV_CUNET_CUT, .left = DV_CUNET_CUT, .h = s.h, .w = s.w}));
    x = c->kind == TIMES_4 || c->kind == FAST_2 ? finish(c, g, x, picture) : x;
    x = affine(c, g, x, 1.0f / 0.7f, -0.15f / 0.7f);
    dv_output(g, dv_crop_to(g, x, h * f->scale, w * f->scale));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_cugan = {
    .name = "cugan",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .range = DAVY_RANGE_UNIT,
};
