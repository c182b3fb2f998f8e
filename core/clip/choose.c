/* choose.c - chooses how a clip is computed. Slices have as many frames as keep the device busy, or fewer if memory is short. A clip is
 * computed whole if that needs less memory than slices with their state. The state may be most of the memory. If the GPU's memory is
 * too small for it, it is offloaded to host memory.
 *
 * For one slice length there are several candidates: all frames at once or frame by frame, and different sets of transformed frames
 * (inputs of Winograd convolutions). The plans of a candidate give its memory and time. Later slices are the most frequent and decide
 * nearly everything. The first slices of a clip are planned for the best candidate only; if they make it worse than another, for that
 * one, too.
 *
 * A choice needs several plans, and a host opens the same clip many times, so recent choices are cached. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/clip/stream_priv.h"
#include "core/cuda/gpu.h"

#define MEMORY_POWER 0.585       /* exponent of the memory in the price of a candidate */
#define BUSY_PIXELS  (3ll << 20) /* pixels at full size, computed at once, that keep a GPU busy */

enum {
    TRIES = 8,
    MAX_CANDIDATES = 2 * (4 + TRIES) + 1,
    MOST_AT_ONCE = 16, /* pictures */
    MOST_WHOLE = 64,   /* frames of a clip that is computed whole */
    CACHED_CHOICES = 8,
    HEADROOM_FACTOR = 2 /* memory is plentiful if it is this many times the need of a choice */
};

/* ---- memory and time of a candidate ---- */

davy_result dv_clip_stream_plan(const dv_clip_stream *s, const dv_slice_choice *c, dv_clip_slice slice, dv_plan **out) {
    const dv_request q = {.stage = s->stage,
                          .pictures = slice.frames,
                          .continues = slice.continues,
                          .second = slice.continues && slice.second,
                          .keeps = !c->whole,
                          .policy = c->policy,
                          .apart = true};
    return dv_engine_make_plan(s->e, &q, &(dv_plan_desc){.h = s->h, .w = s->w, .lean = c->lean}, out);
}

/* ---- a plan's part ---- */

static uint64_t frames_bytes(const dvk_view *v) {
    return (uint64_t)(v->n * v->h * v->w * v->c) * sizeof(float);
}

/* The caller's frames are staged in the arena if it has room beside the input and output of the steps. */
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
    c->weights += dv_store_missing_beside(s->store, s->stage, plan, s->packs_anew, &w->counted);
    c->weights_all = w->counted.bytes;
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

/* Sets flops_first for the shortest first slice. */
static davy_result weigh_first(const dv_clip_stream *s, dv_clip_candidate *w, dv_plan *made) {
    const dv_clip_rule *rule = &w->c.info.clip;
    const int64_t frames = frames_of(w, false);
    dv_plan *plan = made;
    const davy_result r =
        made != NULL ? DAVY_OK : dv_clip_stream_plan(s, &w->c, (dv_clip_slice){frames, false, false}, &plan);
    if (r == DAVY_OK) {
        add_plan(s, plan, w);
        if (w->c.whole) {
            take_time(plan, &w->c);
        }
        const uint64_t more = (uint64_t)((frames - rule->first) / rule->step) * w->c.info.flops_step;
        w->c.info.flops_first = plan->flops > more ? plan->flops - more : plan->flops;
    }
    dv_plan_release(w->plans.first);
    w->plans.first = plan;
    return r;
}

static davy_result weigh_later(const dv_clip_stream *s, dv_clip_candidate *w, dv_plan *made) {
    const int64_t frames = frames_of(w, true);
    dv_plan *plan = made;
    const davy_result r =
        made != NULL ? DAVY_OK : dv_clip_stream_plan(s, &w->c, (dv_clip_slice){frames, true, false}, &plan);
    if (r == DAVY_OK) {
        add_plan(s, plan, w);
        take_time(plan, &w->c);
        w->c.info.flops_step = plan->flops / (uint64_t)(frames / w->c.info.clip.step);
    }
    dv_plan_release(w->plans.later);
    w->plans.later = plan;
    return r;
}

static davy_result weigh_second(const dv_clip_stream *s, dv_clip_candidate *w) {
    dv_plan *plan = NULL;
    const davy_result r = dv_clip_stream_plan(s, &w->c, (dv_clip_slice){frames_of(w, true), true, true}, &plan);
    if (r == DAVY_OK) {
        add_plan(s, plan, w);
    }
    dv_plan_release(w->plans.second);
    w->plans.second = plan;
    return r;
}

