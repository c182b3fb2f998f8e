/* lower_time.c - the steps of a clip's frames: copies of what lies before a slice, of what the next slice needs of this
 * one, and of frames that could not be written where a window reads them. All else are views. */
#include "core/error.h"
#include "core/lower.h"
#include "kernels/dtype.h"

typedef struct operand { /* of a copy: a part of the arena, or of the state */
    dv_bind_kind kind;
    uint64_t at;   /* there */
    dvk_view view; /* of the whole */
    int64_t first; /* its first element */
} operand;

static operand value_of(const dv_lowering *l, dv_value v) {
    operand o = {.kind = DV_BIND_ARENA};
    o.view = dv_view_of(l->place, v, &o.at);
    return o;
}

/* The picture at t of o, and `count` behind it. */
static operand frames_of(operand o, int64_t t, int64_t count) {
    o.first += t * o.view.sn;
    o.view.n = count;
    return o;
}

static operand channels_of(operand o, int64_t c, int64_t count) {
    o.first += c;
    o.view.c = count;
    return o;
}

static void bind_operand(dv_lowering *l, dvk_view *out, const operand *o) {
    *out = o->view;
    dv_lower_bind(l, o->kind, dv_lower_field(l, &out->data),
                  o->at + (uint64_t)o->first * dvk_dtype_size(o->view.dtype));
}

/* to = alpha * from */
static void copy(dv_lowering *l, const operand *from, const operand *to, float alpha) {
    dv_lower_begin(l);
    dvk_pointwise_args *a = &l->step.args.pointwise;
    a->epi.alpha = alpha;
    bind_operand(l, &a->x, from);
    bind_operand(l, &a->y, to);
    dv_lower_commit(l, "pointwise", &a->x, &a->y, 0);
}

/* ---- the state ---- */

/* `keep` frames of such a shape from there on, one behind the other or side by side, as they lie where they are read. */
static operand state_at(const dv_lowering *l, uint64_t at, dv_shape s, int64_t keep, bool side_by_side) {
    const int64_t pixel = (side_by_side ? keep : 1) * s.c;
    operand o = {.kind = DV_BIND_STATE, .at = at};
    o.view = (dvk_view){.dtype = l->place->dtypes[dv_lower_now(l)->out], .n = keep, .h = s.h, .w = s.w, .c = s.c};
    o.view.sw =
        o.view.dtype == DVK_F32 ? pixel : dv_div_up(pixel, l->place->storage.channels) * l->place->storage.channels;
    o.view.sh = s.w * o.view.sw;
    o.view.sn = side_by_side ? s.c : s.h * o.view.sh;
    return o;
}

/* What a ring is given by the slice before, or leaves to the next. Of transformed frames that are offloaded this is fetched to a
 * buffer, or written back from one, as if that were the state. */
static operand kept_at(const dv_lowering *l, const dv_ring *ring, bool leaves) {
    operand o = state_at(l, ring->kept, ring->frame, ring->keep, true);
    if (ring->offloaded) {
        o.kind = DV_BIND_ARENA;
        o.at = l->place->blocks[leaves ? ring->out : ring->in].offset;
    }
    return o;
}

/* One behind the other, with room for them behind what rings have. */
static operand take_state(dv_lowering *l, dv_shape s, int64_t keep) {
    const operand o = state_at(l, l->place->state_bytes + l->plan->state_bytes, s, keep, false);
    const uint64_t bytes = (uint64_t)(s.h * o.view.sh * keep) * dvk_dtype_size(o.view.dtype);
    l->plan->state_bytes += dv_align_up(bytes, l->place->storage.align);
    return o;
}

/* Frames that lie side by side are so many channels of one picture. */
static operand as_channels(operand o, int64_t count) {
    o.view.c *= count;
    o.view.n = 1;
    return o;
}

/* ---- windows ---- */

typedef struct window {
    const dv_time *time;
    bool continues, keeps;
    operand x, y;
    operand state;       /* where anything is kept */
    const dv_ring *ring; /* NULL: in none */
} window;

/* Frame s of the slice, s < 0: one that lies before it. *alpha 0: zeros, which are made of any frame. */
static operand source_of(const window *w, int64_t s, float *alpha) {
    *alpha = s >= 0 || w->continues || w->time->before == DV_BEFORE_FIRST ? 1.0f : 0.0f;
    if (s < 0 && w->continues) {
        return frames_of(w->state, w->time->keep + s, 1);
    }
    return frames_of(w->x, dv_max(s, 0), 1);
}

