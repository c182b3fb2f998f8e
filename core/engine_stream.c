/* engine_stream.c - which slices a clip is computed in: as many frames at once as keep a device busy, fewer where memory is
 * short; the whole clip at once where that takes less than slices and what is kept between them. What is kept may be
 * the most of it, and then goes to the host's memory where a GPU's is too small. */
#include "core/stream_priv.h"

#include "core/cuda/gpu.h"
#include "core/error.h"

#define BUSY_PIXELS (3ll << 20) /* of pictures at full size, computed at once, that keep a GPU busy */

enum { MOST_AT_ONCE = 16, MOST_WHOLE = 64 }; /* pictures; frames of a clip */

bool dv_engine_clip(const dv_engine *e, dv_stage stage, dv_clip_rule *out) {
    dv_clip_rule rule = {0};
    if (stage >= DV_STAGE_UPSCALE && stage <= DV_STAGE_DECODE && e->has_stage[stage] && e->arch->clip != NULL) {
        e->arch->clip(e->cfg, stage, &rule);
    }
    *out = rule;
    return rule.first > 0;
}

int64_t dv_slice_of(const dv_clip_rule *rule, int64_t most, bool continues) {
    const int64_t least = continues ? rule->step : rule->first;
    return least + dv_max(most - least, 0) / rule->step * rule->step;
}

int64_t dv_slice_out(const dv_clip_rule *rule, int64_t frames, bool continues) {
    return continues ? frames / rule->step * rule->step_out
                     : rule->first_out + (frames - rule->first) / rule->step * rule->step_out;
}

davy_result dv_clip_stream_plan(const dv_clip_stream *s, int64_t frames, bool continues, dv_plan **out) {
    const dv_request q = {
        .stage = s->stage, .pictures = frames, .continues = continues, .keeps = !s->whole, .apart = true};
    return dv_engine_make_plan(s->e, 0, &q, s->h, s->w, s->lean, out);
}

/* ---- the choice ---- */

typedef struct choice { /* of a slice */
    int64_t slice;
    bool whole, lean, away;
    uint64_t need; /* of everything, weights not packed yet included; `away`: but the state */
    double cost_frame;
    dv_clip_stream_info info;
    int64_t in_c;
} choice;

static uint64_t staging_of(const dv_plan *plan) {
    const dvk_view *in = &plan->input;
    const dvk_view *out = &plan->output;
    return (uint64_t)(in->n * in->h * in->w * in->c + out->n * out->h * out->w * out->c) * sizeof(float);
}

static void add_plan(const dv_clip_stream *s, const dv_plan *plan, choice *c) {
    const bool gpu = s->e->services.n_gpus > 0;
    const uint64_t arena = dv_align_up(dv_plan_workspace(plan, gpu ? 1 : dv_pool_threads(s->e->services.pool)), 256);
    const uint64_t staging = gpu ? staging_of(plan) : 0;
    const uint64_t weights = dv_store_missing(s->store, s->stage, plan);
    dv_clip_stream_info *info = &c->info;
    info->arena_bytes = arena > info->arena_bytes ? arena : info->arena_bytes;
    info->state_bytes = plan->state_bytes;
    const uint64_t need = weights + info->arena_bytes + (c->away ? 0 : info->state_bytes) + staging;
    c->need = need > c->need ? need : c->need;
    c->cost_frame = plan->cost / (double)plan->input.n;
    c->in_c = plan->input.c;
    info->out_h = plan->output.h;
    info->out_w = plan->output.w;
    info->out_c = plan->output.c;
}

/* Flops of the shortest slices are what the caller is told. */
static davy_result measure_one(const dv_clip_stream *s, int64_t frames, bool continues, choice *c) {
    dv_plan *plan = NULL;
    const davy_result r = dv_clip_stream_plan(s, frames, continues, &plan);
    if (r == DAVY_OK) {
        const dv_clip_rule *rule = &s->info.clip;
        add_plan(s, plan, c);
        if (continues) {
            c->info.flops_step = plan->flops / (uint64_t)(frames / rule->step);
        } else {
            c->info.flops_first = plan->flops; /* of the first and of `step` more, so far */
        }
        dv_plan_release(plan);
    }
    return r;
}

/* Sets all but slice, whole and lean. */
static davy_result measure(dv_clip_stream *s, choice *c) {
    const dv_clip_rule *rule = &s->info.clip;
    const int64_t first = dv_slice_of(rule, c->slice, false);
    s->whole = c->whole;
    s->lean = c->lean;
    c->info = (dv_clip_stream_info){.clip = *rule, .slice = c->slice, .state_away = c->away};
    davy_result r = measure_one(s, first, false, c);
    if (r == DAVY_OK && !c->whole) {
        const uint64_t state = c->info.state_bytes;
        r = measure_one(s, dv_slice_of(rule, c->slice, true), true, c);
        if (r == DAVY_OK && state != c->info.state_bytes) {
            r = dv_fail(DAVY_E_INTERNAL, "%s: the first slice of a clip keeps %llu bytes, later ones %llu",
                        dv_stage_name(s->stage), (unsigned long long)state, (unsigned long long)c->info.state_bytes);
        }
    }
    const uint64_t more = (uint64_t)((first - rule->first) / rule->step) * c->info.flops_step;
    c->info.flops_first -= more < c->info.flops_first ? more : 0;
    return r;
}

