/* engine_stream_choose.c - how a clip is computed: in slices of as many frames at once as keep a device busy, fewer where memory
 * is short; the whole clip at once where that takes less than slices and what is kept between them. What is kept may be
 * the most of it, and then is offloaded to the host's memory where a GPU's is too small. */
#include <math.h>

#include "core/cuda/gpu.h"
#include "core/error.h"
#include "core/stream_priv.h"

#define BUSY_PIXELS (3ll << 20) /* of pictures at full size, computed at once, that keep a GPU busy */

enum { MOST_AT_ONCE = 16, MOST_WHOLE = 64 }; /* pictures; frames of a clip */

davy_result dv_clip_stream_plan(const dv_clip_stream *s, const dv_slice_choice *c, int64_t frames, bool continues,
                                bool second, dv_plan **out) {
    const dv_request q = {.stage = s->stage,
                          .pictures = frames,
                          .continues = continues,
                          .second = continues && second,
                          .keeps = !c->whole,
                          .by_frame = c->by_frame,
                          .offload = c->offload,
                          .resident = c->resident,
                          .room = c->room,
                          .winograd = c->winograd,
                          .plain = c->plain,
                          .transforms_in = c->transforms_in,
                          .transforms_with = c->transforms_with,
                          .apart = true};
    return dv_engine_make_plan(s->e, 0, &q, s->h, s->w, c->lean, out);
}

/* ---- what a choice takes ---- */

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

static void add_plan(const dv_clip_stream *s, const dv_plan *plan, dv_seen *seen, dv_slice_choice *c) {
    const bool gpu = s->e->services.n_gpus > 0;
    const uint64_t arena = dv_align_up(dv_plan_workspace(plan, gpu ? 1 : dv_pool_threads(s->e->services.pool)), 256);
    c->weights += dv_store_missing_beside(s->store, s->stage, plan, s->packs_anew, seen);
    dv_clip_stream_info *info = &c->info;
    info->arena_bytes = arena > info->arena_bytes ? arena : info->arena_bytes;
    info->state_bytes = plan->state_bytes + plan->offloaded_bytes;
    info->offloaded_bytes = plan->offloaded_bytes;
    const uint64_t states = dv_resident_bytes(info) * (uint64_t)dv_max(s->company.streams, 1);
    const uint64_t need = c->weights + info->arena_bytes + states;
    if (gpu) {
        add_staging(plan, arena, c);
    }
    c->need = need > c->need ? need : c->need;
    c->cost_slice = plan->duration;
    c->cost_frame = c->cost_slice / (double)plan->input.n;
    c->in_c = plan->input.c;
    info->out_h = plan->output.h;
    info->out_w = plan->output.w;
    info->out_c = plan->output.c;
}

