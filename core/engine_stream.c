/* engine_stream.c - which slices a clip is computed in: as many frames at once as keep a device busy, fewer where memory is
 * short; the whole clip at once where that takes less than slices and what is kept between them. What is kept may be
 * the most of it, and then goes to the host's memory where a GPU's is too small. */
#include "core/stream_priv.h"

#include "core/cuda/gpu.h"
#include "core/error.h"

#define BUSY_PIXELS (3ll << 20) /* of pictures at full size, computed at once, that keep a GPU busy */

enum { MOST_AT_ONCE = 16, MOST_WHOLE = 64, LEAST_SLOTS = 3 }; /* pictures; frames of a clip; of a ring */

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
    const dv_request q = {.stage = s->stage,
                          .pictures = frames,
                          .continues = continues,
                          .second = continues && s->second,
                          .keeps = !s->whole,
                          .slots = s->slots,
                          .away = s->moved,
                          .near = s->near,
                          .ahead = s->ahead,
                          .apart = true};
    return dv_engine_make_plan(s->e, 0, &q, s->h, s->w, s->lean, out);
}

/* ---- the choice ---- */

typedef struct choice { /* of a slice */
    int64_t slice;
    bool whole, lean;
    bool away;     /* the state is in the host's memory, where a GPU's kernels reach it */
    bool moved;    /* as much of it as rings leave is there, but for `near`, and moved beside the steps */
    uint64_t near; /* this and what follows: as in dv_request */
    double ahead;
    int64_t slots;
    uint64_t need; /* of everything, weights not packed yet included, but for what is in the host's memory */
    uint64_t weights;
    bool apart;        /* the caller's frames pass through memory of their own */
    uint64_t staging;  /* so much of it */
    double cost_slice; /* of a later one, of steps */
    double cost_frame;
    dv_clip_stream_info info;
    int64_t in_c;
} choice;

static uint64_t frames_bytes(const dvk_view *v) {
    return (uint64_t)(v->n * v->h * v->w * v->c) * sizeof(float);
}

/* The caller's frames pass through the arena, where it has room beside what the steps read and make. */
static void add_staging(const dv_plan *plan, uint64_t arena, choice *c) {
    const uint64_t in = frames_bytes(&plan->input), out = frames_bytes(&plan->output);
    uint64_t where = 0;
    c->staging = in + out > c->staging ? in + out : c->staging;
    c->apart = c->apart || !dv_clip_stream_passes(arena, &plan->input, plan->input_at, in, &where) ||
               !dv_clip_stream_passes(arena, &plan->output, plan->output_at, out, &where);
}

static void add_plan(const dv_clip_stream *s, const dv_plan *plan, dv_seen *seen, choice *c) {
    const bool gpu = s->e->services.n_gpus > 0;
    const uint64_t arena = dv_align_up(dv_plan_workspace(plan, gpu ? 1 : dv_pool_threads(s->e->services.pool)), 256);
    c->weights += dv_store_missing_beside(s->store, s->stage, plan, seen);
    dv_clip_stream_info *info = &c->info;
    info->arena_bytes = arena > info->arena_bytes ? arena : info->arena_bytes;
    info->state_bytes = plan->state_bytes + plan->away_bytes;
    info->away_bytes = c->away ? plan->state_bytes : plan->away_bytes;
    const uint64_t states = (info->state_bytes - info->away_bytes) * (uint64_t)dv_max(s->company.streams, 1);
    const uint64_t need = c->weights + info->arena_bytes + states;
    if (gpu) {
        add_staging(plan, arena, c);
    }
    c->need = need > c->need ? need : c->need;
    c->cost_slice = plan->cost;
    c->cost_frame = plan->cost / (double)plan->input.n;
    c->in_c = plan->input.c;
    info->out_h = plan->output.h;
    info->out_w = plan->output.w;
    info->out_c = plan->output.c;
}

/* Flops of the shortest slices are what the caller is told. */
static davy_result measure_one(const dv_clip_stream *s, int64_t frames, bool continues, dv_seen *seen, choice *c) {
    dv_plan *plan = NULL;
    const davy_result r = dv_clip_stream_plan(s, frames, continues, &plan);
    if (r == DAVY_OK) {
        const dv_clip_rule *rule = &s->info.clip;
        add_plan(s, plan, seen, c);
        if (continues) {
            c->info.flops_step = plan->flops / (uint64_t)(frames / rule->step);
        } else {
            c->info.flops_first = plan->flops; /* of the first and of `step` more, so far */
        }
        dv_plan_release(plan);
    }
    return r;
}

