/* stream.c - opens streams of clips and computes their frames slice by slice. There is a program for each slice length that occurs; all
 * share one block of memory and one state. choose.c chooses how a clip is computed.
 *
 * In the middle of a clip memory may be refused, because another program has taken it. Then later slices become shorter or are computed
 * frame by frame. If that is not enough, the state is offloaded to host memory. Computed frames stay valid. */
#include "core/base/error.h"
#include "core/clip/stream_priv.h"
#include "core/cuda/gpu.h"
#include "core/tiles/picture_view.h"

/* ---- memory ---- */

static davy_result take_bytes(dv_clip_stream *s, uint64_t bytes, const char *what, void **out) {
    dv_gpu *gpu = dv_engine_gpu(s->e, 0);
    return gpu != NULL ? dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, bytes, what, out)
                       : dv_heap_alloc(s->e->services.heap, DV_MEM_WORKSPACE, bytes, what, out);
}

static void give_bytes(dv_clip_stream *s, void *p, uint64_t bytes) {
    dv_gpu *gpu = dv_engine_gpu(s->e, 0);
    if (p == NULL) {
        return;
    }
    if (gpu != NULL) {
        dv_gpu_free(gpu, DV_MEM_WORKSPACE, p, bytes);
    } else {
        dv_heap_free(s->e->services.heap, DV_MEM_WORKSPACE, p, bytes);
    }
}

static davy_result take_state(dv_clip_stream *s) {
    const uint64_t resident = dv_resident_bytes(&s->choice.info), offloaded = s->choice.info.offloaded_bytes;
    davy_result r = resident > 0 ? take_bytes(s, resident, "state of a clip", &s->state) : DAVY_OK;
    if (r == DAVY_OK && offloaded > 0) {
        r = dv_gpu_pin(dv_engine_gpu(s->e, 0), offloaded, "state of a clip", &s->offloaded);
    }
    return r;
}

static void give_memory(dv_clip_stream *s) {
    const dv_clip_stream_info *i = &s->choice.info;
    if (s->offloaded.data != NULL) {
        dv_gpu_unpin(dv_engine_gpu(s->e, 0), &s->offloaded);
    }
    give_bytes(s, s->state, dv_resident_bytes(i));
    if (s->group.arena_owner == NULL) {
        give_bytes(s, s->arena, i->arena_bytes);
    }
    s->arena = s->state = NULL;
}

static davy_result take_arena(dv_clip_stream *s) {
    const dv_clip_stream *arena_owner = s->group.arena_owner;
    if (arena_owner == NULL) {
        return take_bytes(s, s->choice.info.arena_bytes, "workspace of a clip", &s->arena);
    }
    s->arena = arena_owner->arena;
    return s->arena != NULL ? DAVY_OK
                            : dv_fail(DAVY_E_INTERNAL, "%s: the arena owner has no memory", dv_stage_name(s->stage));
}

static davy_result try_memory(dv_clip_stream *s) {
    davy_result r = take_arena(s);
    r = r < 0 ? r : take_state(s);
    if (r < 0) {
        give_memory(s);
    }
    return r;
}

/* If memory is short, idle arenas of other sizes are freed. */
static davy_result take_memory(dv_clip_stream *s) {
    if (s->arena != NULL) {
        return DAVY_OK;
    }
    davy_result r = try_memory(s);
    if (dv_is_short(r)) {
        dv_tile_plans_trim(s->e, NULL, 0);
        r = try_memory(s);
    }
    return r;
}

/* ---- programs ---- */

static void drop_program(dv_slice_program *p) {
    dv_instance_drop(p->instance);
    dv_program_release(p->program);
    *p = (dv_slice_program){0};
}

/* The program of such a slice. If there is none, the entry of the least recently used program, emptied. */
static dv_slice_program *find_program(dv_clip_stream *s, int64_t frames, bool continues) {
    dv_slice_program *oldest = &s->programs[0];
    for (int i = 0; i < DV_SLICE_PROGRAMS; i++) {
        dv_slice_program *p = &s->programs[i];
        if (p->instance != NULL && p->frames == frames && p->continues == continues && p->second == s->second) {
            return p;
        }
        oldest = p->used_at < oldest->used_at ? p : oldest;
    }
    drop_program(oldest);
    return oldest;
}

static bool suits(const dv_clip_stream *s, const dv_plan *plan) {
    const int32_t threads = s->e->services.n_gpus > 0 ? 1 : dv_pool_threads(s->e->services.pool);
    return dv_plan_workspace(plan, threads) <= s->choice.info.arena_bytes &&
           plan->state_bytes + plan->offloaded_bytes == s->choice.info.state_bytes;
}

