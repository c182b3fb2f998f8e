/* dialogue.c - davy_dialogue: lifetime, exclusive calls, events, turns that block or run as a job. The lock is held only
 * briefly; a turn runs without it. Order of locks: the dialogue's, then the job queue's. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/utf8.h"
#include "core/base/watch.h"
#include "core/dialogue/dialogue_priv.h"
#include "core/host/context.h"
#include "core/host/job.h"

#define POLL_NS 20000000ull /* cancelling a queued job signals no condition */

enum { MAX_WORDS = 1 << 20 };

davy_context *dv_dialogue_context(const davy_dialogue *d) {
    return dv_model_context(d->model);
}

/* ---- lifetime ---- */

davy_result dv_dialogue_open(davy_model *model, const davy_caption_params *params, davy_dialogue **out) {
    davy_result r = dv_caption_check_model(model);
    davy_dialogue *d = r == DAVY_OK ? dv_calloc(1, sizeof *d) : NULL;
    if (r < 0) {
        return r;
    }
    if (d == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    atomic_init(&d->refs, 1);
    d->model = dv_model_ref(model);
    d->lock = dv_mutex_create();
    d->changed = dv_cond_create();
    r = d->lock != NULL && d->changed != NULL ? dv_caption_options_copy(params, model, &d->options)
                                              : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    const int64_t most = dv_model_facts(model)->context_tokens;
    if (r == DAVY_OK && d->options.p.context_tokens > most) {
        r = dv_fail(DAVY_E_INVALID, "caption_params: context_tokens is %d, expected up to %lld for this model",
                    (int)d->options.p.context_tokens, (long long)most);
    }
    if (r < 0) {
        dv_dialogue_release(d);
        return r;
    }
    *out = d;
    return DAVY_OK;
}

davy_result dv_dialogue_open_same(const davy_dialogue *d, int32_t gpu, davy_dialogue **out) {
    davy_caption_params p = d->options.p;
    p.prompt = d->options.prompt;
    p.system = d->options.system;
    p.stop = (const char *const *)d->options.stop;
    const davy_result r = dv_dialogue_open(d->model, &p, out);
    if (r == DAVY_OK) {
        (*out)->gpu = gpu;
    }
    return r;
}

static void destroy(davy_dialogue *d) {
    davy_model *model = d->model;
    if (!dv_context_is_child(dv_model_context(model))) { /* in a forked child locks may stay locked */
        dv_session_release(d->session);
        dv_captioner_unpin(d->pin);
        dv_dialogue_drop_inputs(d);
        dv_dialogue_clear_events(d);
        dv_dialogue_forget_turns(d, 0);
        dv_free(d->events);
        dv_free(d->turns);
        dv_free(d->pictures);
        dv_free(d->clips);
        dv_free(d->read_text);
        dv_free(d->system_text);
        dv_caption_options_clear(&d->options);
        dv_cond_release(d->changed);
        dv_mutex_release(d->lock);
        dv_free(d);
    }
    dv_model_release(model);
}

void dv_dialogue_release(davy_dialogue *d) {
    if (d != NULL && atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) {
        destroy(d);
    }
}

/* ---- entering ---- */

/* Under the lock: if the queued job ended before it started, cleans up as its run would have. */
static void finish_ended_job(davy_dialogue *d) {
    davy_job_info info;
    if (d->queued == NULL || d->queued->job == NULL) {
        return;
    }
    dv_job_info(d->queued->job, &info);
    if (info.state != DAVY_PENDING && d->queued != NULL) {
        d->queued = NULL;
        dv_dialogue_drop_inputs(d);
        d->busy = false;
    }
}

static davy_result enter(davy_dialogue *d) {
    dv_mutex_lock(d->lock);
    finish_ended_job(d);
    const bool busy = d->busy;
    d->busy = true;
    dv_mutex_unlock(d->lock);
    return busy ? dv_fail(DAVY_E_BUSY, "the dialogue is busy: another call runs, or its job has not finished")
                : DAVY_OK;
}

static davy_result leave(davy_dialogue *d, davy_result r) {
    dv_mutex_lock(d->lock);
    d->busy = false;
    dv_cond_broadcast(d->changed);
    dv_mutex_unlock(d->lock);
    return r;
}

/* ---- inputs of the next turn ---- */

davy_result dv_dialogue_image(davy_dialogue *d, const davy_tensor *image) {
    dv_pixels pixels;
    davy_result r = dv_caption_check_images(image, &pixels);
    r = r < 0 ? r : enter(d);
    return r < 0 ? r : leave(d, pixels.t > 1 ? dv_dialogue_add_video(d, &pixels) : dv_dialogue_add_picture(d, &pixels));
}

static davy_result append_text(char **to, const char *utf8) {
    if ((*to != NULL ? strlen(*to) : 0) + strlen(utf8) > MAX_WORDS) {
        return dv_fail(DAVY_E_INVALID, "text: is longer than 1 MiB");
    }
    char *both = *to != NULL ? dv_sprintf("%s\n%s", *to, utf8) : dv_strdup(utf8);
    if (both == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    dv_free(*to);
    *to = both;
    return DAVY_OK;
}

davy_result dv_dialogue_text(davy_dialogue *d, davy_role role, const char *utf8) {
    if (role != DAVY_ROLE_USER && role != DAVY_ROLE_SYSTEM) {
        return dv_fail(DAVY_E_INVALID, "role is %d, expected DAVY_ROLE_*", (int)role);
    }
    if (utf8 == NULL || !dv_utf8_valid(utf8, strlen(utf8))) {
        return dv_fail(DAVY_E_INVALID, "text: %s", utf8 == NULL ? "utf8 is NULL" : "is not valid UTF-8");
    }
    davy_result r = enter(d);
    if (r < 0) {
        return r;
    }
    if (role == DAVY_ROLE_USER) {
        r = append_text(&d->user_text, utf8);
    } else {
        r = d->n_turns > 0 ? dv_fail(DAVY_E_STATE, "system text must be added before the first turn")
                           : append_text(&d->system_text, utf8);
    }
    return leave(d, r);
}

/* ---- events ---- */

/* Under the lock, which it releases while it waits. */
static davy_result wait_event(davy_dialogue *d, uint64_t timeout_ns) {
    const uint64_t deadline_ns = dv_deadline(timeout_ns);
    for (;;) {
        finish_ended_job(d);
        if (d->next_event < d->n_events) {
            return DAVY_OK;
        }
        if (!d->busy) {
            return DAVY_END;
        }
        if (!dv_cond_wait_until(d->changed, d->lock, deadline_ns, POLL_NS)) {
            return DAVY_PENDING;
        }
    }
}

davy_result dv_dialogue_read(davy_dialogue *d, davy_token_event *out, uint64_t timeout_ns) {
    dv_mutex_lock(d->lock);
    if (d->reading) {
        dv_mutex_unlock(d->lock);
        return dv_fail(DAVY_E_BUSY, "dialogue_read is running in another thread");
    }
    d->reading = true;
    const davy_result r = wait_event(d, timeout_ns);
    if (r == DAVY_OK) {
        dv_event *e = &d->events[d->next_event++];
        dv_free(d->read_text);
        d->read_text = e->text;
        e->text = NULL;
        *out = (davy_token_event){.struct_size = sizeof *out,
                                  .kind = e->kind,
                                  .text = d->read_text,
                                  .text_bytes = e->bytes,
                                  .index = e->index,
                                  .end = e->end};
    }
    d->reading = false;
    dv_mutex_unlock(d->lock);
    return r;
}

/* ---- a turn, blocking or as a job ---- */

static void free_turn(dv_turn *t) {
    dv_caption_options_clear(&t->own_options);
    dv_free(t);
}

static davy_result run_job(void *arg, davy_job *job) {
    dv_turn *t = arg;
    davy_dialogue *d = t->dialogue;
    dv_mutex_lock(d->lock);
    d->queued = NULL;
    dv_mutex_unlock(d->lock);
    t->job = job;
    return leave(d, dv_turn_run(d, t));
}

static void release_job(void *arg) {
    dv_turn *t = arg;
    davy_dialogue *d = t->dialogue;
    if (!dv_context_is_child(dv_dialogue_context(d))) {
        dv_mutex_lock(d->lock);
        const bool never_began = d->queued == t;
        if (never_began) {
            d->queued = NULL;
            dv_dialogue_drop_inputs(d);
            d->busy = false;
            dv_cond_broadcast(d->changed);
        }
        dv_mutex_unlock(d->lock);
    }
    free_turn(t);
    dv_dialogue_release(d);
}

static davy_result submit(davy_dialogue *d, dv_turn *t, davy_job **job) {
    t->dialogue = d;
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    const dv_job_desc desc = {
        .priority = t->run.priority, .deadline_ns = t->deadline_ns, .run = run_job, .release = release_job, .arg = t};
    dv_mutex_lock(d->lock);
    d->queued = t;
    const davy_result r = dv_job_submit(dv_context_jobs(dv_dialogue_context(d)), &desc, job);
    if (r == DAVY_OK) {
        t->job = *job;
    } else {
        d->queued = NULL;
    }
    dv_mutex_unlock(d->lock);
    if (r < 0) {
        free_turn(t);
        dv_dialogue_drop_inputs(d);
        leave(d, r);
        dv_dialogue_release(d);
    }
    return r;
}

davy_result dv_dialogue_generate(davy_dialogue *d, const davy_caption_params *params, const davy_run *run,
                                 davy_job **job) {
    davy_result r = dv_caption_check_run(run);
    r = r < 0 ? r : enter(d);
    if (r < 0) {
        return r;
    }
    if (d->n_pictures == 0 && d->user_text == NULL) {
        return leave(d, dv_fail(DAVY_E_STATE, "the dialogue has no new input; add a picture or text"));
    }
    dv_turn *t = dv_calloc(1, sizeof *t);
    r = t == NULL        ? dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory")
        : params != NULL ? dv_caption_options_copy(params, d->model, &t->own_options)
                         : DAVY_OK;
    if (r < 0) {
        dv_free(t);
        return leave(d, r);
    }
    t->options = params != NULL ? &t->own_options : &d->options;
    t->run = *run;
    t->deadline_ns = dv_control_deadline(run->timeout_ns);
    dv_mutex_lock(d->lock);
    dv_dialogue_clear_events(d);
    dv_mutex_unlock(d->lock);
    if (job != NULL) {
        return submit(d, t, job);
    }
    r = dv_turn_run(d, t);
    free_turn(t);
    return leave(d, r);
}

/* ---- after a turn ---- */

davy_result dv_dialogue_answer(davy_dialogue *d, davy_text **out) {
    davy_result r = enter(d);
    if (r < 0) {
        return r;
    }
    r = d->n_turns > 0 ? dv_text_create(dv_strdup(d->turns[d->n_turns - 1].text), out)
                       : dv_fail(DAVY_E_STATE, "the dialogue has no complete turn");
    return leave(d, r);
}

davy_result dv_dialogue_rewind(davy_dialogue *d, int32_t keep_turns) {
    davy_result r = enter(d);
    if (r < 0) {
        return r;
    }
    if (keep_turns < 0 || keep_turns > d->n_turns) {
        return leave(
            d, dv_fail(DAVY_E_INVALID, "keep_turns is %d, expected 0 to %lld", (int)keep_turns, (long long)d->n_turns));
    }
    const dv_session_mark start = {.tokens = 0};
    if (keep_turns < d->n_turns) {
        r = dv_session_rewind(d->session, keep_turns > 0 ? d->turns[keep_turns - 1].mark : start);
    }
    if (r == DAVY_OK) {
        dv_dialogue_forget_turns(d, keep_turns);
        dv_dialogue_drop_inputs(d);
    }
    return leave(d, r);
}

davy_result dv_dialogue_info(davy_dialogue *d, davy_dialogue_info *out) {
    const davy_result r = enter(d);
    if (r < 0) {
        return r;
    }
    *out = d->info;
    out->turns = (int32_t)d->n_turns;
    out->tokens_used = d->session != NULL ? (int32_t)dv_session_tokens(d->session) : 0;
    return leave(d, DAVY_OK);
}
