/* sequence.c - davy_sequence: a ring of frames and the threads that work on it; clips: sequence_clip.c.
 *
 * The lock guards the ring's numbers and every frame's state; pictures are copied and computed without it, by the one who
 * has set the state. A thread computes a frame by the one-shot call,
 * so that it is what that call gives; on a GPU several threads do so at once, each run on queues of its own: while one
 * waits for its picture to come down, the next one's steps run and a third one's picture goes up. */
#include "core/calls/sequence_priv.h"

#include <inttypes.h>
#include <string.h>

#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/calls/sequence_clip.h"

enum { USUAL_IN_FLIGHT = 4, MOST_IN_FLIGHT = 64 };

davy_context *dv_sequence_context(const davy_sequence *s) {
    return dv_model_context(s->model);
}

/* ---- opening ---- */

static davy_result check_run(const davy_run *run) {
    if (run->stream != NULL || (run->flags & DAVY_RUN_STREAM_ORDERED) != 0 || run->timeout_ns != 0 ||
        run->progress != NULL || run->priority != 0) {
        return dv_fail(DAVY_E_INVALID, "sequence: a run of it has no stream, timeout, priority or progress callback");
    }
    return DAVY_OK;
}

static davy_channels without_alpha(davy_channels channels) {
    return channels == DAVY_CHANNELS_GRAYA  ? DAVY_CHANNELS_GRAY
           : channels == DAVY_CHANNELS_BGRA ? DAVY_CHANNELS_BGR
                                            : DAVY_CHANNELS_RGB;
}

/* What results are like: as asked for, or like the input; a latent's numbers are floats. */
static davy_result describe_output(davy_sequence *s, const dv_sequence_desc *desc, const dv_pixels *size) {
    const bool integers = s->like_in.range == DAVY_RANGE_FULL;
    davy_tensor want = {.struct_size = sizeof want};
    if (desc->output != NULL) {
        want = *desc->output;
    } else if (s->op == DAVY_OP_UPSCALE) {
        want.dtype = s->like_in.dtype;
        want.range = s->like_in.range;
        want.channels = size->c == s->like_in.c ? s->like_in.channels : without_alpha(s->like_in.channels);
    } else {
        want.dtype = integers ? DAVY_DTYPE_F32 : s->like_in.dtype;
    }
    const davy_result r = dv_pixels_describe(&want, size, s->like_in.layout, s->content_out, &s->out, &s->out_bytes);
    return r < 0 ? r : dv_pixels_check(&s->out, s->content_out, DV_SHAPE_ONLY, "output", &s->like_out);
}

static davy_result describe(davy_sequence *s, const dv_sequence_desc *desc) {
    dv_pixels size;
    davy_plan_info plan;
    davy_result r = check_run(desc->run);
    r = r < 0 || s->op != DAVY_OP_UPSCALE ? r : dv_oneshot_plan(s->model, s->op, desc->input, desc->run, &plan);
    r = r < 0 ? r : dv_oneshot_size(s->model, s->op, desc->input, desc->run, &size);
    r = r < 0 ? r : dv_pixels_check(desc->input, s->content_in, DV_SHAPE_ONLY, "input", &s->like_in);
    if (r < 0) {
        return r;
    }
    if (s->like_in.n != 1 || s->like_in.t != 1) {
        return dv_fail(DAVY_E_SHAPE, "input: %" PRId64 " pictures; a frame of a sequence is one",
                       s->like_in.n * s->like_in.t);
    }
    davy_tensor want = *desc->input;
    want.channels = s->like_in.channels;
    want.range = s->like_in.range;
    r = dv_pixels_describe(&want, &s->like_in, s->like_in.layout, s->content_in, &s->in, &s->in_bytes);
    return r < 0 ? r : describe_output(s, desc, &size);
}

/* Frames one by one, or a clip's. */
static davy_result set_up(davy_sequence *s) {
    dv_clip_rule rule;
    const dv_stage stage = s->op == DAVY_OP_VAE_ENCODE ? DV_STAGE_ENCODE : DV_STAGE_DECODE;
    if (s->op != DAVY_OP_UPSCALE && dv_engine_clip(dv_model_engine(s->model), stage, &rule)) {
        return dv_sequence_clip_open(s, &rule);
    }
    s->frames = dv_calloc((uint64_t)s->size, sizeof *s->frames);
    return s->frames != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "sequence: out of memory");
}

