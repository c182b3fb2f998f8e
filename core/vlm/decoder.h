/* decoder.h - the language model: a cache of keys and values of a fixed length, and the passes that fill it. What it needs
 * of memory is taken once, when it is opened; a token allocates nothing. */
#ifndef DV_VLM_DECODER_H
#define DV_VLM_DECODER_H

#include "core/vlm/row_program.h"

typedef struct dv_decoder dv_decoder;

typedef struct dv_decoder_desc {
    const dv_vlm_config *config;
    const dv_vlm_weights *weights;
    dv_heap *heap;
    dv_pool *pool;
    dv_gpu *gpu; /* NULL: the CPU */
    uint32_t cpu;
    dvk_dtype compute; /* DVK_F32: everything in f32; else whatever is fast, keys and values in f16 */
    int64_t context;   /* positions of the cache */
    int64_t chunk;     /* tokens of a pass over a prompt; 0: 256, on a GPU 1024 */
    /* For rows of several sequences, below: */
    int64_t few;       /* tokens of dv_decoder_few at most: up to DVK_FEW, on a GPU DVK_PAGE. 0: it is not called */
    int64_t sequences; /* that share the cache, in pages of DVK_PAGE; 0: one, without pages */
    int64_t pages;     /* of all of them together; context is then what one may have at most */
} dv_decoder_desc;

davy_result dv_decoder_open(const dv_decoder_desc *desc, dv_decoder **out);
void dv_decoder_release(dv_decoder *d);
uint64_t dv_decoder_bytes(const dv_decoder *d); /* of the cache and the activations */

/* Tokens that go behind `past` others: their ids, or, where `vectors` has a row for a token, that row. deep: what is
 * added to such tokens behind layer k. */
typedef struct dv_decoder_input {
    const int32_t *ids;       /* [n] */
    const int32_t *vector;    /* [n] index of a token's row in vectors, -1: it is a word; NULL: all are words */
    const float *vectors;     /* [..][hidden]; on a GPU in its memory, as deep */
    const float *const *deep; /* [n_deepstack] of [..][hidden], rows as in vectors; NULL: none */
    const int32_t *positions; /* [n][axes] */
    int64_t n, past;
    int64_t sequence; /* where several share the cache; its pages are there (below) */
    int32_t (*cancel)(
        void *
            user); /* asked between two passes and between a long one's layers; NULL: never. Other than 0: DAVY_E_CANCELLED */
    void *user;
} dv_decoder_input;

/* past + n is at most the context. *logits (may be NULL: not wanted) are those after the last token, [vocab]; they stay
 * until the next call. *fed: how many tokens the cache holds more, also where it was cancelled. */
davy_result dv_decoder_feed(dv_decoder *d, const dv_decoder_input *in, const float **logits, int64_t *fed);

/* On a GPU (of a model without softcap): the token goes into the cache, and *next is the id of the largest logit behind it,
 * of equals the lowest. Logits stay on the device. The token after it is begun before anybody asks for it: it costs
 * nothing where it is the one that comes next. */
typedef struct dv_decoder_token {
    int32_t id, position; /* position: on all axes */
    int64_t past;
    const int32_t *never; /* ids that are not taken, at most DV_DECODER_NEVER */
    int64_t n_never;
} dv_decoder_token;
enum { DV_DECODER_NEVER = 3 };
bool dv_decoder_draws(const dv_decoder *d);
davy_result dv_decoder_next(dv_decoder *d, const dv_decoder_token *token, int32_t *next);

/* On a GPU that has a kernel for it: the token goes into the cache, and *best are the largest logits behind it, at least
 * DV_DECODER_CANDIDATES unless the vocabulary is smaller. Where they do not do, dv_decoder_rest has all of them. */
enum { DV_DECODER_CANDIDATES = 64 };
bool dv_decoder_gives_best(const dv_decoder *d);
davy_result dv_decoder_best(dv_decoder *d, const dv_decoder_token *token, const dvk_candidates **best);
davy_result dv_decoder_rest(dv_decoder *d, const float **logits);

/* ---- a few tokens in one pass over the weights: one of each of several sequences, whose caches share a store
 * of pages, or some of one sequence that are only supposed. On the CPU each token's logits have the bits that
 * dv_decoder_feed gives for it alone. On a GPU they are those of a pass of as many rows as the decoder was opened for,
 * whoever else is in it. Of a decoder that was opened for it. ---- */

typedef struct dv_decoder_rows {
    const int32_t *ids;       /* [n] words */
    const int32_t *sequence;  /* [n]; NULL: the only one */
    const int32_t *place;     /* [n] in its sequence; those of one sequence lie one behind the other, rising */
    const int32_t *positions; /* [n][axes] */
    int64_t n;
    const int32_t *never; /* on a GPU: ids that are not drawn, DV_DECODER_NEVER at most */
    int64_t n_never;
} dv_decoder_rows;

int64_t dv_decoder_few_rows(const dv_decoder *d); /* n at most; 0: there is no such pass */
int64_t dv_decoder_chunk(const dv_decoder *d);    /* tokens of a prompt in a pass */
/* *logits: [n][vocab], until the next call; on a GPU NULL. What the cache held at these places, and on a GPU, without pages,
 * behind them, is gone. */
davy_result dv_decoder_few(dv_decoder *d, const dv_decoder_rows *in, const float **logits);
/* On a GPU, of the last pass: the ids of the largest logits [n], as of dv_decoder_next, but where there is none one that
 * dv_decoder_drawn fails for; and the logits of a row. Both until the next call. */
davy_result dv_decoder_few_ids(dv_decoder *d, const int32_t **ids);
davy_result dv_decoder_drawn(int32_t id);
davy_result dv_decoder_few_logits(dv_decoder *d, int64_t row, const float **logits);

/* The pages of a sequence, [pages of the longest]: the caller fills it in before tokens go there. */
int32_t *dv_decoder_table(dv_decoder *d, int64_t sequence);

#endif
