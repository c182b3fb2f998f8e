/* sequence_clip.c - sequences of a network whose results depend on earlier frames. Frames go in one by one, dv_clip_tiles
 * computes slices of them, and results come out one by one. Frames and results lie in two rings. Each ring is one block of
 * memory; its size and start are chosen so that no step of a slice wraps around its end. */
#include "core/calls/sequence_priv.h"

#include <string.h>

#include "core/calls/call.h"
#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/base/error.h"

typedef struct frame_ring {
    davy_buffer *block; /* NULL: not needed yet */
    int64_t *pts;
    int64_t lead;  /* slot of item 0, chosen so that later steps start at multiples of the step */
    int64_t slots; /* a multiple of the step */
} frame_ring;

struct dv_sequence_clip {
    dv_call call; /* its pixels are the rings */
    dv_clip_rule rule;
    dv_clip_tiles *tiles; /* NULL: before the first slice */
    frame_ring in, out;
    bool begun;          /* a slice has been computed */
    uint64_t used, made; /* frames computed, results written */
    int64_t slice;       /* most frames of a slice */
};

/* ---- rings ---- */

static int64_t rounded(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* The first `first` items belong together, then every `step` items. least: smallest number of slots. */
static davy_result ring_open(frame_ring *r, int64_t first, int64_t step, int64_t least) {
    r->lead = (step - first % step) % step;
    r->slots = rounded(dv_max(least, r->lead + first), step);
    r->pts = dv_calloc((uint64_t)r->slots, sizeof *r->pts);
    return r->pts != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "sequence: out of memory");
}

static int64_t slot_of(const frame_ring *r, uint64_t number) {
    return (int64_t)(((uint64_t)r->lead + number) % (uint64_t)r->slots);
}

/* Allocates a ring's memory, and points `pixels` to it as a clip of r->slots items of `bytes` bytes each. */
static davy_result ring_fill(davy_sequence *s, frame_ring *r, uint64_t bytes, dv_pixels *pixels) {
    if (r->block != NULL) {
        return DAVY_OK;
    }
    const davy_result result =
        dv_buffer_create(dv_model_context(s->model), NULL, bytes * (uint64_t)r->slots, &r->block);
    if (result < 0) {
        return result;
    }
    pixels->data = dv_buffer_data(r->block);
    pixels->t = r->slots;
    pixels->st = (int64_t)bytes;
    dv_mutex_lock(s->lock);
    s->memory_bytes += bytes * (uint64_t)r->slots;
    dv_mutex_unlock(s->lock);
    return DAVY_OK;
}

static dv_pixels one_of(const dv_pixels *ring, int64_t slot) {
    dv_pixels p = *ring;
    p.data += slot * ring->st;
    p.t = 1;
    return p;
}

/* ---- opening and closing ---- */

davy_result dv_sequence_clip_open(davy_sequence *s, const dv_clip_rule *rule) {
    dv_sequence_clip *clip = dv_calloc(1, sizeof *clip);
    if (clip == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "sequence: out of memory");
    }
    clip->rule = *rule;
    s->clip = clip;
    const dv_oneshot_args args = {.model = s->model, .op = s->op, .in = &s->in, .out = &s->out, .run = &s->run};
    davy_result r = dv_call_describe(&args, &clip->call);
    clip->call.options = NULL;
    clip->call.temporal = true; /* describe saw one frame only */
    clip->call.rule = *rule;
    r = r < 0 ? r : dv_call_check_clip(&clip->call);
    if (r < 0) {
        return r;
    }
    const int64_t unit = dv_max(rule->first, rule->step);
    const int64_t unit_out = dv_max(rule->first_out, rule->step_out);
    s->size = (int32_t)dv_max(s->size, unit);
    s->n_workers = 1;
    r = ring_open(&clip->in, rule->first, rule->step, s->size);
    return r < 0 ? r : ring_open(&clip->out, rule->first_out, rule->step_out, dv_max(s->size, 2 * unit_out));
}

void dv_sequence_clip_close(davy_sequence *s) {
    dv_sequence_clip *clip = s->clip;
    if (clip == NULL) {
        return;
    }
    dv_model_clip_close(s->model, clip->tiles);
    dv_buffer_release(clip->in.block);
    dv_buffer_release(clip->out.block);
    dv_free(clip->in.pts);
    dv_free(clip->out.pts);
    dv_call_clear(&clip->call);
    dv_free(clip);
    s->clip = NULL;
}

