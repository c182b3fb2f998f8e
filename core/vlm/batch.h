/* batch.h - many questions about pictures at once. Each question is one sequence; its keys and values lie in pages of a shared
 * store. One pass over the weights computes one token of every sequence. Prompts are read between these passes, one at a time.
 * Sequences start and end at any token. An answer does not depend on the other sequences. On the CPU it equals a dialogue's
 * answer, bit for bit. On a GPU a pass always rounds like one of the number of rows that the batch was opened for, which
 * differs from a pass of one token. One thread at a time. */
#ifndef DV_VLM_BATCH_H
#define DV_VLM_BATCH_H

#include "core/vlm/session.h"

typedef struct dv_batch dv_batch;

typedef struct dv_batch_options {
    int64_t sequences; /* most at once; 0: dv_batch_most; at most DV_BATCH_MOST */
    int64_t context;   /* most tokens of a sequence; 0: as in a dialogue */
    int64_t tokens; /* of all sequences together: whole pages, at least the context; 0: sequences times the context */
    int64_t chunk;  /* see dv_decoder_desc */
    int32_t (*cancel)(void *user); /* called before every pass and between the layers of a prompt; not 0:
                                      DAVY_E_CANCELLED. NULL: never cancelled */
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
    const dv_session_picture *pictures; /* the caller keeps these and their features until the sequence has ended */
    int32_t n_pictures;
    dv_generate generate; /* callbacks token and drawn: called once for each token, as in a dialogue */
    void *tag;
} dv_batch_question;

typedef struct dv_batch_end {
    void *tag;
    int64_t tokens; /* length of the answer */
    dv_session_end end;
} dv_batch_end;

/* Adds a sequence, which starts when there is room. DAVY_E_CONTEXT_FULL: the prompt is longer than the context. */
davy_result dv_batch_ask(dv_batch *b, const dv_batch_question *q);
/* Reads one chunk of a prompt and computes one token of every sequence with a complete prompt. After an error all further
 * calls fail. */
davy_result dv_batch_work(dv_batch *b);
/* Reads only one chunk of a prompt. *more: it read one, or another is left. A GPU pass costs the same for any number of
 * sequences, so there it is faster to read all prompts first. */
davy_result dv_batch_read(dv_batch *b, bool *more);
/* Removes an ended sequence and returns its result in *out. Returns false if none has ended. */
bool dv_batch_ended(dv_batch *b, dv_batch_end *out);

int64_t dv_batch_context(const dv_batch *b);
int64_t dv_batch_sequences(const dv_batch *b);
int64_t dv_batch_unended(const dv_batch *b); /* sequences added and not ended */
bool dv_batch_has_room(const dv_batch *b);   /* no sequence waits, and one more could start */
uint64_t dv_batch_bytes(const dv_batch *b);

typedef struct dv_batch_counts { /* since open */
    int64_t passes, rows;        /* token passes, and all their rows together */
    int64_t chunks;              /* chunks of prompts */
    int64_t put_back;            /* sequences that lost their pages and were computed again */
    int64_t pages_used, pages_most;
} dv_batch_counts;
dv_batch_counts dv_batch_count(const dv_batch *b);

#endif
