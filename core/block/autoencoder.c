/* autoencoder.c - see autoencoder.h. */
#include "core/block/autoencoder.h"

#include <stdio.h>

#include "core/base/error.h"

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
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights hold only the %s; the %s would be in another file",
                       encoder ? "decoder" : "encoder", encoder ? "encoder" : "decoder");
    }
    if (encoder && (h % a->factor != 0 || w % a->factor != 0)) {
        return dv_fail(DAVY_E_SHAPE, "a picture of %d x %d pixels cannot be encoded: sides must be multiples of %d",
                       (int)w, (int)h, (int)a->factor);
    }
    if (encoder && a->times > 0 && (g->pictures - (g->continues ? 0 : 1)) % a->times != 0) {
        return dv_fail(DAVY_E_SHAPE, "%d frames cannot be encoded: a clip has 1 frame, then %d for every other latent",
                       (int)g->pictures, (int)a->times);
    }
    return DAVY_OK;
}

davy_result dv_autoencoder_build(const dv_autoencoder *a, dv_stage stage, int64_t h, int64_t w, dv_graph *g,
                                 const dv_halves *halves, const void *cfg) {
    const davy_result r = check(a, g, stage, h, w);
    if (r != DAVY_OK) {
        return r;
    }
    (stage == DV_STAGE_ENCODE ? halves->encoder : halves->decoder)(cfg, g, h, w);
    return dv_graph_check(g);
}
