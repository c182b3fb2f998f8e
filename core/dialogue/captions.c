/* captions.c - the same question about many pictures. Each GPU, or the CPU, is a worker that answers several pictures in one
 * batch. Pictures left after that run one at a time, each as the first turn of the same dialogue. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/watch.h"
#include "core/dialogue/dialogue_priv.h"
#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/host/job.h"
#include "core/vlm/batch.h"

enum { MAX_PICTURES = 1 << 20 };

typedef struct caption_set {
    davy_dialogue *dialogue; /* used by this call only */
    uint32_t n;
    const dv_pixels *pixels;
    davy_text **texts; /* NULL: this picture has no answer yet */
    dv_turn turn;
    _Atomic uint32_t next; /* first picture that no worker has taken */
    _Atomic bool stop;     /* a worker has failed */
} caption_set;

/* One GPU, or the CPU. Memory limits the number of pictures at once. If a picture would have to be encoded smaller, the
 * worker first finishes the running ones and then takes fewer at once. */
typedef struct caption_worker {
    caption_set *set;
    davy_dialogue *dialogue;
    dv_turn turn;
    int64_t max_at_once;           /* pictures at once */
    _Atomic uint64_t parts;        /* progress so far */
    struct caption_worker *others; /* this worker reports their progress with its own; NULL: it reports nothing */
    int32_t n_others;
    davy_result r; /* set when the worker ends */
    davy_error_info error;
    dv_thread *thread;
} caption_worker;

/* ---- prefetch: encodes the next picture while the GPU generates answers ---- */

/* Used with a GPU, because most of the encoding runs on the CPU. One thread encodes one picture at a time. It reports no
 * progress and stops with its caller. */
typedef struct prefetch {
    caption_worker *c;
    davy_dialogue *dialogue; /* used by this thread only; holds the picture */
    dv_turn turn;
    dv_thread *thread;
    dv_mutex *lock;
    dv_cond *changed;
    bool requested, ready, quit; /* guarded by the lock. From request until ready the thread owns the members below */
    uint32_t index;
    uint64_t start_ns;
    davy_result r;
    davy_error_info error;
    dv_encoded encoded;
} prefetch;

static davy_result encode_picture(davy_dialogue *d, const dv_pixels *pixels, dv_encoded *out) {
    const dv_picture_options o = dv_turn_picture_options(d, &d->options);
    const dv_session_options cancel = {.cancel = dv_turn_should_stop, .room = dv_turn_make_room, .user = d};
    davy_result r = dv_turn_begin_stage(d, d->current, DV_TURN_ENCODE, 1);
    r = r < 0 ? r : dv_dialogue_add_picture(d, pixels);
    r = r < 0 ? r : dv_encode_image(dv_pinned_model(d->pin), &d->pictures[0], &o, &cancel, out);
    dv_dialogue_drop_inputs(d);
    return r;
}

static void prefetch_main(void *arg) {
    prefetch *p = arg;
    dv_mutex_lock(p->lock);
    while (!p->quit) {
        if (!p->requested || p->ready) {
            dv_cond_wait(p->changed, p->lock, UINT64_MAX);
            continue;
        }
        dv_mutex_unlock(p->lock);
        p->start_ns = dv_now_ns();
        p->r = encode_picture(p->dialogue, &p->c->set->pixels[p->index], &p->encoded);
        if (p->r < 0) {
            dv_error_get(&p->error);
        }
        dv_mutex_lock(p->lock);
        p->ready = true;
        dv_cond_broadcast(p->changed);
    }
    dv_mutex_unlock(p->lock);
}