/* Flops of the shortest slices are what the caller is told. */
static davy_result measure_one(const dv_clip_stream *s, int64_t frames, bool continues, bool second, dv_seen *seen,
                               dv_slice_choice *c) {
    dv_plan *plan = NULL;
    const davy_result r = dv_clip_stream_plan(s, c, frames, continues, second, &plan);
    if (r == DAVY_OK) {
        const dv_clip_rule *rule = &c->info.clip;
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

davy_result dv_clip_stream_measure(const dv_clip_stream *s, dv_slice_choice *c) {
    const dv_clip_rule rule = s->choice.info.clip;
    const int64_t first = dv_slice_of(&rule, c->info.slice, false), later = dv_slice_of(&rule, c->info.slice, true);
    dv_seen seen = {0};
    c->need = c->weights = c->staging = 0;
    c->apart = false;
    c->info = (dv_clip_stream_info){.clip = rule, .slice = c->info.slice, .by_frame = c->by_frame};
    davy_result r = measure_one(s, first, false, false, &seen, c);
    if (r == DAVY_OK && !c->whole) {
        const uint64_t state = c->info.state_bytes;
        r = rule.second ? measure_one(s, later, true, true, &seen, c) : DAVY_OK;
        r = r == DAVY_OK ? measure_one(s, later, true, false, &seen, c) : r;
        if (r == DAVY_OK && state != c->info.state_bytes) {
            r = dv_fail(DAVY_E_INTERNAL, "%s: the first slice of a clip keeps %llu bytes, later ones %llu",
                        dv_stage_name(s->stage), (unsigned long long)state, (unsigned long long)c->info.state_bytes);
        }
    }
    dv_free(seen.hashes);
    c->need += c->apart ? c->staging : 0;
    const uint64_t more = (uint64_t)((first - rule.first) / rule.step) * c->info.flops_step;
    c->info.flops_first -= more < c->info.flops_first ? more : 0;
    return r;
}

/* ---- kinds of the same slices ---- */

/* Twice the memory has to save a twelfth of the time of a clip computed whole, which is a short one; a third of that of slices,
 * which are there for the sake of memory. */
static double price(const dv_slice_choice *c) {
    return c->cost_frame * pow((double)c->need, c->whole ? 0.1255 : 0.585);
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
    dv_slice_choice best;
    davy_result none; /* why there is none; DAVY_OK: there is */
    davy_result result;
} kinds;

/* What is too large for some step is none, but others may be. */
static bool add_kind(kinds *k, dv_slice_choice *c) {
    const davy_result r = k->result == DAVY_OK ? dv_clip_stream_measure(k->s, c) : k->result;
    if (r == DAVY_OK && (k->none != DAVY_OK || is_better(c, &k->best, k->available))) {
        k->best = *c;
    }
    k->result = r == DAVY_E_NOMEM_HOST ? r : k->result;
    k->none = k->none != DAVY_OK ? r : DAVY_OK;
    return r == DAVY_OK;
}

/* Leaves so many frames plain that later slices keep to c's bounds. */
static davy_result leave_plain(const kinds *k, dv_slice_choice *c, uint64_t *arena) {
    const int64_t frames = dv_slice_of(&k->s->choice.info.clip, c->info.slice, !c->whole);
    dv_plan *plan = NULL;
    const davy_result r = dv_clip_stream_plan(k->s, c, frames, !c->whole, false, &plan);
    c->transforms_in = c->transforms_with = 0;
    if (r == DAVY_OK) {
        c->plain = plan->plain;
        *arena = plan->arena_bytes;
        dv_plan_release(plan);
    }
    return r;
}

/* The kind with as many frames transformed as `room` allows for the arena and larger weights, where buffers may not lie without
 * gaps and a first slice may want other weights. */
static void add_within(kinds *k, const dv_slice_choice *plain, uint64_t room) {
    enum { TRIES = 8 };
    dv_slice_choice c = *plain;
    uint64_t arena = UINT64_MAX, live = room, with = room;
    davy_result r = k->result;
    c.winograd = true;
    for (int i = 0; r == DAVY_OK && i < TRIES && (arena > room || c.need > k->available); i++, live -= live / 32) {
        c.transforms_in = live;
        c.transforms_with = with;
        r = leave_plain(k, &c, &arena);
        if (r == DAVY_OK && arena <= room && add_kind(k, &c) && c.need > k->available) {
            const uint64_t over = c.need - k->available;
            with -= over < with ? over : 0;
        }
    }
}

/* Transformed frames in the workspace that plain ones take anyway; all of them; and as many as there is memory for, which
 * what is offloaded has other uses of. */
static void add_transformed(kinds *k, const dv_slice_choice *plain) {
    dv_slice_choice all = *plain, some = *plain;
    uint64_t arena = 0;
    all.winograd = some.winograd = true;
    some.transforms_in = plain->info.arena_bytes;
    if (leave_plain(k, &some, &arena) == DAVY_OK) {
        add_kind(k, &some);
    }
    const bool fits = add_kind(k, &all) && all.need <= k->available;
    if (!fits && plain->need <= k->available && !plain->offload) {
        add_within(k, plain, plain->info.arena_bytes + (k->available - plain->need));
    }
}

/* Frame by frame or not, and with transformed frames where c says that there may be; a processor's slices are short
 * anyway. */
static davy_result measure(const dv_clip_stream *s, uint64_t available, dv_slice_choice *c) {
    const bool half = s->e->compute == DVK_F16 || s->e->compute == DVK_BF16;
    kinds k = {.s = s, .available = available, .none = DAVY_E_UNSUPPORTED};
    for (int by_frame = 0; by_frame < (s->e->services.n_gpus > 0 ? 2 : 1); by_frame++) {
        dv_slice_choice plain = *c;
        plain.by_frame = by_frame == 1;
        plain.winograd = false;
        if (add_kind(&k, &plain) && half && c->winograd && s->e->services.n_gpus > 0) {
            add_transformed(&k, &plain);
        }
    }
    *c = k.none == DAVY_OK ? k.best : *c;
    return k.result == DAVY_OK ? k.none : k.result;
}

davy_result dv_clip_stream_measure_least(const dv_clip_stream *s, bool lean, dv_slice_choice *out) {
    *out = (dv_slice_choice){.lean = lean, .offload = true, .info.slice = s->choice.info.clip.step};
    return measure(s, 0, out);
}

/* ---- with the state where the steps are computed ---- */

/* Slices that keep the device busy; a processor is with the shortest. What is offloaded is better copied seldom. */
static int64_t busy_slice(const dv_clip_stream *s, bool offloads) {
    const dv_clip_rule *rule = &s->choice.info.clip;
    const dv_reach *reach = &s->e->reach[s->stage];
    if (s->e->services.n_gpus == 0) {
        return rule->step;
    }
    const int64_t in = s->h * s->w;
    const int64_t out = in * reach->num * reach->num / (reach->den * reach->den);
    const int64_t pictures = dv_max(rule->step, rule->step_out); /* at full size, of a step */
    const int64_t most = MOST_AT_ONCE / pictures;
    const int64_t steps = offloads ? most : dv_min(dv_div_up(BUSY_PIXELS, dv_max(in, out) * pictures), most);
    return dv_max(steps, 1) * rule->step;
}

typedef struct search {
    int64_t frames, wish;
    uint64_t available;
    bool found;
    uint64_t least; /* of what was tried; 0: nothing was */
    dv_slice_choice best;
} search;

static void note_least(search *f, const dv_slice_choice *c) {
    f->least = f->least == 0 || c->need < f->least ? c->need : f->least;
}

static int64_t first_wish(const dv_clip_stream *s, const search *f, bool offloads) {
    return dv_slice_of(&s->choice.info.clip, f->wish > 0 ? f->wish : busy_slice(s, offloads), true);
}

/* The whole clip at once, if it may take less than such slices; need 0: it takes more, or is too large for some step. */
static davy_result measure_whole(const dv_clip_stream *s, const search *f, const dv_slice_choice *slices,
                                 dv_slice_choice *whole) {
    dv_slice_choice least = {.whole = true, .lean = slices->lean, .by_frame = true, .info.slice = f->frames};
    *whole = (dv_slice_choice){.whole = true, .lean = slices->lean, .winograd = true, .info.slice = f->frames};
    davy_result r = DAVY_OK;
    if (f->wish == 0 && s->e->services.n_gpus > 0) { /* a long clip's plans are large: not all kinds for nothing */
        r = dv_clip_stream_measure(s, &least);
        if (r == DAVY_OK && least.need > slices->need) {
            return r;
        }
    }
    r = measure(s, f->available, whole);
    whole->need = r == DAVY_OK ? whole->need : 0;
    return r == DAVY_E_NOMEM_HOST ? r : DAVY_OK;
}

/* The whole clip, where that takes less than slices do; else the longest slices that fit. */
static davy_result try_resident(const dv_clip_stream *s, search *f, bool lean) {
    const dv_clip_rule *rule = &s->choice.info.clip;
    const bool may_be_whole = f->frames > 0 && f->frames <= MOST_WHOLE && (f->wish == 0 || f->wish >= f->frames);
    const int64_t longest = first_wish(s, f, false);
    dv_slice_choice whole = {0};
    davy_result r = DAVY_OK;
    for (int64_t slice = longest; r == DAVY_OK && !f->found && slice > 0; slice -= rule->step) {
        dv_slice_choice c = {.lean = lean, .winograd = true, .info.slice = slice};
        r = measure(s, f->available, &c);
        if (r == DAVY_OK && slice == longest && may_be_whole) {
            r = measure_whole(s, f, &c, &whole);
        }
        if (r == DAVY_OK && whole.need > 0 && (whole.need <= c.need || (f->wish > 0 && whole.need <= f->available))) {
            c = whole;
        }
        note_least(f, &c);
        f->found = r == DAVY_OK && c.need <= f->available;
        f->best = c;
    }
    return r;
}

/* ---- with the state offloaded ---- */

static void consider(search *f, const dv_slice_choice *c) {
    note_least(f, c);
    if (c->need <= f->available && (!f->found || c->cost_frame < f->best.cost_frame)) {
        f->best = *c;
        f->found = true;
    }
}

/* Copied beside the steps. Room there is beyond what must be is for a part of the state that stays resident, and for rings
 * that are fetched early and written back late: they are tried in several proportions. */
static davy_result try_offload(const dv_clip_stream *s, search *f, int64_t slice, bool winograd) {
    enum { PARTS = 3 };
    dv_slice_choice least = {.offload = true, .winograd = winograd, .info.slice = slice};
    davy_result r = measure(s, f->available, &least);
    if (r != DAVY_OK) {
        return r;
    }
    consider(f, &least);
    const uint64_t rest = least.need < f->available ? f->available - least.need : 0;
    for (uint64_t part = 0; r == DAVY_OK && rest > 0 && part <= PARTS; part++) {
        dv_slice_choice c = least;
        c.resident = rest / PARTS * part / (uint64_t)dv_max(s->company.streams, 1);
        r = dv_clip_stream_measure(s, &c);
        uint64_t room = c.info.arena_bytes + (c.need < f->available ? f->available - c.need : 0);
        for (int again = 0; r == DAVY_OK && again < 2 && room > 0; again++) { /* buffers may not lie without gaps */
            c.room = room;
            r = dv_clip_stream_measure(s, &c);
            const uint64_t over = c.need > f->available ? c.need - f->available : 0;
            room = over > 0 && over < room ? room - over : 0;
            consider(f, &c);
        }
    }
    return r;
}

static davy_result try_offloaded(const dv_clip_stream *s, search *f) {
    davy_result r = DAVY_OK;
    for (int64_t slice = first_wish(s, f, true); r == DAVY_OK && slice > 0; slice -= s->choice.info.clip.step) {
        r = try_offload(s, f, slice, false);
    }
    return r == DAVY_OK && f->found ? try_offload(s, f, f->best.info.slice, true) : r;
}

/* ---- the choice ---- */

static davy_result refuse(const dv_clip_stream *s, const search *f) {
    return dv_fail(
        DAVY_E_BUDGET,
        "%s of a clip of %lld x %lld needs at least %llu bytes, in the shortest slices; %llu of the budget of "
        "%llu are free",
        dv_stage_name(s->stage), (long long)s->w, (long long)s->h, (unsigned long long)f->least,
        (unsigned long long)f->available, (unsigned long long)dv_engine_budget(s->e));
}

void dv_clip_stream_tell(const dv_clip_stream *s) {
    const dv_slice_choice *c = &s->choice;
    const dv_clip_stream_info *i = &c->info;
    dv_logf(s->e->services.log, DAVY_LOG_INFO,
            "%s of clips of %lld x %lld: %s of %lld%s%s%s; %llu MiB of workspace, %llu MiB of state, %llu MiB of it "
            "offloaded",
            dv_stage_name(s->stage), (long long)s->w, (long long)s->h, c->whole ? "the whole" : "slices",
            (long long)i->slice, i->by_frame ? ", large pictures frame by frame" : "",
            !c->winograd              ? ""
            : dv_rings_any(&c->plain) ? ", some convolutions of transformed frames"
                                      : ", convolutions of transformed frames",
            c->lean ? ", with small weights" : "", (unsigned long long)(i->arena_bytes >> 20),
            (unsigned long long)(i->state_bytes >> 20), (unsigned long long)(i->offloaded_bytes >> 20));
}

/* A GPU without room for the state offloads it, a processor can do with kernels whose weights are smaller. */
static davy_result decide(const dv_clip_stream *s, search *f) {
    const davy_result r = try_resident(s, f, false);
    return r != DAVY_OK || f->found ? r : s->e->services.n_gpus > 0 ? try_offloaded(s, f) : try_resident(s, f, true);
}

/* A GPU's weights packed for other clips may be what leaves no room: where the clip is faster, or possible, without them, they
 * go. */
static davy_result decide_anew(dv_clip_stream *s, uint64_t available, search *f) {
    const uint64_t packed = dv_store_bytes(s->store);
    search anew = {.frames = f->frames, .wish = f->wish, .available = available + packed};
    bool unloaded = false;
    if (s->e->services.n_gpus == 0 || packed == 0 || (f->found && !f->best.offload)) {
        return DAVY_OK;
    }
    s->packs_anew = true;
    davy_result r = f->found ? try_resident(s, &anew, false) : decide(s, &anew);
    s->packs_anew = false;
    if (r == DAVY_OK && anew.found && (!f->found || anew.best.cost_frame < 0.95 * f->best.cost_frame)) {
        r = dv_engine_unload_alone(s->e, s->store, &unloaded);
    }
    if (unloaded && r == DAVY_OK) {
        dv_store_release(s->store);
        s->store = dv_engine_store(s->e, 0);
        *f = anew;
    }
    return r;
}

davy_result dv_clip_stream_choose(dv_clip_stream *s, int64_t frames, int64_t slice) {
    const uint64_t all = dv_engine_available(s->e);
    const uint64_t available = all > s->company.beside ? all - s->company.beside : 0;
    search f = {.frames = frames, .wish = slice, .available = available};
    if (!dv_clip_memo_find(s, frames, slice, available, &f.best)) {
        const dv_store *store = s->store;
        davy_result r = decide(s, &f);
        r = r == DAVY_OK ? decide_anew(s, available, &f) : r;
        r = r == DAVY_OK && !f.found ? refuse(s, &f) : r;
        if (r != DAVY_OK) {
            return r;
        }
        if (s->store == store) {
            dv_clip_memo_keep(s, frames, slice, available, &f.best);
        }
    }
    s->choice = f.best;
    dv_clip_stream_tell(s);
    return DAVY_OK;
}
