/* golden_vlm_chats.c - a trained model end to end: from a picture file and questions to the answer's words. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/os.h"
#include "core/vlm/session_priv.h"
#include "golden_io.h"
#include "golden_vlm.h"

#include "golden_check.h"

static const char *text_of(const dv_json *object, const char *key) {
    const dv_json *v = dv_json_get(object, key);
    return v != NULL ? dv_json_string(v) : NULL;
}

static bool read_picture(const vlm_run *run, const char *name, dv_rgb8 *out) {
    array a = {0};
    char *path = dv_path_join(run->folder, name);
    const bool ok = path != NULL && read_png(path, &a) && dv_picture_allocate(a.w, a.h, out) == DAVY_OK;
    for (int64_t i = 0; ok && i < a.w * a.h * 3; i++) {
        out->data[i] = (uint8_t)lrintf(a.data[i % 3 * a.w * a.h + i / 3] * 255.0f);
    }
    array_free(&a);
    dv_free(path);
    return CHECKF(ok, "%s cannot be read", name);
}

/* Writes the whole chat with its template, up to the last question. */
static davy_result write_chat(const dv_vlm_model *m, const dv_json *one, const dv_chat_picture *picture,
                              dv_chat_text *text) {
    davy_result r = dv_chat_begin(m->chat, NULL, text);
    int32_t n = 1;
    const dv_json *messages = dv_json_get(one, "messages");
    for (const dv_json *message = dv_json_first(messages); r == DAVY_OK && message != NULL;
         message = dv_json_next(message)) {
        const char *words = "";
        const dv_json *content = dv_json_get(message, "content");
        for (const dv_json *part = dv_json_first(content); part != NULL; part = dv_json_next(part)) {
            words = text_of(part, "text") != NULL ? text_of(part, "text") : words;
        }
        if (strcmp(text_of(message, "role"), "user") == 0) {
            r = dv_chat_question(m->chat, picture, n, words, text);
            n = 0;
        } else {
            r = dv_chat_answer(m->chat, words, text);
        }
    }
    return r;
}

static bool same_ids(const int32_t *a, int64_t n, const int32_t *b, int64_t m) {
    return n == m && (n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0);
}

static void check_answer(const vlm_run *run, dv_session *d, const dv_json *one, dv_session_mark mark) {
    const char *id = text_of(one, "id");
    const dv_answer_options o = {.generate = {.sample = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = 128}};
    dv_answer answer = {0};
    if (dv_session_answer(d, &o, &answer) != DAVY_OK) {
        vlm_error(id);
        return;
    }
    int64_t n = 0;
    int32_t *expected = vlm_ids(one, "generated_ids", &n);
    const bool same = strcmp(answer.text, text_of(one, "text")) == 0 && answer.end == DV_END_STOP;
    if (run->precision != DAVY_DTYPE_INT4) {
        CHECKF(same, "%s: \"%s\", expected \"%s\"", id, answer.text, text_of(one, "text"));
        CHECKF(answer.tokens == n, "%s: %lld tokens, expected %lld", id, (long long)answer.tokens, (long long)n);
    }
    CHECK(dv_session_now(d).tokens == mark.tokens + answer.tokens - 1);
    printf("%s: %s%s\n", id, answer.text, same ? "" : " (differs)");
    free(expected);
    dv_free(answer.text);
}

