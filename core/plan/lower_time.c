/* lower_time.c - the steps of a clip's frames: copies of what lies before a slice, of what the next slice needs of this
 * one, and of frames that could not be written where a window reads them. All else are views. */
#include "core/plan/lower_operand.h"
#include "kernels/dtype.h"

/* ---- the state ---- */

/* One behind the other, with room for them behind what rings have. */
static dv_operand take_state(dv_lowering *l, dv_shape s, int64_t keep) {
    const dv_operand o = dv_operand_state(l, l->place->state_bytes + l->plan->state_bytes, s, keep, false);
    const uint64_t bytes = (uint64_t)(s.h * o.view.sh * keep) * dvk_dtype_size(o.view.dtype);
    l->plan->state_bytes += dv_align_up(bytes, l->place->storage.align);
    return o;
}

/* ---- windows ---- */

/* Frame s of the slice, s < 0: one that lies before it. *alpha 0: zeros, which are made of any frame. */
static dv_operand source_of(const dv_windows *w, int64_t s, float *alpha) {
    *alpha = s >= 0 || w->continues || w->time->before == DV_BEFORE_FIRST ? 1.0f : 0.0f;
    if (s < 0 && w->continues) {
        return dv_operand_frames(w->state, w->time->keep + s, 1);
    }
    return dv_operand_frames(w->x, dv_max(s, 0), 1);
}

/* Then transfers do what would be done with the state. */
static bool is_offloaded(const dv_windows *w) {
    return w->ring != NULL && w->ring->offloaded;
}

/* The operand lies, or is put, behind `lead` frames that are filled in; the last `keep` of all are kept. */
static void lower_side_by_side(dv_lowering *l, const dv_windows *w, bool lies) {
    const dv_time *t = w->time;
    dv_operand slots = dv_operand_channels(w->y, 0, w->x.view.c); /* every frame in its place, the leading ones too */
    slots.view.sn = w->x.view.c;
    if (!lies) {
        const dv_operand to = dv_operand_frames(slots, t->lead, w->x.view.n);
        dv_lower_copy(l, &w->x, &to, 1.0f);
    }
    if (w->continues && t->lead > 0 && !is_offloaded(w)) {
        const dv_operand from = dv_operand_joined(w->state, t->lead);
        const dv_operand to = dv_operand_joined(dv_operand_frames(slots, 0, 1), t->lead);
        dv_lower_copy(l, &from, &to, 1.0f);
    }
    for (int32_t i = 0; i < t->lead && !w->continues; i++) {
        const dv_operand from = dv_operand_frames(slots, t->lead, 1);
        const dv_operand to = dv_operand_frames(slots, i, 1);
        dv_lower_copy(l, &from, &to, t->before == DV_BEFORE_FIRST ? 1.0f : 0.0f);
    }
    if (w->keeps && t->keep > 0 && !is_offloaded(w)) {
        const dv_operand from =
            dv_operand_joined(dv_operand_frames(slots, t->lead + w->x.view.n - t->keep, 1), t->keep);
        const dv_operand to = dv_operand_joined(w->state, t->keep);
        dv_lower_copy(l, &from, &to, 1.0f);
    }
}

/* Frames whose channels are no whole pieces are gathered, one tap of all windows after another. */
static void lower_gathered(dv_lowering *l, const dv_windows *w) {
    const dv_time *t = w->time;
    const int64_t c = w->x.view.c;
    const int64_t n = w->y.view.n;
    for (int64_t tap = 0; tap < t->frames; tap++) {
        const dv_operand y = dv_operand_channels(w->y, tap * c, c);
        const int64_t before = dv_min(dv_max(dv_div_up(t->lead - tap, t->step), 0), n);
        for (int64_t i = 0; i < before; i++) {
            float alpha = 1.0f;
            const dv_operand from = source_of(w, i * t->step + tap - t->lead, &alpha);
            const dv_operand to = dv_operand_frames(y, i, 1);
            dv_lower_copy(l, &from, &to, alpha);
        }
        if (before < n) {
            dv_operand from = dv_operand_frames(w->x, before * t->step + tap - t->lead, n - before);
            const dv_operand to = dv_operand_frames(y, before, n - before);
            from.view.sn *= t->step;
            dv_lower_copy(l, &from, &to, 1.0f);
        }
    }
    for (int64_t i = 0; i < t->keep && w->keeps; i++) { /* upwards: the state may be moved within itself */
        float alpha = 1.0f;
        const dv_operand from = source_of(w, w->x.view.n - t->keep + i, &alpha);
        const dv_operand to = dv_operand_frames(w->state, i, 1);
        dv_lower_copy(l, &from, &to, alpha);
    }
}

