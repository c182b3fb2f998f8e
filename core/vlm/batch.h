/* batch.h - many questions about pictures at once: each a sequence of its own, whose keys and values lie in pages of a common
 * store. A token of all of them costs one pass over the weights; prompts are read between the tokens, one at a time.
 * Sequences come and go at any token. What each of them says depends on nobody else: on the CPU it is what a dialogue would
 * say, bit for bit; on a GPU a pass of many rows rounds otherwise than one of a single token, always as it does with as many
 * rows as the batch was opened for. One thread at a time. */
#ifndef DV_VLM_BATCH_H
#define DV_VLM_BATCH_H

#include "core/vlm/session.h"

typedef struct dv_batch dv_batch;

typedef struct dv_batch_options {
    int64_t sequences; /* at once; 0: as many as there can be, DV_BATCH_MOST at most */
    int64_t context;   /* tokens of a sequence at most; 0: as a dialogue's */
    int64_t tokens;    /* of all together, in whole pages, at least the context; 0: sequences times the context */
    int64_t chunk;     /* see dv_decoder_desc */
    int32_t (*cancel)(void *user); /* asked before every pass and between the layers of a prompt; other than 0:
                                      DAVY_E_CANCELLED. NULL: never */
    void *user;
} dv_batch_options;

/* How many sequences a model can have at once. */
enum { DV_BATCH_MOST = 32 };
int64_t dv_batch_most(const dv_vlm_model *model);

/* The model must outlive it. */
davy_result dv_batch_open(const dv_vlm_model *model, const dv_batch_options *options, dv_batch **out);
void dv_batch_release(dv_batch *b); /* NULL: nothing */

typedef struct dv_batch_question {
    const int32_t *ids; /* the prompt; copied */
    int64_t n;
    const dv_session_picture *pictures; /* and their features stay until the sequence has ended */
    int32_t n_pictures;
    dv_generate generate; /* its token and drawn as in a dialogue: each called once for each token */
    void *tag;
} dv_batch_question;

typedef struct dv_batch_end {
    void *tag;
    int64_t tokens; /* of the answer */
    dv_session_end end;
} dv_batch_end;

/* A further sequence, which begins when there is room. More than the context holds is DAVY_E_CONTEXT_FULL. */
davy_result dv_batch_ask(dv_batch *b, const dv_batch_question *q);
/* A piece of a prompt, and a token of every sequence whose prompt has been read. After an error nothing more is done. */
davy_result dv_batch_work(dv_batch *b);
/* A piece of a prompt alone; *more: there is another, or was one. On a GPU, whose passes have their size whoever is there,
 * prompts are better read first. */
davy_result dv_batch_read(dv_batch *b, bool *more);
/* Takes one that has ended; false: none has. */
bool dv_batch_ended(dv_batch *b, dv_batch_end *out);

int64_t dv_batch_context(const dv_batch *b);
int64_t dv_batch_sequences(const dv_batch *b);
int64_t dv_batch_unended(const dv_batch *b); /* asked and not ended */
bool dv_batch_has_room(const dv_batch *b);   /* nobody waits, and one more could begin */
uint64_t dv_batch_bytes(const dv_batch *b);

typedef struct dv_batch_counts { /* since open */
    int64_t passes, rows;        /* of tokens: rows / passes came in one */
    int64_t chunks;              /* of prompts */
    int64_t put_back;            /* sequences that lost their pages and were redone */
    int64_t pages_used, pages_most;
} dv_batch_counts;
dv_batch_counts dv_batch_count(const dv_batch *b);

#endif
