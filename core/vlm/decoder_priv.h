/* decoder_priv.h - the inside of a decoder, for its two files. */
#ifndef DV_VLM_DECODER_PRIV_H
#define DV_VLM_DECODER_PRIV_H

#include "core/vlm/decoder.h"

typedef struct dv_decoder_pass {
    dv_program body; /* every layer; of one token: to the logits */
    dv_program head; /* the last row of several to logits */
    dv_prog_item *deep[DV_VLM_MAX_DEEPSTACK];
} dv_decoder_pass;

struct dv_decoder {
    const dv_vlm_config *config;
    const dv_vlm_weights *weights;
    int64_t context, chunk;
    int32_t axes;
    dvk_form cache_form;
    dv_space space;
    float *x, *qkv, *mixed, *hidden, *cs, *logits; /* rows of the chunk */
    void *normed, *mixed_in, *hidden_in;           /* in the form that the next matrix wants */
    int32_t *positions, *deep_rows;
    void *cache; /* [layer][keys, values][kv head][context][head_dim] */
    const float *deep[DV_VLM_MAX_DEEPSTACK];
    dv_decoder_pass step, many; /* one token; a chunk */
};

davy_result dv_decoder_build(dv_decoder *d, dv_decoder_pass *pass, dv_program_desc *desc);
void dv_decoder_point(dv_decoder_pass *pass, const dv_decoder *d); /* to the features of this picture */

#endif