/* Sets all but slice, whole, lean, away and slots. */
static davy_result measure_slots(dv_clip_stream *s, choice *c) {
    const dv_clip_rule *rule = &s->info.clip;
    const int64_t first = dv_slice_of(rule, c->slice, false);
    s->whole = c->whole;
    s->lean = c->lean;
    s->slots = c->slots;
    s->moved = c->moved;
    s->near = c->near;
    s->ahead = c->ahead;
    c->need = c->weights = c->staging = 0;
    c->apart = false;
    dv_seen seen = {0};
    c->info = (dv_clip_stream_info){
        .clip = *rule, .slice = c->slice, .state_away = c->away || c->moved, .by_frame = c->slots > 0};
    davy_result r = measure_one(s, first, false, &seen, c);
    if (r == DAVY_OK && !c->whole) {
        const uint64_t state = c->info.state_bytes;
        const int64_t later = dv_slice_of(rule, c->slice, true);
        s->second = rule->second;
        r = rule->second ? measure_one(s, later, true, &seen, c) : DAVY_OK;
        s->second = false;
        r = r == DAVY_OK ? measure_one(s, later, true, &seen, c) : r;
        if (r == DAVY_OK && state != c->info.state_bytes) {
            r = dv_fail(DAVY_E_INTERNAL, "%s: the first slice of a clip keeps %llu bytes, later ones %llu",
                        dv_stage_name(s->stage), (unsigned long long)state, (unsigned long long)c->info.state_bytes);
        }
    }
    dv_free(seen.hashes);
    c->need += c->apart ? c->staging : 0;
    const uint64_t more = (uint64_t)((first - rule->first) / rule->step) * c->info.flops_step;
    c->info.flops_first -= more < c->info.flops_first ? more : 0;
    return r;
}

/* Frame by frame where that saves memory and hardly costs time, or where memory is short; a processor's slices are short
 * anyway. */
static davy_result measure(dv_clip_stream *s, uint64_t available, choice *c) {
    choice rings = *c;
    rings.slots = LEAST_SLOTS;
    davy_result r = measure_slots(s, c);
    if (r != DAVY_OK || s->e->services.n_gpus == 0 || c->slots > 0) {
        return r;
    }
    r = measure_slots(s, &rings);
    const bool saves = rings.need < c->need / 5 * 4 && rings.cost_frame < c->cost_frame * 1.15;
    if (r == DAVY_OK && (saves || (c->need > available && rings.need < c->need))) {
        *c = rings;
    }
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
    const bool may_be_whole = frames > 0 && frames <= MOST_WHOLE && (wish == 0 || wish >= frames);
    const choice kind = *out;
    choice whole = {.slice = frames, .whole = true, .lean = kind.lean};
    davy_result r = may_be_whole ? measure(s, available, &whole) : DAVY_OK;
    whole.need = r == DAVY_OK ? whole.need : 0; /* too large for some step: slices are not */
    r = r == DAVY_E_NOMEM_HOST ? r : DAVY_OK;
    for (int64_t slice = dv_slice_of(rule, wish > 0 ? wish : busy_slice(s, false), true);
         r == DAVY_OK && !*found && slice > 0; slice -= rule->step) {
        choice c = kind;
        c.slice = slice;
        r = measure(s, available, &c);
        if (r == DAVY_OK && whole.need > 0 && (whole.need <= c.need || (wish > 0 && whole.need <= available))) {
            c = whole;
        }
        *least = *least == 0 || c.need < *least ? c.need : *least;
        *found = r == DAVY_OK && c.need <= available;
        *out = c;
    }
    return r;
}

/* ---- a state that is far away ---- */

/* ns of a frame with what is moved to the host's memory and back: while nothing is computed, or beside it, when only what
 * takes longer than that and what is wanted at the ends of a slice is waited for. */
static double away_cost(const choice *c) {
    const double way = (double)c->info.away_bytes / DV_BUS_GBS;
    const double waits = c->away ? 2.0 * way : way > c->cost_slice ? way - c->cost_slice + 0.1 * way : 0.1 * way;
    return (c->cost_slice + waits) / (double)c->slice;
}

static davy_result try_away(dv_clip_stream *s, choice *c, uint64_t available, choice *best, uint64_t *least) {
    const davy_result r = measure(s, available, c);
    *least = *least == 0 || c->need < *least ? c->need : *least;
    if (r == DAVY_OK && c->need <= available && (best->slice == 0 || away_cost(c) < away_cost(best))) {
        *best = *c;
    }
    return r;
}

/* Moved beside the steps, as early as may be and a little before it is wanted, with as much of it near as there is room. */
static davy_result try_moved(dv_clip_stream *s, int64_t slice, uint64_t available, choice *best, uint64_t *least) {
    static const double ahead[] = {1e18, 25e6};
    davy_result r = DAVY_OK;
    for (size_t i = 0; r == DAVY_OK && i < DV_ARRAY_LEN(ahead); i++) {
        choice c = {.slice = slice, .moved = true, .slots = LEAST_SLOTS, .ahead = ahead[i]};
        r = try_away(s, &c, available, best, least);
        if (r == DAVY_OK && c.need < available && c.info.away_bytes > 0) {
            c.near = (available - c.need) / (uint64_t)dv_max(s->company.streams, 1);
            r = try_away(s, &c, available, best, least);
        }
    }
    return r;
}

