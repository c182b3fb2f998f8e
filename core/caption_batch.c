/* caption_batch.c - the same question about many pictures, several at once: each is looked at when there is room for its
 * sequence, and its answer comes token by token with those of the others. Memory decides how many there are; where it would
 * make a picture smaller, those under way are ended first and there are fewer. */
#include <string.h>

#include "core/error.h"
#include "core/talk_priv.h"
#include "core/text.h"
#include "core/vlm/batch.h"
#include "core/vlm/dialogue_priv.h"

typedef struct picture { /* under way */
    uint32_t index;
    int64_t tokens; /* drawn */
    dv_ids ids;
    dv_seen seen;
    dv_dialogue_picture shown;
    dv_answer_options options;
    dv_answering answering;
    dv_answer answer;
    struct picture *next;
} picture;

typedef struct together {
    dv_captions *c;
    davy_dialogue *dialogue;
    const dv_vlm_model *model;
    dv_batch *batch;  /* NULL: none yet, or memory wants a smaller one */
    picture *working; /* all of them */
    int64_t width;    /* how many at once */
    uint32_t next, done;
} together;

static bool ran_out(davy_result r) {
    return r == DAVY_E_NOMEM_HOST || r == DAVY_E_BUDGET;
}

/* ---- progress ---- */

static void count_parts(together *t) {
    dv_turn *turn = &t->c->turn;
    uint64_t parts = (uint64_t)t->done * DV_TURN_PARTS;
    for (const picture *p = t->working; p != NULL; p = p->next) {
        const uint64_t most = (uint64_t)dv_max(1, p->options.generate.max_tokens);
        parts += DV_TURN_LOOK_PARTS + (DV_TURN_PARTS - DV_TURN_LOOK_PARTS) * (uint64_t)p->tokens / most;
    }
    turn->base = parts;
}

static void drawn(void *user, int64_t tokens) {
    picture *p = user;
    p->tokens = tokens;
}

/* ---- one picture ---- */

static void free_picture(picture *p) {
    dv_stream_release(p->answering.stream);
    dv_free(p->answer.text);
    dv_seen_free(&p->seen);
    dv_ids_clear(&p->ids);
    dv_free(p);
}

static void forget(together *t, picture *p) {
    picture **at = &t->working;
    while (*at != p) {
        at = &(*at)->next;
    }
    *at = p->next;
    free_picture(p);
}

static davy_result look(together *t, picture *p) {
    davy_dialogue *d = t->dialogue;
    const dv_picture_options o = dv_turn_picture_options(d, &d->asking);
    const dv_dialogue_options cancel = {.cancel = dv_turn_should_stop, .room = dv_turn_make_room, .user = d};
    davy_result r = dv_turn_begin(d, &t->c->turn, DV_TURN_LOOK, 1);
    r = r < 0 ? r : dv_talk_add_pixels(d, &t->c->pixels[p->index]);
    r = r < 0 ? r : dv_dialogue_look(t->model, &d->pictures[0], &o, &cancel, &p->seen);
    dv_talk_drop(d);
    return r;
}

static davy_result write_question(together *t, picture *p) {
    const dv_seen *seen = &p->seen;
    const dv_prompt prompt = {.system = t->dialogue->asking.system,
                              .pictures = &seen,
                              .n = 1,
                              .question = dv_turn_question(t->dialogue, &t->dialogue->asking)};
    p->shown = (dv_dialogue_picture){.features = &p->seen.features, .seconds = p->seen.step};
    return dv_prompt_ids(t->model, &prompt, &p->ids);
}

static davy_result ask(together *t, picture *p) {
    davy_result r = dv_turn_answer_options(&t->dialogue->asking, dv_batch_context(t->batch), p->ids.n, &p->options);
    r = r < 0 ? r : dv_answering_start(t->model, &p->options, &p->answer, &p->answering);
    dv_batch_question q = {.ids = p->ids.p,
                           .n = p->ids.n,
                           .pictures = &p->shown,
                           .n_pictures = 1,
                           .generate = p->options.generate,
                           .tag = p};
    q.generate.token = dv_answering_token;
    q.generate.user = &p->answering;
    q.generate.drawn = drawn;
    q.generate.drawn_user = p;
    return r < 0 ? r : dv_batch_ask(t->batch, &q);
}

static davy_result keep_answer(together *t, const dv_batch_end *e) {
    picture *p = e->tag;
    p->answer.end = e->end;
    davy_result r = dv_answering_end(&p->answering, DAVY_OK);
    r = r < 0 ? r : dv_text_create(dv_strdup(p->answer.text), &t->c->texts[p->index]);
    forget(t, p);
    t->done++;
    return r;
}

