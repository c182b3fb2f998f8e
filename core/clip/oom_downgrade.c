/* oom_downgrade.c - in the middle of a clip memory is refused, for another program has taken it: the slices to come are
 * shorter or computed frame by frame, then what is kept goes to the host's memory. What has been computed stays. */
#include "core/cuda/gpu.h"
#include "core/base/error.h"
#include "core/clip/stream_priv.h"

/* ---- less workspace ---- */

/* The largest workspace that is smaller than now, with the state where it is. */
static davy_result find_smaller(const dv_clip_stream *s, dv_slice_choice *out, bool *found) {
    davy_result r = DAVY_OK;
    *found = false;
    for (int64_t slice = s->choice.info.slice; r == DAVY_OK && slice > 0; slice -= s->choice.info.clip.step) {
        for (int by_frame = 0; r == DAVY_OK && by_frame < 2; by_frame++) {
            dv_slice_choice c = s->choice;
            c.info.slice = slice;
            c.policy.frame_by_frame = by_frame == 1;
            c.policy.overlap_arena_bytes = 0;
            r = dv_clip_stream_measure(s, &c);
            const uint64_t bytes = c.info.arena_bytes;
            if (r == DAVY_OK && bytes < s->choice.info.arena_bytes && (!*found || bytes > out->info.arena_bytes)) {
                *out = c;
                *found = true;
            }
        }
    }
    return r;
}

/* ---- the state to the host's memory ---- */

typedef struct block { /* what a state consists of */
    char *resident, *offloaded;
} block;

/* Part by part; what is not of a ring lies behind what is resident of them. */
static davy_result copy_state(const dv_plan *from, block src, const dv_plan *to, block dst, dv_gpu_queue *q) {
    davy_result r = DAVY_OK;
    uint64_t of_rings[2] = {0, 0};
    for (int64_t i = 0; r == DAVY_OK && i < from->n_kept; i++) {
        const dv_kept *a = &from->kept[i], *b = &to->kept[i];
        of_rings[0] += a->offloaded ? 0 : a->bytes;
        of_rings[1] += b->offloaded ? 0 : b->bytes;
        r = dv_gpu_copy(q, (b->offloaded ? dst.offloaded : dst.resident) + b->at, NULL,
                        (a->offloaded ? src.offloaded : src.resident) + a->at, a->bytes);
    }
    return r == DAVY_OK && from->state_bytes > of_rings[0]
               ? dv_gpu_copy(q, dst.resident + of_rings[1], NULL, src.resident + of_rings[0],
                             from->state_bytes - of_rings[0])
               : r;
}

static bool same_parts(const dv_plan *a, const dv_plan *b) {
    bool same = a->n_kept == b->n_kept && a->state_bytes + a->offloaded_bytes == b->state_bytes + b->offloaded_bytes;
    for (int64_t i = 0; same && i < a->n_kept; i++) {
        same = a->kept[i].bytes == b->kept[i].bytes;
    }
    return same;
}

static davy_result copy_to(const dv_clip_stream *s, const dv_slice_choice *c, block dst) {
    dv_gpu *gpu = dv_engine_gpu(s->e, 0);
    const block src = {s->state, s->offloaded.data};
    const int64_t frames = s->choice.info.clip.step;
    dv_plan *from = NULL, *to = NULL;
    dv_gpu_queue *q = NULL;
    davy_result r = dv_clip_stream_plan(s, &s->choice, frames, true, false, &from);
    r = r == DAVY_OK ? dv_clip_stream_plan(s, c, frames, true, false, &to) : r;
    if (r == DAVY_OK && !same_parts(from, to)) {
        r = dv_fail(DAVY_E_INTERNAL, "%s: a state of other parts", dv_stage_name(s->stage));
    }
    r = r == DAVY_OK ? dv_gpu_queue_take(gpu, NULL, &q) : r;
    if (q != NULL) {
        r = copy_state(from, src, to, dst, q);
        const davy_result waited = dv_gpu_queue_wait(q, NULL, NULL);
        r = r == DAVY_OK ? waited : r;
        dv_gpu_queue_give(q);
    }
    dv_plan_release(from);
    dv_plan_release(to);
    return r;
}

static davy_result offload_all(dv_clip_stream *s) {
    dv_gpu *gpu = dv_engine_gpu(s->e, 0);
    dv_slice_choice c = s->choice;
    dv_pinned pinned = {0};
    void *rest = NULL;
    c.policy.offload_state = true;
    c.policy.resident_bytes = c.policy.overlap_arena_bytes = 0;
    davy_result r = dv_clip_stream_measure(s, &c);
    const uint64_t bytes = dv_resident_bytes(&c.info);
    r = r == DAVY_OK ? dv_gpu_pin(gpu, c.info.offloaded_bytes, "state of a clip", &pinned) : r;
    r = r == DAVY_OK && bytes > 0 ? dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, bytes, "state of a clip", &rest) : r;
    r = r == DAVY_OK ? copy_to(s, &c, (block){rest, pinned.data}) : r;
    if (r != DAVY_OK) {
        dv_gpu_unpin(gpu, &pinned);
        dv_gpu_free(gpu, DV_MEM_WORKSPACE, rest, bytes);
        return r;
    }
    dv_gpu_unpin(gpu, &s->offloaded);
    dv_gpu_free(gpu, DV_MEM_WORKSPACE, s->state, dv_resident_bytes(&s->choice.info));
    s->offloaded = pinned;
    s->state = rest;
    if (c.info.arena_bytes <= s->choice.info.arena_bytes) {
        c.info.arena_bytes = s->choice.info.arena_bytes; /* that it has */
    } else {                                             /* the state has left room for it */
        dv_gpu_free(gpu, DV_MEM_WORKSPACE, s->arena, s->choice.info.arena_bytes);
        s->arena = NULL;
    }
    s->choice = c;
    return DAVY_OK;
}

/* ---- both ---- */

davy_result dv_clip_stream_downgrade(dv_clip_stream *s) {
    dv_gpu *gpu = dv_engine_gpu(s->e, 0);
    davy_result r = DAVY_E_NOMEM_DEVICE;
    for (bool found = true; dv_is_short(r) && found;) {
        dv_slice_choice c;
        r = find_smaller(s, &c, &found);
        if (r == DAVY_OK && found) {
            dv_gpu_free(gpu, DV_MEM_WORKSPACE, s->arena, s->choice.info.arena_bytes);
            s->arena = NULL;
            s->choice = c;
        } else if (r == DAVY_OK) {
            r = s->choice.policy.offload_state && s->choice.policy.resident_bytes == 0
                    ? dv_fail(DAVY_E_NOMEM_DEVICE, "%s: no shorter slices", dv_stage_name(s->stage))
                    : offload_all(s);
        }
        if (r == DAVY_OK && s->arena == NULL) {
            r = dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, s->choice.info.arena_bytes, "workspace of a clip", &s->arena);
        }
    }
    return r;
}
