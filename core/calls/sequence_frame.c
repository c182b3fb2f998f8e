/* sequence_frame.c - a frame's way in and out of a sequence. */
#include <inttypes.h>
#include <string.h>

#include "core/host/buffer.h"
#include "core/base/error.h"
#include "core/calls/sequence_clip.h"
#include "kernels/dtype.h"

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

/* Same shape and dtype, strides of their own. */
static void copy_pixels(const dv_pixels *to, const dv_pixels *from) {
    const int64_t element = (int64_t)dvk_dtype_size((dvk_dtype)to->dtype);
    for (int64_t y = 0; y < to->h; y++) {
        copy_row(to, from, y, element);
    }
}

static davy_result check_like(const dv_pixels *p, const dv_pixels *like, const char *name) {
    if (p->on_device) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: frames of a sequence lie in host memory", name);
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

/* Under the lock: waits until something changes; false: the time is over. */
static bool wait_until(davy_sequence *s, uint64_t deadline_ns) {
    const uint64_t now = deadline_ns != UINT64_MAX ? dv_now_ns() : 0;
    if (deadline_ns != UINT64_MAX && now >= deadline_ns) {
        return false;
    }
    dv_cond_wait(s->changed, s->lock, deadline_ns != UINT64_MAX ? deadline_ns - now : UINT64_MAX);
    return true;
}

static uint64_t deadline_of(uint64_t timeout_ns) {
    const uint64_t now = dv_now_ns();
    return timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

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
            return dv_fail(DAVY_E_STATE, "the sequence is finished; sequence_reset begins a new one");
        }
        if (has_room(s)) {
            return DAVY_OK;
        }
        if (!wait_until(s, deadline_ns)) {
            return DAVY_FULL;
        }
    }
}

/* Memory of a frame's own. */
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

/* Without the lock: the next frame is `from`. */
static davy_result fill(davy_sequence *s, dv_frame *at, const dv_pixels *from, int64_t pts) {
    dv_pixels to;
    const davy_result r = s->clip != NULL ? dv_sequence_clip_slot(s, pts, &to) : get_slot(s, at, pts, &to);
    if (r == DAVY_OK) {
        copy_pixels(&to, from);
    }
    return r;
}

static void set_state(dv_frame *at, dv_frame_state state) {
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
    const uint64_t deadline_ns = deadline_of(timeout_ns);
    dv_mutex_lock(s->lock);
    if (s->pushing) {
        r = dv_fail(DAVY_E_BUSY, "the sequence is in another sequence_push");
    } else {
        s->pushing = true;
        r = await_room(s, deadline_ns);
        r = r == DAVY_OK ? dv_sequence_start(s) : r;
        if (r == DAVY_OK) {
            dv_frame *at = s->clip == NULL ? dv_sequence_frame(s, s->pushed) : NULL;
            set_state(at, DV_FRAME_FILLING);
            dv_mutex_unlock(s->lock);
            r = fill(s, at, &from, in->pts);
            dv_mutex_lock(s->lock);
            set_state(at, r == DAVY_OK ? DV_FRAME_QUEUED : DV_FRAME_FREE);
            s->pushed += r == DAVY_OK;
        }
        s->pushing = false;
        dv_cond_broadcast(s->changed);
    }
    dv_mutex_unlock(s->lock);
    return r;
}

/* ---- pull ---- */

/* Under the lock: what a pull answers now of frames by themselves; DAVY_PENDING: it waits. */
static davy_result look(const davy_sequence *s) {
    const dv_frame *at = dv_sequence_frame(s, s->pulled);
    if (s->pulled == s->pushed) {
        return s->finished ? DAVY_END : DAVY_NEED_INPUT;
    }
    if (at->state == DV_FRAME_DONE && at->result == DAVY_OK) {
        return DAVY_OK;
    }
    return s->failed && at->state != DV_FRAME_RUNNING ? failed(s) /* it, or one that is not begun any more */
                                                      : DAVY_PENDING;
}

/* The same of a clip. */
static davy_result look_at_clip(const davy_sequence *s) {
    if (dv_sequence_clip_has_result(s)) {
        return DAVY_OK;
    }
    return s->failed ? failed(s) : dv_sequence_clip_waits(s);
}

/* Under the lock: the oldest result, when it is done. */
static davy_result await_result(davy_sequence *s, uint64_t deadline_ns) {
    for (;;) {
        if (dv_sequence_cancelled(s)) {
            return cancelled();
        }
        const davy_result r = s->clip != NULL ? look_at_clip(s) : look(s);
        if (r != DAVY_PENDING || !wait_until(s, deadline_ns)) {
            return r;
        }
    }
}

/* The result's own buffer, or a copy of it. */
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

/* A clip's results lie together: what is handed over is a copy. */
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

/* Under the lock, which is not held while pixels are copied: the result that is there goes out. */
static davy_result give_result(davy_sequence *s, davy_tensor *out, const dv_pixels *to) {
    dv_frame *at = s->clip == NULL ? dv_sequence_frame(s, s->pulled) : NULL;
    dv_mutex_unlock(s->lock);
    const davy_result r = at != NULL ? give(s, at, out, to) : give_of_clip(s, out, to);
    dv_mutex_lock(s->lock);
    if (at != NULL) {
        at->state = DV_FRAME_FREE;
        s->memory_bytes -= to == NULL ? s->out_bytes : 0;
    }
    s->pulled += at != NULL || r == DAVY_OK;
    return r;
}

davy_result dv_sequence_pull(davy_sequence *s, davy_tensor *out, uint64_t timeout_ns) {
    const bool hands_over = out->data == 0 && out->buffer == NULL;
    const uint64_t deadline_ns = deadline_of(timeout_ns);
    dv_pixels to;
    davy_result r = hands_over ? DAVY_OK : dv_pixels_check(out, s->content_out, DV_WRITES, "output", &to);
    r = r < 0 || hands_over ? r : check_like(&to, &s->like_out, "output");
    if (r < 0) {
        return r;
    }
    dv_mutex_lock(s->lock);
    if (s->pulling) {
        r = dv_fail(DAVY_E_BUSY, "the sequence is in another sequence_pull");
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
