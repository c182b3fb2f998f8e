/* run.c - the frames given to a stream, slice by slice: a plan for each length that occurs, all on one block
 * of memory and one state. */
#include "core/tiles/picture_run.h"
#include "core/clip/stream_priv.h"

#include "core/cuda/gpu.h"
#include "core/base/error.h"

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
    return s->arena != NULL
               ? DAVY_OK
               : dv_fail(DAVY_E_INTERNAL, "%s: a stream without memory arena_owner it", dv_stage_name(s->stage));
}

static davy_result try_memory(dv_clip_stream *s) {
    davy_result r = take_arena(s);
    r = r == DAVY_OK ? take_state(s) : r;
    if (r != DAVY_OK) {
        give_memory(s);
    }
    return r;
}

/* Other sizes' arenas that nobody uses go first. */
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

/* ---- pieces ---- */

static void drop_piece(dv_slice_program *p) {
    dv_instance_drop(p->instance);
    dv_program_release(p->program);
    *p = (dv_slice_program){0};
}

/* That of this kind, or the place of one that is wanted least, emptied. */
static dv_slice_program *find_piece(dv_clip_stream *s, int64_t frames, bool continues) {
    dv_slice_program *oldest = &s->pieces[0];
    for (int i = 0; i < DV_PIECES; i++) {
        dv_slice_program *p = &s->pieces[i];
        if (p->instance != NULL && p->frames == frames && p->continues == continues && p->second == s->second) {
            return p;
        }
        oldest = p->used_at < oldest->used_at ? p : oldest;
    }
    drop_piece(oldest);
    return oldest;
}

static bool suits(const dv_clip_stream *s, const dv_plan *plan) {
    const int32_t threads = s->e->services.n_gpus > 0 ? 1 : dv_pool_threads(s->e->services.pool);
    return dv_plan_workspace(plan, threads) <= s->choice.info.arena_bytes &&
           plan->state_bytes + plan->offloaded_bytes == s->choice.info.state_bytes;
}

/* Of a short slice more may be on its way at once than of the longest: not where that is waited for. */
static davy_result make_plan(dv_clip_stream *s, int64_t frames, bool continues, dv_plan **out) {
    davy_result r = dv_clip_stream_plan(s, &s->choice, frames, continues, s->second, out);
    if (r == DAVY_OK && s->choice.policy.overlap_arena_bytes > 0 && !suits(s, *out)) {
        dv_slice_choice waits = s->choice;
        waits.policy.overlap_arena_bytes = 0;
        dv_plan_release(*out);
        r = dv_clip_stream_plan(s, &waits, frames, continues, s->second, out);
    }
    return r;
}