davy_result dv_clip_stream_weigh(const dv_clip_stream *s, const dv_slice_choice *c, dv_plan *made,
                                 dv_clip_candidate *w) {
    const dv_clip_rule rule = s->choice.info.clip;
    *w = (dv_clip_candidate){.c = *c, .complete = c->whole};
    w->c.need = w->c.weights = w->c.staging = 0;
    w->c.apart = false;
    w->c.info = (dv_clip_stream_info){.clip = rule, .slice = c->info.slice, .frame_by_frame = c->policy.frame_by_frame};
    const davy_result r = c->whole ? weigh_first(s, w, made) : weigh_later(s, w, made);
    /* true if the first slice gives more frames than later ones, so it decides as well */
    const bool longer = dv_slice_out(&rule, frames_of(w, false), false) > dv_slice_out(&rule, frames_of(w, true), true);
    return r == DAVY_OK && longer ? dv_clip_stream_weigh_all(s, w) : r;
}

davy_result dv_clip_stream_weigh_all(const dv_clip_stream *s, dv_clip_candidate *w) {
    const uint64_t state = w->c.info.state_bytes;
    if (w->complete) {
        return DAVY_OK;
    }
    davy_result r = weigh_first(s, w, NULL);
    if (r == DAVY_OK && state != w->c.info.state_bytes) {
        r = dv_fail(DAVY_E_INTERNAL, "%s: the first slice of a clip keeps %llu bytes, later ones %llu",
                    dv_stage_name(s->stage), (unsigned long long)w->c.info.state_bytes, (unsigned long long)state);
    }
    r = r == DAVY_OK && w->c.info.clip.second ? weigh_second(s, w) : r;
    w->complete = r == DAVY_OK;
    return r;
}

void dv_clip_candidate_end(dv_clip_candidate *w) {
    dv_free(w->counted.hashes);
    w->counted = (dv_weight_set){0};
    dv_slice_plans_drop(&w->plans);
}

/* A lower bound of the arena, in bytes, for any plan of the whole clip. */
static davy_result least_arena(const dv_clip_stream *s, int64_t frames, uint64_t *bytes) {
    const dv_request q = {.stage = s->stage, .pictures = frames, .apart = true};
    return dv_engine_least_arena(s->e, &q, s->h, s->w, bytes);
}

/* plans: receives the plans; may be NULL. */
static davy_result measure(const dv_clip_stream *s, dv_slice_choice *c, dv_slice_plans *plans) {
    dv_clip_candidate w;
    davy_result r = dv_clip_stream_weigh(s, c, NULL, &w);
    r = r < 0 ? r : dv_clip_stream_weigh_all(s, &w);
    if (r == DAVY_OK && plans != NULL) {
        dv_slice_plans_move(plans, &w.plans);
    }
    dv_clip_candidate_end(&w);
    *c = w.c;
    return r;
}

davy_result dv_clip_stream_measure(const dv_clip_stream *s, dv_slice_choice *c) {
    return measure(s, c, NULL);
}

/* ---- candidates for slices of one length ---- */

/* Twice the memory must save a third of the time, because the host program needs memory, too. */
static double price(const dv_slice_choice *c) {
    return c->cost_frame * pow((double)c->need, MEMORY_POWER);
}

/* The value of a byte of memory by that price, in ns of a slice. */
static double worth_of_a_byte(const dv_slice_choice *c) {
    return MEMORY_POWER * c->cost_slice / (double)c->need;
}

static bool is_better(const dv_slice_choice *a, const dv_slice_choice *b, uint64_t available) {
    const bool fits = a->need <= available;
    if (fits != (b->need <= available)) {
        return fits;
    }
    return fits ? price(a) < price(b) : a->need < b->need;
}

typedef struct candidates {
    const dv_clip_stream *s;
    uint64_t available;
    dv_clip_candidate all[MAX_CANDIDATES];
    int32_t count;
    davy_result none; /* the reason if the list is empty; DAVY_OK: it is not empty */
    davy_result result;
} candidates;

static dv_clip_candidate *best_of(candidates *list) {
    dv_clip_candidate *best = list->count > 0 ? &list->all[0] : NULL;
    for (int32_t i = 1; i < list->count; i++) {
        best = is_better(&list->all[i].c, &best->c, list->available) ? &list->all[i] : best;
    }
    return best;
}

