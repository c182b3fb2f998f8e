/* decoder.h - the language model: a KV cache of fixed length, and the passes that fill it. Opening allocates all memory; a
 * token allocates nothing. */
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
    dvk_dtype compute; /* DVK_F32: everything in f32; else the fastest type, with keys and values in f16 */
    int64_t context;   /* positions in the cache */
    int64_t chunk;     /* prompt tokens per pass; 0: 256, on a GPU 1024 */
    /* For dv_decoder_few and several sequences: */
    int64_t few;       /* most tokens of dv_decoder_few: up to DVK_FEW, on a GPU DVK_PAGE; 0: it is not used */
    int64_t sequences; /* number of sequences that share the cache, in pages of DVK_PAGE; 0: one, without pages */
    int64_t pages;     /* pages of all sequences together; context is then the limit of one sequence */
} dv_decoder_desc;

davy_result dv_decoder_open(const dv_decoder_desc *desc, dv_decoder **out);
void dv_decoder_release(dv_decoder *d);
uint64_t dv_decoder_bytes(const dv_decoder *d); /* cache and activations */

/* n tokens after `past` others. A token is an id, or a row of `vectors`. deep[k]: rows that are added to such tokens after
 * layer k. */
typedef struct dv_decoder_input {
    const int32_t *ids;       /* [n] */
    const int32_t *vector;    /* [n] row of the token in vectors; -1: the token is an id; NULL: all are ids */
    const float *vectors;     /* [..][hidden]; on a GPU vectors and deep are in its memory */
    const float *const *deep; /* [n_deepstack] of [..][hidden], rows as in vectors; NULL: none */
    const int32_t *positions; /* [n][axes] */
    int64_t n, past;
    int64_t sequence; /* if several share the cache; its page table (dv_decoder_table) must be filled */
    int32_t (*cancel)(
        void *
            user); /* called between passes and between the layers of a long one; NULL: never. Not 0: DAVY_E_CANCELLED */
    void *user;
} dv_decoder_input;

/* Appends tokens to the cache; past + n is at most the context. *logits: [vocab] after the last token, valid until the next
 * call; logits may be NULL. *fed: number of tokens added to the cache, also after a cancel. */
davy_result dv_decoder_feed(dv_decoder *d, const dv_decoder_input *in, const float **logits, int64_t *fed);

/* On a GPU, for a model without softcap: adds the token to the cache. *next is the id of the largest logit after it; of equal
 * logits the lowest id. Logits stay on the device. The GPU then starts the step of *next in advance, which saves time if the
 * next call is for that token. */
typedef struct dv_decoder_token {
    int32_t id, position; /* position: the same on all axes */
    int64_t past;
    const int32_t *never; /* excluded ids, at most DV_DECODER_NEVER */
    int64_t n_never;
} dv_decoder_token;
enum { DV_DECODER_NEVER = 3 };
bool dv_decoder_draws(const dv_decoder *d);
davy_result dv_decoder_next(dv_decoder *d, const dv_decoder_token *token, int32_t *next);

/* On a GPU with a kernel for it: adds the token to the cache. *best are the largest logits after it: at least
 * DV_DECODER_CANDIDATES, or the whole vocabulary if it is smaller. If they are not enough, dv_decoder_rest returns all. */
enum { DV_DECODER_CANDIDATES = 64 };
bool dv_decoder_gives_best(const dv_decoder *d);
davy_result dv_decoder_best(dv_decoder *d, const dv_decoder_token *token, const dvk_candidates **best);
davy_result dv_decoder_rest(dv_decoder *d, const float **logits);

/* ---- a few tokens in one pass over the weights: one token of each of several sequences, whose caches share pages, or
 * several guessed tokens of one sequence. The decoder must be opened with `few` above 0. On the CPU each token's logits equal
 * those of dv_decoder_feed for it alone, bit for bit. On a GPU they always equal a pass of the decoder's full number of rows,
 * and do not depend on the other rows. ---- */

typedef struct dv_decoder_rows {
    const int32_t *ids;       /* [n] token ids */
    const int32_t *sequence;  /* [n]; NULL: the only sequence */
    const int32_t *place;     /* [n] index in its sequence; rows of one sequence are adjacent and rising */
    const int32_t *positions; /* [n][axes] */
    int64_t n;
    const int32_t *never; /* on a GPU: excluded ids, at most DV_DECODER_NEVER */
    int64_t n_never;
} dv_decoder_rows;

int64_t dv_decoder_few_rows(const dv_decoder *d); /* largest n; 0: dv_decoder_few is not available */
int64_t dv_decoder_chunk(const dv_decoder *d);    /* prompt tokens per pass */
/* *logits: [n][vocab], valid until the next call; NULL on a GPU. Overwrites the cache at these places. On a GPU without pages
 * it also overwrites later places. */
davy_result dv_decoder_few(dv_decoder *d, const dv_decoder_rows *in, const float **logits);
/* On a GPU, after dv_decoder_few: the ids of the largest logits [n], chosen as in dv_decoder_next, and the logits of one row.
 * Check each id with dv_decoder_drawn, which fails if a row has no largest logit. Both are valid until the next call. */
davy_result dv_decoder_few_ids(dv_decoder *d, const int32_t **ids);
davy_result dv_decoder_drawn(int32_t id);
davy_result dv_decoder_few_logits(dv_decoder *d, int64_t row, const float **logits);

/* The page table of a sequence, [pages of the longest sequence]. The caller fills it before adding tokens. */
int32_t *dv_decoder_table(dv_decoder *d, int64_t sequence);

#endif
