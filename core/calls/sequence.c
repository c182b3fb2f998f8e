/* sequence.c - davy_sequence: a ring of frames, push and pull, and the threads that compute the frames. Clips are in
 * sequence_clip.c.
 *
 * The lock guards the ring's counters and each frame's state. A thread sets the state, releases the lock, then copies or
 * computes the picture. Threads compute frames with the one-shot call, so the results are the same. On a GPU several threads
 * compute at once, each on its own queues: download, compute and upload of three frames overlap. */
#include "core/calls/sequence_priv.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/watch.h"
#include "core/calls/oneshot.h"
#include "core/host/buffer.h"
#include "core/host/context.h"
#include "kernels/dtype.h"

enum { USUAL_IN_FLIGHT = 4, MOST_IN_FLIGHT = 64 };

typedef enum frame_state { FRAME_FREE = 0, FRAME_FILLING, FRAME_QUEUED, FRAME_RUNNING, FRAME_DONE } frame_state;

struct dv_frame {
    frame_state state;
    davy_result result;
    davy_error_info error;
    davy_buffer *in_buffer; /* kept from frame to frame */
    davy_tensor in, out;    /* out.buffer NULL: the next frame's call allocates one */
};

static dv_frame *frame_of(const davy_sequence *s, uint64_t number) {
    return &s->frames[number % (uint64_t)s->size];
}

davy_context *dv_sequence_context(const davy_sequence *s) {
    return dv_model_context(s->model);
}

/* ---- opening ---- */

static davy_result check_run(const davy_run *run) {
    if (run->stream != NULL || (run->flags & DAVY_RUN_STREAM_ORDERED) != 0 || run->timeout_ns != 0 ||
        run->progress != NULL || run->priority != 0) {
        return dv_fail(DAVY_E_INVALID, "sequence: run must not set stream, timeout, priority or a progress callback");
    }
    return DAVY_OK;
}

static davy_channels without_alpha(davy_channels channels) {
    return channels == DAVY_CHANNELS_GRAYA  ? DAVY_CHANNELS_GRAY
           : channels == DAVY_CHANNELS_BGRA ? DAVY_CHANNELS_BGR
                                            : DAVY_CHANNELS_RGB;
}

/* Format of the results: the caller's, else the input's. A latent is floating point. */
static davy_result describe_output(davy_sequence *s, const dv_sequence_desc *desc, const dv_pixels *size) {
    const bool integers = s->like_in.range == DAVY_RANGE_FULL;
    davy_tensor like = {.struct_size = sizeof like};
    if (desc->output != NULL) {
        like = *desc->output;
    } else if (s->op == DAVY_OP_UPSCALE) {
        like.dtype = s->like_in.dtype;
        like.range = s->like_in.range;
        like.channels = size->c == s->like_in.c ? s->like_in.channels : without_alpha(s->like_in.channels);
    } else {
        like.dtype = integers ? DAVY_DTYPE_F32 : s->like_in.dtype;
    }
    const davy_result r = dv_pixels_describe(
        &(dv_tensor_request){
            .output = &like, .size = size, .input_layout = s->like_in.layout, .content = s->content_out},
        &s->out, &s->out_bytes);
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
        return dv_fail(DAVY_E_SHAPE, "input: %" PRId64 " pictures; each frame of a sequence is one picture",
                       s->like_in.n * s->like_in.t);
    }
    davy_tensor like = *desc->input;
    like.channels = s->like_in.channels;
    like.range = s->like_in.range;
    r = dv_pixels_describe(
        &(dv_tensor_request){
            .output = &like, .size = &s->like_in, .input_layout = s->like_in.layout, .content = s->content_in},
        &s->in, &s->in_bytes);
    return r < 0 ? r : describe_output(s, desc, &size);
}

/* Opens the ring of independent frames, or the clip. */
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
    s->run.options = NULL; /* the caller's array; the checks have read it */
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
    const dv_oneshot_args args = {.model = s->model, .op = s->op, .in = &at->in, .out = &out, .run = &run};
    at->result = dv_oneshot(&args);
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