/* The plan of such a slice, if it was made during the choice. The caller owns it. NULL: it was not made, or has been taken. */
static dv_plan *take_made_plan(dv_clip_stream *s, int64_t frames, bool continues) {
    dv_plan **place = !continues ? &s->plans.first : s->second ? &s->plans.second : &s->plans.later;
    dv_plan *plan = *place;
    if (frames != dv_slice_of(&s->choice.info.clip, s->choice.info.slice, continues)) {
        return NULL;
    }
    *place = NULL;
    return plan;
}

/* To overlap copies with its steps, a short slice may need more arena than the longest. Then its steps wait for the copies. */
static davy_result make_plan(dv_clip_stream *s, int64_t frames, bool continues, dv_plan **out) {
    *out = take_made_plan(s, frames, continues);
    davy_result r =
        *out != NULL ? DAVY_OK : dv_clip_stream_plan(s, &s->choice, (dv_clip_slice){frames, continues, s->second}, out);
    if (r == DAVY_OK && s->choice.policy.overlap_arena_bytes > 0 && !suits(s, *out)) {
        dv_slice_choice waits = s->choice;
        waits.policy.overlap_arena_bytes = 0;
        dv_plan_release(*out);
        r = dv_clip_stream_plan(s, &waits, (dv_clip_slice){frames, continues, s->second}, out);
    }
    return r;
}

static davy_result make_program(dv_clip_stream *s, int64_t frames, bool continues, dv_program **out) {
    dv_plan *plan = NULL;
    const davy_result r = make_plan(s, frames, continues, &plan);
    if (r < 0) {
        return r;
    }
    if (!suits(s, plan)) {
        dv_plan_release(plan);
        return dv_fail(DAVY_E_INTERNAL, "%s: a slice of %lld frames takes more memory than one of %lld",
                       dv_stage_name(s->stage), (long long)frames, (long long)s->choice.info.slice);
    }
    const dv_program_desc desc = {.services = &s->e->services, .store = s->store, .stage = s->stage, .plan = plan};
    return dv_program_create(&desc, out);
}

static davy_result get_program(dv_clip_stream *s, int64_t frames, bool continues, dv_watch *watch,
                               dv_slice_program **out) {
    dv_slice_program *p = find_program(s, frames, continues);
    davy_result r = DAVY_OK;
    if (p->instance == NULL) {
        p->frames = frames;
        p->continues = continues;
        p->second = s->second;
        r = make_program(s, frames, continues, &p->program);
        r = r < 0 ? r : dv_program_load(p->program, watch);
        r = r < 0 ? r : take_memory(s);
        r = r < 0 ? r : dv_program_lend(p->program, s->arena, s->state, &p->instance);
        if (r == DAVY_OK) {
            dv_instance_set_offloaded(p->instance, s->offloaded.data);
        }
    }
    if (r < 0) {
        drop_program(p);
        return r;
    }
    p->used_at = ++s->clock;
    *out = p;
    return DAVY_OK;
}

/* ---- less memory in the middle of a clip ---- */

/* Finds the choice with the largest workspace below the current one. The state stays in its place. */
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

typedef struct block { /* the two parts of a state */
    char *resident, *offloaded;
} block;

/* Copies a state ring by ring, then its rest, which lies behind the resident rings. */
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
    davy_result r = dv_clip_stream_plan(s, &s->choice, (dv_clip_slice){frames, true, false}, &from);
    r = r < 0 ? r : dv_clip_stream_plan(s, c, (dv_clip_slice){frames, true, false}, &to);
    if (r == DAVY_OK && !same_parts(from, to)) {
        r = dv_fail(DAVY_E_INTERNAL, "%s: the state has other parts in the new plan", dv_stage_name(s->stage));
    }
    r = r < 0 ? r : dv_gpu_queue_take(gpu, NULL, &q);
    if (q != NULL) {
        r = copy_state(from, src, to, dst, q);
        const davy_result waited = dv_gpu_queue_wait(q, NULL, NULL);
        r = r < 0 ? r : waited;
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
    r = r < 0 ? r : dv_gpu_pin(gpu, c.info.offloaded_bytes, "state of a clip", &pinned);
    r = r == DAVY_OK && bytes > 0 ? dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, bytes, "state of a clip", &rest) : r;
    r = r < 0 ? r : copy_to(s, &c, (block){rest, pinned.data});
    if (r < 0) {
        dv_gpu_unpin(gpu, &pinned);
        dv_gpu_free(gpu, DV_MEM_WORKSPACE, rest, bytes);
        return r;
    }
    dv_gpu_unpin(gpu, &s->offloaded);
    dv_gpu_free(gpu, DV_MEM_WORKSPACE, s->state, dv_resident_bytes(&s->choice.info));
    s->offloaded = pinned;
    s->state = rest;
    if (c.info.arena_bytes <= s->choice.info.arena_bytes) {
        c.info.arena_bytes = s->choice.info.arena_bytes; /* the larger arena is kept */
    } else {                                             /* a larger one fits into the memory of the old state */
        dv_gpu_free(gpu, DV_MEM_WORKSPACE, s->arena, s->choice.info.arena_bytes);
        s->arena = NULL;
    }
    s->choice = c;
    return DAVY_OK;
}

