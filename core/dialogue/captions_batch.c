/* captions_batch.c - the same question about many pictures, several at once, on one GPU or on the CPU: each is looked at when
 * there is room for its sequence, and its answer comes token by token with those of the others. Memory decides how many there
 * are; where it would make a picture smaller, those under way are ended first and there are fewer. */
#include <string.h>

#include "core/base/error.h"
#include "core/dialogue/dialogue_priv.h"
#include "core/base/text.h"
#include "core/vlm/batch.h"

typedef struct picture { /* under way */
    uint32_t index;
    int64_t tokens; /* drawn */
    uint64_t start_ns, first_ns, last_ns;
    dv_ids ids;
    dv_encoded seen;
    dv_session_picture shown;
    dv_answer_options options;
    dv_answering answering;
    dv_answer answer;
    struct picture *next;
} picture;

typedef struct together {
    dv_captioning *c;
    davy_dialogue *dialogue;
    const dv_vlm_model *model;
    dv_ahead *ahead;  /* on a GPU */
    dv_batch *batch;  /* NULL: none yet, or memory wants a smaller one */
    picture *working; /* all of them */
    int64_t width;    /* how many at once */
    int64_t taken;    /* the next picture's number, which nobody else has; -1: none */
    uint64_t done;
} together;

/* ---- progress ---- */

static void count_parts(together *t) {
    dv_captioning *c = t->c;
    uint64_t parts = t->done * DV_TURN_PARTS;
    for (const picture *p = t->working; p != NULL; p = p->next) {
        const uint64_t most = (uint64_t)dv_max(1, p->options.generate.max_tokens);
        parts += DV_TURN_LOOK_PARTS + (DV_TURN_PARTS - DV_TURN_LOOK_PARTS) * (uint64_t)p->tokens / most;
    }
    atomic_store(&c->parts, parts);
    for (int32_t i = 0; i < c->n_others; i++) {
        parts += atomic_load(&c->others[i].parts);
    }
    c->turn.base = parts;
}

static void drawn(void *user, int64_t tokens) {
    picture *p = user;
    p->tokens = tokens;
    p->last_ns = dv_now_ns();
    p->first_ns = p->first_ns == 0 ? p->last_ns : p->first_ns;
}

/* ---- one picture ---- */

static void free_picture(picture *p) {
    dv_detokenizer_release(p->answering.stream);
    dv_free(p->answer.text);
    dv_encoded_free(&p->seen);
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
    p->start_ns = dv_now_ns();
    if (t->ahead == NULL) {
        return dv_caption_look(t->dialogue, &t->c->all->pixels[p->index], &p->seen);
    }
    dv_ahead_ask(t->ahead, p->index);
    return dv_ahead_take(t->ahead, &p->seen, &p->start_ns);
}

