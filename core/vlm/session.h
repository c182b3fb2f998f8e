/* session.h - a conversation about pictures: what has been said lies in the decoder's cache, and a further question costs
 * its own tokens only. One thread at a time. */
#ifndef DV_VLM_DIALOGUE_H
#define DV_VLM_DIALOGUE_H

#include "core/text/detokenizer.h"
#include "core/text/sample.h"
#include "core/vlm/decoder.h"
#include "core/vlm/model.h"

typedef struct dv_session dv_session;

enum { DV_SESSION_CONTEXT = 8192, DV_SESSION_LEAST = 1024 };

typedef struct dv_session_options {
    int64_t context; /* tokens that fit; 0: what the model has, at most DV_SESSION_CONTEXT, and less where memory runs
                        out, down to DV_SESSION_LEAST: dv_session_context says how many */
    int64_t chunk;   /* see dv_decoder_desc */
    int32_t (*cancel)(void *user); /* asked before every token; other than 0: DAVY_E_CANCELLED. NULL: never */
    bool (*room)(void *user);      /* asked once where memory runs out, before anything becomes smaller, for what others
                                      can spare: whether there was any. NULL: nothing */
    void *user;
} dv_session_options;

/* The model must outlive it. options may be NULL. */
davy_result dv_session_open(const dv_vlm_model *model, const dv_session_options *options, dv_session **out);
void dv_session_release(dv_session *d);

/* ---- tokens ---- */

typedef struct dv_session_picture {
    const dv_vlm_features *features;
    double seconds; /* of a video: from one time step to the next */
} dv_session_picture;

/* Appends tokens. Their placeholders must be as many as the pictures have vectors, in order (DAVY_E_INVALID). More than
 * the context holds is DAVY_E_CONTEXT_FULL and changes nothing; so does a cancelled call. */
davy_result dv_session_feed(dv_session *d, const int32_t *ids, int64_t n, const dv_session_picture *pictures,
                            int32_t n_pictures);

typedef enum dv_session_end {
    DV_END_STOP = 1, /* a token that ends an answer */
    DV_END_LENGTH,   /* max_tokens */
    DV_END_CALLER    /* the callback */
} dv_session_end;

/* Whether tokens that followed the last ones when they were said before are tried several at a time, where the largest
 * logit decides. On the CPU what is generated is the same, bit for bit; on a GPU several rows round as a batch does. */
typedef enum dv_lookup {
    DV_LOOKUP_AUTO = 0, /* on the CPU, as long as it is quicker, by the times it has measured */
    DV_LOOKUP_OFF,
    DV_LOOKUP_ALWAYS
} dv_lookup;

typedef struct dv_generate {
    dv_sample_options sample;
    int64_t max_tokens;
    bool ignore_stops;
    dv_lookup lookup;
    int32_t (*token)(void *user, int32_t id); /* each token but the one that stops; other than 0 ends. May be NULL */
    void *user;
    void (*drawn)(void *user, int64_t tokens); /* after each token, the one that stops too; may be NULL */
    void *drawn_user;
} dv_generate;

/* After feed, or to go on where the last call ended. A full cache is DAVY_E_CONTEXT_FULL; what was generated stays. */
davy_result dv_session_generate(dv_session *d, const dv_generate *g, int64_t *tokens, dv_session_end *end);

typedef struct dv_session_mark {
    int64_t tokens, next;
    int32_t last; /* one more than the token that was drawn and is not in the cache yet; 0: none */
    bool last_stops;
} dv_session_mark;

dv_session_mark dv_session_now(const dv_session *d);
/* Back to what was: DAVY_E_INVALID where the mark lies ahead. */
davy_result dv_session_rewind(dv_session *d, dv_session_mark mark);

int64_t dv_session_tokens(const dv_session *d); /* in the cache */
int64_t dv_session_context(const dv_session *d);
uint64_t dv_session_bytes(const dv_session *d);
const float *dv_session_logits(const dv_session *d); /* after the last token; NULL: there are none */

/* ---- words ---- */

/* A picture's or a video's vectors, and what the prompt says of it. Where memory runs out it is tried again smaller. */
typedef struct dv_encoded {
    dv_vlm_features features;
    dv_chat_picture chat;
    dv_picture_plan plan;
    bool smaller;    /* memory ran out: fewer tiles or pixels than the options say */
    double *seconds; /* of a video: of each time step; */
    double step;     /* from one to the next */
} dv_encoded;

davy_result dv_encode_image(const dv_vlm_model *m, const dv_rgb8 *picture, const dv_picture_options *options,
                            const dv_session_options *cancel, dv_encoded *out);

typedef struct dv_video {
    const dv_rgb8 *frames; /* [n] of one size: those that dv_video_frames chose */
    const int64_t *index;  /* [n] their numbers in the video */
    int64_t n, total;      /* frames of the whole video */
    double fps;            /* of the video */
} dv_video;

davy_result dv_encode_video(const dv_vlm_model *m, const dv_video *video, const dv_picture_options *options,
                            const dv_session_options *cancel, dv_encoded *out);
void dv_encoded_free(dv_encoded *s);

/* A question about pictures that were not shown before, after whatever has been said. Needs a tokenizer. system: of the
 * first question; NULL: the model's own. */
davy_result dv_session_ask(dv_session *d, const char *system, const dv_encoded *const *pictures, int32_t n,
                           const char *question);

typedef struct dv_answer_options {
    dv_generate generate; /* token and user are not used */
    const char *const *stop_texts;
    int64_t n_stop_texts;
    bool thoughts;                                                 /* a thinking model's are part of the answer */
    int32_t (*text)(void *user, const char *text, uint64_t bytes); /* pieces as they are certain; may be NULL */
    void *user;
} dv_answer_options;

typedef struct dv_answer {
    char *text; /* NUL-terminated; dv_free */
    uint64_t bytes;
    int64_t tokens;
    dv_session_end end;
    bool only_thought; /* it ended inside thoughts that are no part of it, and is empty */
} dv_answer;

davy_result dv_session_answer(dv_session *d, const dv_answer_options *o, dv_answer *out);

/* ---- words, for a caller with a decoder of its own (batch.h) ---- */

typedef struct dv_prompt {
    const char *system; /* of the first question; NULL: the model's own */
    const dv_encoded *const *pictures;
    int32_t n;
    const char *question;
    bool further, stopped; /* it follows an answer, which ended by itself */
} dv_prompt;

/* The tokens of a question, with its pictures' placeholders. */
davy_result dv_prompt_ids(const dv_vlm_model *m, const dv_prompt *p, dv_ids *out);

typedef struct dv_answering { /* tokens becoming the text of an answer */
    const dv_answer_options *options;
    dv_detokenizer *stream;
    dv_answer *out;
    int64_t room;
    davy_result r;
    bool stopped; /* by a stop text */
} dv_answering;

/* options and out must stay; whatever start answers, end follows. */
davy_result dv_answering_start(const dv_vlm_model *m, const dv_answer_options *o, dv_answer *out, dv_answering *a);
int32_t dv_answering_token(void *user, int32_t id); /* user: the answering; other than 0: nothing more is wanted */
davy_result dv_answering_end(dv_answering *a, davy_result r); /* r: of generating; on an error out is empty */

#endif
