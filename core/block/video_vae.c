/* video_vae.c - see video_vae.h. */
#include "core/block/video_vae.h"

#include <stdio.h>

#include "core/error.h"

void dv_video_vae_info(const dv_video_vae *v, const char *family, davy_model_info *out) {
    const char *part = v->encodes && v->decodes ? "" : v->encodes ? ", encoder only" : ", decoder only";
    snprintf(out->variant, sizeof out->variant, "%s, %d latent channels%s", family, (int)v->z, part);
    out->features =
        (v->encodes ? DAVY_MODEL_ENCODES | DAVY_MODEL_MOMENTS : 0u) | (v->decodes ? DAVY_MODEL_DECODES : 0u);
    out->in_channels = 3;
    out->out_channels = 3;
    out->latent_channels = (int32_t)v->z;
    out->spatial_factor = (int32_t)v->factor;
    out->scale_num = 1;
    out->scale_den = 1;
    out->size_multiple = out->spatial_factor;
    out->size_min = out->spatial_factor;
}

void dv_video_vae_clip(const dv_video_vae *v, dv_stage stage, dv_clip_rule *out) {
    const bool encoder = stage == DV_STAGE_ENCODE;
    *out =
        (dv_clip_rule){.first = 1, .step = encoder ? v->times : 1, .first_out = 1, .step_out = encoder ? 1 : v->times};
}

davy_result dv_video_vae_check(const dv_video_vae *v, const dv_graph *g, dv_stage stage, int64_t h, int64_t w) {
    const bool encoder = stage == DV_STAGE_ENCODE;
    if (stage == DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights encode or decode; they do not upscale");
    }
    if (!(encoder ? v->encodes : v->decodes)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights hold only the %s", encoder ? "decoder" : "encoder");
    }
    if (encoder && (h % v->factor != 0 || w % v->factor != 0)) {
        return dv_fail(DAVY_E_SHAPE, "a picture of %d x %d pixels cannot be encoded: sides must be multiples of %d",
                       (int)w, (int)h, (int)v->factor);
    }
    if (encoder && (g->pictures - (g->continues ? 0 : 1)) % v->times != 0) {
        return dv_fail(DAVY_E_SHAPE, "%d frames cannot be encoded: a clip has 1 frame, then %d for every other latent",
                       (int)g->pictures, (int)v->times);
    }
    return DAVY_OK;
}