static davy_result prefetch_start(caption_worker *c, prefetch **out) {
    prefetch *p = dv_calloc(1, sizeof *p);
    *out = p;
    if (p == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    p->c = c;
    p->turn = c->turn;
    p->turn.quiet = true;
    p->lock = dv_mutex_create();
    p->changed = dv_cond_create();
    davy_result r = p->lock != NULL && p->changed != NULL
                        ? dv_dialogue_open_same(c->dialogue, c->dialogue->gpu, &p->dialogue)
                        : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    if (r == DAVY_OK) {
        p->dialogue->current = &p->turn;
        r = dv_turn_load_weights(p->dialogue, &p->turn); /* already loaded: this only pins them */
    }
    return r < 0 ? r : dv_thread_start(prefetch_main, p, "davy-encode", &p->thread);
}

static void prefetch_stop(prefetch *p) {
    if (p == NULL) {
        return;
    }
    if (p->thread != NULL) {
        dv_mutex_lock(p->lock);
        p->quit = true;
        dv_cond_broadcast(p->changed);
        dv_mutex_unlock(p->lock);
        dv_thread_join(p->thread);
    }
    dv_encoded_free(&p->encoded);
    if (p->dialogue != NULL) {
        p->dialogue->current = NULL;
        dv_dialogue_release(p->dialogue);
    }
    dv_cond_release(p->changed);
    dv_mutex_release(p->lock);
    dv_free(p);
}

static void prefetch_request(prefetch *p, uint32_t index) {
    dv_mutex_lock(p->lock);
    if (!p->requested) {
        p->requested = true;
        p->index = index;
        dv_cond_broadcast(p->changed);
    }
    dv_mutex_unlock(p->lock);
}

static bool prefetch_ready(prefetch *p) {
    dv_mutex_lock(p->lock);
    const bool ready = p->ready;
    dv_mutex_unlock(p->lock);
    return ready;
}

static davy_result prefetch_take(prefetch *p, dv_encoded *out, uint64_t *start_ns) {
    dv_mutex_lock(p->lock);
    while (!p->ready) {
        dv_cond_wait(p->changed, p->lock, UINT64_MAX);
    }
    p->requested = p->ready = false;
    dv_mutex_unlock(p->lock);
    *out = p->encoded;
    *start_ns = p->start_ns;
    p->encoded = (dv_encoded){.smaller = false};
    if (p->r < 0) {
        dv_error_set(&p->error);
    }
    return p->r;
}

/* ---- one worker: several pictures at once, on one GPU or on the CPU ---- */

typedef struct active_picture {
    uint32_t index;
    int64_t tokens; /* generated */
    uint64_t start_ns, first_ns, last_ns;
    dv_ids ids;
    dv_encoded encoded;
    dv_session_picture session_picture;
    dv_answer_options options;
    dv_answering answering;
    dv_answer answer;
    struct active_picture *next;
} active_picture;

typedef struct batch_run {
    caption_worker *c;
    davy_dialogue *dialogue;
    const dv_vlm_model *model;
    prefetch *prefetch;     /* on a GPU */
    dv_batch *batch;        /* NULL: not open, or memory is short */
    active_picture *active; /* list of the running pictures */
    int64_t width;          /* pictures at once */
    int64_t next;           /* number of the next picture, taken from the set; -1: none */
    uint64_t done;
} batch_run;

static void count_parts(batch_run *b) {
    caption_worker *c = b->c;
    uint64_t parts = b->done * DV_TURN_PARTS;
    for (const active_picture *p = b->active; p != NULL; p = p->next) {
        const uint64_t most = (uint64_t)dv_max(1, p->options.generate.max_tokens);
        parts += DV_TURN_ENCODE_PARTS + (DV_TURN_PARTS - DV_TURN_ENCODE_PARTS) * (uint64_t)p->tokens / most;
    }
    atomic_store(&c->parts, parts);
    for (int32_t i = 0; i < c->n_others; i++) {
        parts += atomic_load(&c->others[i].parts);
    }
    c->turn.base = parts;
}

static void on_token(void *user, int64_t tokens) {
    active_picture *p = user;
    p->tokens = tokens;
    p->last_ns = dv_now_ns();
    p->first_ns = p->first_ns == 0 ? p->last_ns : p->first_ns;
}

static void free_picture(active_picture *p) {
    dv_detokenizer_release(p->answering.stream);
    dv_free(p->answer.text);
    dv_encoded_free(&p->encoded);
    dv_ids_clear(&p->ids);
    dv_free(p);
}

static void remove_picture(batch_run *b, active_picture *p) {
    active_picture **at = &b->active;
    while (*at != p) {
        at = &(*at)->next;
    }
    *at = p->next;
    free_picture(p);
}

static davy_result encode_next(batch_run *b, active_picture *p) {
    p->start_ns = dv_now_ns();
    if (b->prefetch == NULL) {
        return encode_picture(b->dialogue, &b->c->set->pixels[p->index], &p->encoded);
    }
    prefetch_request(b->prefetch, p->index);
    return prefetch_take(b->prefetch, &p->encoded, &p->start_ns);
}

static davy_result write_prompt(batch_run *b, active_picture *p) {
    const dv_encoded *encoded = &p->encoded;
    const dv_prompt prompt = {.system = b->dialogue->options.system,
                              .pictures = &encoded,
                              .n = 1,
                              .question = dv_turn_question(b->dialogue, &b->dialogue->options)};
    p->session_picture = (dv_session_picture){.features = &p->encoded.features, .seconds = p->encoded.step};
    return dv_prompt_ids(b->model, &prompt, &p->ids);
}

static davy_result start_answer(batch_run *b, active_picture *p) {
    davy_result r = dv_turn_answer_options(&b->dialogue->options, dv_batch_context(b->batch), p->ids.n, &p->options);
    r = r < 0 ? r : dv_answering_start(b->model, &p->options, &p->answer, &p->answering);
    dv_batch_question q = {.ids = p->ids.p,
                           .n = p->ids.n,
                           .pictures = &p->session_picture,
                           .n_pictures = 1,
                           .generate = p->options.generate,
                           .tag = p};
    q.generate.token = dv_answering_token;
    q.generate.user = &p->answering;
    q.generate.drawn = on_token;
    q.generate.drawn_user = p;
    return r < 0 ? r : dv_batch_ask(b->batch, &q);
}

static davy_dialogue_info info_of(const batch_run *b, const active_picture *p) {
    const double seconds = (double)(p->last_ns - p->first_ns) * 1e-9;
    return (davy_dialogue_info){.turns = 1,
                                .tokens_used = (int32_t)(p->ids.n + dv_max(0, p->tokens - 1)),
                                .tokens_max = (int32_t)dv_batch_context(b->batch),
                                .prompt_tokens = (int32_t)p->ids.n,
                                .image_tokens = (int32_t)p->encoded.features.tokens,
                                .generated_tokens = (int32_t)p->tokens,
                                .end = p->answer.end == DV_END_STOP ? DAVY_TURN_STOP : DAVY_TURN_LENGTH,
                                .kv_bytes = dv_batch_bytes(b->batch),
                                .flags = p->answer.only_thought ? DAVY_DIALOGUE_UNANSWERED : 0u,
                                .seconds_to_first_token = (double)(p->first_ns - p->start_ns) * 1e-9,
                                .tokens_per_second =
                                    p->tokens > 1 && seconds > 0.0 ? (double)(p->tokens - 1) / seconds : 0.0};
}

static davy_result keep_answer(batch_run *b, const dv_batch_end *e) {
    active_picture *p = e->tag;
    davy_text **text = &b->c->set->texts[p->index];
    p->answer.end = e->end;
    davy_result r = dv_answering_end(&p->answering, DAVY_OK);
    r = r < 0 ? r : dv_text_create(dv_strdup(p->answer.text), text);
    if (r == DAVY_OK) {
        const davy_dialogue_info info = info_of(b, p);
        dv_text_set_info(*text, &info);
    }
    remove_picture(b, p);
    b->done++;
    return r;
}

/* Opens a batch with a cache for b->width sequences as long as this one. Retries with half the width if memory is short. */
static davy_result open_batch(batch_run *b, int64_t prompt) {
    const davy_caption_params *p = &b->dialogue->options.p;
    const int64_t full = dv_min(b->model->config.text.max_positions, DV_SESSION_CONTEXT);
    dv_batch_options o = {.context = p->context_tokens > 0 ? p->context_tokens : full,
                          .cancel = dv_turn_should_stop,
                          .user = b->dialogue};
    const int64_t each = dv_div_up(dv_min(prompt + p->max_tokens, o.context), DVK_PAGE) * DVK_PAGE;
    bool made_room = false;
    for (;;) {
        o.sequences = b->width;
        o.tokens = b->width * each;
        const davy_result r = dv_batch_open(b->model, &o, &b->batch);
        const bool again = dv_ran_out(r) && !made_room && dv_turn_make_room(b->dialogue);
        if (!dv_ran_out(r) || (!again && b->width <= 2)) {
            return r;
        }
        made_room = true;
        b->width /= again ? 1 : 2;
    }
}

static davy_result step_batch(batch_run *b) {
    dv_batch_end e;
    count_parts(b);
    davy_result r = dv_turn_begin_stage(b->dialogue, &b->c->turn, DV_TURN_ANSWER, 1);
    r = r < 0 ? r : dv_batch_work(b->batch);
    while (r == DAVY_OK && dv_batch_ended(b->batch, &e)) {
        r = keep_answer(b, &e);
    }
    return r;
}

/* Finishes the running pictures, then halves the width. */
static davy_result shrink_batch(batch_run *b) {
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && b->active != NULL) {
        r = step_batch(b);
    }
    dv_batch_release(b->batch);
    b->batch = NULL;
    b->width /= 2;
    return r;
}

