/* sample.h - from logits to the next id, in the order of transformers: repetition penalty, no repeated n-grams, temperature,
 * top-k, top-p, min-p, draw. The drawn id depends only on seed, index, logits and the ids seen, not on earlier draws. */
#ifndef DV_TEXT_SAMPLE_H
#define DV_TEXT_SAMPLE_H

#include "core/base/common.h"

typedef struct dv_sample_options {
    double temperature;        /* 0: greedy, the largest logit; of equal logits the lowest id */
    int64_t top_k;             /* only logits not below the k-th largest; 0: all */
    double top_p;              /* only the smallest set with at least this probability; 1: all */
    double min_p;              /* only ids with at least this share of the largest probability; 0: all */
    double repetition_penalty; /* logits of seen ids: divided by it if above 0, else multiplied; 1: none */
    int64_t no_repeat_ngram;   /* no sequence of this many ids occurs twice; 0: no limit */
    uint64_t seed;
    const int32_t *never; /* ids that are never drawn: placeholders (copied) */
    int64_t n_never;
} dv_sample_options;

typedef struct dv_sampler dv_sampler;

/* vocabulary: logits of each draw. DAVY_E_INVALID: an option is out of range. */
davy_result dv_sampler_create(int64_t vocabulary, const dv_sample_options *options, dv_sampler **out);
void dv_sampler_release(dv_sampler *s);

const dv_sample_options *dv_sampler_options(const dv_sampler *s); /* `never` is the copy */

/* Adds seen ids, for the penalty and the n-grams: those of the prompt, placeholders included, and of every answer. After a
 * rewind, the caller makes a new sampler and adds the remaining ids. */
davy_result dv_sampler_saw(dv_sampler *s, const int32_t *ids, int64_t n);

/* index: the position of the new id in the sequence. DAVY_E_INTERNAL: the logits contain NaN, or no finite value. */
davy_result dv_sampler_draw(dv_sampler *s, const float *logits, uint64_t index, int32_t *id);

/* A part of the logits: all that are not below `bound`. */
typedef struct dv_sample_few {
    const int32_t *ids;
    const float *logits;
    int64_t n;
    float bound;
} dv_sample_few;
/* Whether a few logits are enough for these options: top-k up to DV_SAMPLE_FEW or greedy, and no penalty that raises a
 * logit. */
enum { DV_SAMPLE_FEW = 64 };
bool dv_sample_takes_few(const dv_sample_options *o);
/* The same id as dv_sampler_draw from all logits; *id -1: these few logits do not determine it. */
davy_result dv_sampler_draw_few(dv_sampler *s, const dv_sample_few *few, uint64_t index, int32_t *id);

#endif
