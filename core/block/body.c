/* body.c - see body.h. */
#include "core/block/body.h"

#include <stdio.h>

#include "core/base/error.h"
#include "core/block/swin.h"
#include "core/block/weights.h"

enum { MIN_SIDE = 16, MIN_MIRRORED = 8 };

/* Stages upsample.0, .2, ...: each computes r x r pixels from one. A network that restores at the input's size has
 * none. */
static davy_result find_stages(const dv_tensors *t, dv_tail *tail) {
    char name[64];
    tail->features = dv_dim(t, "conv_last.weight", 1);
    tail->scale = 1;
    for (int i = 0; i < DV_MAX_STAGES; i++) {
        snprintf(name, sizeof name, "upsample.%d.weight", 2 * i);
        const int64_t outputs = dv_dim(t, name, 0);
        if (outputs == 0) {
            break;
        }
        const int64_t r = tail->features > 0 ? dv_square_root(outputs / tail->features) : 0;
        if (r < 1 || r > 8 || outputs % tail->features != 0) {
            return dv_fail(DAVY_E_SHAPE, "tensor '%s' has %d outputs; expected a square number times %d channels", name,
                           (int)outputs, (int)tail->features);
        }
        tail->factors[tail->stages++] = r;
        tail->scale *= r;
    }
    for (int i = tail->stages; i < DV_MAX_STAGES; i++) {
        snprintf(name, sizeof name, "upsample.%d.weight|upsample.%d.bias", 2 * i, 2 * i);
        if (dv_has(t, name)) {
            return dv_fail(DAVY_E_TENSOR, "tensor 'upsample.%d.weight' is missing", 2 * (int)tail->stages);
        }
    }
    return DAVY_OK;
}

static davy_result find_direct(const dv_tensors *t, int64_t in, dv_tail *tail) {
    const int64_t outputs = dv_dim(t, "upsample.0.weight", 0);
    tail->kind = DV_TAIL_DIRECT;
    if (!dv_scale_and_channels(outputs, in, &tail->scale, &tail->out)) {
        return dv_fail(DAVY_E_SHAPE,
                       "tensor 'upsample.0.weight' has %d outputs; expected a square number times the channels",
                       (int)outputs);
    }
    return DAVY_OK;
}

/* Detects the file's tail; `in`: channels of the picture. */
static davy_result tail_find(const dv_tensors *t, int64_t in, dv_tail *out) {
    static const char *const ups[] = {"conv_up1.weight", "conv_up2.weight", "conv_up3.weight"};
    *out = (dv_tail){.scale = 1};
    davy_result r = DAVY_OK;
    out->out = dv_has(t, "conv_last.weight") ? dv_dim(t, "conv_last.weight", 0) : in;
    if (dv_has(t, "conv_before_upsample.0.weight") && dv_has(t, ups[0])) {
        out->kind = DV_TAIL_NEAREST;
        out->features = dv_dim(t, ups[0], 1);
        for (int i = 0; i < 3 && dv_has(t, ups[i]); i++) {
            out->stages++;
            out->scale *= 2;
        }
    } else if (dv_has(t, "conv_before_upsample.0.weight")) {
        out->kind = DV_TAIL_SHUFFLE;
        r = find_stages(t, out);
    } else if (dv_has(t, "upsample.0.weight") && dv_has(t, "conv_last.weight")) {
        r = dv_fail(DAVY_E_TENSOR, "tensor 'conv_before_upsample.0.weight' is missing");
    } else if (dv_has(t, "upsample.0.weight")) {
        r = find_direct(t, in, out);
    }
    if (r == DAVY_OK && (out->out < 1 || out->out > 4)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "tensor 'conv_last.weight' has %d output channels; 1 to 4 are supported",
                       (int)out->out);
    }
    return r;
}

