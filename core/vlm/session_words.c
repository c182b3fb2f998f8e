/* session_words.c - questions into tokens, tokens into an answer. */
#include <string.h>

#include "core/base/error.h"
#include "core/vlm/session_priv.h"

davy_result dv_prompt_ids(const dv_vlm_model *m, const dv_prompt *p, dv_ids *out) {
    dv_chat_text text = {0};
    if (m->tokenizer == NULL) {
        return dv_fail(DAVY_E_TOKENIZER, "this model was opened without a tokenizer");
    }
    dv_chat_picture *chat = dv_calloc((uint64_t)dv_max(1, p->n), sizeof *chat);
    davy_result r = chat != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    for (int32_t i = 0; r == DAVY_OK && i < p->n; i++) {
        chat[i] = p->pictures[i]->chat;
    }
    if (r == DAVY_OK) {
        r = p->further ? dv_chat_next(m->chat, p->stopped, &text) : dv_chat_begin(m->chat, p->system, &text);
    }
    r = r < 0 ? r : dv_chat_question(m->chat, chat, p->n, p->question, &text);
    r = r < 0 ? r : dv_chat_encode(m->chat, m->tokenizer, &text, out);
    dv_chat_text_clear(&text);
    dv_free(chat);
    return r;
}

davy_result dv_session_ask(dv_session *d, const char *system, const dv_encoded *const *pictures, int32_t n,
                           const char *question) {
    const dv_vlm_model *m = d->model;
    const dv_prompt prompt = {.system = system,
                              .pictures = pictures,
                              .n = n,
                              .question = question,
                              .further = d->tokens > 0 || d->pending >= 0,
                              .stopped = d->pending_stop};
    dv_ids ids = {0};
    if (n > 0 && m->chat != NULL && m->chat->in_front && prompt.further) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s models take pictures with the first question only",
                       dv_vlm_family_name(m->config.family));
    }
    davy_result r = dv_prompt_ids(m, &prompt, &ids);
    dv_session_picture *shown = r == DAVY_OK ? dv_calloc((uint64_t)dv_max(1, n), sizeof *shown) : NULL;
    if (r == DAVY_OK && shown == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    for (int32_t i = 0; r == DAVY_OK && i < n; i++) {
        shown[i] = (dv_session_picture){.features = &pictures[i]->features, .seconds = pictures[i]->step};
    }
    r = r < 0 ? r : dv_session_feed(d, ids.p, ids.n, shown, n);
    dv_ids_clear(&ids);
    dv_free(shown);
    return r;
}

/* ---- the answer ---- */

static int32_t add_text(dv_answering *a, const char *text, uint64_t bytes) {
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

int32_t dv_answering_token(void *user, int32_t id) {
    dv_answering *a = user;
    const char *text = NULL;
    uint64_t bytes = 0;
    a->r = dv_detokenizer_push(a->stream, id, &text, &bytes, &a->stopped);
    if (a->r < 0) {
        return 1;
    }
    const int32_t asked = add_text(a, text, bytes);
    return asked != 0 || a->stopped ? 1 : 0;
}

davy_result dv_answering_start(const dv_vlm_model *m, const dv_answer_options *o, dv_answer *out, dv_answering *a) {
    *a = (dv_answering){.options = o, .out = out, .r = DAVY_OK};
    *out = (dv_answer){0};
    if (m->tokenizer == NULL) {
        return dv_fail(DAVY_E_TOKENIZER, "this model was opened without a tokenizer");
    }
    const dv_detokenizer_options stream = {.stop_ids = m->stops.p,
                                           .n_stop_ids = m->stops.n,
                                           .stop_texts = o->stop_texts,
                                           .n_stop_texts = o->n_stop_texts,
                                           .trim_start = true,
                                           .hide_thoughts = !o->thoughts,
                                           .thinking = m->chat->thinks};
    return dv_detokenizer_create(m->tokenizer, &stream, &a->stream);
}

davy_result dv_answering_end(dv_answering *a, davy_result r) {
    dv_answer *out = a->out;
    r = r < 0 ? r : a->r;
    if (r == DAVY_OK && !a->stopped) {
        const char *text = NULL;
        uint64_t bytes = 0;
        r = dv_detokenizer_end(a->stream, &text, &bytes);
        if (r == DAVY_OK) {
            add_text(a, text, bytes);
            r = a->r;
        }
    } else if (r == DAVY_OK) {
        out->end = DV_END_STOP;
    }
    out->only_thought = r == DAVY_OK && dv_detokenizer_only_thought(a->stream);
    dv_detokenizer_release(a->stream);
    a->stream = NULL;
    if (r < 0) {
        dv_free(out->text);
        *out = (dv_answer){0};
    }
    return r;
}

davy_result dv_session_answer(dv_session *d, const dv_answer_options *o, dv_answer *out) {
    dv_answering a;
    dv_generate g = o->generate;
    g.token = dv_answering_token;
    g.user = &a;
    davy_result r = dv_answering_start(d->model, o, out, &a);
    r = r < 0 ? r : dv_session_generate(d, &g, &out->tokens, &out->end);
    return dv_answering_end(&a, r);
}
