/* candidates.c - kinds of the same slices: at once or frame by frame, which frames are transformed. Of all of them
 * later slices are planned; of the one that is best by these the first ones, too, as long as they do not make it worse than
 * another. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/clip/stream_priv.h"

enum { TRIES = 8, MAX_CANDIDATES = 2 * (4 + TRIES) + 1, HEADROOM_FACTOR = 2 };

#define MEMORY_POWER 0.585

/* Twice the memory has to save a third of the time: a guest leaves memory to its host. */
static double price(const dv_slice_choice *c) {
    return c->cost_frame * pow((double)c->need, MEMORY_POWER);
}

/* ns of a slice that a byte more or less is worth by that. */
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

typedef struct kinds {
    const dv_clip_stream *s;
    uint64_t available;
    dv_clip_candidate all[MAX_CANDIDATES];
    int32_t count;
    davy_result none; /* why there is none; DAVY_OK: there is */
    davy_result result;
} kinds;

/* What is too large for some step is none, but others may be. */
static dv_clip_candidate *note(kinds *k, davy_result r) {
    k->result = r == DAVY_E_NOMEM_HOST ? r : k->result;
    k->none = k->none != DAVY_OK ? r : DAVY_OK;
    if (r != DAVY_OK) {
        dv_clip_candidate_end(&k->all[k->count]);
        return NULL;
    }
    return &k->all[k->count++];
}

/* made: its later slices' plan, or NULL. */
static dv_clip_candidate *add_kind(kinds *k, const dv_slice_choice *c, dv_plan *made) {
    if (k->result != DAVY_OK) {
        dv_plan_release(made);
        return NULL;
    }
    return note(k, dv_clip_stream_weigh(k->s, c, made, &k->all[k->count]));
}

static bool weigh_all(kinds *k, dv_clip_candidate *w) {
    const davy_result r = dv_clip_stream_weigh_all(k->s, w);
    k->result = r == DAVY_E_NOMEM_HOST ? r : k->result;
    return r == DAVY_OK;
}

/* For certain, or so far from the bound that a clip's first slices will not pass it. */
static bool fits(kinds *k, dv_clip_candidate *w) {
    const bool far = w->c.need <= k->available / HEADROOM_FACTOR;
    return far || (w->c.need <= k->available && weigh_all(k, w) && w->c.need <= k->available);
}

/* Leaves so many frames plain that later slices keep to c's bounds: their plan. */
static davy_result leave_plain(const kinds *k, dv_slice_choice *c, dv_plan **out) {
    const int64_t frames = dv_slice_of(&k->s->choice.info.clip, c->info.slice, !c->whole);
    const davy_result r = dv_clip_stream_plan(k->s, c, frames, !c->whole, false, out);
    c->policy.transform_max_arena = c->policy.transform_max_total = 0;
    c->policy.transform_min_gain = 0.0;
    if (r == DAVY_OK) {
        c->policy.plain_rings = (*out)->plain_rings;
    }
    return r;
}

/* The kind with as many frames transformed as `room` allows for the arena and larger weights, where buffers may not lie without
 * gaps and a first slice may want other weights. */
static void add_within(kinds *k, const dv_slice_choice *plain, uint64_t room) {
    dv_slice_choice c = *plain;
    uint64_t arena = UINT64_MAX, live = room, with = room, need = 0;
    davy_result r = k->result;
    c.policy.transform_frames = true;
    for (int i = 0; r == DAVY_OK && i < TRIES && (arena > room || need > k->available); i++, live -= live / 32) {
        dv_plan *plan = NULL;
        c.policy.transform_max_arena = live;
        c.policy.transform_max_total = with;
        r = leave_plain(k, &c, &plan);
        arena = r == DAVY_OK ? plan->arena_bytes : arena;
        if (r != DAVY_OK || arena > room) {
            dv_plan_release(plan);
            continue;
        }
        dv_clip_candidate *w = add_kind(k, &c, plan);
        need = w != NULL && weigh_all(k, w) ? w->c.need : need;
        const uint64_t over = w != NULL && need > k->available ? need - k->available : 0;
        with -= over < with ? over : 0;
    }
}

/* Transformed frames in the workspace that plain ones take anyway; all of them, an encoder's large ones in bands of rows, too (a
 * decoder's are computed frame by frame, which takes less still); and as many as there is memory for, which what is offloaded
 * has other uses of. */