static davy_result write_question(together *t, picture *p) {
    const dv_encoded *seen = &p->seen;
    const dv_prompt prompt = {.system = t->dialogue->asking.system,
                              .pictures = &seen,
                              .n = 1,
                              .question = dv_turn_question(t->dialogue, &t->dialogue->asking)};
    p->shown = (dv_session_picture){.features = &p->seen.features, .seconds = p->seen.step};
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

static davy_dialogue_info numbers_of(const together *t, const picture *p) {
    const double seconds = (double)(p->last_ns - p->first_ns) * 1e-9;
    return (davy_dialogue_info){.turns = 1,
                                .tokens_used = (int32_t)(p->ids.n + dv_max(0, p->tokens - 1)),
                                .tokens_max = (int32_t)dv_batch_context(t->batch),
                                .prompt_tokens = (int32_t)p->ids.n,
                                .image_tokens = (int32_t)p->seen.features.tokens,
                                .generated_tokens = (int32_t)p->tokens,
                                .end = p->answer.end == DV_END_STOP ? DAVY_TURN_STOP : DAVY_TURN_LENGTH,
                                .kv_bytes = dv_batch_bytes(t->batch),
                                .flags = p->answer.only_thought ? DAVY_DIALOGUE_UNANSWERED : 0u,
                                .seconds_to_first_token = (double)(p->first_ns - p->start_ns) * 1e-9,
                                .tokens_per_second =
                                    p->tokens > 1 && seconds > 0.0 ? (double)(p->tokens - 1) / seconds : 0.0};
}

static davy_result keep_answer(together *t, const dv_batch_end *e) {
    picture *p = e->tag;
    davy_text **text = &t->c->all->texts[p->index];
    p->answer.end = e->end;
    davy_result r = dv_answering_end(&p->answering, DAVY_OK);
    r = r < 0 ? r : dv_text_create(dv_strdup(p->answer.text), text);
    if (r == DAVY_OK) {
        const davy_dialogue_info info = numbers_of(t, p);
        dv_text_tell(*text, &info);
    }
    forget(t, p);
    t->done++;
    return r;
}

/* ---- how many at once ---- */

/* Store for as many as are wanted of the length of this one, and at least for the longest. */
static davy_result open_batch(together *t, int64_t prompt) {
    const davy_caption_params *p = &t->dialogue->asking.p;
    const int64_t full = dv_min(t->model->config.text.max_positions, DV_SESSION_CONTEXT);
    dv_batch_options o = {.context = p->context_tokens > 0 ? p->context_tokens : full,
                          .cancel = dv_turn_should_stop,
                          .user = t->dialogue};
    const int64_t each = dv_div_up(dv_min(prompt + p->max_tokens, o.context), DVK_PAGE) * DVK_PAGE;
    bool asked = false; /* others for their memory */
    for (;;) {
        o.sequences = t->width;
        o.tokens = t->width * each;
        const davy_result r = dv_batch_open(t->model, &o, &t->batch);
        const bool again = dv_ran_out(r) && !asked && dv_turn_make_room(t->dialogue);
        if (!dv_ran_out(r) || (!again && t->width <= 2)) {
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

/* The next picture's number becomes t->taken; false: there is none. */
static bool take(together *t) {
    dv_captions *all = t->c->all;
    if (t->taken < 0) {
        const uint32_t next = atomic_fetch_add(&all->next, 1);
        t->taken = next < all->n ? (int64_t)next : -1;
    }
    return t->taken >= 0;
}

/* Whether there is one to begin with now; on a GPU answers go on as long as it is being looked at. */
static bool may_begin(together *t, bool *more) {
    if (t->batch != NULL && !dv_batch_has_room(t->batch)) {
        return false;
    }
    *more = take(t);
    if (*more && t->ahead != NULL) {
        dv_ahead_ask(t->ahead, (uint32_t)t->taken);
        return t->working == NULL || dv_ahead_ready(t->ahead);
    }
    return *more;
}

/* On a GPU a pass has its size whoever is in it: whoever can be in the next one is. */
static davy_result read_all(together *t) {
    bool more = t->model->gpu != NULL;
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && more) {
        r = dv_batch_read(t->batch, &more);
    }
    return r;
}

/* Looks at the picture that was taken and asks about it; *small: memory is short. */
static davy_result begin(together *t, bool *small) {
    picture *p = dv_calloc(1, sizeof *p);
    if (p == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    p->index = (uint32_t)t->taken;
    davy_result r = look(t, p);
    *small = dv_ran_out(r) || (r == DAVY_OK && p->seen.smaller);
    r = *small ? DAVY_OK : r;
    r = r < 0 || *small ? r : write_question(t, p);
    if (r == DAVY_OK && !*small && t->batch == NULL) {
        r = open_batch(t, p->ids.n);
        *small = dv_ran_out(r);
        r = *small ? DAVY_OK : r;
    }
    r = r < 0 || *small ? r : ask(t, p);
    if (r < 0 || *small) {
        free_picture(p);
        return r < 0 ? dv_fail_prefix("picture %u of %u", (unsigned)t->taken + 1u, (unsigned)t->c->all->n) : r;
    }
    p->next = t->working;
    t->working = p;
    t->taken = -1;
    if (t->ahead != NULL && take(t)) {
        dv_ahead_ask(t->ahead, (uint32_t)t->taken);
    }
    return read_all(t);
}

static davy_result work(together *t) {
    davy_result r = DAVY_OK;
    bool more = true;
    while (r == DAVY_OK && t->width > 1) {
        bool small = false;
        while (r == DAVY_OK && !small && may_begin(t, &more)) {
            count_parts(t);
            r = begin(t, &small);
        }
        if (r < 0 || (small && t->batch == NULL) || (!more && t->working == NULL)) {
            break; /* small: one at a time knows what to do without */
        }
        r = small ? make_smaller(t) : step(t);
    }
    if (r == DAVY_OK) {
        count_parts(t);
        t->c->turn.progress_ns = 0; /* tells it in any case */
        r = dv_turn_begin(t->dialogue, &t->c->turn, DV_TURN_ANSWER, 1);
    }
    return r;
}

davy_result dv_caption_share(dv_captioning *c) {
    davy_dialogue *d = c->dialogue;
    together t = {.c = c, .dialogue = d, .model = dv_pinned_model(d->pin), .taken = -1};
    t.width = dv_min(c->most, dv_batch_most(t.model));
    if (t.model->gpu != NULL && dv_ahead_start(c, &t.ahead) < 0) { /* then it looks between the tokens */
        dv_ahead_end(t.ahead);
        t.ahead = NULL;
    }
    const davy_result r = t.model->tokenizer != NULL ? work(&t) : DAVY_OK;
    dv_ahead_end(t.ahead);
    while (t.working != NULL) {
        forget(&t, t.working);
    }
    dv_batch_release(t.batch);
    return r;
}