/* Under the lock: the oldest frame that no thread has taken. */
static dv_frame *next_slot(davy_sequence *s) {
    if (s->failed || dv_sequence_cancelled(s) || s->begun == s->pushed) {
        return NULL;
    }
    dv_frame *at = frame_of(s, s->begun);
    if (at->state != FRAME_QUEUED) {
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
        at->state = FRAME_RUNNING;
        s->running++;
        dv_mutex_unlock(s->lock);
        compute(s, at);
        dv_mutex_lock(s->lock);
        at->state = FRAME_DONE;
        s->running--;
        if (at->result < 0 && !s->failed) {
            s->failed = true;
            s->error = at->error;
        }
        dv_cond_broadcast(s->changed);
    }
    dv_mutex_unlock(s->lock);
}

/* Under the lock. */
static davy_result start_workers(davy_sequence *s) {
    while (s->started < s->n_workers) {
        void (*const fn)(void *) = s->clip != NULL ? dv_sequence_clip_work : work;
        const davy_result r = dv_thread_start(fn, s, "davy-frames", &s->workers[s->started]);
        if (r < 0) {
            return s->started > 0 ? DAVY_OK : r; /* one thread is enough */
        }
        s->started++;
    }
    return DAVY_OK;
}

/* ---- pictures ---- */

static void copy_row(const dv_pixels *to, const dv_pixels *from, int64_t y, int64_t element) {
    if (to->sc == element && from->sc == element && to->sw == to->c * element && from->sw == to->sw) {
        memcpy(dv_pixels_at(to, 0, y, 0, 0), dv_pixels_at(from, 0, y, 0, 0), (size_t)(to->w * to->sw));
        return;
    }
    for (int64_t c = 0; c < to->c; c++) {
        char *dst = dv_pixels_at(to, 0, y, 0, c);
        const char *src = dv_pixels_at(from, 0, y, 0, c);
        if (to->sw == element && from->sw == element) {
            memcpy(dst, src, (size_t)(to->w * element));
            continue;
        }
        for (int64_t x = 0; x < to->w; x++, dst += to->sw, src += from->sw) {
            memcpy(dst, src, (size_t)element);
        }
    }
}

/* Shape and dtype are equal; strides may differ. */
static void copy_pixels(const dv_pixels *to, const dv_pixels *from) {
    const int64_t element = (int64_t)dvk_dtype_size((dvk_dtype)to->dtype);
    for (int64_t y = 0; y < to->h; y++) {
        copy_row(to, from, y, element);
    }
}

static davy_result check_like(const dv_pixels *p, const dv_pixels *like, const char *name) {
    if (p->on_device) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: frames of a sequence must be in host memory", name);
    }
    if (p->layout != like->layout || p->dtype != like->dtype || p->channels != like->channels ||
        p->range != like->range) {
        return dv_fail(DAVY_E_INVALID,
                       "%s: layout %d, dtype %d, channels %d, range %d; the sequence has %d, %d, %d, %d", name,
                       (int)p->layout, (int)p->dtype, (int)p->channels, (int)p->range, (int)like->layout,
                       (int)like->dtype, (int)like->channels, (int)like->range);
    }
    if (p->n != 1 || p->t != 1 || p->h != like->h || p->w != like->w || p->c != like->c) {
        return dv_fail(DAVY_E_SHAPE,
                       "%s: %" PRId64 " pictures of %" PRId64 " x %" PRId64 " x %" PRId64
                       " (height, width, channels); the sequence has one of %" PRId64 " x %" PRId64 " x %" PRId64,
                       name, p->n * p->t, p->h, p->w, p->c, like->h, like->w, like->c);
    }
    return DAVY_OK;
}

/* ---- push ---- */

static davy_result cancelled(void) {
    return dv_fail(DAVY_E_CANCELLED, "the sequence was reset");
}

static davy_result failed(const davy_sequence *s) {
    dv_error_set(&s->error);
    return s->error.code;
}

static bool has_room(const davy_sequence *s) {
    return s->clip != NULL ? dv_sequence_clip_has_room(s) : s->pushed - s->pulled < (uint64_t)s->size;
}

