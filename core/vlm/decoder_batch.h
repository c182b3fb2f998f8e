/* decoder_batch.h - a few tokens in one pass over the weights: one of each of several sequences, whose caches share a store
 * of pages, or some of one sequence that are only supposed. On the CPU each token's logits have the bits that
 * dv_decoder_feed gives for it alone. On a GPU they are those of a pass of as many rows as the decoder was opened for,
 * whoever else is in it. Of a decoder that was opened for it. */
#ifndef DV_VLM_DECODER_BATCH_H
#define DV_VLM_DECODER_BATCH_H

#include "core/vlm/decoder.h"

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