/* Then transfers do what would be done with the state. */
static bool is_offloaded(const window *w) {
    return w->ring != NULL && w->ring->offloaded;
}

/* The operand lies, or is put, behind `lead` frames that are filled in; the last `keep` of all are kept. */
static void lower_side_by_side(dv_lowering *l, const window *w, bool lies) {
    const dv_time *t = w->time;
    operand slots = channels_of(w->y, 0, w->x.view.c); /* every frame in its place, the leading ones too */
    slots.view.sn = w->x.view.c;
    if (!lies) {
        const operand to = frames_of(slots, t->lead, w->x.view.n);
        copy(l, &w->x, &to, 1.0f);
    }
    if (w->continues && t->lead > 0 && !is_offloaded(w)) {
        const operand from = as_channels(w->state, t->lead);
        const operand to = as_channels(frames_of(slots, 0, 1), t->lead);
        copy(l, &from, &to, 1.0f);
    }
    for (int32_t i = 0; i < t->lead && !w->continues; i++) {
        const operand from = frames_of(slots, t->lead, 1);
        const operand to = frames_of(slots, i, 1);
        copy(l, &from, &to, t->before == DV_BEFORE_FIRST ? 1.0f : 0.0f);
    }
    if (w->keeps && t->keep > 0 && !is_offloaded(w)) {
        const operand from = as_channels(frames_of(slots, t->lead + w->x.view.n - t->keep, 1), t->keep);
        const operand to = as_channels(w->state, t->keep);
        copy(l, &from, &to, 1.0f);
    }
}

/* Frames whose channels are no whole pieces are gathered, one tap of all windows after another. */
static void lower_gathered(dv_lowering *l, const window *w) {
    const dv_time *t = w->time;
    const int64_t c = w->x.view.c;
    const int64_t n = w->y.view.n;
    for (int64_t tap = 0; tap < t->frames; tap++) {
        const operand y = channels_of(w->y, tap * c, c);
        const int64_t before = dv_min(dv_max(dv_div_up(t->lead - tap, t->step), 0), n);
        for (int64_t i = 0; i < before; i++) {
            float alpha = 1.0f;
            const operand from = source_of(w, i * t->step + tap - t->lead, &alpha);
            const operand to = frames_of(y, i, 1);
            copy(l, &from, &to, alpha);
        }
        if (before < n) {
            operand from = frames_of(w->x, before * t->step + tap - t->lead, n - before);
            const operand to = frames_of(y, before, n - before);
            from.view.sn *= t->step;
            copy(l, &from, &to, 1.0f);
        }
    }
    for (int64_t i = 0; i < t->keep && w->keeps; i++) { /* upwards: the state may be moved within itself */
        float alpha = 1.0f;
        const operand from = source_of(w, w->x.view.n - t->keep + i, &alpha);
        const operand to = frames_of(w->state, i, 1);
        copy(l, &from, &to, alpha);
    }
}

/* ---- transformed windows ---- */

/* to = the transform of `from`, in front of which the node's prologue is, or nothing; of its first picture also in the
 * `before` slots ahead of it. */
static void transform(dv_lowering *l, const operand *from, const operand *to, bool applies, int64_t before) {
    dvk_epilogue none = {0};
    dv_lower_begin(l);
    dvk_winograd_input_args *a = &l->step.args.winograd_input;
    bind_operand(l, &a->x, from);
    bind_operand(l, &a->y, to);
    if (applies) {
        dv_lower_fused(l, &a->pro, &none);
    }
    a->repeats = before;
    a->repeat_step = -from->view.c;
    dv_lower_commit(l, "winograd_input", &a->x, &a->y, 0);
}