/* Plans are large, so only the best candidate so far keeps its plans. */
static dv_clip_candidate *keep_best_plans(candidates *list) {
    dv_clip_candidate *best = best_of(list);
    for (int32_t i = 0; i < list->count; i++) {
        if (&list->all[i] != best) {
            dv_slice_plans_drop(&list->all[i].plans);
        }
    }
    return best;
}

/* Adds the candidate at the end of the list. r: the result of planning it. A candidate that is too large for a kernel is left out, as
 * others may fit. */
static dv_clip_candidate *note_candidate(candidates *list, davy_result r) {
    list->result = r == DAVY_E_NOMEM_HOST ? r : list->result;
    list->none = list->none < 0 ? r : DAVY_OK;
    if (r < 0) {
        dv_clip_candidate_end(&list->all[list->count]);
        return NULL;
    }
    dv_clip_candidate *added = &list->all[list->count++];
    keep_best_plans(list);
    return added;
}

/* made: the plan of its later slices, or NULL; the call takes ownership. */
static dv_clip_candidate *add_candidate(candidates *list, const dv_slice_choice *c, dv_plan *made) {
    if (list->result < 0) {
        dv_plan_release(made);
        return NULL;
    }
    return note_candidate(list, dv_clip_stream_weigh(list->s, c, made, &list->all[list->count]));
}

static bool weigh_rest(candidates *list, dv_clip_candidate *w) {
    const davy_result r = dv_clip_stream_weigh_all(list->s, w);
    list->result = r == DAVY_E_NOMEM_HOST ? r : list->result;
    return r == DAVY_OK;
}

/* Whether a candidate fits: complete measurement, or a need so far below the limit that first slices cannot exceed it. */
static bool fits_surely(candidates *list, dv_clip_candidate *w) {
    const bool far = w->c.need <= list->available / HEADROOM_FACTOR;
    return far || (w->c.need <= list->available && weigh_rest(list, w) && w->c.need <= list->available);
}

/* Plans the later slices with the limits of c->policy, and replaces the limits by the plan's set of plain rings. *out: that plan. */
static davy_result leave_plain(const candidates *list, dv_slice_choice *c, dv_plan **out) {
    const int64_t frames = dv_slice_of(&list->s->choice.info.clip, c->info.slice, !c->whole);
    const davy_result r = dv_clip_stream_plan(list->s, c, (dv_clip_slice){frames, !c->whole, false}, out);
    c->policy.transform_max_arena = c->policy.transform_max_total = 0;
    c->policy.transform_min_gain = 0.0;
    if (r == DAVY_OK) {
        c->policy.plain_rings = (*out)->plain_rings;
    }
    return r;
}

/* Adds the candidate with as many transformed frames as `room` allows for the arena and the larger weights. Several tries are needed:
 * the arena may have gaps, and the first slice of a clip may use other weights. */
static void add_within(candidates *list, const dv_slice_choice *plain, uint64_t room) {
    dv_slice_choice c = *plain;
    uint64_t arena = UINT64_MAX, live = room, with = room, need = 0;
    davy_result r = list->result;
    c.policy.transform_frames = true;
    for (int i = 0; r == DAVY_OK && i < TRIES && (arena > room || need > list->available); i++, live -= live / 32) {
        dv_plan *plan = NULL;
        c.policy.transform_max_arena = live;
        c.policy.transform_max_total = with;
        r = leave_plain(list, &c, &plan);
        arena = r == DAVY_OK ? plan->arena_bytes : arena;
        if (r < 0 || arena > room) {
            dv_plan_release(plan);
            continue;
        }
        dv_clip_candidate *w = add_candidate(list, &c, plan);
        need = w != NULL && weigh_rest(list, w) ? w->c.need : need;
        const uint64_t over = w != NULL && need > list->available ? need - list->available : 0;
        with -= over < with ? over : 0;
    }
}

/* Adds candidates with transformed frames:
 * - as many as the workspace of plain frames allows;
 * - all; for an encoder also all, with large frames in bands of rows (a decoder computes large frames one by one, which needs less);
 * - if all do not fit, as many as the memory allows, unless the state is offloaded: then the memory is better used for the state. */