/* Takes the next picture's number into b->next. Returns false if there is none. */
static bool take_picture(batch_run *b) {
    caption_set *set = b->c->set;
    if (b->next < 0) {
        const uint32_t next = atomic_fetch_add(&set->next, 1);
        b->next = next < set->n ? (int64_t)next : -1;
    }
    return b->next >= 0;
}

/* True if a picture can start now. On a GPU the answers continue until its encoding is ready. */
static bool can_start(batch_run *b, bool *more) {
    if (b->batch != NULL && !dv_batch_has_room(b->batch)) {
        return false;
    }
    *more = take_picture(b);
    if (*more && b->prefetch != NULL) {
        prefetch_request(b->prefetch, (uint32_t)b->next);
        return b->active == NULL || prefetch_ready(b->prefetch);
    }
    return *more;
}

/* A GPU pass costs the same for few rows as for many. So all prompts are read first, to fill the next pass. */
static davy_result read_all(batch_run *b) {
    bool more = b->model->gpu != NULL;
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && more) {
        r = dv_batch_read(b->batch, &more);
    }
    return r;
}

/* Encodes the taken picture and starts its answer. *small: memory is short, and the picture stays taken. */
static davy_result start_picture(batch_run *b, bool *small) {
    active_picture *p = dv_calloc(1, sizeof *p);
    if (p == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    p->index = (uint32_t)b->next;
    davy_result r = encode_next(b, p);
    *small = dv_ran_out(r) || (r == DAVY_OK && p->encoded.smaller);
    r = *small ? DAVY_OK : r;
    r = r < 0 || *small ? r : write_prompt(b, p);
    if (r == DAVY_OK && !*small && b->batch == NULL) {
        r = open_batch(b, p->ids.n);
        *small = dv_ran_out(r);
        r = *small ? DAVY_OK : r;
    }
    r = r < 0 || *small ? r : start_answer(b, p);
    if (r < 0 || *small) {
        free_picture(p);
        return r < 0 ? dv_fail_prefix("picture %u of %u", (unsigned)b->next + 1u, (unsigned)b->c->set->n) : r;
    }
    p->next = b->active;
    b->active = p;
    b->next = -1;
    if (b->prefetch != NULL && take_picture(b)) {
        prefetch_request(b->prefetch, (uint32_t)b->next);
    }
    return read_all(b);
}

static davy_result run_batch(batch_run *b) {
    davy_result r = DAVY_OK;
    bool more = true;
    while (r == DAVY_OK && b->width > 1) {
        bool small = false;
        while (r == DAVY_OK && !small && can_start(b, &more)) {
            count_parts(b);
            r = start_picture(b, &small);
        }
        if (r < 0 || (small && b->batch == NULL) || (!more && b->active == NULL)) {
            break; /* small: the turns for single pictures take fewer tiles or pixels */
        }
        r = small ? shrink_batch(b) : step_batch(b);
    }
    if (r == DAVY_OK) {
        count_parts(b);
        b->c->turn.progress_ns = 0; /* forces a report */
        r = dv_turn_begin_stage(b->dialogue, &b->c->turn, DV_TURN_ANSWER, 1);
    }
    return r;
}

static davy_result caption_pictures(caption_worker *c) {
    davy_dialogue *d = c->dialogue;
    batch_run b = {.c = c, .dialogue = d, .model = dv_pinned_model(d->pin), .next = -1};
    b.width = dv_min(c->max_at_once, dv_batch_most(b.model));
    if (b.model->gpu != NULL &&
        prefetch_start(c, &b.prefetch) < 0) { /* then this thread encodes pictures between tokens */
        prefetch_stop(b.prefetch);
        b.prefetch = NULL;
    }
    const davy_result r = b.model->tokenizer != NULL ? run_batch(&b) : DAVY_OK;
    prefetch_stop(b.prefetch);
    while (b.active != NULL) {
        remove_picture(&b, b.active);
    }
    dv_batch_release(b.batch);
    return r;
}

/* ---- the workers of a call: the calling thread is the first, and reports progress for all of them ---- */

/* If a GPU has no room for the weights, the other workers take its pictures. */
static davy_result load_weights(caption_worker *c) {
    davy_dialogue *d = c->dialogue;
    d->current = &c->turn;
    const davy_result r = dv_turn_load_weights(d, &c->turn);
    if (r < 0 && d->gpu > 0 && dv_ran_out(r)) {
        davy_error_info why;
        dv_error_get(&why);
        dv_logf(dv_context_services(dv_dialogue_context(d))->log, DAVY_LOG_WARN, "one GPU is not used for captions: %s",
                why.message);
        return DAVY_OK;
    }
    return r;
}

static void worker_main(void *arg) {
    caption_worker *c = arg;
    c->r = load_weights(c);
    c->r = c->r < 0 || c->dialogue->pin == NULL ? c->r : caption_pictures(c);
    c->r = dv_turn_result(&c->turn, c->r);
    c->dialogue->current = NULL;
    if (c->r < 0) {
        dv_error_get(&c->error);
        atomic_store(&c->set->stop, true);
    }
}

/* As many GPUs as can get two pictures each. */
static int32_t count_workers(const caption_set *c) {
    const int64_t gpus = dv_captioner_gpus(dv_model_captioner(c->dialogue->model));
    return (int32_t)dv_max(1, dv_min(gpus, c->n / 2));
}

static void init_workers(caption_set *set, caption_worker *list, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        caption_worker *c = &list[i];
        c->set = set;
        c->turn = set->turn;
        c->turn.quiet = i > 0;
        c->turn.stop = &set->stop;
        c->max_at_once = dv_div_up(set->n, n);
    }
    list[0].dialogue = set->dialogue;
    list[0].others = list + 1;
    list[0].n_others = n - 1;
}