/* ---- how many at once ---- */

/* Store for as many as are wanted of the length of this one, and at least for the longest. */
static davy_result open_batch(together *t, int64_t prompt) {
    const davy_caption_params *p = &t->dialogue->asking.p;
    const int64_t full = dv_min(t->model->config.text.max_positions, DV_DIALOGUE_CONTEXT);
    dv_batch_options o = {.context = p->context_tokens > 0 ? p->context_tokens : full,
                          .cancel = dv_turn_should_stop,
                          .user = t->dialogue};
    const int64_t each = dv_div_up(dv_min(prompt + p->max_tokens, o.context), DVK_PAGE) * DVK_PAGE;
    bool asked = false; /* others for their memory */
    for (;;) {
        o.sequences = t->width;
        o.tokens = t->width * each;
        const davy_result r = dv_batch_open(t->model, &o, &t->batch);
        const bool again = ran_out(r) && !asked && dv_turn_make_room(t->dialogue);
        if (!ran_out(r) || (!again && t->width <= 2)) {
            return r;
        }
        asked = true;
        t->width /= again ? 1 : 2;
    }
}

static davy_result step(together *t) {
    dv_batch_end e;
    count_parts(t);
    davy_result r = dv_turn_begin(t->dialogue, &t->c->turn, DV_TURN_ANSWER, 1);
    r = r < 0 ? r : dv_batch_work(t->batch);
    while (r == DAVY_OK && dv_batch_ended(t->batch, &e)) {
        r = keep_answer(t, &e);
    }
    return r;
}

/* Those under way come to their end, and the next ones get less memory. */
static davy_result make_smaller(together *t) {
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && t->working != NULL) {
        r = step(t);
    }
    dv_batch_release(t->batch);
    t->batch = NULL;
    t->width /= 2;
    return r;
}

/* Looks at the next picture and asks about it; *small: memory is short. */
static davy_result begin(together *t, bool *small) {
    picture *p = dv_calloc(1, sizeof *p);
    if (p == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    p->index = t->next;
    davy_result r = look(t, p);
    *small = ran_out(r) || (r == DAVY_OK && p->seen.smaller);
    r = *small ? DAVY_OK : r;
    r = r < 0 || *small ? r : write_question(t, p);
    if (r == DAVY_OK && !*small && t->batch == NULL) {
        r = open_batch(t, p->ids.n);
        *small = ran_out(r);
        r = *small ? DAVY_OK : r;
    }
    r = r < 0 || *small ? r : ask(t, p);
    if (r < 0 || *small) {
        free_picture(p);
        return r < 0 ? dv_fail_prefix("picture %u of %u", (unsigned)t->next + 1u, (unsigned)t->c->n) : r;
    }
    p->next = t->working;
    t->working = p;
    t->next++;
    return DAVY_OK;
}

static davy_result work(together *t) {
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && t->done < t->c->n && t->width > 1) {
        bool small = false;
        while (r == DAVY_OK && !small && t->next < t->c->n && (t->batch == NULL || dv_batch_has_room(t->batch))) {
            count_parts(t);
            r = begin(t, &small);
        }
        if (r == DAVY_OK && small && t->batch == NULL) {
            return DAVY_OK; /* one at a time knows what to do without */
        }
        if (r == DAVY_OK) {
            r = small ? make_smaller(t) : step(t);
        }
    }
    if (r == DAVY_OK) {
        count_parts(t);
        t->c->turn.progress_ns = 0; /* tells it in any case */
        r = dv_turn_begin(t->dialogue, &t->c->turn, DV_TURN_ANSWER, 1);
    }
    return r;
}

davy_result dv_caption_together(dv_captions *c) {
    davy_dialogue *d = c->dialogue;
    together t = {.c = c, .dialogue = d, .width = dv_min(c->n, DVK_FEW)};
    d->now = &c->turn;
    davy_result r = dv_turn_load(d, &c->turn);
    t.model = r == DAVY_OK ? dv_pinned_model(d->pin) : NULL;
    if (r == DAVY_OK && t.model->gpu == NULL && t.model->tokenizer != NULL) {
        r = work(&t);
    }
    dv_batch_release(t.batch);
    while (t.working != NULL) {
        forget(&t, t.working);
    }
    d->now = NULL;
    return dv_turn_why(&c->turn, r);
}