static davy_result make_program(dv_clip_stream *s, int64_t frames, bool continues, dv_program **out) {
    dv_plan *plan = NULL;
    const davy_result r = make_plan(s, frames, continues, &plan);
    if (r != DAVY_OK) {
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

davy_result dv_clip_stream_program(dv_clip_stream *s, int64_t frames, bool continues, dv_watch *watch,
                                   dv_slice_program **out) {
    dv_slice_program *p = find_piece(s, frames, continues);
    davy_result r = DAVY_OK;
    if (p->instance == NULL) {
        p->frames = frames;
        p->continues = continues;
        p->second = s->second;
        r = make_program(s, frames, continues, &p->program);
        r = r == DAVY_OK ? dv_program_load(p->program, watch) : r;
        r = r == DAVY_OK ? take_memory(s) : r;
        r = r == DAVY_OK ? dv_program_lend(p->program, s->arena, s->state, &p->instance) : r;
        if (r == DAVY_OK) {
            dv_instance_set_offloaded(p->instance, s->offloaded.data);
        }
    }
    if (r != DAVY_OK) {
        drop_piece(p);
        return r;
    }
    p->used_at = ++s->clock;
    *out = p;
    return DAVY_OK;
}

/* ---- slices ---- */

static davy_result run_slice_cpu(dv_slice_program *p, const dv_work *work, const dvk_image *in, const dvk_image *out,
                                 dv_watch *watch) {
    const dvk_view input = dv_instance_input(p->instance);
    dvk_view output = dv_instance_output(p->instance);
    const dvk_convert_args load = dv_load_args(work, in, &input);
    output.c = work->out.channels;
    const dvk_convert_args store = dv_store_args(work, out, &output);
    davy_result r = dv_convert_run(p->instance, "load", &load, watch);
    r = r == DAVY_OK ? dv_instance_run(p->instance, watch) : r;
    return r == DAVY_OK ? dv_convert_run(p->instance, "store", &store, watch) : r;
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

/* The slice that comes next, or one of those after it. */
static davy_result stage_frames(dv_clip_stream *s, const dv_work *work) {
    const dv_clip_rule *rule = &s->choice.info.clip;
    const int64_t next = next_slice(s, work->in.n);
    const int64_t later = next < work->in.n ? dv_slice_of(rule, s->choice.info.slice, true) : 0;
    const int64_t out = dv_max(dv_slice_out(rule, next, s->taken > 0), dv_slice_out(rule, later, true));
    return dv_clip_stream_stage(s, work, dv_max(next, later), out);
}

/* Memory has been refused: of a clip that has begun something is kept that is worth going on with less for. */
static davy_result retreat(dv_clip_stream *s, davy_result refused) {
    davy_error_info error = {.struct_size = sizeof error};
    if (s->e->services.n_gpus == 0 || s->taken == 0 || s->arena == NULL || s->group.streams > 1) {
        return refused;
    }
    dv_error_get(&error);
    for (int i = 0; i < DV_PIECES; i++) {
        drop_piece(&s->pieces[i]);
    }
    if (dv_clip_stream_downgrade(s) != DAVY_OK) {
        if (s->arena == NULL) {
            give_memory(s);
            s->lost = true;
        }
        dv_error_set(&error);
        return refused;
    }
    dv_logf(s->e->services.log, DAVY_LOG_WARN, "%s of a clip goes on from frame %lld with less memory: %s",
            dv_stage_name(s->stage), (long long)s->taken, error.message);
    dv_clip_stream_tell(s);
    return DAVY_OK;
}

/* What the next slice of work's frames from `at` on is computed by. */
static davy_result get_ready(dv_clip_stream *s, const dv_work *work, int64_t at, dv_watch *watch,
                             dv_slice_program **out) {
    davy_result r = DAVY_OK;
    do {
        const bool gpu = s->e->services.n_gpus > 0;
        s->second = s->choice.info.clip.second && s->taken == s->choice.info.clip.first;
        r = gpu ? stage_frames(s, work) : DAVY_OK;
        r = r == DAVY_OK ? dv_clip_stream_program(s, next_slice(s, work->in.n - at), s->taken > 0, watch, out) : r;
    } while (dv_is_short(r) && (r = retreat(s, r)) == DAVY_OK);
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
        r = r == DAVY_OK ? get_ready(s, work, in_at, watch, &p) : r;
        if (r == DAVY_OK) {
            n = p->frames;
            made = dv_slice_out(&s->choice.info.clip, n, s->taken > 0);
            const dvk_image in = frames_of(&work->in, in_at, n);
            const dvk_image out = frames_of(&work->out, out_at, made);
            r = s->e->services.n_gpus > 0 ? dv_clip_stream_slice_cuda(s, p, work, &in, &out, watch)
                                          : run_slice_cpu(p, work, &in, &out, watch);
            s->lost = r != DAVY_OK;
        }
        if (r == DAVY_OK) {
            s->taken += n;
            in_at += n;
            out_at += made;
        }
    }
    s->lost = s->lost || (r != DAVY_OK && in_at > 0);
    return r;
}

/* ---- a call ---- */

static davy_result check_frames(const dv_clip_stream *s, const dv_work *w) {
    const dv_clip_rule *rule = &s->choice.info.clip;
    const bool continues = s->taken > 0;
    const int64_t least = continues ? rule->step : rule->first;
    if (s->lost) {
        return dv_fail(DAVY_E_STATE, "%s: the clip was lost to an error; a new one has to begin",
                       dv_stage_name(s->stage));
    }
    if (w->in.n < least || (w->in.n - least) % rule->step != 0 ||
        (s->choice.whole && (continues || w->in.n != s->choice.info.slice))) {
        return dv_fail(
            DAVY_E_SHAPE, "%s: %lld frames at a clip's frame %lld; %lld and a multiple of %lld more are possible",
            dv_stage_name(s->stage), (long long)w->in.n, (long long)s->taken, (long long)least, (long long)rule->step);
    }
    const int64_t made = dv_slice_out(rule, w->in.n, continues);
    if (w->out.n != made) {
        return dv_fail(DAVY_E_SHAPE, "%s: an output of %lld frames, expected %lld", dv_stage_name(s->stage),
                       (long long)w->out.n, (long long)made);
    }
    return DAVY_OK;
}

static davy_result check_work(const dv_clip_stream *s, const dv_work *w) {
    const davy_result r = check_frames(s, w);
    if (r != DAVY_OK) {
        return r;
    }
    if (w->stage != s->stage || w->grey || w->stream_ordered) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s of a clip: another stage, grey pictures or an unfinished call",
                       dv_stage_name(s->stage));
    }
    if (w->in.h != s->h || w->in.w != s->w || w->in.channels != s->choice.in_c) {
        return dv_fail(DAVY_E_SHAPE, "%s: frames of %lld x %lld with %d channels, expected %lld x %lld with %lld",
                       dv_stage_name(s->stage), (long long)w->in.w, (long long)w->in.h, (int)w->in.channels,
                       (long long)s->w, (long long)s->h, (long long)s->choice.in_c);
    }
    if (w->out.h != s->choice.info.out_h || w->out.w != s->choice.info.out_w || w->out.channels < 1 ||
        w->out.channels > s->choice.info.out_c) {
        return dv_fail(
            DAVY_E_SHAPE, "%s: output of %lld x %lld with %d channels, expected %lld x %lld with at most %lld",
            dv_stage_name(s->stage), (long long)w->out.w, (long long)w->out.h, (int)w->out.channels,
            (long long)s->choice.info.out_w, (long long)s->choice.info.out_h, (long long)s->choice.info.out_c);
    }
    return DAVY_OK;
}