/* Returns the first real error. DAVY_E_CANCELLED counts only if no worker has another error: a failure stops the others. */
static davy_result join_workers(caption_worker *list, int32_t n) {
    const caption_worker *failed = NULL;
    for (int32_t i = 0; i < n; i++) {
        caption_worker *c = &list[i];
        if (c->thread != NULL) {
            dv_thread_join(c->thread);
        }
        const bool real = c->r < 0 && c->r != DAVY_E_CANCELLED;
        failed = c->r < 0 && (failed == NULL || (real && failed->r == DAVY_E_CANCELLED)) ? c : failed;
    }
    for (int32_t i = 1; i < n; i++) {
        dv_dialogue_release(list[i].dialogue);
    }
    if (failed == NULL) {
        return DAVY_OK;
    }
    dv_error_set(&failed->error);
    return failed->r;
}

static davy_result caption_concurrently(caption_set *set) {
    const int32_t n = count_workers(set);
    caption_worker *list = dv_calloc((uint64_t)n, sizeof *list);
    if (list == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    init_workers(set, list, n);
    davy_result r = DAVY_OK;
    for (int32_t i = 1; r == DAVY_OK && i < n; i++) {
        r = dv_dialogue_open_same(set->dialogue, i, &list[i].dialogue);
        r = r < 0 ? r : dv_thread_start(worker_main, &list[i], "davy-caption", &list[i].thread);
    }
    if (r == DAVY_OK) {
        worker_main(&list[0]);
    } else {
        list[0].r = r;
        dv_error_get(&list[0].error);
        atomic_store(&set->stop, true);
    }
    r = join_workers(list, n);
    dv_free(list);
    return r;
}

/* ---- the call ---- */

typedef struct caption_call {
    davy_dialogue *dialogue;
    uint32_t n;
    dv_pixels *pixels;
    davy_buffer **buffers; /* one reference each; NULL: the caller's memory */
    davy_text **texts, **out;
    davy_run run;
    uint64_t deadline_ns;
} caption_call;

static void release_call(void *arg) {
    caption_call *c = arg;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->buffers != NULL) {
            dv_buffer_release(c->buffers[i]);
        }
        if (c->texts != NULL) {
            dv_text_release(c->texts[i]);
        }
    }
    dv_free(c->pixels);
    dv_free(c->buffers);
    dv_free(c->texts);
    dv_dialogue_release(c->dialogue);
    dv_free(c);
}