static davy_result downgrade(dv_clip_stream *s) {
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
                    ? dv_fail(DAVY_E_NOMEM_DEVICE, "%s: shorter slices are not possible", dv_stage_name(s->stage))
                    : offload_all(s);
        }
        if (r == DAVY_OK && s->arena == NULL) {
            r = dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, s->choice.info.arena_bytes, "workspace of a clip", &s->arena);
        }
    }
    return r;
}

/* Called after memory was refused. A clip that has begun continues with less memory, so that its computed frames are not lost. */
static davy_result try_downgrade(dv_clip_stream *s, davy_result refused) {
    davy_error_info error = {.struct_size = sizeof error};
    if (s->e->services.n_gpus == 0 || s->taken == 0 || s->arena == NULL || s->group.streams > 1) {
        return refused;
    }
    dv_error_get(&error);
    for (int i = 0; i < DV_SLICE_PROGRAMS; i++) {
        drop_program(&s->programs[i]);
    }
    dv_slice_plans_drop(&s->plans);
    if (downgrade(s) < 0) {
        if (s->arena == NULL) {
            give_memory(s);
            s->lost = true;
        }
        dv_error_set(&error);
        return refused;
    }
    dv_logf(s->e->services.log, DAVY_LOG_WARN, "%s of a clip continues at frame %lld with less memory: %s",
            dv_stage_name(s->stage), (long long)s->taken, error.message);
    dv_clip_stream_log_choice(s);
    return DAVY_OK;
}

/* ---- slices ---- */

static davy_result run_slice_cpu(dv_slice_program *p, const dv_work *slice, dv_watch *watch) {
    const dvk_view input = dv_instance_input(p->instance);
    dvk_view output = dv_instance_output(p->instance);
    const dvk_convert_args load = dv_load_args(slice, &slice->in, &input);
    output.c = slice->out.channels;
    const dvk_convert_args store = dv_store_args(slice, &slice->out, &output);
    davy_result r = dv_convert_run(p->instance, "load", &load, watch);
    r = r < 0 ? r : dv_instance_run(p->instance, watch);
    return r < 0 ? r : dv_convert_run(p->instance, "store", &store, watch);
}

static dvk_image frames_of(const dvk_image *image, int64_t first, int64_t count) {
    dvk_image part = *image;
    part.data = (char *)image->data + first * image->sn;
    part.n = count;
    return part;
}

static int64_t next_slice(const dv_clip_stream *s, int64_t left) {
    const bool continues = s->taken > 0;
    return s->choice.whole ? left : dv_slice_of(&s->choice.info.clip, dv_min(left, s->choice.info.slice), continues);
}

/* Takes staging memory for the next slice and for those after it. */
static davy_result stage_frames(dv_clip_stream *s, const dv_work *work) {
    const dv_clip_rule *rule = &s->choice.info.clip;
    const int64_t next = next_slice(s, work->in.n);
    const int64_t later = next < work->in.n ? dv_slice_of(rule, s->choice.info.slice, true) : 0;
    const int64_t out = dv_max(dv_slice_out(rule, next, s->taken > 0), dv_slice_out(rule, later, true));
    return dv_clip_stream_stage(s, work, dv_max(next, later), out);
}

/* Prepares the program for the next slice of work's frames, from frame `at` on. */
static davy_result get_ready(dv_clip_stream *s, const dv_work *work, int64_t at, dv_watch *watch,
                             dv_slice_program **out) {
    davy_result r = DAVY_OK;
    do {
        const bool gpu = s->e->services.n_gpus > 0;
        s->second = s->choice.info.clip.second && s->taken == s->choice.info.clip.first;
        r = gpu ? stage_frames(s, work) : DAVY_OK;
        r = r < 0 ? r : get_program(s, next_slice(s, work->in.n - at), s->taken > 0, watch, out);
    } while (dv_is_short(r) && (r = try_downgrade(s, r)) == DAVY_OK);
    return r;
}