/* Under the lock: waits for a place for the next frame. */
static davy_result await_room(davy_sequence *s, uint64_t deadline_ns) {
    for (;;) {
        if (dv_sequence_cancelled(s)) {
            return cancelled();
        }
        if (s->failed) {
            return failed(s);
        }
        if (s->finished) {
            return dv_fail(DAVY_E_STATE, "the sequence is finished; call sequence_reset to start again");
        }
        if (has_room(s)) {
            return DAVY_OK;
        }
        if (!dv_cond_wait_until(s->changed, s->lock, deadline_ns, UINT64_MAX)) {
            return DAVY_FULL;
        }
    }
}

/* Allocates the frame's input buffer on first use. */
static davy_result get_slot(davy_sequence *s, dv_frame *at, int64_t pts, dv_pixels *to) {
    if (at->in_buffer == NULL) {
        const davy_result r = dv_buffer_create(dv_model_context(s->model), NULL, s->in_bytes, &at->in_buffer);
        if (r < 0) {
            return r;
        }
        at->in = s->in;
        at->in.data = (uint64_t)(uintptr_t)dv_buffer_data(at->in_buffer);
        dv_mutex_lock(s->lock);
        s->memory_bytes += s->in_bytes;
        dv_mutex_unlock(s->lock);
    }
    at->in.pts = pts;
    return dv_pixels_check(&at->in, s->content_in, DV_WRITES, "frame", to);
}

/* Without the lock: copies `from` into the next frame. */
static davy_result fill(davy_sequence *s, dv_frame *at, const dv_pixels *from, int64_t pts) {
    dv_pixels to;
    const davy_result r = s->clip != NULL ? dv_sequence_clip_slot(s, pts, &to) : get_slot(s, at, pts, &to);
    if (r == DAVY_OK) {
        copy_pixels(&to, from);
    }
    return r;
}

static void set_state(dv_frame *at, frame_state state) {
    if (at != NULL) {
        at->state = state;
    }
}

davy_result dv_sequence_push(davy_sequence *s, const davy_tensor *in, uint64_t timeout_ns) {
    dv_pixels from;
    davy_result r = dv_pixels_check(in, s->content_in, DV_READS, "frame", &from);
    r = r < 0 ? r : check_like(&from, &s->like_in, "frame");
    if (r < 0) {
        return r;
    }
    const uint64_t deadline_ns = dv_deadline(timeout_ns);
    dv_mutex_lock(s->lock);
    if (s->pushing) {
        r = dv_fail(DAVY_E_BUSY, "sequence_push is running in another thread");
    } else {
        s->pushing = true;
        r = await_room(s, deadline_ns);
        r = r == DAVY_OK ? start_workers(s) : r;
        if (r == DAVY_OK) {
            dv_frame *at = s->clip == NULL ? frame_of(s, s->pushed) : NULL;
            set_state(at, FRAME_FILLING);
            dv_mutex_unlock(s->lock);
            r = fill(s, at, &from, in->pts);
            dv_mutex_lock(s->lock);
            set_state(at, r == DAVY_OK ? FRAME_QUEUED : FRAME_FREE);
            s->pushed += r == DAVY_OK;
        }
        s->pushing = false;
        dv_cond_broadcast(s->changed);
    }
    dv_mutex_unlock(s->lock);
    return r;
}

/* ---- pull ---- */

/* Under the lock: the result of a pull now, for independent frames; DAVY_PENDING: the pull waits. */
static davy_result frame_result(const davy_sequence *s) {
    const dv_frame *at = frame_of(s, s->pulled);
    if (s->pulled == s->pushed) {
        return s->finished ? DAVY_END : DAVY_NEED_INPUT;
    }
    if (at->state == FRAME_DONE && at->result == DAVY_OK) {
        return DAVY_OK;
    }
    return s->failed && at->state != FRAME_RUNNING ? failed(s) /* this frame failed, or will not be started */
                                                   : DAVY_PENDING;
}

/* The same for a clip. */
static davy_result clip_result(const davy_sequence *s) {
    if (dv_sequence_clip_has_result(s)) {
        return DAVY_OK;
    }
    return s->failed ? failed(s) : dv_sequence_clip_waits(s);
}

