/* autoencoder.c - see autoencoder.h. */
#include "core/block/autoencoder.h"

#include <math.h>
#include <stdio.h>

#include "core/base/error.h"
#include "core/block/weights.h"

const char *dv_autoencoder_part(const dv_autoencoder *a) {
    return a->encodes && a->decodes ? "" : a->encodes ? ", encoder only" : ", decoder only";
}

void dv_autoencoder_info(const dv_autoencoder *a, const char *family, davy_model_info *out) {
    snprintf(out->variant, sizeof out->variant, "%s, %d latent channels%s", family, (int)a->z, dv_autoencoder_part(a));
    out->features = (a->encodes ? DAVY_MODEL_ENCODES : 0u) | (a->encodes && a->moments ? DAVY_MODEL_MOMENTS : 0u) |
                    (a->decodes ? DAVY_MODEL_DECODES : 0u);
    out->in_channels = 3;
    out->out_channels = 3;
    out->latent_channels = (int32_t)a->z;
    out->spatial_factor = (int32_t)a->factor;
    out->scale_num = 1;
    out->scale_den = 1;
    out->size_multiple = out->spatial_factor;
    out->size_min = out->spatial_factor;
}

void dv_autoencoder_clip(const dv_autoencoder *a, dv_stage stage, dv_clip_rule *out) {
    const bool encoder = stage == DV_STAGE_ENCODE;
    *out =
        (dv_clip_rule){.first = 1, .step = encoder ? a->times : 1, .first_out = 1, .step_out = encoder ? 1 : a->times};
}

static davy_result check(const dv_autoencoder *a, const dv_graph *g, dv_stage stage, int64_t h, int64_t w) {
    const bool encoder = stage == DV_STAGE_ENCODE;
    if (stage == DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights encode or decode; they do not upscale");
    }
    if (!(encoder ? a->encodes : a->decodes)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights hold only the %s; use a file with the %s",
                       encoder ? "decoder" : "encoder", encoder ? "encoder" : "decoder");
    }
    if (encoder && (h % a->factor != 0 || w % a->factor != 0)) {
        return dv_fail(DAVY_E_SHAPE, "a picture of %d x %d pixels cannot be encoded: sides must be multiples of %d",
                       (int)w, (int)h, (int)a->factor);
    }
    if (encoder && a->times > 0 && (g->pictures - (g->continues ? 0 : 1)) % a->times != 0) {
        return dv_fail(DAVY_E_SHAPE,
                       "%d frames cannot be encoded: a clip has 1 frame for its first latent and %d for each later one",
                       (int)g->pictures, (int)a->times);
    }
    return DAVY_OK;
}

davy_result dv_autoencoder_build(const dv_halves *halves, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const davy_result r = check(halves->facts, g, stage, h, w);
    if (r < 0) {
        return r;
    }
    (stage == DV_STAGE_ENCODE ? halves->encoder : halves->decoder)(halves->cfg, g, h, w);
    return dv_graph_check(g);
}

/* ---- blocks of latent diffusion ---- */

dv_value dv_norm_silu(dv_graph *g, dv_value x, const char *names, dv_norm_spec norm) {
    return dv_activation(g, dv_group_norm(g, x, names, norm.groups, norm.eps), DVK_ACT_SILU, 0.0f);
}

dv_value dv_resnet_block(dv_graph *g, dv_value x, const char *names, int64_t c_out, dv_norm_spec norm) {
    char name[DV_NAMES_BYTES];
    dv_value skip = x;
    if (dv_shape_of(g, x).c != c_out) {
        skip = dv_conv(g, x, dv_names_join(name, names, ".nin_shortcut|.conv_shortcut"), c_out, 1, NULL);
    }
    dv_value y = dv_norm_silu(g, x, dv_names_join(name, names, ".norm1"), norm);
    y = dv_conv(g, y, dv_names_join(name, names, ".conv1"), c_out, 3, NULL);
    y = dv_norm_silu(g, y, dv_names_join(name, names, ".norm2"), norm);
    y = dv_conv(g, y, dv_names_join(name, names, ".conv2"), c_out, 3, NULL);
    return dv_add(g, 1.0f, y, 1.0f, skip);
}

dv_value dv_attention_block(dv_graph *g, dv_value x, const char *names, dv_norm_spec norm) {
    char name[DV_NAMES_BYTES];
    const int64_t c = dv_shape_of(g, x).c;
    const dv_value n = dv_group_norm(g, x, dv_names_join(name, names, ".norm|.group_norm"), norm.groups, norm.eps);
    const dv_value q = dv_conv(g, n, dv_names_join(name, names, ".q|.to_q|.query"), c, 1, NULL);
    const dv_value k = dv_conv(g, n, dv_names_join(name, names, ".k|.to_k|.key"), c, 1, NULL);
    const dv_value v = dv_conv(g, n, dv_names_join(name, names, ".v|.to_v|.value"), c, 1, NULL);
    const dv_value a = dv_attention(g, q, k, v, 1, 1.0f / sqrtf((float)dv_max(c, 1)));
    const dv_value y = dv_conv(g, a, dv_names_join(name, names, ".proj_out|.to_out.0|.proj_attn"), c, 1, NULL);
    return dv_add(g, 1.0f, y, 1.0f, x);
}