static davy_result run_slices(dv_clip_stream *s, const dv_work *work, dv_watch *watch) {
    int64_t in_at = 0;
    int64_t out_at = 0;
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && in_at < work->in.n) {
        dv_slice_program *p = NULL;
        int64_t n = 0, made = 0;
        r = dv_watch_poll(watch);
        r = r < 0 ? r : get_ready(s, work, in_at, watch, &p);
        if (r == DAVY_OK) {
            n = p->frames;
            made = dv_slice_out(&s->choice.info.clip, n, s->taken > 0);
            dv_work slice = *work;
            slice.in = frames_of(&work->in, in_at, n);
            slice.out = frames_of(&work->out, out_at, made);
            r = s->e->services.n_gpus > 0 ? dv_clip_stream_slice_cuda(s, p, &slice, watch)
                                          : run_slice_cpu(p, &slice, watch);
            s->lost = r < 0;
        }
        if (r == DAVY_OK) {
            s->taken += n;
            in_at += n;
            out_at += made;
        }
    }
    s->lost = s->lost || (r < 0 && in_at > 0);
    return r;
}

/* ---- a call ---- */

static davy_result check_frames(const dv_clip_stream *s, const dv_work *w) {
    const dv_clip_rule *rule = &s->choice.info.clip;
    const bool continues = s->taken > 0;
    const int64_t least = continues ? rule->step : rule->first;
    if (s->lost) {
        return dv_fail(DAVY_E_STATE, "%s: the clip was lost after an error; begin a new clip", dv_stage_name(s->stage));
    }
    if (w->in.n < least || (w->in.n - least) % rule->step != 0 ||
        (s->choice.whole && (continues || w->in.n != s->choice.info.slice))) {
        return dv_fail(
            DAVY_E_SHAPE, "%s: %lld frames at frame %lld of a clip are not possible; use %lld plus a multiple of %lld",
            dv_stage_name(s->stage), (long long)w->in.n, (long long)s->taken, (long long)least, (long long)rule->step);
    }
    const int64_t made = dv_slice_out(rule, w->in.n, continues);
    if (w->out.n != made) {
        return dv_fail(DAVY_E_SHAPE, "%s: the output has %lld frames, expected %lld", dv_stage_name(s->stage),
                       (long long)w->out.n, (long long)made);
    }
    return DAVY_OK;
}

static davy_result check_work(const dv_clip_stream *s, const dv_work *w) {
    const davy_result r = check_frames(s, w);
    if (r < 0) {
        return r;
    }
    if (w->stage != s->stage || w->grey || w->stream_ordered) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "%s of a clip: another stage, grey output and stream_ordered are not supported",
                       dv_stage_name(s->stage));
    }
    if (w->in.h != s->h || w->in.w != s->w || w->in.channels != s->choice.in_c) {
        return dv_fail(DAVY_E_SHAPE,
                       "%s: the frames have %lld x %lld pixels and %d channels, expected %lld x %lld and %lld",
                       dv_stage_name(s->stage), (long long)w->in.w, (long long)w->in.h, (int)w->in.channels,
                       (long long)s->w, (long long)s->h, (long long)s->choice.in_c);
    }
    if (w->out.h != s->choice.info.out_h || w->out.w != s->choice.info.out_w || w->out.channels < 1 ||
        w->out.channels > s->choice.info.out_c) {
        return dv_fail(
            DAVY_E_SHAPE, "%s: the output has %lld x %lld pixels and %d channels, expected %lld x %lld and 1 to %lld",
            dv_stage_name(s->stage), (long long)w->out.w, (long long)w->out.h, (int)w->out.channels,
            (long long)s->choice.info.out_w, (long long)s->choice.info.out_h, (long long)s->choice.info.out_c);
    }
    return DAVY_OK;
}

static uint64_t missing_weights(const dv_clip_stream *s) {
    uint64_t bytes = 0;
    dv_plan *plan = NULL;
    if (s->arena == NULL && s->plans.first != NULL) {
        return dv_store_missing(s->store, s->stage, s->plans.first);
    }
    if (s->arena == NULL &&
        dv_clip_stream_plan(
            s, &s->choice,
            (dv_clip_slice){dv_slice_of(&s->choice.info.clip, s->choice.info.slice, false), false, false},
            &plan) == DAVY_OK) {
        bytes = dv_store_missing(s->store, s->stage, plan);
        dv_plan_release(plan);
    }
    return bytes;
}