static void add_transformed(candidates *list, dv_clip_candidate *plain) {
    dv_slice_choice all = plain->c, some = plain->c;
    dv_plan *plan = NULL;
    all.policy.transform_frames = some.policy.transform_frames = true;
    some.policy.transform_max_arena = plain->c.info.arena_bytes;
    if (leave_plain(list, &some, &plan) == DAVY_OK) {
        add_candidate(list, &some, plan);
    }
    if (list->s->stage == DV_STAGE_ENCODE && !all.policy.frame_by_frame) {
        dv_slice_choice bands = all;
        bands.policy.transform_bands = true;
        add_candidate(list, &bands, NULL);
    }
    dv_clip_candidate *w = add_candidate(list, &all, NULL);
    if ((w == NULL || !fits_surely(list, w)) && !plain->c.policy.offload_state && fits_surely(list, plain) &&
        weigh_rest(list, plain)) {
        add_within(list, &plain->c, plain->c.info.arena_bytes + (list->available - plain->c.need));
    }
}

static void drop(candidates *list, dv_clip_candidate *w) {
    dv_clip_candidate_end(w);
    list->count--;
    for (; w != &list->all[list->count]; w++) {
        *w = w[1];
    }
}

/* The best candidate, its first slices included. */
static dv_clip_candidate *best_weighed(candidates *list) {
    dv_clip_candidate *best = best_of(list);
    while (list->result == DAVY_OK && best != NULL && !best->complete) {
        const davy_result r = dv_clip_stream_weigh_all(list->s, best);
        if (r < 0) {
            drop(list, best);
            list->result = r == DAVY_E_NOMEM_HOST ? r : list->result;
            list->none = list->count == 0 ? r : list->none;
        }
        best = keep_best_plans(list);
    }
    return list->result == DAVY_OK ? best : NULL;
}

/* Adds the same candidate without the transformed frames that save less time than their larger weights cost. */
static void add_lighter(candidates *list, const dv_clip_candidate *of) {
    dv_slice_choice c = of->c;
    dv_plan *plan = NULL;
    c.policy.transform_min_gain = worth_of_a_byte(&c);
    if (leave_plain(list, &c, &plan) == DAVY_OK &&
        memcmp(&c.policy.plain_rings, &of->c.policy.plain_rings, sizeof c.policy.plain_rings) != 0) {
        add_candidate(list, &c, plan);
    } else {
        dv_plan_release(plan);
    }
}

static void pick(candidates *list, dv_slice_choice *out, dv_slice_plans *plans) {
    dv_clip_candidate *best = best_weighed(list);
    if (best != NULL && best->c.policy.transform_frames) {
        add_lighter(list, best);
        best = best_weighed(list);
    }
    if (best != NULL) {
        *out = best->c;
        if (plans != NULL) {
            dv_slice_plans_move(plans, &best->plans);
        }
    }
}

/* Finds the best candidate for slices of c's length within `available` bytes. On a GPU it tries frame by frame and, if c allows it,
 * transformed frames; slices of a CPU are short anyway. by_frame: the measured frame-by-frame candidate or NULL; the call takes
 * ownership. plans: receives the plans of the best; may be NULL. */
static davy_result measure_candidates(const dv_clip_stream *s, uint64_t available, dv_clip_candidate *by_frame,
                                      dv_slice_choice *c, dv_slice_plans *plans) {
    const bool gpu = s->e->services.n_gpus > 0;
    const bool half = s->e->compute == DVK_F16 || s->e->compute == DVK_BF16;
    candidates list = {.s = s, .available = available, .none = DAVY_E_UNSUPPORTED};
    for (int i = 0; i < (gpu ? 2 : 1); i++) {
        dv_slice_choice plain = *c;
        plain.policy.frame_by_frame = i == 1;
        plain.policy.transform_frames = false;
        dv_clip_candidate *w = NULL;
        if (i == 1 && by_frame != NULL) {
            list.all[list.count] = *by_frame;
            w = note_candidate(&list, DAVY_OK);
        } else {
            w = add_candidate(&list, &plain, NULL);
        }
        if (w != NULL && half && c->policy.transform_frames && gpu) {
            add_transformed(&list, w);
        }
    }
    pick(&list, c, plans);
    while (list.count > 0) {
        dv_clip_candidate_end(&list.all[--list.count]);
    }
    return list.result < 0 ? list.result : list.none;
}

