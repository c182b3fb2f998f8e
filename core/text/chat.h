/* chat.h - the models' prompts: the results of their chat templates for pictures and a question, and for later questions.
 * A prompt is built as one text and then encoded as a whole, because tokens may cross the joints of a template. The user's
 * words are marked, so that "<|im_end|>" in a question remains plain text. */
#ifndef DV_TEXT_CHAT_H
#define DV_TEXT_CHAT_H

#include "core/text/tokenizer.h"

typedef enum dv_chat_kind {
    DV_CHAT_SMOLVLM = 1, /* SmolVLM, SmolVLM2 */
    DV_CHAT_IDEFICS3,    /* Idefics3-8B, with Llama 3's tokens */
    DV_CHAT_QWEN2_VL,    /* and Qwen2.5-VL */
    DV_CHAT_QWEN3_VL,
    DV_CHAT_QWEN3_VL_THINKING,
    DV_CHAT_VICUNA,       /* LLaVA 1.5 */
    DV_CHAT_LLAVA_QWEN,   /* LLaVA with Qwen's language model: LLaVA-Interleave */
    DV_CHAT_LLAVA_LLAMA3, /* with Llama 3's */
    DV_CHAT_JOYCAPTION,
    DV_CHAT_NANOCHAT
} dv_chat_kind;

typedef struct dv_chat_format {
    const char *name;
    const char *start; /* once, in front of everything */
    const char *system_open, *system_close;
    const char *default_system;                /* NULL: no system text unless the caller has one */
    const char *user_open, *user_open_picture; /* before words, before a picture */
    const char *user_close, *answer_open;      /* after the question; before the model's answer */
    const char *answer_gap;                    /* the text that the model begins its answer with */
    const char *answer_end, *after_answer;     /* the token that ends the answer, and the template's text after it */
    const char *picture_open, *picture_close;  /* around the placeholders of one picture */
    const char *pictures_end;                  /* after the last picture; NULL: nothing */
    const char *picture_token, *video_token;   /* the placeholder; video NULL: none */
    const char *stops[4];                      /* tokens that end an answer */
    bool system_in_question;                   /* the system text is part of the first question */
    bool tiles;                                /* pictures are written as tiles, as in Idefics3 */
    bool timed;                                /* every time step of a video has its own span and its seconds */
    bool thinks;                               /* the prompt ends inside a block of thoughts: <think> */
    bool in_front; /* the pictures' vectors come first; their placeholders are also tokens of the text */
} dv_chat_format;

const dv_chat_format *dv_chat_format_of(dv_chat_kind kind); /* NULL: no such kind */

typedef struct dv_chat_picture {
    int64_t tokens;        /* placeholders of one tile (Idefics3), of one time step of a video, or of the picture */
    int32_t rows, cols;    /* tiles, in addition to the whole picture; 0: no tiles */
    int32_t steps;         /* of a video; 0: a still picture */
    const double *seconds; /* of each step, for formats with `timed` or `tiles` */
    double duration;       /* of the video in seconds, Idefics3 */
} dv_chat_picture;

typedef struct dv_chat_text { /* starts as zeros; dv_chat_text_clear */
    char *p;
    int64_t n, room;
    dv_text_span *words; /* spans of the user's words */
    int64_t n_words, words_room;
    int64_t pictures, videos; /* placeholders so far */
    bool in_question;         /* the turn is open already */
} dv_chat_text;

void dv_chat_text_clear(dv_chat_text *text);

/* Each function appends to text. A first prompt is begin, question. To continue from the cache, call next, question. To
 * build a whole dialogue again, call begin, question, answer, question, ... */
davy_result dv_chat_begin(const dv_chat_format *f, const char *system,
                          dv_chat_text *text); /* NULL: default, "": none */
davy_result dv_chat_question(const dv_chat_format *f, const dv_chat_picture *pictures, int32_t n, const char *question,
                             dv_chat_text *text);
davy_result dv_chat_answer(const dv_chat_format *f, const char *answer, dv_chat_text *text);
/* After a generated answer; end_fed: its last token is in the cache too. */
davy_result dv_chat_next(const dv_chat_format *f, bool end_fed, dv_chat_text *text);

/* Appends the ids of the text. With in_front, the ids of the vectors' placeholders come first. DAVY_E_TOKENIZER: the
 * tokenizer lacks the placeholders. */
davy_result dv_chat_encode(const dv_chat_format *f, const dv_tokenizer *t, const dv_chat_text *text, dv_ids *ids);
/* Appends the tokenizer's ids of the tokens that end an answer. DAVY_E_TOKENIZER: it has none of them. */
davy_result dv_chat_stop_ids(const dv_chat_format *f, const dv_tokenizer *t, dv_ids *ids);

#endif