davy_result dv_clip_stream_run(dv_clip_stream *s, const dv_work *work) {
    dv_watch watch;
    davy_result r = check_work(s, work);
    if (r < 0) {
        return r;
    }
    const double cost = s->choice.cost_frame * (double)work->in.n + dv_store_cost(missing_weights(s));
    dv_watch_begin(&watch, &work->control, dv_stage_name(s->stage), cost);
    dv_clip_stream_settle(s);
    r = run_slices(s, work, &watch);
    return r < 0 ? r : dv_watch_end(&watch);
}

/* ---- streams ---- */

void dv_clip_stream_release(dv_clip_stream *s) {
    if (s == NULL) {
        return;
    }
    for (int i = 0; i < DV_SLICE_PROGRAMS; i++) {
        drop_program(&s->programs[i]);
    }
    give_memory(s);
    for (int i = 0; i < 2; i++) {
        give_bytes(s, s->own_staging[i].data, s->own_staging[i].bytes);
    }
    dv_slice_plans_drop(&s->plans);
    dv_store_release(s->store);
    dv_free(s);
}

static davy_result check_clip(const dv_clip_stream *s, int64_t frames) {
    const dv_clip_rule *rule = &s->choice.info.clip;
    if (s->h < 1 || s->w < 1) {
        return dv_fail(DAVY_E_SHAPE, "%s: a clip of %lld x %lld is not possible; width and height start at 1",
                       dv_stage_name(s->stage), (long long)s->w, (long long)s->h);
    }
    if (frames != 0 && (frames < rule->first || (frames - rule->first) % rule->step != 0)) {
        return dv_fail(DAVY_E_SHAPE, "%s: a clip of %lld frames is not possible; use %lld plus a multiple of %lld",
                       dv_stage_name(s->stage), (long long)frames, (long long)rule->first, (long long)rule->step);
    }
    return DAVY_OK;
}

/* Creates a stream without a choice. */
static davy_result create(dv_engine *e, const dv_clip_stream_desc *desc, dv_clip_stream **out) {
    dv_clip_rule rule;
    if (!dv_engine_clip(e, desc->stage, &rule)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: these weights cannot %s clips", e->file_name,
                       dv_stage_name(desc->stage));
    }
    dv_clip_stream *s = dv_calloc(1, sizeof *s);
    if (s == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "stream: out of memory");
    }
    s->e = e;
    s->store = dv_engine_store(e, 0);
    s->stage = desc->stage;
    s->h = desc->h;
    s->w = desc->w;
    s->choice.info.clip = rule;
    s->staging = s->own_staging;
    *out = s;
    return DAVY_OK;
}

davy_result dv_clip_stream_open(dv_engine *e, const dv_clip_stream_desc *desc, dv_clip_stream **out) {
    dv_clip_stream *s = NULL;
    davy_result r = create(e, desc, &s);
    if (r < 0) {
        return r;
    }
    s->group = desc->group != NULL ? *desc->group : (dv_stream_group){0};
    if (s->group.arena_owner != NULL) {
        s->choice = s->group.arena_owner->choice;
        s->staging = s->group.arena_owner->staging;
    } else {
        r = check_clip(s, desc->frames);
        r = r < 0 ? r : dv_clip_stream_choose(s, desc->frames, desc->slice);
    }
    if (r < 0) {
        dv_clip_stream_release(s);
        return r;
    }
    *out = s;
    return DAVY_OK;
}

davy_result dv_clip_stream_least(dv_engine *e, const dv_clip_stream_desc *desc, bool lean, dv_clip_need *out) {
    dv_clip_stream *s = NULL;
    davy_result r = create(e, desc, &s);
    if (r < 0) {
        return r;
    }
    dv_slice_choice c = {0};
    r = check_clip(s, 0);
    r = r < 0 ? r : dv_clip_stream_measure_least(s, lean, &c);
    *out = (dv_clip_need){.weights = c.weights,
                          .arena = c.need - c.weights,
                          .state = c.info.state_bytes,
                          .resident = dv_resident_bytes(&c.info),
                          .flops = c.info.flops_first,
                          .cost = c.cost_frame,
                          .out_c = c.info.out_c};
    dv_clip_stream_release(s);
    return r;
}

void dv_clip_stream_info_get(const dv_clip_stream *s, dv_clip_stream_info *out) {
    *out = s->choice.info;
}

void dv_clip_stream_reset(dv_clip_stream *s) {
    s->taken = 0;
    s->lost = false;
}
