/* session.h - a conversation about pictures. The decoder's cache holds the earlier tokens, so another question costs only its
 * own tokens. One thread at a time. */
#ifndef DV_VLM_SESSION_H
#define DV_VLM_SESSION_H

#include "core/text/detokenizer.h"
#include "core/text/sample.h"
#include "core/vlm/decoder.h"
#include "core/vlm/model.h"

typedef struct dv_session dv_session;

enum { DV_SESSION_CONTEXT = 8192, DV_SESSION_LEAST = 1024 };

typedef struct dv_session_options {
    int64_t
        context; /* tokens; 0: the model's limit, at most DV_SESSION_CONTEXT. If memory is short it is smaller, down to
                        DV_SESSION_LEAST; see dv_session_context */
    int64_t chunk;                 /* see dv_decoder_desc */
    int32_t (*cancel)(void *user); /* called before every token; not 0: DAVY_E_CANCELLED. NULL: never cancelled */
    bool (*room)(void *user); /* called once if memory is short, before anything becomes smaller: frees idle memory of
                                      others and returns true if there was any. NULL: none */
    void *user;
} dv_session_options;

/* The model must outlive it. options may be NULL. */
davy_result dv_session_open(const dv_vlm_model *model, const dv_session_options *options, dv_session **out);
void dv_session_release(dv_session *d);

/* ---- tokens ---- */

typedef struct dv_session_picture {
    const dv_vlm_features *features;
    double seconds; /* video: seconds between time steps */
} dv_session_picture;

/* Appends tokens. The number of placeholders must equal the number of the pictures' vectors, in order (DAVY_E_INVALID).
 * DAVY_E_CONTEXT_FULL: they exceed the context. After this error and after a cancel the session is unchanged. */
davy_result dv_session_feed(dv_session *d, const int32_t *ids, int64_t n, const dv_session_picture *pictures,
                            int32_t n_pictures);

typedef enum dv_session_end {
    DV_END_STOP = 1, /* a stop token */
    DV_END_LENGTH,   /* max_tokens */
    DV_END_CALLER    /* the token callback */
} dv_session_end;

/* Prompt lookup decoding, for greedy sampling: if the last tokens occurred earlier, the tokens that followed them then are
 * tried in one pass. On the CPU the output stays the same, bit for bit. On a GPU several rows round as in a batch. */
typedef enum dv_lookup {
    DV_LOOKUP_AUTO = 0, /* on the CPU only, while its measured times show a gain */
    DV_LOOKUP_OFF,
    DV_LOOKUP_ALWAYS
} dv_lookup;

typedef struct dv_generate {
    dv_sample_options sample;
    int64_t max_tokens;
    bool ignore_stops;
    dv_lookup lookup;
    int32_t (*token)(void *user, int32_t id); /* called for each token except a stop token; not 0 ends. May be NULL */
    void *user;
    void (*drawn)(void *user, int64_t tokens); /* called after each token, including a stop token; may be NULL */
    void *drawn_user;
} dv_generate;

/* Generates after dv_session_feed, or continues the last call. DAVY_E_CONTEXT_FULL: the cache is full; the generated tokens
 * stay. */
davy_result dv_session_generate(dv_session *d, const dv_generate *g, int64_t *tokens, dv_session_end *end);

typedef struct dv_session_mark {
    int64_t tokens, next;
    int32_t last; /* 1 + id of the token drawn but not in the cache yet; 0: none */
    bool last_stops;
} dv_session_mark;

dv_session_mark dv_session_now(const dv_session *d);
/* Returns to an earlier state. DAVY_E_INVALID if the mark is ahead of the current state. */
davy_result dv_session_rewind(dv_session *d, dv_session_mark mark);

int64_t dv_session_tokens(const dv_session *d); /* in the cache */
int64_t dv_session_context(const dv_session *d);
uint64_t dv_session_bytes(const dv_session *d);
const float *dv_session_logits(const dv_session *d); /* after the last token; NULL: none */

/* ---- text ---- */

/* Vectors of a picture or a video, and their description for the prompt. If memory is short, encoding retries smaller. */
typedef struct dv_encoded {
    dv_vlm_features features;
    dv_chat_picture chat;
    dv_picture_plan plan;
    bool smaller;    /* memory was short: fewer tiles or pixels than the options allow */
    double *seconds; /* video: time of each time step in seconds */
    double step;     /* video: seconds between time steps */
} dv_encoded;

davy_result dv_encode_image(const dv_vlm_model *m, const dv_rgb8 *picture, const dv_picture_options *options,
                            const dv_session_options *cancel, dv_encoded *out);

typedef struct dv_video {
    const dv_rgb8 *frames; /* [n] of equal size, chosen by dv_video_frames */
    const int64_t *index;  /* [n] their frame numbers in the video */
    int64_t n, total;      /* total: frames of the whole video */
    double fps;            /* frames per second of the video */
} dv_video;

davy_result dv_encode_video(const dv_vlm_model *m, const dv_video *video, const dv_picture_options *options,
                            const dv_session_options *cancel, dv_encoded *out);
void dv_encoded_free(dv_encoded *s);

/* Appends a question with new pictures. Needs a tokenizer. system: system prompt, read for the first question only; NULL: the
 * model's default. */
davy_result dv_session_ask(dv_session *d, const char *system, const dv_encoded *const *pictures, int32_t n,
                           const char *question);

typedef struct dv_answer_options {
    dv_generate generate; /* its token and user are ignored */
    const char *const *stop_texts;
    int64_t n_stop_texts;
    bool thoughts; /* the answer includes a reasoning model's thoughts */
    int32_t (*text)(void *user, const char *text, uint64_t bytes); /* called with each final piece; may be NULL */
    void *user;
} dv_answer_options;

typedef struct dv_answer {
    char *text; /* NUL-terminated; dv_free */
    uint64_t bytes;
    int64_t tokens;
    dv_session_end end;
    bool only_thought; /* generation ended inside excluded thoughts, so the text is empty */
} dv_answer;

davy_result dv_session_answer(dv_session *d, const dv_answer_options *o, dv_answer *out);

/* ---- text, for a caller with its own decoder (batch.h) ---- */

typedef struct dv_prompt {
    const char *system; /* for the first question only; NULL: the model's default */
    const dv_encoded *const *pictures;
    int32_t n;
    const char *question;
    bool further, stopped; /* further: follows an answer; stopped: that answer ended with a stop token */
} dv_prompt;

/* The tokens of a question, including its pictures' placeholders. */
davy_result dv_prompt_ids(const dv_vlm_model *m, const dv_prompt *p, dv_ids *out);

typedef struct dv_answering { /* converts tokens to the text of an answer */
    const dv_answer_options *options;
    dv_detokenizer *stream;
    dv_answer *out;
    int64_t room;
    davy_result r;
    bool stopped; /* a stop text ended the answer */
} dv_answering;

/* options and out must stay valid until dv_answering_end, which the caller calls even if start fails. */
davy_result dv_answering_start(const dv_vlm_model *m, const dv_answer_options *o, dv_answer *out, dv_answering *a);
int32_t dv_answering_token(void *user, int32_t id);           /* user: the dv_answering; not 0: stop generating */
davy_result dv_answering_end(dv_answering *a, davy_result r); /* r: result of generating; on an error out is empty */

#endif
