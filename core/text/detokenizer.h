/* detokenizer.h - generated ids to text as they come: whole characters only, nothing that might yet turn out to be part of a
 * stop string, and where to stop. */
#ifndef DV_TEXT_STREAM_H
#define DV_TEXT_STREAM_H

#include "core/text/tokenizer.h"

typedef struct dv_detokenizer dv_detokenizer;

typedef struct dv_detokenizer_options { /* copied */
    const int32_t *stop_ids;            /* end the text and are no part of it */
    int64_t n_stop_ids;
    const char *const *stop_texts; /* the text ends before the first of them; "" is refused */
    int64_t n_stop_texts;
    bool keep_special;  /* special tokens give their text, not nothing */
    bool trim_start;    /* without the white space a template leaves to the answer */
    bool hide_thoughts; /* without a first block <think>...</think> and the white space behind it; */
    bool thinking;      /* which began in the prompt */
} dv_detokenizer_options;

/* The tokenizer must outlive the stream. options NULL: keep_special, nothing stops. */
davy_result dv_detokenizer_create(const dv_tokenizer *t, const dv_detokenizer_options *options, dv_detokenizer **out);
void dv_detokenizer_release(dv_detokenizer *s);

/* The text that is certain after one more id: *bytes may be 0; valid until the next call, no NUL at the end. *stop: the
 * text has ended, what was held back is in this last piece, and further ids give nothing. */
davy_result dv_detokenizer_push(dv_detokenizer *s, int32_t id, const char **text, uint64_t *bytes, bool *stop);
/* No more ids: the rest, a cut character as U+FFFD. */
davy_result dv_detokenizer_end(dv_detokenizer *s, const char **text, uint64_t *bytes);
/* Whether all that has come so far were thoughts, and were left out: nothing of an answer. */
bool dv_detokenizer_only_thought(const dv_detokenizer *s);
/* From the start again, for the next answer. */
void dv_detokenizer_reset(dv_detokenizer *s);

#endif