void dv_sequence_clip_reset(davy_sequence *s) {
    dv_sequence_clip *clip = s->clip;
    clip->used = clip->made = 0;
    clip->begun = false;
    if (clip->tiles != NULL) {
        dv_clip_tiles_reset(clip->tiles);
    }
}

/* Frames not computed yet, without the last frames that a finished clip leaves out. */
static int64_t waiting(const davy_sequence *s) {
    const dv_sequence_clip *clip = s->clip;
    const int64_t there = (int64_t)(s->pushed - clip->used);
    return s->finished && !s->pushing && clip->begun && there <= clip->rule.spare ? 0 : there;
}

void dv_sequence_clip_info(const davy_sequence *s, davy_sequence_info *out) {
    const dv_sequence_clip *clip = s->clip;
    out->ready = (int32_t)(clip->made - s->pulled);
    out->in_flight = (int32_t)waiting(s) + out->ready;
    out->latency_frames = (int32_t)dv_max(clip->rule.first, clip->rule.step) - 1;
}

/* ---- slices ---- */

typedef struct slice {
    int64_t frames, given; /* the first `given` were pushed; the others repeat the last one */
    int64_t results;
} slice;

static int64_t unit_of(const dv_sequence_clip *clip) {
    return clip->begun ? clip->rule.step : clip->rule.first;
}

/* Under the lock: the longest slice that can be computed now. Returns false if there is none. */
static bool next_slice(const davy_sequence *s, slice *out) {
    const dv_sequence_clip *clip = s->clip;
    const dv_clip_rule *rule = &clip->rule;
    const int64_t there = waiting(s);
    const int64_t unit = unit_of(clip);
    const int64_t unit_out = clip->begun ? rule->step_out : rule->first_out;
    const int64_t room =
        dv_min(clip->out.slots - (int64_t)(clip->made - s->pulled), clip->out.slots - slot_of(&clip->out, clip->made));
    const bool ends = s->finished && !s->pushing && there > 0 && there < unit;
    if (s->failed || dv_sequence_cancelled(s) || room < unit_out || (there < unit && !ends)) {
        return false;
    }
    *out = (slice){.frames = unit, .given = dv_min(there, unit), .results = unit_out};
    const int64_t most = dv_min(dv_min(there, clip->in.slots - slot_of(&clip->in, clip->used)), clip->slice);
    const int64_t steps =
        ends || most <= unit ? 0 : dv_min((most - unit) / rule->step, (room - unit_out) / rule->step_out);
    out->frames += steps * rule->step;
    out->given += steps * rule->step;
    out->results += steps * rule->step_out;
    return true;
}

static int32_t DAVY_CALL is_cancelled(void *user, const char *stage, uint64_t done, uint64_t total) {
    const davy_sequence *s = user;
    (void)stage, (void)done, (void)total;
    return dv_sequence_cancelled(s);
}

static davy_result get_ready(davy_sequence *s) {
    dv_sequence_clip *clip = s->clip;
    dv_call *c = &clip->call;
    davy_result r = ring_fill(s, &clip->out, s->out_bytes, &c->out);
    if (r == DAVY_OK && clip->tiles == NULL) {
        const dv_clip_tiles_desc desc = {.stage = c->stage,
                                         .h = c->in.h,
                                         .w = c->in.w,
                                         .slice = s->run.tile_frames > 0 ? s->run.tile_frames : 0,
                                         .tiling = c->tiling};
        dv_clip_tiles_info info;
        r = dv_model_clip_open(s->model, &desc, &clip->tiles);
        if (r == DAVY_OK) {
            dv_clip_tiles_info_get(clip->tiles, &info);
            dv_mutex_lock(s->lock);
            clip->slice = info.slice;
            dv_mutex_unlock(s->lock);
        }
    }
    return r;
}