static void add_transformed(kinds *k, dv_clip_candidate *plain) {
    dv_slice_choice all = plain->c, some = plain->c;
    dv_plan *plan = NULL;
    all.policy.transform_frames = some.policy.transform_frames = true;
    some.policy.transform_max_arena = plain->c.info.arena_bytes;
    if (leave_plain(k, &some, &plan) == DAVY_OK) {
        add_kind(k, &some, plan);
    }
    if (k->s->stage == DV_STAGE_ENCODE && !all.policy.frame_by_frame) {
        dv_slice_choice bands = all;
        bands.policy.transform_bands = true;
        add_kind(k, &bands, NULL);
    }
    dv_clip_candidate *w = add_kind(k, &all, NULL);
    if ((w == NULL || !fits(k, w)) && !plain->c.policy.offload_state && fits(k, plain) && weigh_all(k, plain)) {
        add_within(k, &plain->c, plain->c.info.arena_bytes + (k->available - plain->c.need));
    }
}

static dv_clip_candidate *best_of(kinds *k) {
    dv_clip_candidate *best = k->count > 0 ? &k->all[0] : NULL;
    for (int32_t i = 1; i < k->count; i++) {
        best = is_better(&k->all[i].c, &best->c, k->available) ? &k->all[i] : best;
    }
    return best;
}

static void drop(kinds *k, dv_clip_candidate *w) {
    dv_clip_candidate_end(w);
    k->count--;
    for (; w != &k->all[k->count]; w++) {
        *w = w[1];
    }
}

/* The best of them, all of which is weighed. */
static dv_clip_candidate *best_weighed(kinds *k) {
    dv_clip_candidate *best = best_of(k);
    while (k->result == DAVY_OK && best != NULL && !best->all) {
        const davy_result r = dv_clip_stream_weigh_all(k->s, best);
        if (r != DAVY_OK) {
            drop(k, best);
            k->result = r == DAVY_E_NOMEM_HOST ? r : k->result;
            k->none = k->count == 0 ? r : k->none;
        }
        best = best_of(k);
    }
    return k->result == DAVY_OK ? best : NULL;
}

/* The same without those transformed frames whose convolutions' larger weights cost more than they gain. */
static void add_lighter(kinds *k, const dv_clip_candidate *of) {
    dv_slice_choice c = of->c;
    dv_plan *plan = NULL;
    c.policy.transform_min_gain = worth_of_a_byte(&c);
    if (leave_plain(k, &c, &plan) == DAVY_OK &&
        memcmp(&c.policy.plain_rings, &of->c.policy.plain_rings, sizeof c.policy.plain_rings) != 0) {
        add_kind(k, &c, plan);
    } else {
        dv_plan_release(plan);
    }
}

static void settle(kinds *k, dv_slice_choice *out) {
    dv_clip_candidate *best = best_weighed(k);
    if (best != NULL && best->c.policy.transform_frames) {
        add_lighter(k, best);
        best = best_weighed(k);
    }
    *out = best != NULL ? best->c : *out;
}

davy_result dv_clip_stream_measure_candidates(const dv_clip_stream *s, uint64_t available, dv_clip_candidate *by_frame,
                                              dv_slice_choice *c) {
    const bool gpu = s->e->services.n_gpus > 0;
    const bool half = s->e->compute == DVK_F16 || s->e->compute == DVK_BF16;
    kinds k = {.s = s, .available = available, .none = DAVY_E_UNSUPPORTED};
    for (int i = 0; i < (gpu ? 2 : 1); i++) {
        dv_slice_choice plain = *c;
        plain.policy.frame_by_frame = i == 1;
        plain.policy.transform_frames = false;
        dv_clip_candidate *w = NULL;
        if (i == 1 && by_frame != NULL) {
            k.all[k.count] = *by_frame;
            w = note(&k, DAVY_OK);
        } else {
            w = add_kind(&k, &plain, NULL);
        }
        if (w != NULL && half && c->policy.transform_frames && gpu) {
            add_transformed(&k, w);
        }
    }
    settle(&k, c);
    while (k.count > 0) {
        dv_clip_candidate_end(&k.all[--k.count]);
    }
    return k.result == DAVY_OK ? k.none : k.result;
}