static uint64_t missing_weights(const dv_clip_stream *s) {
    uint64_t bytes = 0;
    dv_plan *plan = NULL;
    if (s->arena == NULL &&
        dv_clip_stream_plan(s, &s->choice, dv_slice_of(&s->choice.info.clip, s->choice.info.slice, false), false, false,
                            &plan) == DAVY_OK) {
        bytes = dv_store_missing(s->store, s->stage, plan);
        dv_plan_release(plan);
    }
    return bytes;
}

davy_result dv_clip_stream_run(dv_clip_stream *s, const dv_work *work) {
    dv_watch watch;
    davy_result r = check_work(s, work);
    if (r != DAVY_OK) {
        return r;
    }
    const double cost = s->choice.cost_frame * (double)work->in.n + dv_store_cost(missing_weights(s));
    dv_watch_begin(&watch, &work->control, dv_stage_name(s->stage), cost);
    dv_clip_stream_settle(s);
    r = run_slices(s, work, &watch);
    return r == DAVY_OK ? dv_watch_end(&watch) : r;
}

void dv_clip_stream_release(dv_clip_stream *s) {
    if (s == NULL) {
        return;
    }
    for (int i = 0; i < DV_PIECES; i++) {
        drop_piece(&s->pieces[i]);
    }
    give_memory(s);
    for (int i = 0; i < 2; i++) {
        give_bytes(s, s->own_staging[i].data, s->own_staging[i].bytes);
    }
    dv_store_release(s->store);
    dv_free(s);
}
