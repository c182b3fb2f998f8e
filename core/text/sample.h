/* sample.h - from logits to the next id, in the order transformers has: repetition penalty, no repeated n-grams,
 * temperature, top-k, top-p, min-p, draw. What is drawn is a function of (seed, index) and the logits, and of nothing drawn before. */
#ifndef DV_TEXT_SAMPLE_H
#define DV_TEXT_SAMPLE_H

#include "core/base/common.h"

typedef struct dv_sample_options {
    double temperature;        /* 0: greedy, the largest logit (of equals the lowest id) */
    int64_t top_k;             /* those not below the k-th largest; 0: all */
    double top_p;              /* the smallest set of at least this probability; 1: all */
    double min_p;              /* those at least so many times as likely as the likeliest; 0: all */
    double repetition_penalty; /* of ids seen: logits above 0 are divided by it, others multiplied; 1: none */
    int64_t no_repeat_ngram;   /* so many ids in a row do not come twice; 0: they may */
    uint64_t seed;
    const int32_t *never; /* ids that are not drawn: placeholders (copied) */
    int64_t n_never;
} dv_sample_options;

typedef struct dv_sampler dv_sampler;

/* `vocabulary` logits a draw. Options out of range are DAVY_E_INVALID. */
davy_result dv_sampler_create(int64_t vocabulary, const dv_sample_options *options, dv_sampler **out);
void dv_sampler_release(dv_sampler *s);

const dv_sample_options *dv_sampler_options(const dv_sampler *s); /* `never`: its copy */

/* For the penalty and the n-grams: ids of the prompt, placeholders too, and of every answer. After a rewind: a new
 * sampler that saw what is left. */
davy_result dv_sampler_saw(dv_sampler *s, const int32_t *ids, int64_t n);

/* index: the place in the sequence that is being filled. Logits that hold NaN, or nothing finite, are
 * DAVY_E_INTERNAL. */
davy_result dv_sampler_draw(dv_sampler *s, const float *logits, uint64_t index, int32_t *id);

/* Some of the logits: all that are not below `bound`. */
typedef struct dv_sample_few {
    const int32_t *ids;
    const float *logits;
    int64_t n;
    float bound;
} dv_sample_few;
/* Whether these options can do with a few: top-k up to DV_SAMPLE_FEW or greedy, and no penalty that raises a logit. */
enum { DV_SAMPLE_FEW = 64 };
bool dv_sample_takes_few(const dv_sample_options *o);
/* As dv_sampler_draw of all the logits would; *id -1: these are too few to say. */
davy_result dv_sampler_draw_few(dv_sampler *s, const dv_sample_few *few, uint64_t index, int32_t *id);

#endif
