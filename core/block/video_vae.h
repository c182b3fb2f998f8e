/* video_vae.h - what the autoencoders of clips have in common whose first frame makes a latent of its own and every `times`
 * frames after it another: SeedVR2, Wan. */
#ifndef DV_BLOCK_VIDEO_VAE_H
#define DV_BLOCK_VIDEO_VAE_H

#include "core/arch.h"

typedef struct dv_video_vae {
    bool encodes, decodes;
    int64_t z;      /* channels of a latent */
    int64_t factor; /* pixels of a side to one of a latent's */
    int64_t times;  /* frames to a latent, but for the first */
} dv_video_vae;

void dv_video_vae_info(const dv_video_vae *v, const char *family, davy_model_info *out);
void dv_video_vae_clip(const dv_video_vae *v, dv_stage stage, dv_clip_rule *out);
/* Whether a stage of these weights takes the graph's pictures, of h x w. */
davy_result dv_video_vae_check(const dv_video_vae *v, const dv_graph *g, dv_stage stage, int64_t h, int64_t w);

#endif