davy_result dv_clip_stream_measure_least(const dv_clip_stream *s, bool lean, dv_slice_choice *out) {
    *out = (dv_slice_choice){.lean = lean, .policy.offload_state = true, .info.slice = s->choice.info.clip.step};
    return measure_candidates(s, 0, NULL, out, NULL);
}

/* ---- cached choices ---- */

typedef struct clip_key { /* all values that a choice depends on */
    dv_stage stage;
    int64_t h, w, frames, slice, streams;
    uint64_t packed, available;
} clip_key;

typedef struct cached_choice {
    clip_key key;
    dv_slice_choice choice; /* need 0: an empty entry */
} cached_choice;

struct dv_clip_choice_cache {
    cached_choice cached[CACHED_CHOICES];
    int32_t next; /* the entry that is replaced next */
};

static clip_key key_of(const dv_clip_stream *s, int64_t frames, int64_t slice, uint64_t available) {
    return (clip_key){.stage = s->stage,
                      .h = s->h,
                      .w = s->w,
                      .frames = frames,
                      .slice = slice,
                      .streams = s->group.streams,
                      .packed = dv_store_bytes(s->store),
                      .available = available};
}

static bool same_clip(const clip_key *a, const clip_key *b) {
    return a->stage == b->stage && a->h == b->h && a->w == b->w && a->frames == b->frames && a->slice == b->slice &&
           a->streams == b->streams;
}

/* Whether memory is and was so plentiful that its exact size does not matter, even if all weights have to be packed. */
static bool is_plenty(const cached_choice *m, const clip_key *a) {
    const dv_slice_choice *c = &m->choice;
    const uint64_t less = a->available < m->key.available ? a->available : m->key.available;
    return !c->policy.offload_state && !c->lean && less / HEADROOM_FACTOR >= c->need - c->weights + c->weights_all;
}

/* Whether packed weights and available memory together are the same as before. */
static bool is_the_same(const cached_choice *m, const clip_key *a) {
    return a->available + a->packed == m->key.available + m->key.packed;
}

static bool find_choice(const dv_clip_stream *s, const clip_key *key, cached_choice *out) {
    bool found = false;
    dv_mutex_lock(s->e->lock);
    for (int32_t i = 0; s->e->clip_choices != NULL && i < CACHED_CHOICES && !found; i++) {
        *out = s->e->clip_choices->cached[i];
        found = out->choice.need > 0 && same_clip(&out->key, key);
    }
    dv_mutex_unlock(s->e->lock);
    return found;
}

/* plans: receives the choice's plans if it had to be measured again. */
static bool find_valid_choice(const dv_clip_stream *s, const clip_key *key, dv_slice_choice *out,
                              dv_slice_plans *plans) {
    cached_choice m;
    bool valid = find_choice(s, key, &m);
    if (valid && !is_plenty(&m, key)) {
        valid = is_the_same(&m, key) && measure(s, &m.choice, plans) == DAVY_OK && m.choice.need <= key->available;
    }
    if (valid) {
        *out = m.choice;
    } else {
        dv_slice_plans_drop(plans);
    }
    return valid;
}

/* The entry of the same clip, or else the oldest. */
static cached_choice *place_for(dv_clip_choice_cache *cache, const clip_key *key) {
    for (int32_t i = 0; i < CACHED_CHOICES; i++) {
        if (cache->cached[i].choice.need > 0 && same_clip(&cache->cached[i].key, key)) {
            return &cache->cached[i];
        }
    }
    cached_choice *m = &cache->cached[cache->next];
    cache->next = (cache->next + 1) % CACHED_CHOICES;
    return m;
}

/* Caches a choice. Without memory for the cache, the next stream chooses again. */
static void keep_choice(const dv_clip_stream *s, int64_t frames, int64_t slice, uint64_t available,
                        const dv_slice_choice *choice) {
    const clip_key key = key_of(s, frames, slice, available);
    dv_engine *e = s->e;
    dv_mutex_lock(e->lock);
    if (e->clip_choices == NULL) {
        e->clip_choices = dv_calloc(1, sizeof *e->clip_choices);
    }
    if (e->clip_choices != NULL) {
        *place_for(e->clip_choices, &key) = (cached_choice){.key = key, .choice = *choice};
    }
    dv_mutex_unlock(e->lock);
}

/* ---- with the state in the computing device's memory ---- */

