/* turn.c - one turn of a dialogue: its inputs, its events, and its stages: load weights, encode pictures, read the question,
 * generate the answer. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/watch.h"
#include "core/dialogue/dialogue_priv.h"
#include "core/host/context.h"
#include "core/host/job.h"

enum { MAX_PICTURES = 1024 };

/* ---- inputs: copies of the caller's pixels as 8-bit RGB ---- */

static dv_heap *heap_of(const davy_dialogue *d) {
    return dv_context_services(dv_model_context(d->model))->heap;
}

static uint64_t bytes_of(const dv_rgb8 *p) {
    return (uint64_t)(p->height * p->stride);
}

static void drop_pictures(davy_dialogue *d, int64_t keep) {
    while (d->n_pictures > keep) {
        dv_rgb8 *p = &d->pictures[--d->n_pictures];
        dv_heap_unclaim(heap_of(d), DV_MEM_WORKSPACE, bytes_of(p));
        dv_picture_free(p);
    }
}

void dv_dialogue_drop_inputs(davy_dialogue *d) {
    drop_pictures(d, 0);
    while (d->n_clips > 0) {
        dv_free(d->clips[--d->n_clips].index);
    }
    dv_free(d->user_text);
    d->user_text = NULL;
}

/* Adds picture `index` of the tensor. */
static davy_result add(davy_dialogue *d, const dv_pixels *pixels, int64_t index) {
    const uint64_t bytes = (uint64_t)(pixels->h * pixels->w * 3);
    if (d->n_pictures >= MAX_PICTURES) {
        return dv_fail(DAVY_E_INVALID, "image: a turn takes at most %d pictures", (int)MAX_PICTURES);
    }
    dv_rgb8 *grown = dv_grow(d->pictures, d->n_pictures + 1, &d->pictures_room, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    d->pictures = grown;
    davy_result r = dv_heap_claim(heap_of(d), DV_MEM_WORKSPACE, bytes, "a picture to caption");
    if (r < 0) {
        return r;
    }
    r = dv_picture_load(pixels, index, &grown[d->n_pictures]);
    if (r < 0) {
        dv_heap_unclaim(heap_of(d), DV_MEM_WORKSPACE, bytes);
        return r;
    }
    d->n_pictures++;
    return DAVY_OK;
}

davy_result dv_dialogue_add_picture(davy_dialogue *d, const dv_pixels *pixels) {
    return add(d, pixels, 0);
}

/* Copies only the frames that the model reads. */
static davy_result add_frames(davy_dialogue *d, const dv_pixels *pixels, dv_dialogue_clip *clip) {
    const dv_vlm_config *c = dv_captioner_config(dv_model_captioner(d->model));
    clip->first = d->n_pictures;
    clip->total = pixels->t;
    clip->fps = d->options.p.video_fps > 0 ? d->options.p.video_fps : c->picture.video_fps;
    clip->index = dv_calloc((uint64_t)dv_max(c->picture.video_max_frames, pixels->t), sizeof *clip->index);
    if (clip->index == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    davy_result r = dv_video_frames(c, clip->total, clip->fps, clip->index, &clip->n);
    for (int64_t i = 0; r == DAVY_OK && i < clip->n; i++) {
        r = add(d, pixels, clip->index[i]);
    }
    return r;
}

davy_result dv_dialogue_add_video(davy_dialogue *d, const dv_pixels *pixels) {
    dv_dialogue_clip clip = {.index = NULL};
    const int64_t before = d->n_pictures;
    dv_dialogue_clip *grown = dv_grow(d->clips, d->n_clips + 1, &d->clips_room, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    d->clips = grown;
    const davy_result r = add_frames(d, pixels, &clip);
    if (r < 0) {
        drop_pictures(d, before);
        dv_free(clip.index);
        return r;
    }
    d->clips[d->n_clips++] = clip;
    return DAVY_OK;
}

/* ---- events and turns ---- */

void dv_dialogue_clear_events(davy_dialogue *d) {
    while (d->n_events > 0) {
        dv_free(d->events[--d->n_events].text);
    }
    d->next_event = 0;
}

/* takes ownership of the event's text */
static davy_result dv_dialogue_push_event(davy_dialogue *d, const dv_event *event) {
    const bool no_text = event->kind == DAVY_TOKEN_TEXT && event->text == NULL;
    dv_mutex_lock(d->lock);
    dv_event *grown = no_text ? NULL : dv_grow(d->events, d->n_events + 1, &d->events_room, sizeof *grown);
    if (grown != NULL) {
        d->events = grown;
        d->events[d->n_events++] = *event;
        dv_cond_broadcast(d->changed);
    }
    dv_mutex_unlock(d->lock);
    if (grown == NULL) {
        dv_free(event->text);
    }
    return grown != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

void dv_dialogue_forget_turns(davy_dialogue *d, int64_t keep) {
    while (d->n_turns > keep) {
        dv_free(d->turns[--d->n_turns].text);
    }
}

/* ---- progress and cancellation ---- */

static uint64_t done_of(const dv_turn *t) {
    const uint64_t part = (uint64_t)dv_min(t->part, t->parts);
    const uint64_t parts = (uint64_t)dv_max(t->parts, 1);
    if (t->shared) {
        return t->base;
    }
    switch (t->stage) {
    case DV_TURN_LOAD:
        return t->base + DV_TURN_LOAD_PARTS * part / parts;
    case DV_TURN_ENCODE:
        return t->base + DV_TURN_LOAD_PARTS + (DV_TURN_ENCODE_PARTS - DV_TURN_LOAD_PARTS) * part / parts;
    case DV_TURN_READ:
        return t->base + DV_TURN_ENCODE_PARTS;
    case DV_TURN_ANSWER:
        return t->base + DV_TURN_ENCODE_PARTS + (DV_TURN_PARTS - DV_TURN_ENCODE_PARTS) * part / parts;
    }
    return t->base;
}

static bool report(dv_turn *t, bool always) {
    static const char *const names[] = {"load", "look", "read", "answer"};
    const uint64_t now = dv_now_ns();
    if (!always && t->progress_ns != 0 && now - t->progress_ns < DV_PROGRESS_NS) {
        return false;
    }
    t->progress_ns = now;
    if (t->job != NULL) {
        dv_job_report(t->job, names[t->stage], done_of(t), t->total);
    }
    return t->run.progress != NULL && t->run.progress(t->run.progress_user, names[t->stage], done_of(t), t->total) != 0;
}

int32_t dv_turn_should_stop(void *user) {
    const davy_dialogue *d = user;
    dv_turn *t = d->current;
    if (t == NULL) {
        return 0;
    }
    if (t->stop != NULL && atomic_load(t->stop)) {
        return 1;
    }
    if (t->deadline_ns != 0 && dv_now_ns() >= t->deadline_ns) {
        t->timed_out = true;
        return 1;
    }
    return (t->job != NULL && dv_job_cancelled(t->job)) || (!t->quiet && report(t, false));
}

davy_result dv_turn_begin_stage(davy_dialogue *d, dv_turn *t, dv_turn_stage stage, int64_t parts) {
    t->stage = stage;
    t->part = 0;
    t->parts = parts;
    return dv_turn_should_stop(d) != 0 ? dv_fail(DAVY_E_CANCELLED, "cancelled") : DAVY_OK;
}

/* ---- the parts of a turn ---- */

static davy_result on_loaded(void *user, uint64_t done, uint64_t total) {
    davy_dialogue *d = user;
    d->current->part = (int64_t)(done >> 10);
    d->current->parts = (int64_t)(total >> 10);
    return dv_turn_should_stop(d) != 0 ? dv_fail(DAVY_E_CANCELLED, "cancelled") : DAVY_OK;
}

davy_result dv_turn_load_weights(davy_dialogue *d, dv_turn *t) {
    const davy_result r = dv_turn_begin_stage(d, t, DV_TURN_LOAD, 1);
    const dv_loading loading = {.progress = on_loaded, .user = d};
    return r < 0 || d->pin != NULL ? r : dv_model_pin(d->model, d->gpu, &loading, &d->pin);
}

bool dv_turn_make_room(void *user) {
    const davy_dialogue *d = user;
    return dv_model_make_room(d->model);
}

/* context 0: the model's context, halved until it fits into memory. */
static davy_result open_session(davy_dialogue *d, int64_t context) {
    const dv_vlm_model *m = dv_pinned_model(d->pin);
    const dv_session_options o = {
        .context = context, .cancel = dv_turn_should_stop, .room = dv_turn_make_room, .user = d};
    const davy_result r = dv_session_open(m, &o, &d->session);
    if (r == DAVY_OK) {
        const int64_t full = dv_min(m->config.text.max_positions, DV_SESSION_CONTEXT);
        const bool shorter = d->options.p.context_tokens == 0 && dv_session_context(d->session) < full;
        d->info.tokens_max = (int32_t)dv_session_context(d->session);
        d->info.kv_bytes = dv_session_bytes(d->session);
        d->info.flags = shorter ? DAVY_DIALOGUE_SHORTER : 0;
    }
    return r;
}

static davy_result prepare(davy_dialogue *d, dv_turn *t) {
    davy_result r = dv_turn_load_weights(d, t);
    if (r < 0 || d->session != NULL) {
        return r;
    }
    return open_session(d, d->options.p.context_tokens);
}

dv_picture_options dv_turn_picture_options(const davy_dialogue *d, const dv_caption_options *a) {
    const dv_vlm_config *c = &dv_pinned_model(d->pin)->config;
    const bool smart = c->picture.rule == DV_VLM_PICTURE_SMART;
    return (dv_picture_options){.max_pixels = a->p.max_pixels > 0 ? a->p.max_pixels
                                              : smart             ? DV_PICTURE_CAPTION_PIXELS
                                                                  : 0,
                                .max_tiles = a->p.max_tiles};
}

/* For a video: the caller's limit on pixels holds, the defaults for stills do not. */
static dv_picture_options video_options(const dv_caption_options *a) {
    return (dv_picture_options){.max_pixels = a->p.max_pixels, .max_tiles = a->p.max_tiles};
}

static davy_result encode_clip(davy_dialogue *d, const dv_caption_options *a, const dv_dialogue_clip *clip,
                               dv_encoded *encoded) {
    const dv_picture_options o = video_options(a);
    const dv_session_options cancel = {.cancel = dv_turn_should_stop, .room = dv_turn_make_room, .user = d};
    const dv_video video = {.frames = &d->pictures[clip->first],
                            .index = clip->index,
                            .n = clip->n,
                            .total = clip->total,
                            .fps = clip->fps};
    return dv_encode_video(dv_pinned_model(d->pin), &video, &o, &cancel, encoded);
}

/* The cache is allocated before the pictures. If even the smallest picture does not fit beside it, an empty cache can be
 * halved. On false nothing has changed, or there is no session. */
static bool shrink_context(davy_dialogue *d, davy_result r) {
    const int64_t half = dv_session_context(d->session) / 2;
    if (!dv_ran_out(r) || d->options.p.context_tokens > 0 || dv_session_tokens(d->session) > 0 ||
        half < DV_SESSION_LEAST) {
        return false;
    }
    dv_session_release(d->session);
    d->session = NULL;
    return open_session(d, half) == DAVY_OK;
}

/* Returns the clip that starts with picture i, or NULL for a still. *clips: number of clips before it; advanced. */
static const dv_dialogue_clip *clip_at(const davy_dialogue *d, int64_t i, int64_t *clips) {
    return *clips < d->n_clips && d->clips[*clips].first == i ? &d->clips[(*clips)++] : NULL;
}

/* Rejects pictures that can never fit into the context before it encodes them: a long video takes minutes. The limit is the
 * full context, because pictures may become smaller if memory has shortened the context. */
static davy_result check_context(const davy_dialogue *d, const dv_caption_options *a) {
    const dv_vlm_config *c = &dv_pinned_model(d->pin)->config;
    const dv_picture_options of_video = video_options(a);
    const dv_picture_options of_still = dv_turn_picture_options(d, a);
    const bool requested = d->options.p.context_tokens > 0;
    const int64_t most =
        requested ? d->options.p.context_tokens : dv_min(c->text.max_positions, (int64_t)DV_SESSION_CONTEXT);
    const int64_t before = dv_session_tokens(d->session);
    int64_t tokens = 0;
    int64_t clips = 0;
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < d->n_pictures;) {
        const dv_dialogue_clip *clip = clip_at(d, i, &clips);
        const dv_rgb8 *p = &d->pictures[i];
        dv_picture_plan plan = {.tokens = 0};
        const dv_picture_size size = {p->width, p->height, .frames = clip != NULL ? clip->n : 0};
        r = dv_picture_plan_make(c, clip != NULL ? &of_video : &of_still, &size, &plan);
        tokens += plan.tokens;
        i += clip != NULL ? clip->n : 1;
    }
    return r < 0 || tokens <= most - before ? r
                                            : dv_fail(DAVY_E_CONTEXT_FULL,
                                                      "pictures of %lld tokens after %lld tokens exceed the context of "
                                                      "%lld tokens; add fewer or smaller pictures",
                                                      (long long)tokens, (long long)before, (long long)most);
}

/* *n: number of encoded inputs, counting a video as one. */
static davy_result encode_pictures(davy_dialogue *d, dv_turn *t, dv_encoded *encoded, int32_t *n) {
    const dv_picture_options o = dv_turn_picture_options(d, t->options);
    const dv_session_options cancel = {.cancel = dv_turn_should_stop, .room = dv_turn_make_room, .user = d};
    davy_result r = check_context(d, t->options);
    int64_t clips = 0;
    *n = 0;
    for (int64_t i = 0; r == DAVY_OK && i < d->n_pictures;) {
        const dv_dialogue_clip *clip = clip_at(d, i, &clips);
        dv_encoded *s = &encoded[*n];
        r = dv_turn_begin_stage(d, t, DV_TURN_ENCODE, d->n_pictures);
        t->part = i;
        const bool begun = r == DAVY_OK;
        do {
            r = !begun         ? r
                : clip != NULL ? encode_clip(d, t->options, clip, s)
                               : dv_encode_image(dv_pinned_model(d->pin), &d->pictures[i], &o, &cancel, s);
        } while (r < 0 && begun && shrink_context(d, r));
        if (r == DAVY_OK) {
            const dv_event done = {.kind = DAVY_TOKEN_IMAGE_DONE, .index = (*n)++};
            t->smaller = t->smaller || s->smaller;
            r = dv_dialogue_push_event(d, &done);
        }
        i += clip != NULL ? clip->n : 1;
    }
    return r;
}

const char *dv_turn_question(const davy_dialogue *d, const dv_caption_options *a) {
    return d->user_text != NULL ? d->user_text : a->prompt != NULL ? a->prompt : "Describe the image.";
}

static davy_result read_prompt(davy_dialogue *d, dv_turn *t, dv_encoded *encoded, int64_t *image_tokens) {
    const dv_encoded **shown = dv_calloc((uint64_t)d->n_pictures + 1, sizeof *shown);
    int32_t n = 0;
    davy_result r =
        shown != NULL ? encode_pictures(d, t, encoded, &n) : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    *image_tokens = 0;
    for (int32_t i = 0; r == DAVY_OK && i < n; i++) {
        shown[i] = &encoded[i];
        *image_tokens += encoded[i].features.tokens;
    }
    r = r < 0 ? r : dv_turn_begin_stage(d, t, DV_TURN_READ, 1);
    const char *system = d->system_text != NULL ? d->system_text : t->options->system;
    r = r < 0 ? r : dv_session_ask(d->session, system, shown, n, dv_turn_question(d, t->options));
    dv_free(shown);
    return r;
}

static int32_t on_text(void *user, const char *text, uint64_t bytes) {
    davy_dialogue *d = user;
    dv_turn *t = d->current;
    const dv_event piece = {
        .kind = DAVY_TOKEN_TEXT, .text = dv_strndup(text, (size_t)bytes), .bytes = bytes, .index = t->pieces++};
    t->out_of_memory = dv_dialogue_push_event(d, &piece) < 0;
    return t->out_of_memory;
}

/* Called after each token: counts it and records the time of the first. */
static void on_token(void *user, int64_t tokens) {
    const davy_dialogue *d = user;
    dv_turn *t = d->current;
    t->part = tokens;
    t->last_ns = dv_now_ns();
    t->first_ns = t->first_ns == 0 ? t->last_ns : t->first_ns;
}

davy_result dv_turn_answer_options(const dv_caption_options *a, int64_t context, int64_t tokens,
                                   dv_answer_options *out) {
    const davy_caption_params *p = &a->p;
    if (tokens >= context) {
        return dv_fail(DAVY_E_CONTEXT_FULL,
                       "the question fills the context of %lld tokens, so there is no room for an answer",
                       (long long)context);
    }
    *out = (dv_answer_options){.generate = {.sample = {.temperature = (double)p->temperature,
                                                       .top_k = p->top_k,
                                                       .top_p = (double)p->top_p,
                                                       .min_p = (double)p->min_p,
                                                       .repetition_penalty = (double)p->repeat_penalty,
                                                       .no_repeat_ngram = p->no_repeat_ngram,
                                                       .seed = p->seed},
                                            .max_tokens = dv_min(p->max_tokens, context - tokens),
                                            .lookup = (p->flags & DAVY_CAPTION_LOOKUP) != 0      ? DV_LOOKUP_ALWAYS
                                                      : (p->flags & DAVY_CAPTION_NO_LOOKUP) != 0 ? DV_LOOKUP_OFF
                                                                                                 : DV_LOOKUP_AUTO},
                               .stop_texts = (const char *const *)a->stop,
                               .n_stop_texts = p->n_stop,
                               .thoughts = (p->flags & DAVY_CAPTION_THOUGHTS) != 0};
    return DAVY_OK;
}

static davy_result generate_answer(davy_dialogue *d, dv_turn *t, dv_answer *out) {
    dv_answer_options o;
    davy_result r =
        dv_turn_answer_options(t->options, dv_session_context(d->session), dv_session_tokens(d->session), &o);
    if (r < 0) {
        return r;
    }
    o.generate.drawn = on_token;
    o.generate.drawn_user = d;
    o.text = on_text;
    o.user = d;
    r = dv_turn_begin_stage(d, t, DV_TURN_ANSWER, o.generate.max_tokens);
    r = r < 0 ? r : dv_session_answer(d->session, &o, out);
    return r < 0 || !t->out_of_memory ? r : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

/* ---- the turn ---- */

static davy_result record_turn(davy_dialogue *d, dv_turn *t, dv_answer *a) {
    dv_turn_record *grown = dv_grow(d->turns, d->n_turns + 1, &d->turns_room, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    d->turns = grown;
    const dv_event end = {.kind = DAVY_TOKEN_END_OF_TURN,
                          .end = a->end == DV_END_STOP ? DAVY_TURN_STOP : DAVY_TURN_LENGTH};
    const davy_result r = dv_dialogue_push_event(d, &end);
    if (r < 0) {
        return r;
    }
    d->turns[d->n_turns++] = (dv_turn_record){.mark = dv_session_now(d->session), .text = a->text};
    a->text = NULL;
    davy_dialogue_info *i = &d->info;
    const double seconds = (double)(t->last_ns - t->first_ns) * 1e-9;
    i->generated_tokens = (int32_t)a->tokens;
    i->end = end.end;
    i->flags &= DAVY_DIALOGUE_SHORTER;
    i->flags |= (t->smaller ? DAVY_DIALOGUE_SMALLER : 0u) | (a->only_thought ? DAVY_DIALOGUE_UNANSWERED : 0u);
    i->seconds_to_first_token = (double)(t->first_ns - t->start_ns) * 1e-9;
    i->tokens_per_second = a->tokens > 1 && seconds > 0.0 ? (double)(a->tokens - 1) / seconds : 0.0;
    report(t, true);
    return DAVY_OK;
}

static davy_result run_stages(davy_dialogue *d, dv_turn *t) {
    dv_encoded *encoded = dv_calloc((uint64_t)d->n_pictures + 1, sizeof *encoded);
    dv_answer a = {.text = NULL};
    int64_t before = 0;
    int64_t image_tokens = 0;
    int32_t prompt_tokens = 0;
    davy_result r = encoded != NULL ? prepare(d, t) : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    if (r == DAVY_OK) {
        before = dv_session_tokens(d->session);
        r = read_prompt(d, t, encoded, &image_tokens);
        prompt_tokens = r == DAVY_OK ? (int32_t)(dv_session_tokens(d->session) - before) : 0;
    }
    for (int64_t i = 0; encoded != NULL && i < d->n_pictures; i++) {
        dv_encoded_free(&encoded[i]);
    }
    dv_free(encoded);
    r = r < 0 ? r : generate_answer(d, t, &a);
    r = r < 0 ? r : record_turn(d, t, &a);
    if (r == DAVY_OK) {
        d->info.prompt_tokens = prompt_tokens;
        d->info.image_tokens = (int32_t)image_tokens;
    }
    dv_free(a.text);
    return r;
}

davy_result dv_turn_result(const dv_turn *t, davy_result r) {
    return r == DAVY_E_CANCELLED && t->timed_out
               ? dv_fail(DAVY_E_TIMEOUT, "the answer was not complete within timeout_ns")
               : r;
}

davy_result dv_turn_run(davy_dialogue *d, dv_turn *t) {
    t->start_ns = dv_now_ns();
    t->total = t->total > 0 ? t->total : DV_TURN_PARTS;
    d->current = t;
    davy_result r = run_stages(d, t);
    d->current = NULL;
    r = dv_turn_result(t, r);
    if (r < 0 && d->session != NULL) {
        davy_error_info saved;
        dv_error_get(&saved);
        const dv_session_mark start = {.tokens = 0};
        dv_session_rewind(d->session, d->n_turns > 0 ? d->turns[d->n_turns - 1].mark : start);
        dv_error_set(&saved);
    }
    dv_dialogue_drop_inputs(d);
    return r;
}
