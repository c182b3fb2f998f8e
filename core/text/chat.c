/* chat.c - prompts from roles, texts and pictures: the chat templates as data, one entry for each family, and the functions
 * that build a prompt. */
#include "core/text/chat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"

/* The common part of Idefics3's templates. The start is that of the language model. */
#define IDEFICS3                                                                                                       \
    .system_open = "System: ", .system_close = "<end_of_utterance>\n",                                                 \
    .user_open = "User: ", .user_open_picture = "User:", .user_close = "<end_of_utterance>\n",                         \
    .answer_open = "Assistant:", .answer_gap = " ", .answer_end = "<end_of_utterance>", .after_answer = "\n",          \
    .picture_open = "<fake_token_around_image>", .picture_close = "<fake_token_around_image>",                         \
    .picture_token = "<image>", .video_token = "<image>", .stops = {"<end_of_utterance>"}, .tiles = true

static const dv_chat_format smolvlm = {
    .name = "SmolVLM",
    .start = "<|im_start|>",
    IDEFICS3,
};

static const dv_chat_format idefics3 = {
    .name = "Idefics3",
    .start = "<|begin_of_text|>",
    IDEFICS3,
};

/* The common part of the Qwen-VL models' templates. */
#define QWEN_VL                                                                                                        \
    .start = "", .system_open = "<|im_start|>system\n", .system_close = "<|im_end|>\n",                                \
    .user_open = "<|im_start|>user\n", .user_open_picture = "<|im_start|>user\n", .user_close = "<|im_end|>\n",        \
    .answer_gap = "", .answer_end = "<|im_end|>", .after_answer = "\n", .picture_open = "<|vision_start|>",            \
    .picture_close = "<|vision_end|>", .picture_token = "<|image_pad|>", .video_token = "<|video_pad|>",               \
    .stops = {"<|im_end|>", "<|endoftext|>"}

static const dv_chat_format qwen2_vl = {
    .name = "Qwen2-VL",
    QWEN_VL,
    .default_system = "You are a helpful assistant.",
    .answer_open = "<|im_start|>assistant\n",
};

static const dv_chat_format qwen3_vl = {
    .name = "Qwen3-VL",
    QWEN_VL,
    .answer_open = "<|im_start|>assistant\n",
    .timed = true,
};

static const dv_chat_format qwen3_vl_thinking = {
    .name = "Qwen3-VL Thinking",
    QWEN_VL,
    .answer_open = "<|im_start|>assistant\n<think>\n",
    .timed = true,
    .thinks = true,
};

static const dv_chat_format vicuna = {
    .name = "LLaVA 1.5",
    .start = "<s>",
    .system_open = "",
    .system_close = " ",
    .user_open = "USER: ",
    .user_open_picture = "USER: ",
    .user_close = " ",
    .answer_open = "ASSISTANT:",
    .answer_gap = " ",
    .answer_end = "</s>",
    .after_answer = "",
    .picture_open = "",
    .picture_close = "\n",
    .picture_token = "<image>",
    .stops = {"</s>"},
};

/* The question begins on a new line, with or without a picture before it. */
static const dv_chat_format llava_qwen = {
    .name = "LLaVA with Qwen",
    .start = "",
    .system_open = "<|im_start|>system\n\n",
    .system_close = "<|im_end|>\n",
    .user_open = "<|im_start|>user\n\n",
    .user_open_picture = "<|im_start|>user\n",
    .user_close = "<|im_end|>\n",
    .answer_open = "<|im_start|>assistant\n",
    .answer_gap = "\n",
    .answer_end = "<|im_end|>",
    .after_answer = "\n",
    .picture_open = "",
    .picture_close = "",
    .pictures_end = "\n",
    .picture_token = "<image>",
    .stops = {"<|im_end|>", "<|endoftext|>"},
};

