/* clip_pieces.c - see clip_pieces.h. */
#include "core/block/clip_pieces.h"

#include "core/base/error.h"

static int64_t latents_of(const dv_clip_pieces *p) {
    return dv_div_up(p->frames, p->times);
}

static int64_t blanks_of(const dv_clip_pieces *p) {
    return latents_of(p) * p->times - p->frames;
}

void dv_clip_pieces_clip(const dv_clip_pieces *p, dv_stage stage, dv_clip_rule *out) {
    const int64_t frames = p->last * p->times - blanks_of(p), step = latents_of(p);
    *out = stage == DV_STAGE_ENCODE
               ? (dv_clip_rule){.first = frames, .step = p->frames, .first_out = p->last, .step_out = step}
               : (dv_clip_rule){.first = p->last, .step = step, .first_out = frames, .step_out = p->frames};
    out->spare = out->step - out->first; /* the rest of a last piece counts for nothing */
}

davy_result dv_clip_pieces_check(const dv_clip_pieces *p, dv_stage stage, const dv_graph *g) {
    dv_clip_rule rule;
    dv_clip_pieces_clip(p, stage, &rule);
    const bool alone = g->pictures == 1 && !g->continues && !g->keeps;
    const int64_t least = g->continues ? rule.step : rule.first;
    if (!alone && (g->pictures < least || (g->pictures - least) % rule.step != 0)) {
        return dv_fail(DAVY_E_SHAPE, "%d %s of a clip in pieces; %d and a multiple of %d more are possible",
                       (int)g->pictures, stage == DV_STAGE_ENCODE ? "frames" : "latents", (int)least, (int)rule.step);
    }
    return DAVY_OK;
}

/* Where the first piece behind frame `at` begins. */
static int64_t next_piece(const dv_clip_pieces *p, const dv_graph *g, int64_t each, int64_t at) {
    const int64_t piece = latents_of(p) * each;
    const int64_t offset = g->continues ? p->last * each : 0;
    return (at + offset) / piece * piece + piece - offset;
}

static dv_value joined(dv_graph *g, dv_value a, dv_value b) {
    const dv_value both[2] = {a, b};
    return a == DV_NO_VALUE ? b : dv_join_frames(g, both, 2);
}

static dv_value blank(dv_graph *g, dv_value x, int64_t at) {
    const dv_value frame = dv_take_frames(g, x, at, 1);
    return dv_add(g, 0.0f, frame, 0.0f, frame);
}

dv_value dv_clip_pieces_begin(const dv_clip_pieces *p, dv_graph *g, dv_value x) {
    const int64_t frames = dv_shape_of(g, x).n;
    const int64_t rest = (latents_of(p) - p->last) * p->times; /* of a piece that has begun */
    dv_value out = DV_NO_VALUE;
    for (int64_t at = 0, next; at < frames; at = next) {
        const bool begins = at > 0 || !g->continues;
        next = dv_min(frames, at + (begins ? p->frames : rest));
        for (int64_t i = 0; i < blanks_of(p) && begins; i++) {
            out = joined(g, out, blank(g, x, at));
        }
        out = joined(g, out, dv_take_frames(g, x, at, next - at));
    }
    return out;
}

dv_value dv_clip_pieces_forget(const dv_clip_pieces *p, dv_graph *g, dv_value x, int64_t each) {
    const int64_t frames = dv_shape_of(g, x).n;
    dv_value out = DV_NO_VALUE;
    for (int64_t at = 0, next; at < frames; at = next) {
        next = dv_min(frames, next_piece(p, g, each, at));
        out = at > 0 ? joined(g, out, blank(g, x, at)) : out;
        out = joined(g, out, dv_take_frames(g, x, at, next - at));
    }
    return out;
}

dv_value dv_clip_pieces_recollect(const dv_clip_pieces *p, dv_graph *g, dv_value x, int64_t frames, int64_t each) {
    dv_value out = DV_NO_VALUE;
    int64_t skipped = 0;
    for (int64_t at = 0, next; at < frames; at = next, skipped++) {
        next = dv_min(frames, next_piece(p, g, each, at));
        out = joined(g, out, dv_take_frames(g, x, at + skipped, next - at));
    }
    return out;
}

dv_value dv_clip_pieces_shown(const dv_clip_pieces *p, dv_graph *g, dv_value x) {
    const int64_t frames = dv_shape_of(g, x).n;
    dv_value out = DV_NO_VALUE;
    for (int64_t at = 0, next; at < frames; at = next) {
        const int64_t drop = at > 0 || !g->continues ? blanks_of(p) : 0;
        next = dv_min(frames, next_piece(p, g, p->times, at));
        out = joined(g, out, dv_take_frames(g, x, at + drop, next - at - drop));
    }
    return out;
}
