/* session_priv.h - the inside of a session, for session.c and batch.c. */
#ifndef DV_VLM_SESSION_PRIV_H
#define DV_VLM_SESSION_PRIV_H

#include "core/vlm/session.h"

/* ---- a prompt ---- */

typedef struct dv_feeding {
    int32_t *ids, *vector, *positions; /* [n] each, positions [n][axes] */
    dv_vlm_span *spans;
    int64_t n, n_spans;
    int64_t *first; /* of each picture's placeholders */
    const dv_session_picture *pictures;
    int32_t n_pictures, axes;
} dv_feeding;

typedef struct dv_feed_words {
    const int32_t *ids;
    int64_t n;
    int32_t before; /* a token in front of them; -1: none */
    const dv_session_picture *pictures; /* of their placeholders; they must stay as long as the feeding */
    int32_t n_pictures;
} dv_feed_words;

/* *next: position of the first token, then of the one behind the last. */
davy_result dv_feeding_make(const dv_vlm_model *m, const dv_feed_words *words, int64_t *next, dv_feeding *out);
void dv_feeding_clear(dv_feeding *f);
/* What the decoder can be fed at once from token `at` on: one picture's vectors at a time. */
dv_decoder_input dv_feeding_part(const dv_feeding *f, int64_t at);
bool dv_is_placeholder(const dv_vlm_model *m, int32_t id);

/* ---- tokens ---- */

/* For a sequence whose tokens so far are `history`. */
davy_result dv_session_sampler(const dv_vlm_model *m, const dv_generate *g, const int32_t *history, int64_t n,
                               dv_sampler **out);
bool dv_is_stop(const dv_vlm_model *m, int32_t id);

/* Tokens that were looked up and fed behind the last one: where the next ones drawn are these, they are
 * in the cache already. */
enum { DV_LOOKUP_ROWS = 8 }; /* the token before them included */
typedef struct dv_supposed {
    int32_t ids[DV_LOOKUP_ROWS];
    int64_t n, right;              /* right: those that have been drawn since */
    const float *logits;           /* [n + 1][vocab]: after the token before them, then after each; on a GPU NULL, */
    int32_t drawn[DV_LOOKUP_ROWS]; /* but what is drawn there [n + 1] */
    int64_t passes;                /* of several, so far */
    double one_ns, more_ns, gain;  /* what a token takes, and one more in its pass; the right ones of a pass */
} dv_supposed;

struct dv_session {
    const dv_vlm_model *model;
    dv_session_options options;
    dv_decoder *decoder;
    int32_t *history; /* [context]: the tokens in the cache */
    int64_t tokens, context;
    int64_t next;    /* position of the token after them */
    int32_t pending; /* drawn, not in the cache yet; -1: none */
    bool pending_stop;
    const float *logits;
    dv_supposed supposed;
};

/* The pending token goes into the cache; `most` tokens may follow it. */
davy_result dv_session_feed_pending(dv_session *d, const dv_generate *g, int64_t most);
/* On a GPU; *id follows it. */
davy_result dv_session_draw_behind(dv_session *d, const dv_generate *g, const dv_sample_options *o, int64_t most,
                                   int32_t *id);
/* The largest logit's id is drawn on a GPU, where the logits are, if nothing else is asked for. */
bool dv_draws_there(const dv_decoder *d, const dv_sample_options *o);

#endif