davy_result dv_sequence_open(davy_model *model, const dv_sequence_desc *desc, davy_sequence **out) {
    if (desc->op < DAVY_OP_VAE_ENCODE || desc->op > DAVY_OP_UPSCALE) {
        return dv_fail(DAVY_E_INVALID, "sequence: op is %d, expected DAVY_OP_*", (int)desc->op);
    }
    if (desc->max_in_flight < 0 || desc->max_in_flight > MOST_IN_FLIGHT) {
        return dv_fail(DAVY_E_INVALID, "sequence: max_in_flight is %d, expected up to %d, 0 for %d",
                       (int)desc->max_in_flight, MOST_IN_FLIGHT, USUAL_IN_FLIGHT);
    }
    davy_sequence *s = dv_calloc(1, sizeof *s);
    if (s == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "sequence: out of memory");
    }
    s->model = dv_model_ref(model);
    s->op = desc->op;
    s->content_in = s->op == DAVY_OP_VAE_DECODE ? DV_LATENT : DV_PICTURE;
    s->content_out = s->op == DAVY_OP_VAE_ENCODE ? DV_LATENT : DV_PICTURE;
    s->run = *desc->run;
    s->size = desc->max_in_flight > 0 ? desc->max_in_flight : USUAL_IN_FLIGHT;
    s->n_workers = dv_context_on_gpu(dv_model_context(model)) ? (int32_t)dv_min(s->size, DV_SEQUENCE_WORKERS) : 1;
    s->lock = dv_mutex_create();
    s->changed = dv_cond_create();
    davy_result r = s->lock != NULL && s->changed != NULL ? describe(s, desc)
                                                          : dv_fail(DAVY_E_NOMEM_HOST, "sequence: out of memory");
    r = r < 0 ? r : set_up(s);
    s->run.options = NULL; /* the caller's; the checks have seen them */
    s->run.n_options = 0;
    if (r < 0) {
        dv_sequence_release(s);
        return r;
    }
    *out = s;
    return DAVY_OK;
}

/* ---- work ---- */

static int32_t DAVY_CALL is_cancelled(void *user, const char *stage, uint64_t done, uint64_t total) {
    const davy_sequence *s = user;
    (void)stage, (void)done, (void)total;
    return dv_sequence_cancelled(s);
}

static void compute(davy_sequence *s, dv_frame *at) {
    davy_tensor out = at->out.buffer != NULL ? at->out : s->out;
    const bool fresh = out.buffer == NULL;
    davy_run run = s->run;
    run.progress = is_cancelled;
    run.progress_user = s;
    at->result = dv_oneshot(s->model, s->op, &at->in, &out, &run, NULL);
    if (at->result < 0) {
        dv_error_get(&at->error);
        return;
    }
    at->out = out;
    if (fresh) {
        dv_mutex_lock(s->lock);
        s->memory_bytes += s->out_bytes;
        dv_mutex_unlock(s->lock);
    }
}

/* Under the lock: the next frame that nobody has begun, in their order. */
static dv_frame *next_slot(davy_sequence *s) {
    if (s->failed || dv_sequence_cancelled(s) || s->begun == s->pushed) {
        return NULL;
    }
    dv_frame *at = dv_sequence_frame(s, s->begun);
    if (at->state != DV_FRAME_QUEUED) {
        return NULL; /* being filled */
    }
    s->begun++;
    return at;
}

static void work(void *arg) {
    davy_sequence *s = arg;
    dv_mutex_lock(s->lock);
    while (!s->quit) {
        dv_frame *at = next_slot(s);
        if (at == NULL) {
            dv_cond_wait(s->changed, s->lock, UINT64_MAX);
            continue;
        }
        at->state = DV_FRAME_RUNNING;
        s->running++;
        dv_mutex_unlock(s->lock);
        compute(s, at);
        dv_mutex_lock(s->lock);
        at->state = DV_FRAME_DONE;
        s->running--;
        if (at->result < 0 && !s->failed) {
            s->failed = true;
            s->error = at->error;
        }
        dv_cond_broadcast(s->changed);
    }
    dv_mutex_unlock(s->lock);
}

