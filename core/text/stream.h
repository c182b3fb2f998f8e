/* stream.h - generated ids to text as they come: whole characters only, nothing that might yet turn out to be part of a
 * stop string, and where to stop. */
#ifndef DV_TEXT_STREAM_H
#define DV_TEXT_STREAM_H

#include "core/text/tokenizer.h"

typedef struct dv_stream dv_stream;

typedef struct dv_stream_options { /* copied */
    const int32_t *stop_ids;       /* end the text and are no part of it */
    int64_t n_stop_ids;
    const char *const *stop_texts; /* the text ends before the first of them; "" is refused */
    int64_t n_stop_texts;
    bool keep_special;  /* special tokens give their text, not nothing */
    bool trim_start;    /* without the white space a template leaves to the answer */
    bool hide_thoughts; /* without a first block <think>...</think> and the white space behind it; */
    bool thinking;      /* which began in the prompt */
} dv_stream_options;

/* The tokenizer must outlive the stream. options NULL: keep_special, nothing stops. */
davy_result dv_stream_create(const dv_tokenizer *t, const dv_stream_options *options, dv_stream **out);
void dv_stream_release(dv_stream *s);

/* The text that is certain after one more id: *bytes may be 0; valid until the next call, no NUL at the end. *stop: the
 * text has ended, what was held back is in this last piece, and further ids give nothing. */
davy_result dv_stream_push(dv_stream *s, int32_t id, const char **text, uint64_t *bytes, bool *stop);
/* No more ids: the rest, a cut character as U+FFFD. */
davy_result dv_stream_end(dv_stream *s, const char **text, uint64_t *bytes);
/* Whether all that has come so far were thoughts, and were left out: nothing of an answer. */
bool dv_stream_only_thought(const dv_stream *s);
/* From the start again, for the next answer. */
void dv_stream_reset(dv_stream *s);

#endif