static davy_result compute(davy_sequence *s, const slice *what) {
    dv_sequence_clip *clip = s->clip;
    dv_call *c = &clip->call;
    const dv_stretch stretch = {.in = slot_of(&clip->in, clip->used),
                                .n_in = what->frames,
                                .out = slot_of(&clip->out, clip->made),
                                .n_out = what->results,
                                .drawn = (int64_t)clip->made,
                                .clip = clip->tiles};
    char *last = c->in.data + (stretch.in + what->given - 1) * c->in.st;
    for (int64_t i = what->given; i < what->frames; i++) {
        memcpy(c->in.data + (stretch.in + i) * c->in.st, last, (size_t)c->in.st);
    }
    c->run.progress = is_cancelled;
    c->run.progress_user = s;
    const dv_control control = dv_call_control(c, 0, 1, 1);
    return dv_call_slice(c, &stretch, &control);
}

/* Under the lock: gives each result the time stamp of the first frame it depends on, and advances the counters. */
static void pass_on(davy_sequence *s, const slice *what) {
    dv_sequence_clip *clip = s->clip;
    for (int64_t i = 0; i < what->results; i++) {
        const int64_t from = dv_clip_source(&clip->rule, clip->begun, i);
        clip->out.pts[slot_of(&clip->out, clip->made + (uint64_t)i)] =
            clip->in.pts[slot_of(&clip->in, clip->used + (uint64_t)from)];
    }
    clip->begun = true;
    clip->used += (uint64_t)what->given;
    clip->made += (uint64_t)what->results;
}

/* Enters and leaves with the lock, and releases it while it computes. */
static void run_slice(davy_sequence *s, const slice *what) {
    s->running++;
    dv_mutex_unlock(s->lock);
    const davy_result r = compute(s, what);
    dv_mutex_lock(s->lock);
    s->running--;
    if (r == DAVY_OK) {
        pass_on(s, what);
    } else {
        s->failed = true;
        dv_error_get(&s->error);
    }
    dv_cond_broadcast(s->changed);
}

/* Before the first slice: opens dv_clip_tiles and allocates the results' memory. */
static bool prepare(davy_sequence *s) {
    s->running++;
    dv_mutex_unlock(s->lock);
    const davy_result r = get_ready(s);
    dv_mutex_lock(s->lock);
    s->running--;
    if (r < 0) {
        s->failed = true;
        dv_error_get(&s->error);
    }
    dv_cond_broadcast(s->changed);
    return r == DAVY_OK;
}

void dv_sequence_clip_finish(const davy_sequence *s, uint64_t frames) {
    dv_clip_warn_spare(s->model, s->clip->call.stage, &s->clip->rule, (int64_t)frames);
}

void dv_sequence_clip_work(void *sequence) {
    davy_sequence *s = sequence;
    dv_sequence_clip *clip = s->clip;
    slice what;
    dv_mutex_lock(s->lock);
    while (!s->quit) {
        if (!next_slice(s, &what)) {
            dv_cond_wait(s->changed, s->lock, UINT64_MAX);
        } else if (clip->tiles == NULL) {
            prepare(s);
        } else {
            run_slice(s, &what);
        }
    }
    dv_mutex_unlock(s->lock);
}

/* ---- in and out ---- */

bool dv_sequence_clip_has_room(const davy_sequence *s) {
    return s->pushed - s->clip->used < (uint64_t)s->size;
}

bool dv_sequence_clip_has_result(const davy_sequence *s) {
    return s->pulled < s->clip->made;
}

davy_result dv_sequence_clip_waits(const davy_sequence *s) {
    const dv_sequence_clip *clip = s->clip;
    const int64_t there = waiting(s);
    if (s->running > 0 || there >= unit_of(clip) || (s->finished && there > 0)) {
        return DAVY_PENDING;
    }
    return s->finished ? DAVY_END : DAVY_NEED_INPUT;
}

davy_result dv_sequence_clip_slot(davy_sequence *s, int64_t pts, dv_pixels *to) {
    dv_sequence_clip *clip = s->clip;
    const davy_result r = ring_fill(s, &clip->in, s->in_bytes, &clip->call.in);
    if (r == DAVY_OK) {
        const int64_t slot = slot_of(&clip->in, s->pushed);
        clip->in.pts[slot] = pts;
        *to = one_of(&clip->call.in, slot);
    }
    return r;
}

void dv_sequence_clip_result(const davy_sequence *s, int64_t *pts, dv_pixels *from) {
    const dv_sequence_clip *clip = s->clip;
    const int64_t slot = slot_of(&clip->out, s->pulled);
    *pts = clip->out.pts[slot];
    *from = one_of(&clip->call.out, slot);
}