/* The slice length that keeps the device busy; for a CPU the shortest. offloads: the longest, because longer slices copy an offloaded
 * state less often. */
static int64_t busy_slice(const dv_clip_stream *s, bool offloads) {
    const dv_clip_rule *rule = &s->choice.info.clip;
    const dv_reach *reach = &s->e->reach[s->stage];
    if (s->e->services.n_gpus == 0) {
        return rule->step;
    }
    const int64_t in = s->h * s->w;
    const int64_t out = in * reach->num * reach->num / (reach->den * reach->den);
    const int64_t pictures = dv_max(rule->step, rule->step_out); /* pictures at full size in one step */
    const int64_t most = MOST_AT_ONCE / pictures;
    const int64_t steps = offloads ? most : dv_min(dv_div_up(BUSY_PIXELS, dv_max(in, out) * pictures), most);
    return dv_max(steps, 1) * rule->step;
}

typedef struct search {
    int64_t frames, requested;
    uint64_t available;
    bool found;
    uint64_t least; /* least need of all tried; 0: none was tried */
    dv_slice_choice best;
    dv_slice_plans plans; /* of the best, if they were kept */
} search;

static void note_least(search *f, const dv_slice_choice *c) {
    f->least = f->least == 0 || c->need < f->least ? c->need : f->least;
}

static int64_t first_slice(const dv_clip_stream *s, const search *f, bool offloads) {
    return dv_slice_of(&s->choice.info.clip, f->requested > 0 ? f->requested : busy_slice(s, offloads), true);
}

/* Measures the whole clip at once, if it may need less than such slices. whole->need = 0: it needs more, or is too large for some
 * step. */
static davy_result measure_whole(const dv_clip_stream *s, const search *f, const dv_slice_choice *slices,
                                 dv_slice_choice *whole, dv_slice_plans *plans) {
    const dv_slice_choice least = {
        .whole = true, .lean = slices->lean, .policy.frame_by_frame = true, .info.slice = f->frames};
    const bool bound_first = f->requested == 0 && s->e->services.n_gpus > 0;
    dv_clip_candidate w = {0};
    uint64_t bytes = 0;
    *whole = (dv_slice_choice){
        .whole = true, .lean = slices->lean, .policy.transform_frames = true, .info.slice = f->frames};
    davy_result r = bound_first ? least_arena(s, f->frames, &bytes) : DAVY_OK;
    if (r < 0 || bytes > slices->need) { /* plans of long clips are large, so none is made needlessly */
        return r;
    }
    r = bound_first ? dv_clip_stream_weigh(s, &least, NULL, &w) : DAVY_OK;
    const bool weighed = bound_first && r == DAVY_OK;
    if (weighed && w.c.need > slices->need) {
        dv_clip_candidate_end(&w);
        return DAVY_OK;
    }
    r = measure_candidates(s, f->available, weighed ? &w : NULL, whole, plans);
    whole->need = r == DAVY_OK ? whole->need : 0;
    return r == DAVY_E_NOMEM_HOST ? r : DAVY_OK;
}

/* Chooses the whole clip at once if that needs less than slices, else the longest slices that fit. */
static davy_result try_resident(const dv_clip_stream *s, search *f, bool lean) {
    const dv_clip_rule *rule = &s->choice.info.clip;
    const bool may_be_whole =
        f->frames > 0 && f->frames <= MOST_WHOLE && (f->requested == 0 || f->requested >= f->frames);
    const int64_t longest = first_slice(s, f, false);
    dv_slice_choice whole = {0};
    dv_slice_plans whole_plans = {0}, plans = {0};
    davy_result r = DAVY_OK;
    for (int64_t slice = longest; r == DAVY_OK && !f->found && slice > 0; slice -= rule->step) {
        dv_slice_choice c = {.lean = lean, .policy.transform_frames = true, .info.slice = slice};
        r = measure_candidates(s, f->available, NULL, &c, &plans);
        if (r == DAVY_OK && slice == longest && may_be_whole) {
            r = measure_whole(s, f, &c, &whole, &whole_plans);
        }
        if (r == DAVY_OK && whole.need > 0 &&
            (whole.need <= c.need || (f->requested > 0 && whole.need <= f->available))) {
            c = whole;
            dv_slice_plans_move(&plans, &whole_plans);
        }
        note_least(f, &c);
        f->found = r == DAVY_OK && c.need <= f->available;
        f->best = c;
        dv_slice_plans_move(&f->plans, &plans);
    }
    dv_slice_plans_drop(&whole_plans);
    return r;
}

