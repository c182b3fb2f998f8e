/* autoencoder.h - what autoencoders have in common: facts, and which pictures their two halves take. */
#ifndef DV_BLOCK_AUTOENCODER_H
#define DV_BLOCK_AUTOENCODER_H

#include "core/graph/network.h"

typedef struct dv_autoencoder {
    bool encodes, decodes;
    bool moments;   /* encodes to means and variances */
    int64_t z;      /* channels of a latent */
    int64_t factor; /* pixels of a side to one of a latent's */
    int64_t times;  /* of clips whose first frame makes a latent of its own: frames to every other latent; 0: not so */
} dv_autoencoder;

/* What a variant ends with: whether one half is missing. */
const char *dv_autoencoder_part(const dv_autoencoder *a);
/* dv_arch.info but for the scale of latents; the variant is "<family>, <z> latent channels". */
void dv_autoencoder_info(const dv_autoencoder *a, const char *family, davy_model_info *out);
/* dv_arch.clip of one with times. */
void dv_autoencoder_clip(const dv_autoencoder *a, dv_stage stage, dv_clip_rule *out);

typedef struct dv_halves { /* each ends with dv_output */
    void (*encoder)(const void *cfg, dv_graph *g, int64_t h, int64_t w);
    void (*decoder)(const void *cfg, dv_graph *g, int64_t h, int64_t w);
} dv_halves;

/* dv_arch.build: refuses a half that is not there and pictures that it does not take. */
davy_result dv_autoencoder_build(const dv_autoencoder *a, dv_stage stage, int64_t h, int64_t w, dv_graph *g,
                                 const dv_halves *halves, const void *cfg);

#endif
