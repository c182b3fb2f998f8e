/* detokenizer.h - turns generated ids into text, one at a time. It returns only whole characters, holds back a possible start
 * of a stop text, and reports the end of the text. */
#ifndef DV_TEXT_DETOKENIZER_H
#define DV_TEXT_DETOKENIZER_H

#include "core/text/tokenizer.h"

typedef struct dv_detokenizer dv_detokenizer;

typedef struct dv_detokenizer_options { /* copied */
    const int32_t *stop_ids;            /* they end the text and are not part of it */
    int64_t n_stop_ids;
    const char *const *stop_texts; /* the text ends before the first that occurs; "" is refused */
    int64_t n_stop_texts;
    bool keep_special;  /* special tokens give their text; else they give none */
    bool trim_start;    /* drop the white space before the answer */
    bool hide_thoughts; /* drop a first block <think>...</think> and the white space after it */
    bool thinking;      /* that block began in the prompt */
} dv_detokenizer_options;

/* The tokenizer must outlive the detokenizer. options NULL: keep_special, and no stop tokens or texts. */
davy_result dv_detokenizer_create(const dv_tokenizer *t, const dv_detokenizer_options *options, dv_detokenizer **out);
void dv_detokenizer_release(dv_detokenizer *s);

/* Adds one id. Returns the text that is certain now: valid until the next call, without a NUL; *bytes may be 0. *stop: the
 * text has ended, this piece includes the text that was held back, and further ids give none. */
davy_result dv_detokenizer_push(dv_detokenizer *s, int32_t id, const char **text, uint64_t *bytes, bool *stop);
/* Ends the text without a stop. Returns the rest; an incomplete character becomes U+FFFD. */
davy_result dv_detokenizer_end(dv_detokenizer *s, const char **text, uint64_t *bytes);
/* Whether all text so far was a block of thoughts that was dropped, without any answer. */
bool dv_detokenizer_only_thought(const dv_detokenizer *s);
/* Returns to the state after create, for the next answer. */
void dv_detokenizer_reset(dv_detokenizer *s);

#endif
