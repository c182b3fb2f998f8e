/* decoder.h - the language model: a cache of keys and values of a fixed length, and the passes that fill it. What it needs
 * of memory is taken once, when it is opened; a token allocates nothing. */
#ifndef DV_VLM_DECODER_H
#define DV_VLM_DECODER_H

#include "core/vlm/program.h"

typedef struct dv_decoder dv_decoder;

typedef struct dv_decoder_desc {
    const dv_vlm_config *config;
    const dv_vlm_weights *weights;
    dv_heap *heap;
    dv_pool *pool;
    uint32_t cpu;
    dvk_dtype compute; /* DVK_F32: everything in f32; DVK_BF16: whatever is fast, keys and values in f16 */
    int64_t context;   /* positions of the cache */
    int64_t chunk;     /* tokens of a pass over a prompt; 0: 256 */
} dv_decoder_desc;

davy_result dv_decoder_open(const dv_decoder_desc *desc, dv_decoder **out);
void dv_decoder_release(dv_decoder *d);
uint64_t dv_decoder_bytes(const dv_decoder *d); /* of the cache and the activations */

/* Tokens that go behind `past` others: their ids, or, where `vectors` has a row for a token, that row. deep: what is
 * added to such tokens behind layer k. */
typedef struct dv_decoder_input {
    const int32_t *ids;       /* [n] */
    const int32_t *vector;    /* [n] index of a token's row in vectors, -1: it is a word; NULL: all are words */
    const float *vectors;     /* [..][hidden] */
    const float *const *deep; /* [n_deepstack] of [..][hidden], rows as in vectors; NULL: none */
    const int32_t *positions; /* [n][axes] */
    int64_t n, past;
    int32_t (*cancel)(
        void *
            user); /* asked between two passes and between a long one's layers; NULL: never. Other than 0: DAVY_E_CANCELLED */
    void *user;
} dv_decoder_input;

/* past + n is at most the context. *logits (may be NULL: not wanted) are those after the last token, [vocab]; they stay
 * until the next call. *fed: how many tokens the cache holds more, also where it was cancelled. */
davy_result dv_decoder_feed(dv_decoder *d, const dv_decoder_input *in, const float **logits, int64_t *fed);

#endif
