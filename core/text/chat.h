/* chat.h - the prompts of the models as data: what their chat templates give for pictures and a question, and for the
 * questions after it. A prompt is put together as text and then encoded as one, because pieces of text run across the
 * seams of a template; the user's own words are marked, so that "<|im_end|>" in a question stays a text. */
#ifndef DV_TEXT_CHAT_H
#define DV_TEXT_CHAT_H

#include "core/text/tokenizer.h"

typedef enum dv_chat_kind {
    DV_CHAT_SMOLVLM = 1, /* SmolVLM, SmolVLM2 */
    DV_CHAT_IDEFICS3,    /* Idefics3-8B, which speaks Llama 3's tokens */
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
    const char *user_close, *answer_open;      /* after the question; then the model speaks */
    const char *answer_gap;                    /* what the model begins its answer with */
    const char *answer_end, *after_answer;     /* the token it ends it with, and what the template puts after it */
    const char *picture_open, *picture_close;  /* around the placeholders of one picture */
    const char *pictures_end;                  /* behind the last of them; NULL: nothing */
    const char *picture_token, *video_token;   /* the placeholder; video NULL: none */
    const char *stops[4];                      /* tokens that end an answer */
    bool system_in_question;                   /* it has no turn of its own: part of the first question */
    bool tiles;                                /* Idefics3's way of writing pictures */
    bool timed;                                /* every time step of a video is a span with its seconds */
    bool thinks;                               /* the prompt ends inside a block of thoughts: <think> */
    bool in_front; /* pictures' vectors come before everything else; their placeholders are words besides */
} dv_chat_format;

const dv_chat_format *dv_chat_format_of(dv_chat_kind kind); /* NULL: no such kind */

typedef struct dv_chat_picture {
    int64_t tokens;        /* placeholders: of one tile (Idefics3), of one time step of a video, else of the picture */
    int32_t rows, cols;    /* tiles, besides the whole picture; 0: only that */
    int32_t steps;         /* of a video; 0: a still picture */
    const double *seconds; /* of each step, for the formats that name them */
    double duration;       /* of the video in seconds, Idefics3 */
} dv_chat_picture;

typedef struct dv_chat_text { /* starts as zeros; dv_chat_text_clear */
    char *p;
    int64_t n, room;
    dv_text_span *words; /* the user's own */
    int64_t n_words, words_room;
    int64_t pictures, videos; /* placeholders so far */
    bool in_question;         /* the turn is open already */
} dv_chat_text;

void dv_chat_text_clear(dv_chat_text *text);

/* Each appends to text. A first prompt is begin, question. Afterwards, what the cache holds goes on with next, question;
 * and a dialogue told again from the start is begin, question, answer, question, ... */
davy_result dv_chat_begin(const dv_chat_format *f, const char *system,
                          dv_chat_text *text); /* NULL: default, "": none */
davy_result dv_chat_question(const dv_chat_format *f, const dv_chat_picture *pictures, int32_t n, const char *question,
                             dv_chat_text *text);
davy_result dv_chat_answer(const dv_chat_format *f, const char *answer, dv_chat_text *text);
/* After a generated answer; end_fed: its last token is in the cache too. */
davy_result dv_chat_next(const dv_chat_format *f, bool end_fed, dv_chat_text *text);

/* The ids, appended; with in_front, first those that stand for vectors. A tokenizer without the placeholders is
 * DAVY_E_TOKENIZER. */
davy_result dv_chat_encode(const dv_chat_format *f, const dv_tokenizer *t, const dv_chat_text *text, dv_ids *ids);
/* The tokens that end an answer, as far as the tokenizer has them; none is DAVY_E_TOKENIZER. */
davy_result dv_chat_stop_ids(const dv_chat_format *f, const dv_tokenizer *t, dv_ids *ids);

#endif
