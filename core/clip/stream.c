/* stream.c - streams of clips: what they are opened with. How a clip is computed is chosen in choose.c. */
#include "core/clip/stream_priv.h"

#include "core/base/error.h"

int64_t dv_slice_of(const dv_clip_rule *rule, int64_t most, bool continues) {
    const int64_t least = continues ? rule->step : rule->first;
    return least + dv_max(most - least, 0) / rule->step * rule->step;
}

int64_t dv_slice_out(const dv_clip_rule *rule, int64_t frames, bool continues) {
    return continues ? frames / rule->step * rule->step_out
                     : rule->first_out + (frames - rule->first) / rule->step * rule->step_out;
}

/* ---- streams ---- */

static davy_result check_clip(const dv_clip_stream *s, int64_t frames) {
    const dv_clip_rule *rule = &s->choice.info.clip;
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
    s->choice.info.clip = rule;
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
    r = r == DAVY_OK ? dv_clip_stream_choose(s, frames, slice) : r;
    return hand_out(s, r, out);
}

davy_result dv_clip_stream_join(dv_engine *e, dv_stage stage, int64_t h, int64_t w, int64_t slice,
                                const dv_stream_group *group, dv_clip_stream **out) {
    dv_clip_stream *s = NULL;
    davy_result r = create(e, stage, h, w, &s);
    if (r != DAVY_OK) {
        return r;
    }
    s->group = *group;
    if (group->arena_owner != NULL) {
        s->choice = group->arena_owner->choice;
        s->staging = group->arena_owner->staging;
    } else {
        r = check_clip(s, 0);
        r = r == DAVY_OK ? dv_clip_stream_choose(s, 0, slice) : r;
    }
    return hand_out(s, r, out);
}

davy_result dv_clip_stream_least(dv_engine *e, dv_stage stage, int64_t h, int64_t w, bool lean, dv_clip_need *out) {
    dv_clip_stream *s = NULL;
    davy_result r = create(e, stage, h, w, &s);
    if (r != DAVY_OK) {
        return r;
    }
    dv_slice_choice c;
    r = check_clip(s, 0);
    r = r == DAVY_OK ? dv_clip_stream_measure_least(s, lean, &c) : r;
    *out = (dv_clip_need){.weights = c.weights,
                          .arena = c.need - c.weights,
                          .state = c.info.state_bytes,
                          .stays = dv_resident_bytes(&c.info),
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