/* The only slope of 0.01 in these networks: the reference uses its framework's default here. */
static dv_value before_upsample(dv_graph *g, dv_value x, const dv_tail *tail) {
    return dv_activation(g, dv_conv(g, x, "conv_before_upsample.0", tail->features, 3, NULL), DVK_ACT_LRELU, 0.01f);
}

static dv_value tail_build(dv_graph *g, dv_value x, const dv_tail *tail) {
    char name[64];
    if (tail->kind == DV_TAIL_DIRECT) {
        x = dv_conv(g, x, "upsample.0", tail->out * tail->scale * tail->scale, 3, NULL);
        return dv_pixel_shuffle(g, x, tail->scale, DV_NO_VALUE);
    }
    if (tail->kind != DV_TAIL_NONE) {
        x = before_upsample(g, x, tail);
    }
    for (int32_t i = 0; i < tail->stages && tail->kind == DV_TAIL_SHUFFLE; i++) {
        const int64_t r = tail->factors[i];
        snprintf(name, sizeof name, "upsample.%d", 2 * (int)i);
        x = dv_pixel_shuffle(g, dv_conv(g, x, name, tail->features * r * r, 3, NULL), r, DV_NO_VALUE);
    }
    for (int32_t i = 0; i < tail->stages && tail->kind == DV_TAIL_NEAREST; i++) {
        snprintf(name, sizeof name, "conv_up%d", (int)i + 1);
        x = dv_conv(g, dv_upsample(g, x, 2), name, tail->features, 3, NULL);
        x = dv_activation(g, x, DVK_ACT_LRELU, 0.2f);
    }
    if (tail->kind == DV_TAIL_NEAREST) {
        x = dv_activation(g, dv_conv(g, x, "conv_hr", tail->features, 3, NULL), DVK_ACT_LRELU, 0.2f);
    }
    return dv_conv(g, x, "conv_last", tail->out, 3, NULL);
}

static const float rgb_mean[3] = {0.4488f, 0.4371f, 0.4040f};

/* (x - mean) * range, and x / range + mean. The mean is 0 unless the channels are RGB. */
static dv_value take_mean(dv_graph *g, dv_value x, float range, bool rgb) {
    float scale[4];
    float shift[4];
    for (int i = 0; i < 4; i++) {
        scale[i] = range;
        shift[i] = rgb && i < 3 ? -rgb_mean[i] * range : 0.0f;
    }
    return dv_affine(g, x, scale, shift);
}

static dv_value give_mean(dv_graph *g, dv_value x, float range, bool rgb) {
    float scale[4];
    float shift[4];
    for (int i = 0; i < 4; i++) {
        scale[i] = 1.0f / range;
        shift[i] = rgb && i < 3 ? rgb_mean[i] : 0.0f;
    }
    return dv_affine(g, x, scale, shift);
}

dv_value dv_residual_conv(dv_graph *g, dv_value x, const char *name) {
    char part[DV_NAMES_BYTES];
    const int64_t channels = dv_shape_of(g, x).c;
    if (dv_has(g->weights, dv_names_join(part, name, ".weight"))) {
        return dv_conv(g, x, name, channels, 3, NULL);
    }
    const int64_t narrow = channels / 4;
    x = dv_conv(g, x, dv_names_join(part, name, ".0"), narrow, 3, NULL);
    x = dv_conv(g, dv_activation(g, x, DVK_ACT_LRELU, 0.2f), dv_names_join(part, name, ".2"), narrow, 1, NULL);
    return dv_conv(g, dv_activation(g, x, DVK_ACT_LRELU, 0.2f), dv_names_join(part, name, ".4"), channels, 3, NULL);
}

/* Pads to at least 16 pixels a side, as the reference does, then to multiples; by reflection, at the bottom and
 * right. */
static dv_value pad_picture(dv_graph *g, dv_value x, int64_t multiple) {
    const dv_shape s = dv_shape_of(g, x);
    const int64_t h = dv_max(s.h, MIN_SIDE);
    const int64_t w = dv_max(s.w, MIN_SIDE);
    x = dv_pad_to(g, x, h, w, DVK_PAD_REFLECT);
    return dv_pad_to(g, x, dv_div_up(h, multiple) * multiple, dv_div_up(w, multiple) * multiple, DVK_PAD_REFLECT);
}