/* ---- with the state offloaded ---- */

/* Compares a choice with the best so far. Takes ownership of plans. */
static void consider(search *f, const dv_slice_choice *c, dv_slice_plans *plans) {
    note_least(f, c);
    if (c->need <= f->available && (!f->found || c->cost_frame < f->best.cost_frame)) {
        f->best = *c;
        f->found = true;
        dv_slice_plans_move(&f->plans, plans);
    }
    dv_slice_plans_drop(plans);
}

/* The state is copied while the steps run. A ring is the ring buffer of earlier frames at one place of the network. Memory beyond the
 * least need is divided between rings that stay on the GPU and an arena in which rings are fetched early and written back late.
 * Several proportions are tried. */
static davy_result try_offload(const dv_clip_stream *s, search *f, int64_t slice, bool transform) {
    enum { PARTS = 3 };
    dv_slice_choice least = {.policy = {.offload_state = true, .transform_frames = transform}, .info.slice = slice};
    dv_slice_plans plans = {0};
    davy_result r = measure_candidates(s, f->available, NULL, &least, &plans);
    if (r < 0) {
        return r;
    }
    consider(f, &least, &plans);
    const uint64_t rest = least.need < f->available ? f->available - least.need : 0;
    for (uint64_t part = 0; r == DAVY_OK && rest > 0 && part <= PARTS; part++) {
        dv_slice_choice c = least;
        c.policy.resident_bytes = rest / PARTS * part / (uint64_t)dv_max(s->group.streams, 1);
        r = dv_clip_stream_measure(s, &c);
        uint64_t room = c.info.arena_bytes + (c.need < f->available ? f->available - c.need : 0);
        for (int again = 0; r == DAVY_OK && again < 2 && room > 0; again++) { /* again: the arena may have gaps */
            c.policy.overlap_arena_bytes = room;
            r = measure(s, &c, &plans);
            const uint64_t over = c.need > f->available ? c.need - f->available : 0;
            room = over > 0 && over < room ? room - over : 0;
            consider(f, &c, &plans);
        }
    }
    return r;
}

/* For an encoder: large pictures transformed in bands, in slices as long as with plentiful memory. Most of the state may then stay on the
 * GPU. Resident rings need no workspace, so the free workspace is used to fetch others early. */
static davy_result try_bands(const dv_clip_stream *s, search *f) {
    enum { BAND_TRIES = 8 };
    const bool half = s->e->compute == DVK_F16 || s->e->compute == DVK_BF16;
    const uint64_t streams = (uint64_t)dv_max(s->group.streams, 1);
    dv_slice_choice c = {.policy = {.offload_state = true, .transform_frames = true, .transform_bands = true},
                         .info.slice = first_slice(s, f, false)};
    davy_result r = DAVY_OK;
    dv_slice_plans plans = {0};
    bool more = half && s->stage == DV_STAGE_ENCODE;
    for (int i = 0; more && r == DAVY_OK && i < BAND_TRIES; i++) {
        const uint64_t before = c.info.offloaded_bytes;
        c.policy.overlap_arena_bytes = c.info.arena_bytes;
        r = measure(s, &c, &plans);
        more = i < 2 || c.need > f->available || c.info.offloaded_bytes != before;
        if (r == DAVY_OK) {
            consider(f, &c, &plans);
            const uint64_t over = c.need > f->available ? (c.need - f->available) / streams + 1 : 0;
            c.policy.resident_bytes += over > 0 ? 0 : (f->available - c.need) / streams;
            c.policy.resident_bytes -= over < c.policy.resident_bytes ? over : c.policy.resident_bytes;
        }
    }
    return r == DAVY_E_NOMEM_HOST ? r : DAVY_OK;
}

static davy_result try_offloaded(const dv_clip_stream *s, search *f) {
    davy_result r = DAVY_OK;
    for (int64_t slice = first_slice(s, f, true); r == DAVY_OK && slice > 0; slice -= s->choice.info.clip.step) {
        r = try_offload(s, f, slice, false);
    }
    r = r == DAVY_OK && f->found ? try_offload(s, f, f->best.info.slice, true) : r;
    return r < 0 ? r : try_bands(s, f);
}