static const dv_chat_format llava_llama3 = {
    .name = "LLaVA with Llama 3",
    .start = "<|begin_of_text|>",
    .system_open = "<|start_header_id|>system<|end_header_id|>\n\n",
    .system_close = "<|eot_id|>",
    .user_open = "<|start_header_id|>user<|end_header_id|>\n\n",
    .user_open_picture = "<|start_header_id|>user<|end_header_id|>\n\n",
    .user_close = "<|eot_id|>",
    .answer_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",
    .answer_gap = "",
    .answer_end = "<|eot_id|>",
    .after_answer = "",
    .picture_open = "",
    .picture_close = "\n",
    .picture_token = "<image>",
    .stops = {"<|eot_id|>", "<|end_of_text|>"},
};

/* The placeholders are reserved tokens of Llama 3. The dates are part of Llama 3.1's template. */
static const dv_chat_format joycaption = {
    .name = "JoyCaption",
    .start = "<|begin_of_text|>",
    .system_open = "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
                   "Today Date: 26 July 2024\n\n",
    .system_close = "<|eot_id|>",
    .default_system = "You are a helpful image captioner.",
    .user_open = "<|start_header_id|>user<|end_header_id|>\n\n",
    .user_open_picture = "<|start_header_id|>user<|end_header_id|>\n\n",
    .user_close = "<|eot_id|>",
    .answer_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",
    .answer_gap = "",
    .answer_end = "<|eot_id|>",
    .after_answer = "",
    .picture_open = "<|reserved_special_token_70|>",
    .picture_close = "<|reserved_special_token_71|>",
    .picture_token = "<|reserved_special_token_69|>",
    .stops = {"<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"},
};

static const dv_chat_format nanochat = {
    .name = "nanochat",
    .start = "<|bos|>",
    .system_open = "",
    .system_close = "\n\n",
    .user_open = "<|user_start|>",
    .user_open_picture = "<|user_start|>",
    .user_close = "<|user_end|>",
    .answer_open = "<|assistant_start|>",
    .answer_gap = "",
    .answer_end = "<|assistant_end|>",
    .after_answer = "",
    .picture_open = "",
    .picture_close = "",
    .picture_token = "<|image|>",
    .stops = {"<|assistant_end|>", "<|bos|>"},
    .system_in_question = true,
    .in_front = true,
};

const dv_chat_format *dv_chat_format_of(dv_chat_kind kind) {
    switch (kind) {
    case DV_CHAT_SMOLVLM:
        return &smolvlm;
    case DV_CHAT_IDEFICS3:
        return &idefics3;
    case DV_CHAT_QWEN2_VL:
        return &qwen2_vl;
    case DV_CHAT_QWEN3_VL:
        return &qwen3_vl;
    case DV_CHAT_QWEN3_VL_THINKING:
        return &qwen3_vl_thinking;
    case DV_CHAT_VICUNA:
        return &vicuna;
    case DV_CHAT_LLAVA_QWEN:
        return &llava_qwen;
    case DV_CHAT_LLAVA_LLAMA3:
        return &llava_llama3;
    case DV_CHAT_JOYCAPTION:
        return &joycaption;
    case DV_CHAT_NANOCHAT:
        return &nanochat;
    }
    return NULL;
}

/* ---- building prompts ---- */

enum { MAX_TILES = 64, MAX_STEPS = 4096, MAX_PICTURE_TOKENS = 1 << 17 };

void dv_chat_text_clear(dv_chat_text *text) {
    dv_free(text->p);
    dv_free(text->words);
    *text = (dv_chat_text){0};
}

static davy_result no_memory(void) {
    return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a prompt");
}

static davy_result add(dv_chat_text *text, const char *s) {
    const size_t n = strlen(s);
    char *grown = dv_grow(text->p, text->n + (int64_t)n + 1, &text->room, 1);
    if (grown == NULL) {
        return no_memory();
    }
    text->p = grown;
    memcpy(grown + text->n, s, n + 1);
    text->n += (int64_t)n;
    return DAVY_OK;
}