static davy_result choose_away(dv_clip_stream *s, int64_t wish, uint64_t available, choice *best, uint64_t *least) {
    const dv_clip_rule *rule = &s->info.clip;
    davy_result r = DAVY_OK;
    for (int64_t slice = dv_slice_of(rule, wish > 0 ? wish : busy_slice(s, true), true); r == DAVY_OK && slice > 0;
         slice -= rule->step) {
        choice c = {.slice = slice, .away = true};
        r = try_away(s, &c, available, best, least);
        r = r == DAVY_OK ? try_moved(s, slice, available, best, least) : r;
    }
    return r;
}

/* A GPU without room for the state has it in the host's memory, a processor can do with kernels whose weights are
 * smaller. */
static davy_result settle(dv_clip_stream *s, int64_t frames, int64_t slice) {
    const bool gpu = s->e->services.n_gpus > 0;
    const uint64_t all = dv_engine_available(s->e);
    const uint64_t available = all > s->company.beside ? all - s->company.beside : 0;
    choice c = {0};
    bool found = false;
    uint64_t least = 0;
    davy_result r = choose(s, frames, slice, available, &c, &found, &least);
    if (r == DAVY_OK && !found && gpu) {
        c = (choice){0};
        r = choose_away(s, slice, available, &c, &least);
        found = c.slice > 0;
    } else if (r == DAVY_OK && !found) {
        c = (choice){.lean = true};
        r = choose(s, frames, slice, available, &c, &found, &least);
    }
    if (r == DAVY_OK && !found) {
        r = refuse(s, least, available);
    }
    s->whole = c.whole;
    s->lean = c.lean;
    s->apart = c.apart;
    s->slots = c.slots;
    s->moved = c.moved;
    s->near = c.near;
    s->ahead = c.ahead;
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

/* One of which nothing is decided yet. */
static davy_result create(dv_engine *e, dv_stage stage, int64_t h, int64_t w, dv_clip_stream **out) {
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
    s->staging = s->own_staging;
    *out = s;
    return DAVY_OK;
}

static davy_result hand_out(dv_clip_stream *s, davy_result r, dv_clip_stream **out) {
    if (r != DAVY_OK) {
        dv_clip_stream_release(s);
        return r;
    }
    *out = s;
    return DAVY_OK;
}

davy_result dv_clip_stream_open(dv_engine *e, dv_stage stage, int64_t h, int64_t w, int64_t frames, int64_t slice,
                                dv_clip_stream **out) {
    dv_clip_stream *s = NULL;
    davy_result r = create(e, stage, h, w, &s);
    if (r != DAVY_OK) {
        return r;
    }
    r = check_clip(s, frames);
    r = r == DAVY_OK ? settle(s, frames, slice) : r;
    return hand_out(s, r, out);
}

static void decide_as(dv_clip_stream *s, const dv_clip_stream *other) {
    s->whole = other->whole;
    s->lean = other->lean;
    s->apart = other->apart;
    s->slots = other->slots;
    s->moved = other->moved;
    s->near = other->near;
    s->ahead = other->ahead;
    s->info = other->info;
    s->in_c = other->in_c;
    s->cost_frame = other->cost_frame;
}

davy_result dv_clip_stream_join(dv_engine *e, dv_stage stage, int64_t h, int64_t w, int64_t slice,
                                const dv_clip_company *company, dv_clip_stream **out) {
    dv_clip_stream *s = NULL;
    davy_result r = create(e, stage, h, w, &s);
    if (r != DAVY_OK) {
        return r;
    }
    s->company = *company;
    if (company->lends != NULL) {
        decide_as(s, company->lends);
        s->staging = company->lends->staging;
    } else {
        r = check_clip(s, 0);
        r = r == DAVY_OK ? settle(s, 0, slice) : r;
    }
    return hand_out(s, r, out);
}

davy_result dv_clip_stream_least(dv_engine *e, dv_stage stage, int64_t h, int64_t w, bool lean, dv_clip_need *out) {
    dv_clip_stream *s = NULL;
    davy_result r = create(e, stage, h, w, &s);
    if (r != DAVY_OK) {
        return r;
    }
    choice c = {.slice = s->info.clip.step, .lean = lean, .away = true};
    r = check_clip(s, 0);
    r = r == DAVY_OK ? measure(s, 0, &c) : r;
    *out = (dv_clip_need){.weights = c.weights,
                          .arena = c.need - c.weights,
                          .state = c.info.state_bytes,
                          .flops = c.info.flops_first,
                          .cost = c.cost_frame,
                          .out_c = c.info.out_c};
    dv_clip_stream_release(s);
    return r;
}

void dv_clip_stream_info_get(const dv_clip_stream *s, dv_clip_stream_info *out) {
    *out = s->info;
}

void dv_clip_stream_reset(dv_clip_stream *s) {
    s->taken = 0;
    s->lost = false;
}