/* Slices that keep the device busy; a processor is with the shortest. A state that is far away is better moved seldom. */
static int64_t busy_slice(const dv_clip_stream *s, bool away) {
    const dv_clip_rule *rule = &s->info.clip;
    const dv_reach *reach = &s->e->reach[s->stage];
    if (s->e->services.n_gpus == 0) {
        return rule->step;
    }
    const int64_t in = s->h * s->w;
    const int64_t out = in * reach->num * reach->num / (reach->den * reach->den);
    const int64_t pictures = dv_max(rule->step, rule->step_out); /* at full size, of a step */
    const int64_t most = MOST_AT_ONCE / pictures;
    const int64_t steps = away ? most : dv_min(dv_div_up(BUSY_PIXELS, dv_max(in, out) * pictures), most);
    return dv_max(steps, 1) * rule->step;
}

static davy_result refuse(const dv_clip_stream *s, uint64_t least, uint64_t available) {
    return dv_fail(
        DAVY_E_BUDGET,
        "%s of a clip of %lld x %lld needs at least %llu bytes, in the shortest slices; %llu of the budget of "
        "%llu are free",
        dv_stage_name(s->stage), (long long)s->w, (long long)s->h, (unsigned long long)least,
        (unsigned long long)available, (unsigned long long)dv_engine_budget(s->e));
}

/* The whole clip, where that takes less than slices do; else the longest slices that fit. `out` says which kind of them. */
static davy_result choose(dv_clip_stream *s, int64_t frames, int64_t wish, uint64_t available, choice *out, bool *found,
                          uint64_t *least) {
    const dv_clip_rule *rule = &s->info.clip;
    const bool may_be_whole = frames > 0 && frames <= MOST_WHOLE && (wish == 0 || wish >= frames) && !out->away;
    const choice kind = *out;
    choice whole = {.slice = frames, .whole = true, .lean = kind.lean};
    davy_result r = may_be_whole ? measure(s, &whole) : DAVY_OK;
    whole.need = r == DAVY_OK ? whole.need : 0; /* too large for some step: slices are not */
    r = r == DAVY_E_NOMEM_HOST ? r : DAVY_OK;
    for (int64_t slice = dv_slice_of(rule, wish > 0 ? wish : busy_slice(s, kind.away), true);
         r == DAVY_OK && !*found && slice > 0; slice -= rule->step) {
        choice c = kind;
        c.slice = slice;
        r = measure(s, &c);
        if (r == DAVY_OK && whole.need > 0 && (whole.need <= c.need || (wish > 0 && whole.need <= available))) {
            c = whole;
        }
        *least = *least == 0 || c.need < *least ? c.need : *least;
        *found = r == DAVY_OK && c.need <= available;
        *out = c;
    }
    return r;
}

/* A GPU without room for the state can still reach it in the host's memory, a processor can do with kernels whose weights
 * are smaller. */
static davy_result settle(dv_clip_stream *s, int64_t frames, int64_t slice) {
    const bool gpu = s->e->services.n_gpus > 0;
    const uint64_t available = dv_engine_available(s->e);
    choice c = {0};
    bool found = false;
    uint64_t least = 0;
    davy_result r = choose(s, frames, slice, available, &c, &found, &least);
    if (r == DAVY_OK && !found) {
        c = (choice){.away = gpu, .lean = !gpu};
        r = choose(s, frames, slice, available, &c, &found, &least);
    }
    if (r == DAVY_OK && !found) {
        r = refuse(s, least, available);
    }
    s->whole = c.whole;
    s->lean = c.lean;
    s->info = c.info;
    s->in_c = c.in_c;
    s->cost_frame = c.cost_frame;
    return r;
}

/* ---- streams ---- */

static davy_result check_clip(const dv_clip_stream *s, int64_t frames) {
    const dv_clip_rule *rule = &s->info.clip;
    if (s->h < 1 || s->w < 1) {
        return dv_fail(DAVY_E_SHAPE, "%s: a clip of %lld x %lld", dv_stage_name(s->stage), (long long)s->w,
                       (long long)s->h);
    }
    if (frames != 0 && (frames < rule->first || (frames - rule->first) % rule->step != 0)) {
        return dv_fail(DAVY_E_SHAPE, "%s: a clip of %lld frames; %lld and a multiple of %lld more are possible",
                       dv_stage_name(s->stage), (long long)frames, (long long)rule->first, (long long)rule->step);
    }
    return DAVY_OK;
}

davy_result dv_clip_stream_open(dv_engine *e, dv_stage stage, int64_t h, int64_t w, int64_t frames, int64_t slice,
                                dv_clip_stream **out) {
    dv_clip_rule rule;
    if (!dv_engine_clip(e, stage, &rule)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: these weights cannot %s clips", e->file_name, dv_stage_name(stage));
    }
    dv_clip_stream *s = dv_calloc(1, sizeof *s);
    if (s == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "stream: out of memory");
    }
    s->e = e;
    s->store = dv_engine_store(e, 0);
    s->stage = stage;
    s->h = h;
    s->w = w;
    s->info.clip = rule;
    davy_result r = check_clip(s, frames);
    r = r == DAVY_OK ? settle(s, frames, slice) : r;
    if (r != DAVY_OK) {
        dv_clip_stream_release(s);
        return r;
    }
    *out = s;
    return DAVY_OK;
}

void dv_clip_stream_info_get(const dv_clip_stream *s, dv_clip_stream_info *out) {
    *out = s->info;
}

void dv_clip_stream_reset(dv_clip_stream *s) {
    s->taken = 0;
    s->lost = false;
}