davy_result dv_sequence_start(davy_sequence *s) {
    while (s->started < s->n_workers) {
        void (*const fn)(void *) = s->clip != NULL ? dv_sequence_clip_work : work;
        const davy_result r = dv_thread_start(fn, s, "davy-frames", &s->workers[s->started]);
        if (r < 0) {
            return s->started > 0 ? DAVY_OK : r; /* fewer do, too */
        }
        s->started++;
    }
    return DAVY_OK;
}

/* ---- the rest ---- */

davy_result dv_sequence_finish(davy_sequence *s) {
    dv_mutex_lock(s->lock);
    const bool first = !s->finished;
    const uint64_t frames = s->pushed;
    s->finished = true;
    dv_cond_broadcast(s->changed);
    dv_mutex_unlock(s->lock);
    if (first && s->clip != NULL && frames > 0) {
        dv_sequence_clip_finish(s, frames);
    }
    return DAVY_OK;
}

davy_result dv_sequence_reset(davy_sequence *s) {
    dv_mutex_lock(s->lock);
    atomic_store_explicit(&s->cancel, 1, memory_order_relaxed);
    dv_cond_broadcast(s->changed);
    while (s->running > 0 || s->pushing || s->pulling) {
        dv_cond_wait(s->changed, s->lock, UINT64_MAX);
    }
    for (int32_t i = 0; s->frames != NULL && i < s->size; i++) {
        s->frames[i].state = DV_FRAME_FREE;
    }
    if (s->clip != NULL) {
        dv_sequence_clip_reset(s);
    }
    s->pushed = s->begun = s->pulled = 0;
    s->finished = s->failed = false;
    atomic_store_explicit(&s->cancel, 0, memory_order_relaxed);
    dv_mutex_unlock(s->lock);
    return DAVY_OK;
}

static int32_t count_ready(const davy_sequence *s) {
    int32_t ready = 0;
    for (uint64_t k = s->pulled; k < s->pushed; k++) {
        const dv_frame *at = dv_sequence_frame(s, k);
        if (at->state != DV_FRAME_DONE || at->result < 0) {
            break;
        }
        ready++;
    }
    return ready;
}

void dv_sequence_info(davy_sequence *s, davy_sequence_info *out) {
    dv_mutex_lock(s->lock);
    *out = (davy_sequence_info){.struct_size = sizeof *out,
                                .max_in_flight = s->size,
                                .frames_in = s->pushed,
                                .frames_out = s->pulled,
                                .in_flight = (int32_t)(s->pushed - s->pulled),
                                .finished = s->finished,
                                .memory_bytes = s->memory_bytes};
    if (s->clip != NULL) {
        dv_sequence_clip_info(s, out);
    } else {
        out->ready = count_ready(s);
    }
    dv_mutex_unlock(s->lock);
}

static void stop(davy_sequence *s) {
    dv_mutex_lock(s->lock);
    atomic_store_explicit(&s->cancel, 1, memory_order_relaxed);
    s->quit = true;
    dv_cond_broadcast(s->changed);
    dv_mutex_unlock(s->lock);
    for (int32_t i = 0; i < s->started; i++) {
        dv_thread_join(s->workers[i]);
    }
}

void dv_sequence_release(davy_sequence *s) {
    if (s == NULL) {
        return;
    }
    davy_model *model = s->model;
    if (!dv_context_is_child(
            dv_model_context(model))) { /* there the threads are gone and the lock may be held for ever */
        if (s->started > 0) {
            stop(s);
        }
        for (int32_t i = 0; s->frames != NULL && i < s->size; i++) {
            dv_buffer_release(s->frames[i].in_buffer);
            dv_buffer_release(s->frames[i].out.buffer);
        }
        dv_free(s->frames);
        dv_sequence_clip_close(s);
        dv_cond_release(s->changed);
        dv_mutex_release(s->lock);
        dv_free(s);
    }
    dv_model_release(model);
}
