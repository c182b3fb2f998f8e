/* talk_turn.c - one turn: weights, pictures, the question, the answer. */
#include <string.h>

#include "core/context.h"
#include "core/error.h"
#include "core/job.h"
#include "core/talk_priv.h"

#define PROGRESS_NS 50000000ull

enum { PARTS = 1000, LOOK_PARTS = 300 };

/* ---- progress and cancellation ---- */

static uint64_t done_of(const dv_turn *t) {
    const uint64_t part = (uint64_t)dv_min(t->part, t->parts);
    const uint64_t parts = (uint64_t)dv_max(t->parts, 1);
    switch (t->stage) {
    case DV_TURN_LOOK:
        return t->base + LOOK_PARTS * part / parts;
    case DV_TURN_READ:
        return t->base + LOOK_PARTS;
    case DV_TURN_ANSWER:
        return t->base + LOOK_PARTS + (PARTS - LOOK_PARTS) * part / parts;
    default:
        return t->base;
    }
}

static bool tell(dv_turn *t, bool always) {
    static const char *const names[] = {"load", "look", "read", "answer"};
    const uint64_t now = dv_now_ns();
    if (!always && t->progress_ns != 0 && now - t->progress_ns < PROGRESS_NS) {
        return false;
    }
    t->progress_ns = now;
    if (t->job != NULL) {
        dv_job_report(t->job, names[t->stage], done_of(t), t->total);
    }
    return t->run.progress != NULL && t->run.progress(t->run.progress_user, names[t->stage], done_of(t), t->total) != 0;
}

/* The dialogue asks it before every token and between the layers of a prompt. */
static int32_t should_stop(void *user) {
    const davy_dialogue *d = user;
    dv_turn *t = d->now;
    if (t == NULL) {
        return 0;
    }
    if (t->deadline_ns != 0 && dv_now_ns() >= t->deadline_ns) {
        t->timed_out = true;
        return 1;
    }
    return (t->job != NULL && dv_job_cancelled(t->job)) || tell(t, false);
}

static davy_result begin_stage(davy_dialogue *d, dv_turn *t, dv_turn_stage stage, int64_t parts) {
    t->stage = stage;
    t->part = 0;
    t->parts = parts;
    return should_stop(d) != 0 ? dv_fail(DAVY_E_CANCELLED, "cancelled") : DAVY_OK;
}

/* ---- the parts of a turn ---- */

static davy_result get_ready(davy_dialogue *d, dv_turn *t) {
    davy_result r = begin_stage(d, t, DV_TURN_LOAD, 1);
    if (r == DAVY_OK && d->pin == NULL) {
        r = dv_model_pin(d->model, &d->pin);
    }
    if (r < 0 || d->talk != NULL) {
        return r;
    }
    const dv_vlm_model *m = dv_pinned_model(d->pin);
    const dv_dialogue_options o = {.context = d->asking.p.context_tokens, .cancel = should_stop, .user = d};
    r = dv_dialogue_open(m, &o, &d->talk);
    if (r == DAVY_OK) {
        const int64_t full = dv_min(m->config.text.max_positions, DV_DIALOGUE_CONTEXT);
        d->info.tokens_max = (int32_t)dv_dialogue_context(d->talk);
        d->info.kv_bytes = dv_dialogue_bytes(d->talk);
        d->info.flags = o.context == 0 && dv_dialogue_context(d->talk) < full ? DAVY_DIALOGUE_SHORTER : 0;
    }
    return r;
}

static dv_picture_options options_of(const davy_dialogue *d, const dv_asking *a) {
    const dv_vlm_config *c = &dv_pinned_model(d->pin)->config;
    const bool smart = c->picture.rule == DV_VLM_PICTURE_SMART;
    return (dv_picture_options){.max_pixels = a->p.max_pixels > 0 ? a->p.max_pixels
                                              : smart             ? DV_PICTURE_CAPTION_PIXELS
                                                                  : 0,
                                .max_tiles = a->p.max_tiles};
}

static davy_result look(davy_dialogue *d, dv_turn *t, dv_seen *seen) {
    const dv_picture_options o = options_of(d, t->asking);
    const dv_dialogue_options cancel = {.cancel = should_stop, .user = d};
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < d->n_pictures; i++) {
        r = begin_stage(d, t, DV_TURN_LOOK, d->n_pictures);
        t->part = i;
        r = r < 0 ? r : dv_dialogue_look(dv_pinned_model(d->pin), &d->pictures[i], &o, &cancel, &seen[i]);
        if (r == DAVY_OK) {
            const dv_event done = {.kind = DAVY_TOKEN_IMAGE_DONE, .index = (int32_t)i};
            t->smaller = t->smaller || seen[i].smaller;
            r = dv_talk_push(d, &done);
        }
    }
    return r;
}

static const char *question_of(const davy_dialogue *d, const dv_asking *a) {
    return d->words != NULL ? d->words : a->prompt != NULL ? a->prompt : "Describe the image.";
}

static davy_result read_turn(davy_dialogue *d, dv_turn *t, dv_seen *seen, int64_t *image_tokens) {
    const dv_seen **shown = dv_calloc((uint64_t)d->n_pictures + 1, sizeof *shown);
    davy_result r = shown != NULL ? look(d, t, seen) : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    *image_tokens = 0;
    for (int64_t i = 0; r == DAVY_OK && i < d->n_pictures; i++) {
        shown[i] = &seen[i];
        *image_tokens += seen[i].features.tokens;
    }
    r = r < 0 ? r : begin_stage(d, t, DV_TURN_READ, 1);
    const char *system = d->system != NULL ? d->system : t->asking->system;
    r = r < 0 ? r : dv_dialogue_ask(d->talk, system, shown, (int32_t)d->n_pictures, question_of(d, t->asking));
    dv_free(shown);
    return r;
}