/* to = alpha * what the node's prologue makes of `from`, its frames from number `first` on. */
static void apply(dv_lowering *l, const operand *from, const operand *to, int64_t first, float alpha) {
    dv_lower_begin(l);
    dvk_pointwise_args *a = &l->step.args.pointwise;
    bind_operand(l, &a->x, from);
    bind_operand(l, &a->y, to);
    dv_lower_fused(l, &a->pro, &a->epi);
    a->epi.alpha = alpha;
    for (int64_t i = l->step.first_bind; i < l->plan->n_binds; i++) {
        dv_bind *bind = &l->plan->binds[i];
        if (bind->field == dv_lower_field(l, &a->pro.scale) || bind->field == dv_lower_field(l, &a->pro.shift)) {
            bind->at += (uint64_t)(first * from->view.c) * sizeof(float); /* every picture has its own */
        }
    }
    dv_lower_commit(l, "pointwise", &a->x, &a->y, 0);
}

/* The last `keep` of all frames so far, as they were before they were transformed: those of the slice, raw in x, from
 * number `first` on. Upwards, as the state may be moved within itself. */
static void keep_plain(dv_lowering *l, const dv_ring *ring, const operand *x, int64_t first, int64_t slice) {
    const dv_time *t = &dv_lower_now(l)->time;
    const operand before = kept_at(l, ring, false), kept = kept_at(l, ring, true);
    for (int64_t i = 0; i < t->lead - slice && first == 0; i++) {
        const operand to = frames_of(kept, i, 1);
        if (l->plan->graph->continues) {
            const operand from = frames_of(before, i + slice, 1);
            copy(l, &from, &to, 1.0f);
        } else {
            const operand from = frames_of(*x, 0, 1);
            apply(l, &from, &to, 0, t->before == DV_BEFORE_FIRST ? 1.0f : 0.0f);
        }
    }
    const int64_t skipped = dv_max(slice - t->lead - first, 0);
    if (skipped < x->view.n) {
        const operand from = frames_of(*x, skipped, x->view.n - skipped);
        const operand to = frames_of(kept, first + skipped - (slice - t->lead), from.view.n);
        apply(l, &from, &to, skipped, 1.0f);
    }
}

/* Zeros before a clip's first frame. */
static void clear_before(dv_lowering *l, const operand *slots, const operand *first) {
    const dv_time *t = &dv_lower_now(l)->time;
    for (int32_t i = 0; i < t->lead && t->before == DV_BEFORE_ZERO; i++) {
        const operand to = frames_of(*slots, i, 1);
        copy(l, first, &to, 0.0f);
    }
}

static int64_t repeated(const dv_lowering *l) {
    const dv_time *t = &dv_lower_now(l)->time;
    return !l->plan->graph->continues && t->before == DV_BEFORE_FIRST ? t->lead : 0;
}

static void lower_transformed(dv_lowering *l, const window *w) {
    const dv_time *t = w->time;
    operand slots = channels_of(w->y, 0, w->x.view.c);
    slots.view.sn = w->x.view.c;
    const operand to = frames_of(slots, t->lead, w->x.view.n);
    if (w->continues) {
        const operand from = as_channels(kept_at(l, w->ring, false), t->lead);
        const operand before = as_channels(frames_of(slots, 0, 1), t->lead);
        transform(l, &from, &before, false, 0);
    }
    transform(l, &w->x, &to, true, repeated(l));
    if (!w->continues) {
        const operand first = frames_of(to, 0, 1);
        clear_before(l, &slots, &first);
    }
    if (w->keeps) {
        keep_plain(l, w->ring, &w->x, 0, w->x.view.n);
    }
}

void dv_lower_frames(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    const dv_node *node = dv_lower_now(l);
    const dv_place x = l->place->places[node->in[0]];
    const dv_place y = l->place->places[node->out];
    const dv_buffer *b = &l->place->buffers[y.buffer];
    const bool side_by_side = b->frame < b->pixel;
    window w = {.time = &node->time,
                .continues = g->continues,
                .keeps = g->keeps,
                .x = value_of(l, node->in[0]),
                .y = value_of(l, node->out)};
    if (node->time.keep > 0 && (g->continues || g->keeps)) {
        const dv_shape s = dv_lower_shape(l, node->in[0]);
        w.ring = dv_ring_of(l->place, l->node);
        w.state = w.ring != NULL ? state_at(l, w.ring->kept, s, w.ring->keep, true) : take_state(l, s, node->time.keep);
    }
    if (node->fused.winograd > 0) {
        lower_transformed(l, &w);
    } else if (side_by_side) {
        lower_side_by_side(l, &w, x.buffer == y.buffer && x.frame == node->time.lead);
    } else {
        lower_gathered(l, &w);
    }
}

