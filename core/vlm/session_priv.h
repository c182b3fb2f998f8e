/* session_priv.h - internals of a session, for session.c and batch.c. */
#ifndef DV_VLM_SESSION_PRIV_H
#define DV_VLM_SESSION_PRIV_H

#include "core/vlm/session.h"

/* ---- a prompt ---- */

typedef struct dv_feeding {
    int32_t *ids, *vector, *positions; /* [n] each, positions [n][axes] */
    dv_vlm_span *spans;
    int64_t n, n_spans;
    int64_t *first; /* index of each picture's first placeholder */
    const dv_session_picture *pictures;
    int32_t n_pictures, axes;
} dv_feeding;

typedef struct dv_feed_words {
    const int32_t *ids;
    int64_t n;
    int32_t before;                     /* a token before them; -1: none */
    const dv_session_picture *pictures; /* for the placeholders; must stay valid as long as the dv_feeding */
    int32_t n_pictures;
} dv_feed_words;

/* *next: in: position of the first token; out: position after the last. */
davy_result dv_feeding_make(const dv_vlm_model *m, const dv_feed_words *words, int64_t *next, dv_feeding *out);
void dv_feeding_clear(dv_feeding *f);
/* The part that one dv_decoder_feed can take from token `at` on: it has vectors of at most one picture. */
dv_decoder_input dv_feeding_part(const dv_feeding *f, int64_t at);
bool dv_is_placeholder(const dv_vlm_model *m, int32_t id);

/* ---- tokens ---- */

/* Creates a sampler for a sequence with the tokens `history`. */
davy_result dv_session_sampler(const dv_vlm_model *m, const dv_generate *g, const int32_t *history, int64_t n,
                               dv_sampler **out);
bool dv_is_stop(const dv_vlm_model *m, int32_t id);

/* Guessed tokens that were looked up and fed after the last one. If the next drawn tokens equal them, the cache already holds
 * them. */
enum { DV_LOOKUP_ROWS = 8 }; /* including the token before them */
typedef struct dv_supposed {
    int32_t ids[DV_LOOKUP_ROWS];
    int64_t n, right;              /* right: guesses confirmed so far */
    const float *logits;           /* [n + 1][vocab]: after the token before them, then after each; NULL on a GPU */
    int32_t drawn[DV_LOOKUP_ROWS]; /* [n + 1]: on a GPU the ids drawn there */
    int64_t passes;                /* number of passes with guesses */
    double one_ns, more_ns, gain;  /* time of one token, time of each further row, mean right guesses per pass */
} dv_supposed;

struct dv_session {
    const dv_vlm_model *model;
    dv_session_options options;
    dv_decoder *decoder;
    int32_t *history; /* [context]: the tokens in the cache */
    int64_t tokens, context;
    int64_t next;    /* position of the next token */
    int32_t pending; /* token drawn but not in the cache yet; -1: none */
    bool pending_stop;
    const float *logits;
    dv_supposed supposed;
};

/* Adds the pending token to the cache; `most`: number of tokens that may follow it. */
davy_result dv_session_feed_pending(dv_session *d, const dv_generate *g, int64_t most);
/* On a GPU: the same, and draws the next token *id. */
davy_result dv_session_draw_behind(dv_session *d, const dv_generate *g, const dv_sample_options *o, int64_t most,
                                   int32_t *id);
/* True if the GPU can draw the token itself: greedy sampling without other options. */
bool dv_draws_there(const dv_decoder *d, const dv_sample_options *o);

#endif