static dv_windows windows_of(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    const dv_node *node = dv_lower_now(l);
    dv_windows w = {.time = &node->time,
                    .continues = g->continues,
                    .keeps = g->keeps,
                    .x = dv_operand_of(l, node->in[0]),
                    .y = dv_operand_of(l, node->out)};
    if (node->time.keep > 0 && (g->continues || g->keeps)) {
        const dv_shape s = dv_lower_shape(l, node->in[0]);
        w.ring = dv_frame_ring_of(l->place, l->node);
        w.state = w.ring != NULL ? dv_operand_state(l, w.ring->kept, s, w.ring->keep, true)
                                 : take_state(l, s, node->time.keep);
    }
    return w;
}

void dv_lower_frames(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_place x = l->place->places[node->in[0]];
    const dv_place y = l->place->places[node->out];
    const dv_plan_buffer *b = &l->place->buffers[y.buffer];
    if (node->fused.band > 0) { /* the convolution does it */
        return;
    }
    const dv_windows w = windows_of(l);
    if (node->fused.winograd > 0) {
        const int64_t h = w.x.view.h;
        dv_lower_transformed(l, &w, &(dv_transform_rows){0, h, h});
    } else if (b->frame < b->pixel) {
        lower_side_by_side(l, &w, x.buffer == y.buffer && x.frame == node->time.lead);
    } else {
        lower_gathered(l, &w);
    }
}

void dv_lower_frames_band(dv_lowering *l, const dv_transform_rows *band) {
    const dv_windows w = windows_of(l);
    dv_lower_transformed(l, &w, band);
}

/* ---- rings ---- */

void dv_lower_past(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    if (node->n_in > 0 || !l->plan->graph->continues) {
        return;
    }
    const dv_frame_ring *ring = dv_frame_ring_of(l->place, l->node);
    const dv_operand from = dv_operand_joined(dv_operand_kept(l, ring, false), ring->keep);
    const dv_operand to = dv_operand_ring(l, node->out, 0, node->time.lead);
    if (node->fused.winograd > 0) {
        dv_lower_transform(l, &from, &to, &(dv_transform){0});
    } else if (!ring->offloaded) {
        dv_lower_copy(l, &from, &to, 1.0f);
    }
}

static bool lies_in_window(const dv_lowering *l, const dv_node *node) {
    const dv_place x = l->place->places[node->in[0]];
    const dv_place y = l->place->places[node->out];
    return x.buffer == y.buffer && x.y == y.y && x.x == y.x &&
           x.channel == y.channel + node->time.lead * dv_lower_shape(l, node->in[0]).c;
}

void dv_lower_window(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_time *t = &node->time;
    const int64_t base = dv_frame_ring_base(node);
    const dv_operand newest = dv_operand_ring(l, node->out, base + t->lead, 1);
    if (node->fused.winograd > 0) {
        dv_lower_window_transformed(l, &newest);
        return;
    }
    if (!lies_in_window(l, node)) {
        const dv_operand from = dv_operand_of(l, node->in[0]);
        dv_lower_copy(l, &from, &newest, 1.0f);
    }
    for (int64_t i = 0; i < t->lead && node->first == 0 && !l->plan->graph->continues; i++) {
        const dv_operand to = dv_operand_ring(l, node->out, base + i, 1);
        dv_lower_copy(l, &newest, &to, t->before == DV_BEFORE_FIRST ? 1.0f : 0.0f);
    }
    const dv_frame_ring *ring = t->keep > 0 ? dv_frame_ring_of(l->place, l->node) : NULL;
    if (ring != NULL && !ring->offloaded) {
        const dv_operand from = dv_operand_ring(l, node->out, base + 1, t->lead);
        const dv_operand to = dv_operand_joined(dv_operand_kept(l, ring, true), t->lead);
        dv_lower_copy(l, &from, &to, 1.0f);
    }
}

/* ---- moves ---- */

static bool lies_at(const dv_lowering *l, dv_value v, dv_place where) {
    const dv_place p = l->place->places[v];
    return p.buffer == where.buffer && p.channel == where.channel && p.y == where.y && p.x == where.x &&
           p.frame == where.frame && p.stride == where.stride;
}

void dv_lower_to_frames(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_place where = l->place->places[node->out];
    where.stride *= node->r;
    if (lies_at(l, node->in[0], where)) {
        return;
    }
    const dv_operand x = dv_operand_of(l, node->in[0]);
    const dv_operand y = dv_operand_of(l, node->out);
    for (int64_t i = 0; i < node->r; i++) {
        const dv_operand from = dv_operand_channels(x, i * y.view.c, y.view.c);
        dv_operand to = dv_operand_frames(y, i, x.view.n);
        to.view.sn *= node->r;
        dv_lower_copy(l, &from, &to, 1.0f);
    }
}

void dv_lower_join_frames(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_operand y = dv_operand_of(l, node->out);
    dv_place where = l->place->places[node->out];
    int64_t at = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dv_operand from = dv_operand_of(l, node->in[i]);
        if (!lies_at(l, node->in[i], where)) {
            const dv_operand to = dv_operand_frames(y, at, from.view.n);
            dv_lower_copy(l, &from, &to, 1.0f);
        }
        at += from.view.n;
        where.frame += from.view.n * where.stride;
    }
}