/* ---- rings ---- */

/* Frames of a ring, by where they lie in it. */
static operand slots_of(const dv_lowering *l, dv_value v, int64_t first, int64_t count) {
    const dv_node *node = dv_lower_now(l);
    const int64_t c = dv_lower_shape(l, node->out).c / (node->op == DV_OP_PAST ? node->time.lead : node->time.frames);
    operand o = value_of(l, v);
    o.first += (first - dv_ring_base(node)) * c;
    o.view.c = count * c;
    return o;
}

void dv_lower_past(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    if (node->n_in > 0 || !l->plan->graph->continues) {
        return;
    }
    const dv_ring *ring = dv_ring_of(l->place, l->node);
    const operand from = as_channels(kept_at(l, ring, false), ring->keep);
    const operand to = slots_of(l, node->out, 0, node->time.lead);
    if (node->fused.winograd > 0) {
        transform(l, &from, &to, false, 0);
    } else if (!ring->offloaded) {
        copy(l, &from, &to, 1.0f);
    }
}

static bool lies_in_window(const dv_lowering *l, const dv_node *node) {
    const dv_place x = l->place->places[node->in[0]];
    const dv_place y = l->place->places[node->out];
    return x.buffer == y.buffer && x.y == y.y && x.x == y.x &&
           x.channel == y.channel + node->time.lead * dv_lower_shape(l, node->in[0]).c;
}

/* Frames that go through the ring in this slice. */
static int64_t frames_in_ring(const dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    int64_t count = 0;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        count += !node->dead && node->op == DV_OP_WINDOW && node->time.ring == dv_lower_now(l)->time.ring;
    }
    return count;
}

static void lower_window_transformed(dv_lowering *l, const operand *newest) {
    const dv_node *node = dv_lower_now(l);
    const operand x = value_of(l, node->in[0]);
    const bool begins = node->first == 0 && !l->plan->graph->continues;
    transform(l, &x, newest, true, begins ? repeated(l) : 0);
    if (begins) {
        operand slots = slots_of(l, node->out, dv_ring_base(node), 1);
        slots.view.sn = slots.view.c;
        clear_before(l, &slots, newest);
    }
    if (l->plan->graph->keeps) {
        keep_plain(l, dv_ring_of(l->place, l->node), &x, node->first, frames_in_ring(l));
    }
}

void dv_lower_window(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_time *t = &node->time;
    const int64_t base = dv_ring_base(node);
    const operand newest = slots_of(l, node->out, base + t->lead, 1);
    if (node->fused.winograd > 0) {
        lower_window_transformed(l, &newest);
        return;
    }
    if (!lies_in_window(l, node)) {
        const operand from = value_of(l, node->in[0]);
        copy(l, &from, &newest, 1.0f);
    }
    for (int64_t i = 0; i < t->lead && node->first == 0 && !l->plan->graph->continues; i++) {
        const operand to = slots_of(l, node->out, base + i, 1);
        copy(l, &newest, &to, t->before == DV_BEFORE_FIRST ? 1.0f : 0.0f);
    }
    const dv_ring *ring = t->keep > 0 ? dv_ring_of(l->place, l->node) : NULL;
    if (ring != NULL && !ring->offloaded) {
        const operand from = slots_of(l, node->out, base + 1, t->lead);
        const operand to = as_channels(kept_at(l, ring, true), t->lead);
        copy(l, &from, &to, 1.0f);
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
    const operand x = value_of(l, node->in[0]);
    const operand y = value_of(l, node->out);
    for (int64_t i = 0; i < node->r; i++) {
        const operand from = channels_of(x, i * y.view.c, y.view.c);
        operand to = frames_of(y, i, x.view.n);
        to.view.sn *= node->r;
        copy(l, &from, &to, 1.0f);
    }
}

void dv_lower_join_frames(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const operand y = value_of(l, node->out);
    dv_place where = l->place->places[node->out];
    int64_t at = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const operand from = value_of(l, node->in[i]);
        if (!lies_at(l, node->in[i], where)) {
            const operand to = frames_of(y, at, from.view.n);
            copy(l, &from, &to, 1.0f);
        }
        at += from.view.n;
        where.frame += from.view.n * where.stride;
    }
}