static davy_result caption_one(caption_call *c, uint32_t i, davy_job *job) {
    davy_dialogue *d = c->dialogue;
    dv_turn t = {.options = &d->options,
                 .run = c->run,
                 .deadline_ns = c->deadline_ns,
                 .job = job,
                 .base = (uint64_t)i * DV_TURN_PARTS,
                 .total = (uint64_t)c->n * DV_TURN_PARTS};
    davy_result r = dv_dialogue_add_picture(d, &c->pixels[i]);
    r = r < 0 ? r : dv_turn_run(d, &t);
    dv_dialogue_clear_events(d);
    if (r == DAVY_OK && t.smaller) {
        dv_logf(dv_context_services(dv_dialogue_context(d))->log, DAVY_LOG_WARN,
                "picture %u of %u: memory is short; the model gets fewer tiles or pixels", (unsigned)i + 1u,
                (unsigned)c->n);
    }
    r = r < 0 ? r : dv_dialogue_answer(d, &c->texts[i]);
    if (r == DAVY_OK) {
        davy_dialogue_info info;
        dv_dialogue_info(d, &info);
        dv_text_set_info(c->texts[i], &info);
    }
    return r < 0 ? r : dv_dialogue_rewind(d, 0);
}

static davy_result run_concurrently(caption_call *c, davy_job *job) {
    caption_set set = {.dialogue = c->dialogue, .n = c->n, .pixels = c->pixels, .texts = c->texts};
    atomic_init(&set.next, 0);
    atomic_init(&set.stop, false);
    set.turn = (dv_turn){.options = &c->dialogue->options,
                         .run = c->run,
                         .deadline_ns = c->deadline_ns,
                         .job = job,
                         .total = (uint64_t)c->n * DV_TURN_PARTS,
                         .shared = true};
    return caption_concurrently(&set);
}

