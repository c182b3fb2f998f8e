/* dialogue_words.c - questions into tokens, tokens into an answer. */
#include <string.h>

#include "core/error.h"
#include "core/text/stream.h"
#include "core/vlm/dialogue_priv.h"

static davy_result write_prompt(const dv_dialogue *d, const char *system, const dv_chat_picture *pictures, int32_t n,
                                const char *question, dv_chat_text *text) {
    const dv_chat_format *f = d->model->chat;
    const bool first = d->tokens == 0 && d->pending < 0;
    const davy_result r = first ? dv_chat_begin(f, system, text) : dv_chat_next(f, d->pending_stop, text);
    return r < 0 ? r : dv_chat_question(f, pictures, n, question, text);
}

davy_result dv_dialogue_ask(dv_dialogue *d, const char *system, const dv_seen *const *pictures, int32_t n,
                            const char *question) {
    const dv_vlm_model *m = d->model;
    dv_chat_text text = {0};
    dv_ids ids = {0};
    if (m->tokenizer == NULL) {
        return dv_fail(DAVY_E_TOKENIZER, "this model was opened without a tokenizer");
    }
    dv_chat_picture *chat = dv_calloc((uint64_t)dv_max(1, n), sizeof *chat);
    dv_dialogue_picture *shown = dv_calloc((uint64_t)dv_max(1, n), sizeof *shown);
    davy_result r = chat != NULL && shown != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    for (int32_t i = 0; r == DAVY_OK && i < n; i++) {
        chat[i] = pictures[i]->chat;
        shown[i] = (dv_dialogue_picture){.features = &pictures[i]->features, .seconds = pictures[i]->step};
    }
    r = r < 0 ? r : write_prompt(d, system, chat, n, question, &text);
    r = r < 0 ? r : dv_chat_encode(m->chat, m->tokenizer, &text, &ids);
    r = r < 0 ? r : dv_dialogue_feed(d, ids.p, ids.n, shown, n);
    dv_ids_clear(&ids);
    dv_chat_text_clear(&text);
    dv_free(chat);
    dv_free(shown);
    return r;
}

/* ---- the answer ---- */

typedef struct answering {
    const dv_answer_options *options;
    dv_stream *stream;
    dv_answer *out;
    int64_t room;
    davy_result r;
    bool stopped; /* by a stop text */
} answering;

static int32_t add_text(answering *a, const char *text, uint64_t bytes) {
    dv_answer *out = a->out;
    char *grown = dv_grow(out->text, (int64_t)(out->bytes + bytes + 1), &a->room, 1);
    if (grown == NULL) {
        a->r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
        return 1;
    }
    out->text = grown;
    if (bytes > 0) {
        memcpy(grown + out->bytes, text, (size_t)bytes);
    }
    out->bytes += bytes;
    grown[out->bytes] = '\0';
    return bytes > 0 && a->options->text != NULL ? a->options->text(a->options->user, text, bytes) : 0;
}

static int32_t take_token(void *user, int32_t id) {
    answering *a = user;
    const char *text = NULL;
    uint64_t bytes = 0;
    a->r = dv_stream_push(a->stream, id, &text, &bytes, &a->stopped);
    if (a->r < 0) {
        return 1;
    }
    const int32_t asked = add_text(a, text, bytes);
    return asked != 0 || a->stopped ? 1 : 0;
}

davy_result dv_dialogue_answer(dv_dialogue *d, const dv_answer_options *o, dv_answer *out) {
    const dv_vlm_model *m = d->model;
    if (m->tokenizer == NULL) {
        return dv_fail(DAVY_E_TOKENIZER, "this model was opened without a tokenizer");
    }
    *out = (dv_answer){0};
    answering a = {.options = o, .out = out, .r = DAVY_OK};
    const dv_stream_options stream = {.stop_ids = m->stops.p,
                                      .n_stop_ids = m->stops.n,
                                      .stop_texts = o->stop_texts,
                                      .n_stop_texts = o->n_stop_texts,
                                      .trim_start = true};
    dv_generate g = o->generate;
    g.token = take_token;
    g.user = &a;
    davy_result r = dv_stream_create(m->tokenizer, &stream, &a.stream);
    r = r < 0 ? r : dv_dialogue_generate(d, &g, &out->tokens, &out->end);
    r = r < 0 ? r : a.r;
    if (r == DAVY_OK && !a.stopped) {
        const char *text = NULL;
        uint64_t bytes = 0;
        r = dv_stream_end(a.stream, &text, &bytes);
        if (r == DAVY_OK) {
            add_text(&a, text, bytes);
            r = a.r;
        }
    } else if (r == DAVY_OK) {
        out->end = DV_END_STOP;
    }
    dv_stream_release(a.stream);
    if (r < 0) {
        dv_free(out->text);
        *out = (dv_answer){0};
    }
    return r;
}