/* A further question must give the same answer as the same dialogue computed from the start. */
static void check_follow_up(const vlm_run *run, dv_session *d, const dv_json *one, const dv_encoded *seen,
                            dv_chat_text *text) {
    const dv_vlm_model *m = d->model;
    const char *id = text_of(one, "id");
    const dv_session_picture shown = {.features = &seen->features};
    dv_session *e = NULL;
    dv_ids ids = {0};
    if (dv_session_ask(d, NULL, NULL, 0, "What colour is it?") != DAVY_OK ||
        dv_chat_answer(m->chat, text_of(one, "text"), text) != DAVY_OK ||
        dv_chat_question(m->chat, NULL, 0, "What colour is it?", text) != DAVY_OK ||
        dv_chat_encode(m->chat, m->tokenizer, text, &ids) != DAVY_OK || dv_session_open(m, NULL, &e) != DAVY_OK ||
        dv_session_feed(e, ids.p, ids.n, &shown, 1) != DAVY_OK) {
        vlm_error(id);
    } else if (run->precision == DAVY_DTYPE_F32) { /* in other precisions an answer may differ */
        CHECKF(same_ids(d->history, d->tokens, e->history, e->tokens), "%s: a follow-up's ids differ", id);
        char what[64];
        snprintf(what, sizeof what, "%s.follow_up", id);
        vlm_compare(what, dv_session_logits(d), dv_session_logits(e), m->config.text.vocab, 1e-4);
    }
    dv_session_release(e);
    dv_ids_clear(&ids);
}

static void check_vectors(const vlm_run *run, const char *id, const dv_encoded *seen) {
    char name[64];
    snprintf(name, sizeof name, "%s.connector_out", id);
    vlm_numbers_of expected = {0};
    if ((strcmp(id, "case00") == 0 || strcmp(id, "case05") == 0) &&
        vlm_read(run->folder, "stages.safetensors", name, &expected)) {
        const double bound = vlm_bound(run->precision, 1e-3);
        if (CHECK(expected.n == seen->features.tokens * expected.shape[expected.ndim - 1])) {
            vlm_compare_vectors(name, &seen->features, &expected, bound);
        }
    }
    free(expected.p);
}

static void check_case(const vlm_run *run, const dv_vlm_model *m, const dv_json *one) {
    const char *id = text_of(one, "id");
    bool split = true;
    dv_json_bool(dv_json_get(one, "do_image_splitting"), &split);
    const dv_picture_options options = {.max_tiles = split ? 0 : 1};
    dv_rgb8 picture = {0};
    dv_encoded seen = {0};
    dv_chat_text text = {0};
    dv_ids ids = {0};
    dv_session *d = NULL;
    int64_t n = 0;
    int32_t *expected = vlm_ids(one, "input_ids", &n);
    vlm_numbers_of logits = {0};
    if (read_picture(run, text_of(one, "image"), &picture)) {
        const dv_session_picture shown = {.features = &seen.features};
        if (dv_encode_image(m, &picture, &options, NULL, &seen) != DAVY_OK ||
            write_chat(m, one, &seen.chat, &text) != DAVY_OK ||
            dv_chat_encode(m->chat, m->tokenizer, &text, &ids) != DAVY_OK || dv_session_open(m, NULL, &d) != DAVY_OK ||
            dv_session_feed(d, ids.p, ids.n, &shown, 1) != DAVY_OK) {
            vlm_error(id);
        } else if (vlm_read(run->folder, "first_logits.safetensors", id, &logits)) {
            CHECKF(same_ids(ids.p, ids.n, expected, n), "%s: the prompt's ids differ", id);
            check_vectors(run, id, &seen);

            const double bound = vlm_bound(run->precision, 1e-3);
            vlm_compare(id, dv_session_logits(d), logits.p, logits.n, bound);
            check_answer(run, d, one, dv_session_now(d));
            check_follow_up(run, d, one, &seen, &text);
        }
    }
    dv_session_release(d);
    dv_encoded_free(&seen);
    dv_picture_free(&picture);
    dv_chat_text_clear(&text);
    dv_ids_clear(&ids);
    free(expected);
    free(logits.p);
}

void vlm_chats(const vlm_run *run, const dv_json *json) {
    dv_vlm_model *m = vlm_open(run, true);
    const dv_json *cases = dv_json_get(json, "cases");
    for (const dv_json *one = dv_json_first(cases); m != NULL && one != NULL; one = dv_json_next(one)) {
        check_case(run, m, one);
    }
    dv_vlm_model_release(m);
}