static int32_t say(void *user, const char *text, uint64_t bytes) {
    davy_dialogue *d = user;
    dv_turn *t = d->now;
    const dv_event piece = {
        .kind = DAVY_TOKEN_TEXT, .text = dv_strndup(text, (size_t)bytes), .bytes = bytes, .index = t->pieces++};
    t->lost = dv_talk_push(d, &piece) < 0;
    return t->lost;
}

/* Between two tokens: counts them, and notes when the first was there. */
static void between_tokens(void *user, int64_t tokens) {
    const davy_dialogue *d = user;
    dv_turn *t = d->now;
    t->part = tokens;
    t->last_ns = dv_now_ns();
    t->first_ns = t->first_ns == 0 ? t->last_ns : t->first_ns;
}

static davy_result answer(davy_dialogue *d, dv_turn *t, dv_answer *out) {
    const davy_caption_params *p = &t->asking->p;
    const int64_t room = dv_dialogue_context(d->talk) - dv_dialogue_tokens(d->talk);
    if (room < 1) {
        return dv_fail(DAVY_E_CONTEXT_FULL, "the question fills the context of %lld tokens: there is no room to answer",
                       (long long)dv_dialogue_context(d->talk));
    }
    const dv_answer_options o = {.generate = {.sample = {.temperature = (double)p->temperature,
                                                         .top_k = p->top_k,
                                                         .top_p = (double)p->top_p,
                                                         .repetition_penalty = (double)p->repeat_penalty,
                                                         .seed = p->seed},
                                              .max_tokens = dv_min(p->max_tokens, room),
                                              .drawn = between_tokens,
                                              .drawn_user = d},
                                 .stop_texts = (const char *const *)t->asking->stop,
                                 .n_stop_texts = p->n_stop,
                                 .text = say,
                                 .user = d};
    davy_result r = begin_stage(d, t, DV_TURN_ANSWER, o.generate.max_tokens);
    r = r < 0 ? r : dv_dialogue_answer(d->talk, &o, out);
    return r < 0 || !t->lost ? r : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

/* ---- the turn ---- */

static davy_result keep_turn(davy_dialogue *d, dv_turn *t, dv_answer *a) {
    dv_said *grown = dv_grow(d->turns, d->n_turns + 1, &d->turns_room, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    d->turns = grown;
    const dv_event end = {.kind = DAVY_TOKEN_END_OF_TURN,
                          .end = a->end == DV_END_STOP ? DAVY_TURN_STOP : DAVY_TURN_LENGTH};
    const davy_result r = dv_talk_push(d, &end);
    if (r < 0) {
        return r;
    }
    d->turns[d->n_turns++] = (dv_said){.mark = dv_dialogue_now(d->talk), .text = a->text};
    a->text = NULL;
    davy_dialogue_info *i = &d->info;
    const double seconds = (double)(t->last_ns - t->first_ns) * 1e-9;
    i->generated_tokens = (int32_t)a->tokens;
    i->end = end.end;
    i->flags = (i->flags & ~(uint32_t)DAVY_DIALOGUE_SMALLER) | (t->smaller ? DAVY_DIALOGUE_SMALLER : 0u);
    i->seconds_to_first_token = (double)(t->first_ns - t->start_ns) * 1e-9;
    i->tokens_per_second = a->tokens > 1 && seconds > 0.0 ? (double)(a->tokens - 1) / seconds : 0.0;
    tell(t, true);
    return DAVY_OK;
}

static davy_result work(davy_dialogue *d, dv_turn *t) {
    dv_seen *seen = dv_calloc((uint64_t)d->n_pictures + 1, sizeof *seen);
    dv_answer a = {.text = NULL};
    int64_t before = 0;
    int64_t image_tokens = 0;
    int32_t prompt_tokens = 0;
    davy_result r = seen != NULL ? get_ready(d, t) : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    if (r == DAVY_OK) {
        before = dv_dialogue_tokens(d->talk);
        r = read_turn(d, t, seen, &image_tokens);
        prompt_tokens = (int32_t)(dv_dialogue_tokens(d->talk) - before);
    }
    for (int64_t i = 0; seen != NULL && i < d->n_pictures; i++) {
        dv_seen_free(&seen[i]);
    }
    dv_free(seen);
    r = r < 0 ? r : answer(d, t, &a);
    r = r < 0 ? r : keep_turn(d, t, &a);
    if (r == DAVY_OK) {
        d->info.prompt_tokens = prompt_tokens;
        d->info.image_tokens = (int32_t)image_tokens;
    }
    dv_free(a.text);
    return r;
}

davy_result dv_talk_turn(davy_dialogue *d, dv_turn *t) {
    t->start_ns = dv_now_ns();
    t->total = t->total > 0 ? t->total : PARTS;
    d->now = t;
    davy_result r = work(d, t);
    d->now = NULL;
    if (r == DAVY_E_CANCELLED && t->timed_out) {
        r = dv_fail(DAVY_E_TIMEOUT, "the answer was not there in the time it was given");
    }
    if (r < 0 && d->talk != NULL) {
        davy_error_info saved;
        dv_error_get(&saved);
        const dv_dialogue_mark start = {.tokens = 0};
        dv_dialogue_rewind(d->talk, d->n_turns > 0 ? d->turns[d->n_turns - 1].mark : start);
        dv_error_set(&saved);
    }
    dv_talk_drop(d);
    return r;
}