/* Adds `by` rows at the bottom, or columns at the right: the last one repeated, then a reflection. */
static dv_value mirror(dv_graph *g, dv_value x, int64_t by, bool rows) {
    const dv_shape s = dv_shape_of(g, x);
    const int64_t down = rows ? 1 : 0;
    const int64_t right = rows ? 0 : 1;
    const int64_t h = s.h + down * by;
    const int64_t w = s.w + right * by;
    const dv_value once = dv_pad_to(g, x, s.h + down, s.w + right, DVK_PAD_EDGE);
    if (by == 1) {
        return once;
    }
    const dv_value reflected = dv_pad_to(g, x, h - down, w - right, DVK_PAD_REFLECT);
    const dv_value rest = rows ? dv_crop(g, reflected, (dv_rect){.top = s.h, .left = 0, .h = by - 1, .w = s.w})
                               : dv_crop(g, reflected, (dv_rect){.top = 0, .left = s.w, .h = s.h, .w = by - 1});
    const dv_value behind =
        dv_pad(g, rest, (dv_rect){.top = rows ? s.h + 1 : 0, .left = rows ? 0 : s.w + 1, .h = h, .w = w}, DVK_PAD_ZERO);
    return dv_add(g, 1.0f, dv_pad_to(g, once, h, w, DVK_PAD_ZERO), 1.0f, behind);
}

/* The same with mirror images that begin with the last pixel; at least 8 pixels a side. */
static dv_value mirror_picture(dv_graph *g, dv_value x, int64_t multiple) {
    const dv_shape s = dv_shape_of(g, x);
    x = dv_pad_to(g, x, dv_max(s.h, MIN_MIRRORED), dv_max(s.w, MIN_MIRRORED), DVK_PAD_REFLECT);
    const dv_shape least = dv_shape_of(g, x);
    const int64_t down = dv_div_up(least.h, multiple) * multiple - least.h;
    const int64_t right = dv_div_up(least.w, multiple) * multiple - least.w;
    x = down > 0 ? mirror(g, x, down, true) : x;
    return right > 0 ? mirror(g, x, right, false) : x;
}

/* ---- the whole network ---- */

#define FIRST "conv_first.weight|conv_first.1.weight"

enum { MAX_DEPTH = 64, MAX_UNSHUFFLE = 8 };

static davy_result refuse(const dv_tensors *t, const char *family, const dv_body *body) {
    if (body->in < 1 || body->in > 4 || body->unshuffle < 1 || body->unshuffle > MAX_UNSHUFFLE) {
        return dv_fail(
            DAVY_E_UNSUPPORTED,
            "the %s network has %d input channels; 1 to 4 are supported, or 3 times a square if it unshuffles", family,
            (int)dv_dim(t, FIRST, 1));
    }
    if (body->groups < 1 || body->groups > DV_MAX_GROUPS) {
        return dv_fail(DAVY_E_UNSUPPORTED, "the %s network has %d groups; 1 to 32 are supported", family,
                       (int)body->groups);
    }
    if (dv_has(t, "absolute_pos_embed")) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the %s network has absolute positions, which fit a single picture size and are not supported",
                       family);
    }
    return DAVY_OK;
}

