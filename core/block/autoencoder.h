/* autoencoder.h - what autoencoders have in common: facts, and which pictures their two halves take. */
#ifndef DV_BLOCK_AUTOENCODER_H
#define DV_BLOCK_AUTOENCODER_H

#include "core/graph/graph.h"
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
    const dv_autoencoder *facts;
    const void *cfg;
} dv_halves;

/* dv_arch.build: refuses a half that is not there and pictures that it does not take. */
davy_result dv_autoencoder_build(const dv_halves *halves, dv_stage stage, int64_t h, int64_t w, dv_graph *g);

/* ---- blocks of latent diffusion. A name may be a list of alternatives ("a|b"); each tensor is looked up on its own, as
 * files with mixed names exist ---- */

typedef struct dv_norm_spec {
    int64_t groups;
    float eps;
} dv_norm_spec;

/* x + conv2(silu(norm2(conv1(silu(norm1 x))))), with a 1x1 convolution on x where the channel count changes. */
dv_value dv_resnet_block(dv_graph *g, dv_value x, const char *names, int64_t c_out, dv_norm_spec norm);

/* x + proj(attention(q, k, v of norm x)), one head over all pixels. */
dv_value dv_attention_block(dv_graph *g, dv_value x, const char *names, dv_norm_spec norm);

/* silu(norm x) */
dv_value dv_norm_silu(dv_graph *g, dv_value x, const char *names, dv_norm_spec norm);

#endif