static davy_result run_call(void *arg, davy_job *job) {
    caption_call *c = arg;
    davy_result r = c->n > 1 ? run_concurrently(c, job) : DAVY_OK;
    for (uint32_t i = 0; r == DAVY_OK && i < c->n; i++) {
        r = c->texts[i] != NULL ? DAVY_OK : caption_one(c, i, job);
        if (r < 0 && c->n > 1) {
            r = dv_fail_prefix("picture %u of %u", (unsigned)i + 1u, (unsigned)c->n);
        }
    }
    if (r == DAVY_OK || (c->dialogue->options.p.flags & DAVY_CAPTION_PARTIAL) != 0) {
        memcpy(c->out, c->texts, c->n * sizeof(davy_text *));
        memset(c->texts, 0, c->n * sizeof(davy_text *));
    }
    return r;
}

static davy_result take_images(caption_call *c, const davy_tensor *images) {
    davy_result r = DAVY_OK;
    c->pixels = dv_calloc(c->n, sizeof *c->pixels);
    c->buffers = dv_calloc(c->n, sizeof(davy_buffer *));
    c->texts = dv_calloc(c->n, sizeof(davy_text *));
    if (c->pixels == NULL || c->buffers == NULL || c->texts == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    for (uint32_t i = 0; r == DAVY_OK && i < c->n; i++) {
        r = dv_caption_check_image(&images[i], &c->pixels[i]);
        if (r < 0 && c->n > 1) {
            r = dv_fail_prefix("picture %u of %u", (unsigned)i + 1u, (unsigned)c->n);
        }
        if (r == DAVY_OK && images[i].buffer != NULL) {
            c->buffers[i] = dv_buffer_ref(images[i].buffer);
        }
    }
    return r;
}

davy_result dv_caption(const dv_caption_args *a) {
    const davy_run *how = a->run;
    if (a->n < 1 || a->n > MAX_PICTURES) {
        return dv_fail(DAVY_E_INVALID, "caption: n is %u, expected 1 to %d", (unsigned)a->n, (int)MAX_PICTURES);
    }
    davy_result r = dv_caption_check_run(how);
    caption_call *c = r == DAVY_OK ? dv_calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        return r < 0 ? r : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    c->n = a->n;
    c->out = a->out;
    c->run = *how;
    c->deadline_ns = dv_control_deadline(how->timeout_ns);
    r = dv_dialogue_open(a->model, a->params, &c->dialogue);
    r = r < 0 ? r : take_images(c, a->images);
    if (r < 0 || a->job == NULL) {
        r = r < 0 ? r : run_call(c, NULL);
        release_call(c);
        return r;
    }
    const dv_job_desc desc = {
        .priority = how->priority, .deadline_ns = c->deadline_ns, .run = run_call, .release = release_call, .arg = c};
    r = dv_job_submit(dv_context_jobs(dv_model_context(a->model)), &desc, a->job);
    if (r < 0) {
        release_call(c);
    }
    return r;
}
