/* choose.c - how a clip is computed: in slices of as many frames at once as keep a device busy, fewer where memory
 * is short; the whole clip at once where that takes less than slices and what is kept between them. What is kept may be
 * the most of it, and then is offloaded to the host's memory where a GPU's is too small. */
#include "core/cuda/gpu.h"
#include "core/base/error.h"
#include "core/clip/stream_priv.h"

#define BUSY_PIXELS (3ll << 20) /* of pictures at full size, computed at once, that keep a GPU busy */

enum { MOST_AT_ONCE = 16, MOST_WHOLE = 64 }; /* pictures; frames of a clip */

davy_result dv_clip_stream_measure_least(const dv_clip_stream *s, bool lean, dv_slice_choice *out) {
    *out = (dv_slice_choice){.lean = lean, .policy.offload_state = true, .info.slice = s->choice.info.clip.step};
    return dv_clip_stream_measure_candidates(s, 0, NULL, out);
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
    const dv_slice_choice least = {
        .whole = true, .lean = slices->lean, .policy.frame_by_frame = true, .info.slice = f->frames};
    const bool may_be_more = f->wish == 0 && s->e->services.n_gpus > 0;
    dv_clip_candidate w = {0};
    uint64_t bytes = 0;
    *whole = (dv_slice_choice){
        .whole = true, .lean = slices->lean, .policy.transform_frames = true, .info.slice = f->frames};
    davy_result r = may_be_more ? dv_clip_stream_least_arena(s, f->frames, &bytes) : DAVY_OK;
    if (r != DAVY_OK || bytes > slices->need) { /* a long clip's plans are large: none of them for nothing */
        return r;
    }
    r = may_be_more ? dv_clip_stream_weigh(s, &least, NULL, &w) : DAVY_OK;
    const bool weighed = may_be_more && r == DAVY_OK;
    if (weighed && w.c.need > slices->need) {
        dv_clip_candidate_end(&w);
        return DAVY_OK;
    }
    r = dv_clip_stream_measure_candidates(s, f->available, weighed ? &w : NULL, whole);
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
        dv_slice_choice c = {.lean = lean, .policy.transform_frames = true, .info.slice = slice};
        r = dv_clip_stream_measure_candidates(s, f->available, NULL, &c);
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
static davy_result try_offload(const dv_clip_stream *s, search *f, int64_t slice, bool transform) {
    enum { PARTS = 3 };
    dv_slice_choice least = {.policy = {.offload_state = true, .transform_frames = transform}, .info.slice = slice};
    davy_result r = dv_clip_stream_measure_candidates(s, f->available, NULL, &least);
    if (r != DAVY_OK) {
        return r;
    }
    consider(f, &least);
    const uint64_t rest = least.need < f->available ? f->available - least.need : 0;
    for (uint64_t part = 0; r == DAVY_OK && rest > 0 && part <= PARTS; part++) {
        dv_slice_choice c = least;
        c.policy.resident_bytes = rest / PARTS * part / (uint64_t)dv_max(s->group.streams, 1);
        r = dv_clip_stream_measure(s, &c);
        uint64_t room = c.info.arena_bytes + (c.need < f->available ? f->available - c.need : 0);
        for (int again = 0; r == DAVY_OK && again < 2 && room > 0; again++) { /* buffers may not lie without gaps */
            c.policy.overlap_arena_bytes = room;
            r = dv_clip_stream_measure(s, &c);
            const uint64_t over = c.need > f->available ? c.need - f->available : 0;
            room = over > 0 && over < room ? room - over : 0;
            consider(f, &c);
        }
    }
    return r;
}

/* An encoder's large pictures transformed in bands, in such slices as without a budget: most of the state may stay. What does
 * takes none of the workspace, which has room for more of it then; the rest is fetched into what is free there. */
static davy_result try_bands(const dv_clip_stream *s, search *f) {
    enum { TRIES = 8 };
    const bool half = s->e->compute == DVK_F16 || s->e->compute == DVK_BF16;
    const uint64_t streams = (uint64_t)dv_max(s->group.streams, 1);
    dv_slice_choice c = {.policy = {.offload_state = true, .transform_frames = true, .transform_bands = true},
                         .info.slice = first_wish(s, f, false)};
    davy_result r = DAVY_OK;
    bool more = half && s->stage == DV_STAGE_ENCODE;
    for (int i = 0; more && r == DAVY_OK && i < TRIES; i++) {
        const uint64_t before = c.info.offloaded_bytes;
        c.policy.overlap_arena_bytes = c.info.arena_bytes;
        r = dv_clip_stream_measure(s, &c);
        more = i < 2 || c.need > f->available || c.info.offloaded_bytes != before;
        if (r == DAVY_OK) {
            consider(f, &c);
            const uint64_t over = c.need > f->available ? (c.need - f->available) / streams + 1 : 0;
            c.policy.resident_bytes += over > 0 ? 0 : (f->available - c.need) / streams;
            c.policy.resident_bytes -= over < c.policy.resident_bytes ? over : c.policy.resident_bytes;
        }
    }
    return r == DAVY_E_NOMEM_HOST ? r : DAVY_OK;
}

static davy_result try_offloaded(const dv_clip_stream *s, search *f) {
    davy_result r = DAVY_OK;
    for (int64_t slice = first_wish(s, f, true); r == DAVY_OK && slice > 0; slice -= s->choice.info.clip.step) {
        r = try_offload(s, f, slice, false);
    }
    r = r == DAVY_OK && f->found ? try_offload(s, f, f->best.info.slice, true) : r;
    return r == DAVY_OK ? try_bands(s, f) : r;
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
            (long long)i->slice, c->policy.frame_by_frame ? ", large pictures frame by frame" : "",
            !c->policy.transform_frames            ? ""
            : c->policy.transform_bands            ? ", convolutions of transformed frames, in bands of rows"
            : dv_rings_any(&c->policy.plain_rings) ? ", some convolutions of transformed frames"
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
    if (s->e->services.n_gpus == 0 || packed == 0 || (f->found && !f->best.policy.offload_state)) {
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
    const uint64_t available = all > s->group.beside ? all - s->group.beside : 0;
    search f = {.frames = frames, .wish = slice, .available = available};
    if (!dv_clip_choice_find(s, frames, slice, available, &f.best)) {
        davy_result r = decide(s, &f);
        r = r == DAVY_OK ? decide_anew(s, available, &f) : r;
        r = r == DAVY_OK && !f.found ? refuse(s, &f) : r;
        if (r != DAVY_OK) {
            return r;
        }
        dv_clip_choice_keep(s, frames, slice, f.available, &f.best);
    }
    s->choice = f.best;
    dv_clip_stream_tell(s);
    return DAVY_OK;
}
