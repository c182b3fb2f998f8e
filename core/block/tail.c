/* tail.c - see tail.h. */
#include "core/block/tail.h"

#include <stdio.h>

#include "core/block/weights.h"
#include "core/base/error.h"

enum { MIN_SIDE = 16, MIN_MIRRORED = 8 };

/* Stages upsample.0, .2, ...: each makes r x r pixels of one. A network that restores at one size has none. */
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
            return dv_fail(DAVY_E_SHAPE, "tensor '%s' has %d outputs, which is no square times %d channels", name,
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
                       "tensor 'upsample.0.weight' has %d outputs, which is no square times a channel count",
                       (int)outputs);
    }
    return DAVY_OK;
}

davy_result dv_tail_find(const dv_tensors *t, int64_t in, dv_tail *out) {
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
        return dv_fail(DAVY_E_UNSUPPORTED, "tensor 'conv_last.weight' gives pictures of %d channels", (int)out->out);
    }
    return r;
}

/* The one slope of 0.01 in these networks: the reference leaves it at its framework's default. */
static dv_value before_upsample(dv_graph *g, dv_value x, const dv_tail *tail) {
    return dv_activation(g, dv_conv(g, x, "conv_before_upsample.0", tail->features, 3, NULL), DVK_ACT_LRELU, 0.01f);
}

dv_value dv_tail_build(dv_graph *g, dv_value x, const dv_tail *tail) {
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

dv_value dv_take_mean(dv_graph *g, dv_value x, float range, bool rgb) {
    float scale[4];
    float shift[4];
    for (int i = 0; i < 4; i++) {
        scale[i] = range;
        shift[i] = rgb && i < 3 ? -rgb_mean[i] * range : 0.0f;
    }
    return dv_affine(g, x, scale, shift);
}

dv_value dv_give_mean(dv_graph *g, dv_value x, float range, bool rgb) {
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

dv_value dv_pad_picture(dv_graph *g, dv_value x, int64_t multiple) {
    const dv_shape s = dv_shape_of(g, x);
    const int64_t h = dv_max(s.h, MIN_SIDE);
    const int64_t w = dv_max(s.w, MIN_SIDE);
    x = dv_pad_to(g, x, h, w, DVK_PAD_REFLECT);
    return dv_pad_to(g, x, dv_div_up(h, multiple) * multiple, dv_div_up(w, multiple) * multiple, DVK_PAD_REFLECT);
}

/* `by` more rows below, or columns at the right: the last one once more, then those that a reflection gives. */
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
    const dv_value rest =
        rows ? dv_crop(g, reflected, s.h, 0, by - 1, s.w) : dv_crop(g, reflected, 0, s.w, s.h, by - 1);
    const dv_value behind = dv_pad(g, rest, rows ? s.h + 1 : 0, rows ? 0 : s.w + 1, h, w, DVK_PAD_ZERO);
    return dv_add(g, 1.0f, dv_pad_to(g, once, h, w, DVK_PAD_ZERO), 1.0f, behind);
}

dv_value dv_mirror_picture(dv_graph *g, dv_value x, int64_t multiple) {
    const dv_shape s = dv_shape_of(g, x);
    x = dv_pad_to(g, x, dv_max(s.h, MIN_MIRRORED), dv_max(s.w, MIN_MIRRORED), DVK_PAD_REFLECT);
    const dv_shape least = dv_shape_of(g, x);
    const int64_t down = dv_div_up(least.h, multiple) * multiple - least.h;
    const int64_t right = dv_div_up(least.w, multiple) * multiple - least.w;
    x = down > 0 ? mirror(g, x, down, true) : x;
    return right > 0 ? mirror(g, x, right, false) : x;
}
