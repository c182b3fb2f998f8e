/* body.c - see body.h. */
#include "core/block/body.h"

#include <stdio.h>

#include "core/block/swin.h"
#include "core/block/weights.h"
#include "core/base/error.h"

#define FIRST "conv_first.weight|conv_first.1.weight"

enum { MAX_DEPTH = 64, MAX_UNSHUFFLE = 8 };

static davy_result refuse(const dv_tensors *t, const char *family, const dv_body *body) {
    if (body->in < 1 || body->in > 4 || body->unshuffle < 1 || body->unshuffle > MAX_UNSHUFFLE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a %s network with %d input channels", family, (int)dv_dim(t, FIRST, 1));
    }
    if (body->groups < 1 || body->groups > DV_MAX_GROUPS) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a %s network of %d groups", family, (int)body->groups);
    }
    if (dv_has(t, "absolute_pos_embed")) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a %s network with absolute positions, which fit one size only", family);
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
    r = r == DAVY_OK ? dv_tail_find(t, out->in, &out->tail) : r;
    if (r == DAVY_OK && out->tail.scale % out->unshuffle != 0) {
        r = dv_fail(DAVY_E_UNSUPPORTED, "a %s network that makes pictures smaller", family);
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
            return dv_fail(DAVY_E_UNSUPPORTED, "group %d of a %s network has %d blocks of %lld heads", (int)i, family,
                           (int)depth, (long long)heads);
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
    out->size_multiple = 1; /* the network pads and crops itself */
    out->size_min = 1;
}

bool dv_body_wide(const void *cfg) {
    (void)cfg;
    return true;
}

/* x + conv(norm(groups(norm x))) */
static dv_value add_groups(const dv_body *body, dv_graph *g, dv_value first, dv_group_fn group, const void *cfg) {
    static const char norm[] = "patch_embed.norm|before_RG.1";
    char weight[DV_NAMES_BYTES];
    dv_value x = first;
    if (dv_has(g->weights, dv_names_join(weight, norm, ".weight"))) {
        x = dv_layer_norm(g, x, norm, DV_SWIN_EPS);
    }
    for (int64_t i = 0; i < body->groups; i++) {
        x = group(cfg, g, x, i);
    }
    x = dv_residual_conv(g, dv_layer_norm(g, x, "norm", DV_SWIN_EPS), "conv_after_body");
    return dv_add(g, 1.0f, x, 1.0f, first);
}

davy_result dv_body_build(const dv_body *body, dv_stage stage, int64_t h, int64_t w, dv_graph *g, dv_group_fn group,
                          const void *cfg) {
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const bool rgb = body->in == 3 && body->tail.out == 3 && !body->plain;
    const dv_value input = dv_input(g, (dv_shape){1, h, w, body->in});
    const dv_value picture =
        body->mirrored ? dv_mirror_picture(g, input, body->multiple) : dv_pad_picture(g, input, body->multiple);
    const dv_value normal = dv_take_mean(g, picture, body->range, rgb);
    const dv_value small = body->unshuffle > 1 ? dv_pixel_unshuffle(g, normal, body->unshuffle) : normal;
    dv_value x = dv_conv(g, small, "conv_first|conv_first.1", body->features, 3, NULL);
    x = dv_tail_build(g, add_groups(body, g, x, group, cfg), &body->tail);
    if (body->tail.kind == DV_TAIL_NONE) {
        x = dv_add(g, 1.0f, x, 1.0f, normal);
    }
    x = dv_give_mean(g, x, body->range, rgb);
    dv_output(g, dv_crop_to(g, x, h * body->scale, w * body->scale));
    return dv_graph_check(g);
}
