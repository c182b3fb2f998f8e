/* resnet.h - the pieces convolutional autoencoders of the latent-diffusion kind are made of. Every name may be a list
 * of alternatives ("a|b"); each tensor is looked up on its own, since files with mixed names exist. */
#ifndef DV_BLOCK_RESNET_H
#define DV_BLOCK_RESNET_H

#include "core/graph/graph.h"

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