static davy_result add_words(dv_chat_text *text, const char *s) {
    const uint64_t from = (uint64_t)text->n;
    dv_text_span *grown = dv_grow(text->words, text->n_words + 1, &text->words_room, sizeof *grown);
    if (grown == NULL) {
        return no_memory();
    }
    text->words = grown;
    const davy_result r = add(text, s);
    if (r == DAVY_OK && s[0] != '\0') {
        text->words[text->n_words++] = (dv_text_span){from, (uint64_t)text->n};
    }
    return r;
}

static davy_result add_many(dv_chat_text *text, const char *token, int64_t n) {
    const size_t bytes = strlen(token);
    char *grown = dv_grow(text->p, text->n + n * (int64_t)bytes + 1, &text->room, 1);
    if (grown == NULL) {
        return no_memory();
    }
    text->p = grown;
    for (int64_t i = 0; i < n; i++) {
        memcpy(grown + text->n, token, bytes);
        text->n += (int64_t)bytes;
    }
    grown[text->n] = '\0';
    return DAVY_OK;
}

static davy_result add_pictures(dv_chat_text *text, const char *token, int64_t n) {
    text->pictures += n;
    return add_many(text, token, n);
}

/* ---- Idefics3: tiles row by row, a line break after each row, then the whole picture ---- */

static davy_result add_whole(const dv_chat_format *f, const dv_chat_picture *p, dv_chat_text *text) {
    davy_result r = add(text, f->picture_open);
    r = r < 0 ? r : add(text, "<global-img>");
    r = r < 0 ? r : add_pictures(text, f->picture_token, p->tokens);
    return r < 0 ? r : add(text, f->picture_close);
}

static davy_result add_tiles(const dv_chat_format *f, const dv_chat_picture *p, dv_chat_text *text) {
    davy_result r = DAVY_OK;
    for (int32_t row = 1; r == DAVY_OK && row <= p->rows; row++) {
        for (int32_t col = 1; r == DAVY_OK && col <= p->cols; col++) {
            char name[48];
            snprintf(name, sizeof name, "<row_%" PRId32 "_col_%" PRId32 ">", row, col);
            r = add(text, f->picture_open);
            r = r < 0 ? r : add(text, name);
            r = r < 0 ? r : add_pictures(text, f->picture_token, p->tokens);
        }
        r = r < 0 ? r : add(text, "\n");
    }
    r = r == DAVY_OK && p->rows > 0 ? add(text, "\n") : r;
    return r < 0 ? r : add_whole(f, p, text);
}

