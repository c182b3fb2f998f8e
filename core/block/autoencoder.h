/* autoencoder.h - code that autoencoders share: facts about them, and the pictures that each half accepts. */
#ifndef DV_BLOCK_AUTOENCODER_H
#define DV_BLOCK_AUTOENCODER_H

#include "core/graph/graph.h"
#include "core/graph/network.h"

typedef struct dv_autoencoder {
    bool encodes, decodes;
    bool moments;   /* the encoder's output is means and variances */
    int64_t z;      /* channels of a latent */
    int64_t factor; /* pixels per latent pixel, along one side */
    /* clips whose first frame has a latent of its own: frames per later latent; 0: other clips, or none */
    int64_t times;
} dv_autoencoder;

/* The end of a variant's text: ", encoder only", ", decoder only" or "". */
const char *dv_autoencoder_part(const dv_autoencoder *a);
/* Implements dv_arch.info, except for the scale of latents. The variant is "<family>, <z> latent channels". */
void dv_autoencoder_info(const dv_autoencoder *a, const char *family, davy_model_info *out);
/* Implements dv_arch.clip for an autoencoder with `times`. */
void dv_autoencoder_clip(const dv_autoencoder *a, dv_stage stage, dv_clip_rule *out);

typedef struct dv_halves { /* both functions end with dv_output */
    void (*encoder)(const void *cfg, dv_graph *g, int64_t h, int64_t w);
    void (*decoder)(const void *cfg, dv_graph *g, int64_t h, int64_t w);
    const dv_autoencoder *facts;
    const void *cfg;
} dv_halves;

/* Implements dv_arch.build. Returns an error if the half is missing or does not accept such pictures. */
davy_result dv_autoencoder_build(const dv_halves *halves, dv_stage stage, int64_t h, int64_t w, dv_graph *g);

/* ---- blocks of latent diffusion ----
 * A name may be a list of alternatives ("a|b"). Each tensor is looked up separately, since some files mix naming
 * schemes. */

typedef struct dv_norm_spec {
    int64_t groups;
    float eps;
} dv_norm_spec;

/* x + conv2(silu(norm2(conv1(silu(norm1 x))))). If the channel count changes, x goes through a 1x1 convolution. */
dv_value dv_resnet_block(dv_graph *g, dv_value x, const char *names, int64_t c_out, dv_norm_spec norm);

/* x + proj(attention(q, k, v of norm x)), one head over all pixels. */
dv_value dv_attention_block(dv_graph *g, dv_value x, const char *names, dv_norm_spec norm);

/* silu(norm x) */
dv_value dv_norm_silu(dv_graph *g, dv_value x, const char *names, dv_norm_spec norm);

#endif