/* Under the lock: waits for the oldest result. */
static davy_result await_result(davy_sequence *s, uint64_t deadline_ns) {
    for (;;) {
        if (dv_sequence_cancelled(s)) {
            return cancelled();
        }
        const davy_result r = s->clip != NULL ? clip_result(s) : frame_result(s);
        if (r != DAVY_PENDING || !dv_cond_wait_until(s->changed, s->lock, deadline_ns, UINT64_MAX)) {
            return r;
        }
    }
}

/* Hands the result's buffer over, or copies it to `to`. */
static davy_result give(const davy_sequence *s, dv_frame *at, davy_tensor *out, const dv_pixels *to) {
    dv_pixels from;
    if (to == NULL) {
        *out = at->out;
        at->out = (davy_tensor){.struct_size = sizeof at->out};
        return DAVY_OK;
    }
    const davy_result r = dv_pixels_check(&at->out, s->content_out, DV_READS, "result", &from);
    if (r == DAVY_OK) {
        copy_pixels(to, &from);
        out->pts = at->out.pts;
    }
    return r;
}

/* A clip's results share one block, so the caller always gets a copy. */
static davy_result give_of_clip(const davy_sequence *s, davy_tensor *out, const dv_pixels *to) {
    dv_pixels from;
    dv_pixels own;
    int64_t pts = 0;
    davy_buffer *buffer = NULL;
    davy_tensor t = s->out;
    dv_sequence_clip_result(s, &pts, &from);
    if (to == NULL) {
        davy_result r = dv_buffer_create(dv_model_context(s->model), NULL, s->out_bytes, &buffer);
        if (r < 0) {
            return r;
        }
        dv_buffer_describe(buffer, &t);
        t = *dv_buffer_tensor(buffer);
        r = dv_pixels_check(&t, s->content_out, DV_WRITES, "output", &own);
        if (r < 0) {
            dv_buffer_release(buffer);
            return r;
        }
        *out = t;
    }
    copy_pixels(to != NULL ? to : &own, &from);
    out->pts = pts;
    return DAVY_OK;
}

/* Enters and leaves with the lock, and releases it while it copies pixels. */
static davy_result give_result(davy_sequence *s, davy_tensor *out, const dv_pixels *to) {
    dv_frame *at = s->clip == NULL ? frame_of(s, s->pulled) : NULL;
    dv_mutex_unlock(s->lock);
    const davy_result r = at != NULL ? give(s, at, out, to) : give_of_clip(s, out, to);
    dv_mutex_lock(s->lock);
    if (at != NULL) {
        at->state = FRAME_FREE;
        s->memory_bytes -= to == NULL ? s->out_bytes : 0;
    }
    s->pulled += at != NULL || r == DAVY_OK;
    return r;
}

davy_result dv_sequence_pull(davy_sequence *s, davy_tensor *out, uint64_t timeout_ns) {
    const bool hands_over = out->data == 0 && out->buffer == NULL;
    const uint64_t deadline_ns = dv_deadline(timeout_ns);
    dv_pixels to;
    davy_result r = hands_over ? DAVY_OK : dv_pixels_check(out, s->content_out, DV_WRITES, "output", &to);
    r = r < 0 || hands_over ? r : check_like(&to, &s->like_out, "output");
    if (r < 0) {
        return r;
    }
    dv_mutex_lock(s->lock);
    if (s->pulling) {
        r = dv_fail(DAVY_E_BUSY, "sequence_pull is running in another thread");
    } else {
        s->pulling = true;
        r = await_result(s, deadline_ns);
        r = r == DAVY_OK ? give_result(s, out, hands_over ? NULL : &to) : r;
        s->pulling = false;
        dv_cond_broadcast(s->changed);
    }
    dv_mutex_unlock(s->lock);
    return r;
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
        s->frames[i].state = FRAME_FREE;
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
        const dv_frame *at = frame_of(s, k);
        if (at->state != FRAME_DONE || at->result < 0) {
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
            dv_model_context(model))) { /* a forked child has no threads, and the lock may stay locked */
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