davy_result dv_body_find(const dv_tensors *t, const char *family, dv_body *out) {
    const bool unshuffled = dv_has(t, "conv_first.1.weight");
    const int64_t channels = dv_dim(t, FIRST, 1);
    *out = (dv_body){.in = unshuffled ? 3 : channels,
                     .features = dv_dim(t, FIRST, 0),
                     .unshuffle = !unshuffled         ? 1
                                  : channels % 3 == 0 ? dv_square_root(channels / 3)
                                                      : 0,
                     .groups = dv_sequence_length(t, "layers"),
                     .multiple = 1,
                     .range = 1.0f};
    davy_result r = refuse(t, family, out);
    r = r < 0 ? r : tail_find(t, out->in, &out->tail);
    if (r == DAVY_OK && out->tail.scale % out->unshuffle != 0) {
        r = dv_fail(DAVY_E_UNSUPPORTED, "the %s network makes pictures smaller, which is not supported", family);
    }
    out->scale = r == DAVY_OK ? out->tail.scale / out->unshuffle : 0;
    return r;
}

davy_result dv_body_groups(const dv_tensors *t, const char *family, const dv_group_names *names, dv_body *body) {
    char name[128];
    for (int64_t i = 0; i < body->groups; i++) {
        snprintf(name, sizeof name, "layers.%d%s", (int)i, names->blocks);
        const int64_t depth = dv_sequence_length(t, name);
        snprintf(name, sizeof name, "layers.%d%s", (int)i, names->heads);
        const int64_t heads = dv_min(dv_dim(t, name, names->axis), INT32_MAX) * names->share;
        if (depth < 1 || depth > MAX_DEPTH || heads < 1 || heads > UINT8_MAX) {
            return dv_fail(DAVY_E_UNSUPPORTED,
                           "group %d of the %s network has %d blocks of %lld heads; 1 to 64 blocks of 1 to 255 heads "
                           "are supported",
                           (int)i, family, (int)depth, (long long)heads);
        }
        body->depth[i] = (uint8_t)depth;
        body->heads[i] = (uint8_t)heads;
    }
    return DAVY_OK;
}

void dv_body_info(const dv_body *body, davy_model_info *out) {
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)body->in;
    out->out_channels = (int32_t)body->tail.out;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)body->scale;
    out->scale_den = 1;
    out->size_multiple = 1; /* the network pads and crops */
    out->size_min = 1;
}

bool dv_body_wide(const void *cfg) {
    (void)cfg;
    return true;
}

/* x + conv(norm(groups(norm x))) */
static dv_value add_groups(const dv_groups *groups, dv_graph *g, dv_value first) {
    static const char norm[] = "patch_embed.norm|before_RG.1";
    char weight[DV_NAMES_BYTES];
    dv_value x = first;
    if (dv_has(g->weights, dv_names_join(weight, norm, ".weight"))) {
        x = dv_layer_norm(g, x, norm, DV_SWIN_EPS);
    }
    for (int64_t i = 0; i < groups->body->groups; i++) {
        x = groups->group(groups->cfg, g, x, i);
    }
    x = dv_residual_conv(g, dv_layer_norm(g, x, "norm", DV_SWIN_EPS), "conv_after_body");
    return dv_add(g, 1.0f, x, 1.0f, first);
}

davy_result dv_body_build(const dv_groups *groups, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const dv_body *body = groups->body;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const bool rgb = body->in == 3 && body->tail.out == 3 && !body->plain;
    const dv_value input = dv_input(g, (dv_shape){1, h, w, body->in});
    const dv_value picture =
        body->mirrored ? mirror_picture(g, input, body->multiple) : pad_picture(g, input, body->multiple);
    const dv_value normal = take_mean(g, picture, body->range, rgb);
    const dv_value small = body->unshuffle > 1 ? dv_pixel_unshuffle(g, normal, body->unshuffle) : normal;
    dv_value x = dv_conv(g, small, "conv_first|conv_first.1", body->features, 3, NULL);
    x = tail_build(g, add_groups(groups, g, x), &body->tail);
    if (body->tail.kind == DV_TAIL_NONE) {
        x = dv_add(g, 1.0f, x, 1.0f, normal);
    }
    x = give_mean(g, x, body->range, rgb);
    dv_output(g, dv_crop_to(g, x, h * body->scale, w * body->scale));
    return dv_graph_check(g);
}