/* ---- the choice ---- */

static davy_result refuse(const dv_clip_stream *s, const search *f) {
    return dv_fail(
        DAVY_E_BUDGET,
        "%s of a clip of %lld x %lld needs at least %llu bytes, in the shortest slices; the memory budget has %llu of "
        "%llu bytes left",
        dv_stage_name(s->stage), (long long)s->w, (long long)s->h, (unsigned long long)f->least,
        (unsigned long long)f->available, (unsigned long long)dv_engine_budget(s->e));
}

void dv_clip_stream_log_choice(const dv_clip_stream *s) {
    const dv_slice_choice *c = &s->choice;
    const dv_clip_stream_info *i = &c->info;
    dv_logf(s->e->services.log, DAVY_LOG_INFO,
            "%s of clips of %lld x %lld: %s of %lld%s%s%s; %llu MiB of workspace, %llu MiB of state, %llu MiB of it "
            "offloaded",
            dv_stage_name(s->stage), (long long)s->w, (long long)s->h, c->whole ? "the whole" : "slices",
            (long long)i->slice, c->policy.frame_by_frame ? ", large pictures frame by frame" : "",
            !c->policy.transform_frames            ? ""
            : c->policy.transform_bands            ? ", convolutions of transformed frames, in bands of rows"
            : dv_rings_any(&c->policy.plain_rings) ? ", some convolutions of transformed frames"
                                                   : ", convolutions of transformed frames",
            c->lean ? ", with small weights" : "", (unsigned long long)(i->arena_bytes >> 20),
            (unsigned long long)(i->state_bytes >> 20), (unsigned long long)(i->offloaded_bytes >> 20));
}

/* If the state does not fit, a GPU offloads it. If the clip does not fit, a CPU uses kernels with smaller packed weights. */
static davy_result decide(const dv_clip_stream *s, search *f) {
    const davy_result r = try_resident(s, f, false);
    return r < 0 || f->found ? r : s->e->services.n_gpus > 0 ? try_offloaded(s, f) : try_resident(s, f, true);
}

/* Weights that were packed for other clips take GPU memory. They are freed if the clip then becomes possible, or more than 5 %
 * faster. */
static davy_result decide_without_weights(dv_clip_stream *s, uint64_t available, search *f) {
    const uint64_t packed = dv_store_bytes(s->store);
    search fresh = {.frames = f->frames, .requested = f->requested, .available = available + packed};
    bool unloaded = false;
    if (s->e->services.n_gpus == 0 || packed == 0 || (f->found && !f->best.policy.offload_state)) {
        return DAVY_OK;
    }
    s->packs_anew = true;
    davy_result r = f->found ? try_resident(s, &fresh, false) : decide(s, &fresh);
    s->packs_anew = false;
    if (r == DAVY_OK && fresh.found && (!f->found || fresh.best.cost_frame < 0.95 * f->best.cost_frame)) {
        r = dv_engine_unload_alone(s->e, s->store, &unloaded);
    }
    if (unloaded && r == DAVY_OK) {
        dv_store_release(s->store);
        s->store = dv_engine_store(s->e, 0);
        dv_slice_plans_drop(&f->plans);
        *f = fresh;
        fresh.plans = (dv_slice_plans){0};
    }
    dv_slice_plans_drop(&fresh.plans);
    return r;
}

davy_result dv_clip_stream_choose(dv_clip_stream *s, int64_t frames, int64_t slice) {
    const uint64_t all = dv_engine_available(s->e);
    const uint64_t available = all > s->group.caller_bytes ? all - s->group.caller_bytes : 0;
    search f = {.frames = frames, .requested = slice, .available = available};
    const clip_key key = key_of(s, frames, slice, available);
    if (!find_valid_choice(s, &key, &f.best, &f.plans)) {
        davy_result r = decide(s, &f);
        r = r < 0 ? r : decide_without_weights(s, available, &f);
        r = r == DAVY_OK && !f.found ? refuse(s, &f) : r;
        if (r < 0) {
            dv_slice_plans_drop(&f.plans);
            return r;
        }
        keep_choice(s, frames, slice, f.available, &f.best);
    }
    s->choice = f.best;
    dv_slice_plans_move(&s->plans, &f.plans);
    dv_clip_stream_log_choice(s);
    return DAVY_OK;
}
