/* exec/autotune.c - what a choice takes: the memory and the time of its slices' plans. Later slices, of which there are
 * most, tell nearly all of it; a clip's first ones are planned for what is worth it. */
#include "core/cuda/gpu.h"
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/clip/stream_priv.h"

davy_result dv_clip_stream_plan(const dv_clip_stream *s, const dv_slice_choice *c, int64_t frames, bool continues,
                                bool second, dv_plan **out) {
    const dv_request q = {.stage = s->stage,
                          .pictures = frames,
                          .continues = continues,
                          .second = continues && second,
                          .keeps = !c->whole,
                          .policy = c->policy,
                          .apart = true};
    return dv_engine_make_plan(s->e, 0, &q, s->h, s->w, c->lean, out);
}

/* ---- a plan's part ---- */

static uint64_t frames_bytes(const dvk_view *v) {
    return (uint64_t)(v->n * v->h * v->w * v->c) * sizeof(float);
}

/* The caller's frames pass through the arena, where it has room beside what the steps read and make. */
static void add_staging(const dv_plan *plan, uint64_t arena, dv_slice_choice *c) {
    const uint64_t in = frames_bytes(&plan->input), out = frames_bytes(&plan->output);
    uint64_t where = 0;
    c->staging = in + out > c->staging ? in + out : c->staging;
    c->apart = c->apart || !dv_clip_stream_passes(arena, &plan->input, plan->input_at, in, &where) ||
               !dv_clip_stream_passes(arena, &plan->output, plan->output_at, out, &where);
}

static void add_plan(const dv_clip_stream *s, const dv_plan *plan, dv_clip_candidate *w) {
    const bool gpu = s->e->services.n_gpus > 0;
    const uint64_t arena = dv_align_up(dv_plan_workspace(plan, gpu ? 1 : dv_pool_threads(s->e->services.pool)), 256);
    dv_slice_choice *c = &w->c;
    c->weights += dv_store_missing_beside(s->store, s->stage, plan, s->packs_anew, &w->seen);
    c->weights_all = w->seen.bytes;
    dv_clip_stream_info *info = &c->info;
    info->arena_bytes = arena > info->arena_bytes ? arena : info->arena_bytes;
    info->state_bytes = plan->state_bytes + plan->offloaded_bytes;
    info->offloaded_bytes = plan->offloaded_bytes;
    if (gpu) {
        add_staging(plan, arena, c);
    }
    const uint64_t states = dv_resident_bytes(info) * (uint64_t)dv_max(s->group.streams, 1);
    c->need = c->weights + info->arena_bytes + states + (c->apart ? c->staging : 0);
    c->in_c = plan->input.c;
    info->out_h = plan->output.h;
    info->out_w = plan->output.w;
    info->out_c = plan->output.c;
}

static void take_time(const dv_plan *plan, dv_slice_choice *c) {
    c->cost_slice = plan->duration;
    c->cost_frame = c->cost_slice / (double)plan->input.n;
}

/* ---- slices ---- */

static int64_t frames_of(const dv_clip_candidate *w, bool continues) {
    return dv_slice_of(&w->c.info.clip, w->c.info.slice, continues);
}

/* Flops of the shortest slices are what the caller is told. */
static davy_result weigh_first(const dv_clip_stream *s, dv_clip_candidate *w, dv_plan *made) {
    const dv_clip_rule *rule = &w->c.info.clip;
    const int64_t frames = frames_of(w, false);
    dv_plan *plan = made;
    const davy_result r = made != NULL ? DAVY_OK : dv_clip_stream_plan(s, &w->c, frames, false, false, &plan);
    if (r == DAVY_OK) {
        add_plan(s, plan, w);
        if (w->c.whole) {
            take_time(plan, &w->c);
        }
        const uint64_t more = (uint64_t)((frames - rule->first) / rule->step) * w->c.info.flops_step;
        w->c.info.flops_first = plan->flops > more ? plan->flops - more : plan->flops;
    }
    dv_plan_release(plan);
    return r;
}

static davy_result weigh_later(const dv_clip_stream *s, dv_clip_candidate *w, dv_plan *made) {
    const int64_t frames = frames_of(w, true);
    dv_plan *plan = made;
    const davy_result r = made != NULL ? DAVY_OK : dv_clip_stream_plan(s, &w->c, frames, true, false, &plan);
    if (r == DAVY_OK) {
        add_plan(s, plan, w);
        take_time(plan, &w->c);
        w->c.info.flops_step = plan->flops / (uint64_t)(frames / w->c.info.clip.step);
    }
    dv_plan_release(plan);
    return r;
}

static davy_result weigh_second(const dv_clip_stream *s, dv_clip_candidate *w) {
    dv_plan *plan = NULL;
    const davy_result r = dv_clip_stream_plan(s, &w->c, frames_of(w, true), true, true, &plan);
    if (r == DAVY_OK) {
        add_plan(s, plan, w);
        dv_plan_release(plan);
    }
    return r;
}

davy_result dv_clip_stream_weigh(const dv_clip_stream *s, const dv_slice_choice *c, dv_plan *made,
                                 dv_clip_candidate *w) {
    const dv_clip_rule rule = s->choice.info.clip;
    *w = (dv_clip_candidate){.c = *c, .all = c->whole};
    w->c.need = w->c.weights = w->c.staging = 0;
    w->c.apart = false;
    w->c.info = (dv_clip_stream_info){.clip = rule, .slice = c->info.slice, .frame_by_frame = c->policy.frame_by_frame};
    const davy_result r = c->whole ? weigh_first(s, w, made) : weigh_later(s, w, made);
    /* a clip that begins with more frames than later slices have */
    const bool longer = dv_slice_out(&rule, frames_of(w, false), false) > dv_slice_out(&rule, frames_of(w, true), true);
    return r == DAVY_OK && longer ? dv_clip_stream_weigh_all(s, w) : r;
}

davy_result dv_clip_stream_weigh_all(const dv_clip_stream *s, dv_clip_candidate *w) {
    const uint64_t state = w->c.info.state_bytes;
    if (w->all) {
        return DAVY_OK;
    }
    davy_result r = weigh_first(s, w, NULL);
    if (r == DAVY_OK && state != w->c.info.state_bytes) {
        r = dv_fail(DAVY_E_INTERNAL, "%s: the first slice of a clip keeps %llu bytes, later ones %llu",
                    dv_stage_name(s->stage), (unsigned long long)w->c.info.state_bytes, (unsigned long long)state);
    }
    r = r == DAVY_OK && w->c.info.clip.second ? weigh_second(s, w) : r;
    w->all = r == DAVY_OK;
    return r;
}

void dv_clip_candidate_end(dv_clip_candidate *w) {
    dv_free(w->seen.hashes);
    w->seen = (dv_weight_set){0};
}

davy_result dv_clip_stream_least_arena(const dv_clip_stream *s, int64_t frames, uint64_t *bytes) {
    const dv_request q = {.stage = s->stage, .pictures = frames, .apart = true};
    return dv_engine_least_arena(s->e, &q, s->h, s->w, bytes);
}

davy_result dv_clip_stream_measure(const dv_clip_stream *s, dv_slice_choice *c) {
    dv_clip_candidate w;
    davy_result r = dv_clip_stream_weigh(s, c, NULL, &w);
    r = r == DAVY_OK ? dv_clip_stream_weigh_all(s, &w) : r;
    dv_clip_candidate_end(&w);
    *c = w.c;
    return r;
}