/* 1 to 99 in words, as the template's num2words writes them. */
static void words_of(int32_t n, char *out, size_t size) {
    static const char *const small[] = {
        "zero", "one",    "two",    "three",    "four",     "five",    "six",     "seven",     "eight",    "nine",
        "ten",  "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
    static const char *const tens[] = {"twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};
    if (n < 20) {
        snprintf(out, size, "%s", small[n]);
    } else {
        snprintf(out, size, n % 10 != 0 ? "%s-%s" : "%s", tens[n / 10 - 2], small[n % 10]);
    }
}

static davy_result add_frames(const dv_chat_format *f, const dv_chat_picture *p, dv_chat_text *text) {
    char line[160];
    char count[24];
    if (p->steps > 99 || p->duration < 0 || p->duration > 1e6) {
        return dv_fail(DAVY_E_INVALID,
                       "a video of %" PRId32 " frames and %g seconds; at most 99 frames and 1e6 seconds are allowed",
                       p->steps, p->duration);
    }
    const int32_t all = (int32_t)p->duration;
    words_of(p->steps, count, sizeof count);
    snprintf(line, sizeof line,
             "You are provided the following series of %s frames from a %" PRId32 ":%02" PRId32 ":%02" PRId32
             " [H:MM:SS] video.\n",
             count, all / 3600, all / 60 % 60, all % 60);
    davy_result r = add(text, line);
    for (int32_t i = 0; r == DAVY_OK && i < p->steps; i++) {
        const int32_t at = (int32_t)p->seconds[i];
        snprintf(line, sizeof line, "\nFrame from %02" PRId32 ":%02" PRId32 ":", at / 60, at % 60);
        r = add(text, line);
        r = r < 0 ? r : add_whole(f, p, text);
    }
    return r < 0 ? r : add(text, "\n\n");
}

/* ---- the others ---- */

static davy_result add_span(const dv_chat_format *f, bool video, int64_t n, dv_chat_text *text) {
    text->pictures += video ? 0 : n;
    text->videos += video ? n : 0;
    davy_result r = add(text, f->picture_open);
    r = r < 0 ? r : add_many(text, video ? f->video_token : f->picture_token, n);
    return r < 0 ? r : add(text, f->picture_close);
}

static davy_result add_timed(const dv_chat_format *f, const dv_chat_picture *p, dv_chat_text *text) {
    davy_result r = DAVY_OK;
    for (int32_t i = 0; r == DAVY_OK && i < p->steps; i++) {
        char time[48];
        snprintf(time, sizeof time, "<%.1f seconds>", p->seconds[i]);
        for (char *comma = strchr(time, ','); comma != NULL; comma = strchr(comma, ',')) {
            *comma = '.'; /* of the host's locale */
        }
        r = add(text, time);
        r = r < 0 ? r : add_span(f, true, p->tokens, text);
    }
    return r;
}

static davy_result check_picture(const dv_chat_format *f, const dv_chat_picture *p) {
    const bool tiled = p->rows > 0 || p->cols > 0;
    bool ok = p->tokens > 0 && p->tokens <= MAX_PICTURE_TOKENS && p->rows >= 0 && p->cols >= 0 &&
              (p->rows > 0) == (p->cols > 0) && p->rows <= MAX_TILES && p->cols <= MAX_TILES && p->steps >= 0 &&
              p->steps <= MAX_STEPS && !(tiled && (!f->tiles || p->steps > 0));
    for (int32_t i = 0; ok && p->steps > 0 && (f->timed || f->tiles) && i < p->steps; i++) {
        ok = p->seconds != NULL && p->seconds[i] >= 0 && p->seconds[i] <= 1e6;
    }
    if (!ok || (p->steps > 0 && f->video_token == NULL)) {
        return dv_fail(DAVY_E_INVALID,
                       "%s has no prompt for a picture of %" PRId64 " tokens, %" PRId32 "x%" PRId32 " tiles, %" PRId32
                       " time steps",
                       f->name, p->tokens, p->rows, p->cols, p->steps);
    }
    return DAVY_OK;
}

static davy_result add_picture(const dv_chat_format *f, const dv_chat_picture *p, dv_chat_text *text) {
    const davy_result r = check_picture(f, p);
    if (r < 0) {
        return r;
    }
    if (f->tiles) {
        return p->steps > 0 ? add_frames(f, p, text) : add_tiles(f, p, text);
    }
    if (p->steps > 0 && f->timed) {
        return add_timed(f, p, text);
    }
    return add_span(f, p->steps > 0, p->tokens * (p->steps > 0 ? p->steps : 1), text);
}

/* ---- turns ---- */

davy_result dv_chat_begin(const dv_chat_format *f, const char *system, dv_chat_text *text) {
    const char *words = system != NULL ? system : f->default_system;
    davy_result r = add(text, f->start);
    if (r < 0 || words == NULL || words[0] == '\0') {
        return r;
    }
    r = f->system_in_question ? add(text, f->user_open) : r;
    text->in_question = f->system_in_question;
    r = r < 0 ? r : add(text, f->system_open);
    r = r < 0 ? r : add_words(text, words);
    return r < 0 ? r : add(text, f->system_close);
}

davy_result dv_chat_question(const dv_chat_format *f, const dv_chat_picture *pictures, int32_t n, const char *question,
                             dv_chat_text *text) {
    davy_result r = DAVY_OK;
    if (!text->in_question) {
        const bool picture = n > 0 && pictures[0].steps == 0; /* Idefics3's videos begin with words */
        r = add(text, picture ? f->user_open_picture : f->user_open);
    }
    text->in_question = false;
    for (int32_t i = 0; r == DAVY_OK && i < n; i++) {
        r = add_picture(f, &pictures[i], text);
    }
    r = r == DAVY_OK && n > 0 && f->pictures_end != NULL ? add(text, f->pictures_end) : r;
    r = r < 0 ? r : add_words(text, question);
    r = r < 0 ? r : add(text, f->user_close);
    return r < 0 ? r : add(text, f->answer_open);
}

davy_result dv_chat_answer(const dv_chat_format *f, const char *answer, dv_chat_text *text) {
    davy_result r = add(text, f->answer_gap);
    r = r < 0 ? r : add_words(text, answer);
    return r < 0 ? r : dv_chat_next(f, false, text);
}

davy_result dv_chat_next(const dv_chat_format *f, bool end_fed, dv_chat_text *text) {
    const davy_result r = end_fed ? DAVY_OK : add(text, f->answer_end);
    return r < 0 ? r : add(text, f->after_answer);
}

/* ---- ids ---- */

static davy_result check_count(const dv_chat_format *f, const dv_tokenizer *t, const char *token, int64_t expected,
                               const int32_t *ids, int64_t n) {
    const int32_t id = expected > 0 ? dv_tokenizer_find(t, token) : -1;
    int64_t found = 0;
    for (int64_t i = 0; id >= 0 && i < n; i++) {
        found += ids[i] == id;
    }
    return found == expected
               ? DAVY_OK
               : dv_fail(DAVY_E_TOKENIZER,
                         "the tokenizer finds %" PRId64 " of %" PRId64 " placeholders %s: it does not fit %s", found,
                         expected, token, f->name);
}

/* Inserts `count` placeholders before the ids from `at` on. */
static davy_result put_in_front(int32_t id, int64_t count, int64_t at, dv_ids *ids) {
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < count; i++) {
        r = dv_ids_add(ids, id);
    }
    if (r == DAVY_OK) {
        memmove(ids->p + at + count, ids->p + at, (size_t)(ids->n - at - count) * sizeof *ids->p);
    }
    for (int64_t i = 0; r == DAVY_OK && i < count; i++) {
        ids->p[at + i] = id;
    }
    return r;
}

davy_result dv_chat_encode(const dv_chat_format *f, const dv_tokenizer *t, const dv_chat_text *text, dv_ids *ids) {
    const int64_t n = ids->n;
    const bool shared = f->video_token != NULL && strcmp(f->video_token, f->picture_token) == 0;
    const char *p = text->p != NULL ? text->p : "";
    const size_t start = strlen(f->start);
    const bool begins = start > 0 && strncmp(p, f->start, start) == 0;
    const dv_text_around around = {
        .spans = text->words, .n = text->n_words, .begins = begins ? start : (uint64_t)text->n};
    davy_result r = dv_encode_around(t, p, (uint64_t)text->n, &around, ids);
    r = r < 0 ? r : check_count(f, t, f->picture_token, text->pictures, ids->p + n, ids->n - n);
    if (r == DAVY_OK && text->videos > 0 && !shared) {
        r = check_count(f, t, f->video_token, text->videos, ids->p + n, ids->n - n);
    }
    if (r == DAVY_OK && f->in_front && text->pictures > 0) {
        r = put_in_front(dv_tokenizer_find(t, f->picture_token), text->pictures, n, ids);
    }
    ids->n = r < 0 ? n : ids->n;
    return r;
}

davy_result dv_chat_stop_ids(const dv_chat_format *f, const dv_tokenizer *t, dv_ids *ids) {
    const int64_t n = ids->n;
    davy_result r = DAVY_OK;
    for (size_t i = 0; r == DAVY_OK && i < DV_ARRAY_LEN(f->stops) && f->stops[i] != NULL; i++) {
        const int32_t id = dv_tokenizer_find(t, f->stops[i]);
        r = id >= 0 ? dv_ids_add(ids, id) : DAVY_OK;
    }
    if (r == DAVY_OK && ids->n == n) {
        return dv_fail(DAVY_E_TOKENIZER, "the tokenizer has no token %s: it does not fit %s", f->stops[0], f->name);
    }
    return r;
}
