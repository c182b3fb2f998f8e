/* lower_time.c - emits the steps of a clip's frames. They copy the state from the slice before and to the next one.
 * They also copy frames that could not be written where a window reads them. All other cases are views. Frames that a
 * convolution over time reads transformed are transformed here; the state keeps the untransformed ones. */
#include "core/plan/lower.h"
#include "core/plan/offload.h"
#include "kernels/dtype.h"

/* ---- operands: parts of a value's memory, or of the state ---- */

typedef struct operand { /* an operand of a copy */
    dv_bind_kind kind;
    uint64_t at;   /* byte offset in the arena or the state */
    dvk_view view; /* of the whole */
    int64_t first; /* its first element */
} operand;

/* The whole value. */
static operand whole(const dv_lowering *l, dv_value v) {
    operand o = {.kind = DV_BIND_ARENA};
    o.view = dv_view_of(l->place, v, &o.at);
    return o;
}

/* The frames t to t + count - 1 of o. */
static operand frames_at(operand o, int64_t t, int64_t count) {
    o.first += t * o.view.sn;
    o.view.n = count;
    return o;
}

static operand rows_at(operand o, int64_t first, int64_t count) {
    o.first += first * o.view.sh;
    o.view.h = count;
    return o;
}

static operand channels_at(operand o, int64_t c, int64_t count) {
    o.first += c;
    o.view.c = count;
    return o;
}

/* Writes the operand to `out`, a view of the step's arguments, and binds its data. */
static void bind_operand(dv_lowering *l, dvk_view *out, const operand *o) {
    *out = o->view;
    dv_lower_bind(l, o->kind, dv_lower_field(l, &out->data),
                  o->at + (uint64_t)o->first * dvk_dtype_size(o->view.dtype));
}

/* Emits a step: to = alpha * from. */
static void copy(dv_lowering *l, const operand *from, const operand *to, float alpha) {
    dv_lower_begin(l);
    dvk_pointwise_args *a = &l->step.args.pointwise;
    a->epi.alpha = alpha;
    bind_operand(l, &a->x, from);
    bind_operand(l, &a->y, to);
    dv_lower_commit(l, "pointwise", &a->x, &a->y, 0);
}

/* `keep` frames of that shape in the state, from byte `at` on. They are contiguous or side by side, in the layout of
 * their reader. */
static operand in_state(const dv_lowering *l, uint64_t at, dv_shape s, int64_t keep, bool side_by_side) {
    const int64_t pixel = (side_by_side ? keep : 1) * s.c;
    operand o = {.kind = DV_BIND_STATE, .at = at};
    o.view = (dvk_view){.dtype = l->place->dtypes[dv_lower_now(l)->out], .n = keep, .h = s.h, .w = s.w, .c = s.c};
    o.view.sw =
        o.view.dtype == DVK_F32 ? pixel : dv_div_up(pixel, l->place->storage.channels) * l->place->storage.channels;
    o.view.sh = s.w * o.view.sw;
    o.view.sn = side_by_side ? s.c : s.h * o.view.sh;
    return o;
}

/* The frames that a ring gets from the slice before, or leaves to the next (`leaves`). If transformed frames are
 * offloaded, this is the buffer to which they are fetched or from which they are written back. */
static operand kept_frames(const dv_lowering *l, const dv_frame_ring *ring, bool leaves) {
    operand o = in_state(l, ring->kept, ring->frame, ring->keep, true);
    if (ring->offloaded) {
        o.kind = DV_BIND_ARENA;
        o.at = l->place->blocks[leaves ? ring->out : ring->in].offset;
    }
    return o;
}

/* Views `count` frames side by side as the channels of one picture. */
static operand joined(operand o, int64_t count) {
    o.view.c *= count;
    o.view.n = 1;
    return o;
}

/* `count` frames of a ring, from its slot `first` on. */
static operand in_ring(const dv_lowering *l, dv_value v, int64_t first, int64_t count) {
    const dv_node *node = dv_lower_now(l);
    const int64_t c = dv_lower_shape(l, node->out).c / (node->op == DV_OP_PAST ? node->time.lead : node->time.frames);
    operand o = whole(l, v);
    o.first += (first - dv_frame_ring_base(node)) * c;
    o.view.c = count * c;
    return o;
}

/* A slice's frames on their way into windows. */
typedef struct windows {
    const dv_time *time;
    bool continues, keeps;
    operand x, y;
    operand state;             /* set if frames are kept */
    const dv_frame_ring *ring; /* NULL: not in a ring */
} windows;

/* ---- transformed frames ---- */

typedef struct transforming {
    bool applies;   /* applies the node's prologue first */
    int64_t before; /* slots before the first picture that receive copies of it */
    operand kept;   /* receives the last kept.view.n pictures, untransformed */
} transforming;

/* Emits a step: to = the transform of `from`. */
static void transform(dv_lowering *l, const operand *from, const operand *to, const transforming *how) {
    dvk_epilogue none = {0};
    dv_lower_begin(l);
    dvk_winograd_input_args *a = &l->step.args.winograd_input;
    bind_operand(l, &a->x, from);
    bind_operand(l, &a->y, to);
    if (how->applies) {
        dv_lower_fused(l, &a->pro, &none);
    }
    if (how->kept.view.n > 0) {
        bind_operand(l, &a->kept, &how->kept);
    }
    a->repeats = how->before;
    a->repeat_step = -from->view.c;
    l->step.bytes += dv_view_bytes(&a->kept);
    dv_lower_commit(l, "winograd_input", &a->x, &a->y, 0);
}

/* ---- the state: the last `keep` frames so far, untransformed ---- */

typedef struct part { /* part of a slice that is being transformed */
    const dv_frame_ring *ring;
    int64_t first;     /* number of its first frame in the slice */
    int64_t slice;     /* frames in the slice */
    int64_t row, rows; /* rows of the pictures that are kept: first and number */
} part;

static operand kept_rows(const dv_lowering *l, const part *p, bool leaves) {
    return rows_at(kept_frames(l, p->ring, leaves), p->row, p->rows);
}

/* Place in the state for the `count` frames of the part: the slice's last frames are kept. */
static operand kept_of(const dv_lowering *l, const part *p, int64_t count) {
    const int64_t lead = dv_lower_now(l)->time.lead;
    const int64_t skipped = dv_max(p->slice - lead - p->first, 0);
    const operand kept = kept_rows(l, p, true);
    return skipped < count ? frames_at(kept, p->first + skipped - (p->slice - lead), count - skipped) : (operand){0};
}

/* If a slice is shorter than the kept frames, the others come from the slices before. They are copied in ascending
 * order, since source and destination may overlap in the state. */
static void keep_before(dv_lowering *l, const part *p) {
    const operand before = kept_rows(l, p, false), kept = kept_rows(l, p, true);
    for (int64_t i = 0; i < dv_lower_now(l)->time.lead - p->slice; i++) {
        const operand from = frames_at(before, i + p->slice, 1);
        const operand to = frames_at(kept, i, 1);
        copy(l, &from, &to, 1.0f);
    }
}

/* The same at the beginning of a clip, after the first frame has been kept. */
static void keep_first(dv_lowering *l, const part *p) {
    const dv_time *t = &dv_lower_now(l)->time;
    const operand kept = kept_rows(l, p, true);
    for (int64_t i = 0; i < t->lead - p->slice; i++) {
        const operand from = frames_at(kept, t->lead - p->slice, 1);
        const operand to = frames_at(kept, i, 1);
        copy(l, &from, &to, t->before == DV_BEFORE_FIRST ? 1.0f : 0.0f);
    }
}

/* Transforms x and keeps the frames that the next slice needs. */
static void transform_and_keep(dv_lowering *l, const operand *x, const operand *to, const part *p) {
    const dv_graph *g = l->plan->graph;
    const dv_time *t = &dv_lower_now(l)->time;
    const bool begins = p->first == 0 && !g->continues;
    transforming how = {.applies = true, .before = begins && t->before == DV_BEFORE_FIRST ? t->lead : 0};
    if (g->keeps) {
        how.kept = kept_of(l, p, x->view.n);
    }
    if (g->keeps && p->first == 0 && g->continues) {
        keep_before(l, p);
    }
    transform(l, x, to, &how);
    if (g->keeps && begins) {
        keep_first(l, p);
    }
}

/* Writes zeros before a clip's first frame. */
static void clear_before(dv_lowering *l, const operand *slots, const operand *first) {
    const dv_time *t = &dv_lower_now(l)->time;
    for (int32_t i = 0; i < t->lead && t->before == DV_BEFORE_ZERO; i++) {
        const operand to = frames_at(*slots, i, 1);
        copy(l, first, &to, 0.0f);
    }
}

/* Emits all steps of a slice's windows whose frames are read transformed. */
static void lower_transformed(dv_lowering *l, const windows *w, const dv_transform_rows *band) {
    const dv_time *t = w->time;
    const int64_t rows = band->to - band->from;
    operand slots = channels_at(w->y, 0, w->x.view.c);
    slots.view.sn = w->x.view.c;
    slots = rows_at(slots, 0, DVK_WINOGRAD_LINES * rows);
    if (w->continues) {
        const operand kept = rows_at(kept_frames(l, w->ring, false), band->from, rows);
        const operand from = joined(kept, t->lead);
        const operand before = joined(frames_at(slots, 0, 1), t->lead);
        transform(l, &from, &before, &(transforming){0});
    }
    const part p = {w->ring, 0, w->x.view.n, band->from, band->kept_to - band->from};
    const operand x = rows_at(w->x, band->from, rows);
    const operand to = frames_at(slots, t->lead, w->x.view.n);
    transform_and_keep(l, &x, &to, &p);
    if (!w->continues) {
        const operand first = frames_at(to, 0, 1);
        clear_before(l, &slots, &first);
    }
}

/* Number of frames that pass through the ring in this slice. */
static int64_t frames_in_ring(const dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    int64_t count = 0;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        count += !node->dead && node->op == DV_OP_WINDOW && node->time.ring == dv_lower_now(l)->time.ring;
    }
    return count;
}

/* The same for one window of a ring. */
static void lower_window_transformed(dv_lowering *l, const operand *newest) {
    const dv_node *node = dv_lower_now(l);
    const operand x = whole(l, node->in[0]);
    const dv_frame_ring *ring = l->plan->graph->keeps ? dv_frame_ring_of(l->place, l->node) : NULL;
    const part p = {ring, node->first, ring != NULL ? frames_in_ring(l) : 0, 0, x.view.h};
    transform_and_keep(l, &x, newest, &p);
    if (node->first == 0 && !l->plan->graph->continues) {
        operand slots = in_ring(l, node->out, dv_frame_ring_base(node), 1);
        slots.view.sn = slots.view.c;
        clear_before(l, &slots, newest);
    }
}

/* ---- the state ---- */

/* Reserves room in the state behind that of the rings; the frames are contiguous. */
static operand take_state(dv_lowering *l, dv_shape s, int64_t keep) {
    const operand o = in_state(l, l->place->state_bytes + l->plan->state_bytes, s, keep, false);
    const uint64_t bytes = (uint64_t)(s.h * o.view.sh * keep) * dvk_dtype_size(o.view.dtype);
    l->plan->state_bytes += dv_align_up(bytes, l->place->storage.align);
    return o;
}

/* ---- windows ---- */

/* Frame s of the slice; s < 0: a frame before it. *alpha 0: the frame is zeros, computed from any frame. */
static operand source_of(const windows *w, int64_t s, float *alpha) {
    *alpha = s >= 0 || w->continues || w->time->before == DV_BEFORE_FIRST ? 1.0f : 0.0f;
    if (s < 0 && w->continues) {
        return frames_at(w->state, w->time->keep + s, 1);
    }
    return frames_at(w->x, dv_max(s, 0), 1);
}

/* Transfers then replace the copies from and to the state. */
static bool is_offloaded(const windows *w) {
    return w->ring != NULL && w->ring->offloaded;
}

/* The operand is in the window's buffer already (`lies`), or is copied there, behind `lead` frames that are filled in.
 * The last `keep` of all frames are kept. */
static void lower_side_by_side(dv_lowering *l, const windows *w, bool lies) {
    const dv_time *t = w->time;
    operand slots = channels_at(w->y, 0, w->x.view.c); /* every frame at its slot, including the leading ones */
    slots.view.sn = w->x.view.c;
    if (!lies) {
        const operand to = frames_at(slots, t->lead, w->x.view.n);
        copy(l, &w->x, &to, 1.0f);
    }
    if (w->continues && t->lead > 0 && !is_offloaded(w)) {
        const operand from = joined(w->state, t->lead);
        const operand to = joined(frames_at(slots, 0, 1), t->lead);
        copy(l, &from, &to, 1.0f);
    }
    for (int32_t i = 0; i < t->lead && !w->continues; i++) {
        const operand from = frames_at(slots, t->lead, 1);
        const operand to = frames_at(slots, i, 1);
        copy(l, &from, &to, t->before == DV_BEFORE_FIRST ? 1.0f : 0.0f);
    }
    if (w->keeps && t->keep > 0 && !is_offloaded(w)) {
        const operand from = joined(frames_at(slots, t->lead + w->x.view.n - t->keep, 1), t->keep);
        const operand to = joined(w->state, t->keep);
        copy(l, &from, &to, 1.0f);
    }
}

/* Gathers frames whose channel count is no multiple of LEAST_CHANNELS (memory.c), one tap of all windows at a time. */
static void lower_gathered(dv_lowering *l, const windows *w) {
    const dv_time *t = w->time;
    const int64_t c = w->x.view.c;
    const int64_t n = w->y.view.n;
    for (int64_t tap = 0; tap < t->frames; tap++) {
        const operand y = channels_at(w->y, tap * c, c);
        const int64_t before = dv_min(dv_max(dv_div_up(t->lead - tap, t->step), 0), n);
        for (int64_t i = 0; i < before; i++) {
            float alpha = 1.0f;
            const operand from = source_of(w, i * t->step + tap - t->lead, &alpha);
            const operand to = frames_at(y, i, 1);
            copy(l, &from, &to, alpha);
        }
        if (before < n) {
            operand from = frames_at(w->x, before * t->step + tap - t->lead, n - before);
            const operand to = frames_at(y, before, n - before);
            from.view.sn *= t->step;
            copy(l, &from, &to, 1.0f);
        }
    }
    for (int64_t i = 0; i < t->keep && w->keeps; i++) { /* ascending: source and destination may overlap in the state */
        float alpha = 1.0f;
        const operand from = source_of(w, w->x.view.n - t->keep + i, &alpha);
        const operand to = frames_at(w->state, i, 1);
        copy(l, &from, &to, alpha);
    }
}

static windows windows_of(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    const dv_node *node = dv_lower_now(l);
    windows w = {.time = &node->time,
                 .continues = g->continues,
                 .keeps = g->keeps,
                 .x = whole(l, node->in[0]),
                 .y = whole(l, node->out)};
    if (node->time.keep > 0 && (g->continues || g->keeps)) {
        const dv_shape s = dv_lower_shape(l, node->in[0]);
        w.ring = dv_frame_ring_of(l->place, l->node);
        w.state = w.ring != NULL ? in_state(l, w.ring->kept, s, w.ring->keep, true) : take_state(l, s, node->time.keep);
    }
    return w;
}

static void lower_frames(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_place x = l->place->places[node->in[0]];
    const dv_place y = l->place->places[node->out];
    const dv_plan_buffer *b = &l->place->buffers[y.buffer];
    if (dv_lower_cuda(l)->band > 0) { /* the convolution transforms its bands */
        return;
    }
    const windows w = windows_of(l);
    if (dv_lower_cuda(l)->winograd > 0) {
        const int64_t h = w.x.view.h;
        lower_transformed(l, &w, &(dv_transform_rows){0, h, h});
    } else if (b->frame < b->pixel) {
        lower_side_by_side(l, &w, x.buffer == y.buffer && x.frame == node->time.lead);
    } else {
        lower_gathered(l, &w);
    }
}

/* ---- rings ---- */

static void lower_past(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    if (node->n_in > 0 || !l->plan->graph->continues) {
        return;
    }
    const dv_frame_ring *ring = dv_frame_ring_of(l->place, l->node);
    const operand from = joined(kept_frames(l, ring, false), ring->keep);
    const operand to = in_ring(l, node->out, 0, node->time.lead);
    if (dv_lower_cuda(l)->winograd > 0) {
        transform(l, &from, &to, &(transforming){0});
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

static void lower_window(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_time *t = &node->time;
    const int64_t base = dv_frame_ring_base(node);
    const operand newest = in_ring(l, node->out, base + t->lead, 1);
    if (dv_lower_cuda(l)->winograd > 0) {
        lower_window_transformed(l, &newest);
        return;
    }
    if (!lies_in_window(l, node)) {
        const operand from = whole(l, node->in[0]);
        copy(l, &from, &newest, 1.0f);
    }
    for (int64_t i = 0; i < t->lead && node->first == 0 && !l->plan->graph->continues; i++) {
        const operand to = in_ring(l, node->out, base + i, 1);
        copy(l, &newest, &to, t->before == DV_BEFORE_FIRST ? 1.0f : 0.0f);
    }
    const dv_frame_ring *ring = t->keep > 0 ? dv_frame_ring_of(l->place, l->node) : NULL;
    if (ring != NULL && !ring->offloaded) {
        const operand from = in_ring(l, node->out, base + 1, t->lead);
        const operand to = joined(kept_frames(l, ring, true), t->lead);
        copy(l, &from, &to, 1.0f);
    }
}

/* ---- moves ---- */

static bool lies_at(const dv_lowering *l, dv_value v, dv_place where) {
    const dv_place p = l->place->places[v];
    return p.buffer == where.buffer && p.channel == where.channel && p.y == where.y && p.x == where.x &&
           p.frame == where.frame && p.stride == where.stride;
}

static void lower_to_frames(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_place where = l->place->places[node->out];
    where.stride *= node->r;
    if (lies_at(l, node->in[0], where)) {
        return;
    }
    const operand x = whole(l, node->in[0]);
    const operand y = whole(l, node->out);
    for (int64_t i = 0; i < node->r; i++) {
        const operand from = channels_at(x, i * y.view.c, y.view.c);
        operand to = frames_at(y, i, x.view.n);
        to.view.sn *= node->r;
        copy(l, &from, &to, 1.0f);
    }
}

static void lower_join_frames(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const operand y = whole(l, node->out);
    dv_place where = l->place->places[node->out];
    int64_t at = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const operand from = whole(l, node->in[i]);
        if (!lies_at(l, node->in[i], where)) {
            const operand to = frames_at(y, at, from.view.n);
            copy(l, &from, &to, 1.0f);
        }
        at += from.view.n;
        where.frame += from.view.n * where.stride;
    }
}

/* ---- all of it ---- */

void dv_lower_frames_band(dv_lowering *l, const dv_transform_rows *band) {
    const windows w = windows_of(l);
    lower_transformed(l, &w, band);
}

void dv_lower_time(dv_lowering *l) {
    switch (dv_lower_now(l)->op) {
    case DV_OP_FRAMES:
        lower_frames(l);
        break;
    case DV_OP_TO_FRAMES:
        lower_to_frames(l);
        break;
    case DV_OP_JOIN_FRAMES:
        lower_join_frames(l);
        break;
    case DV_OP_PAST:
        lower_past(l);
        break;
    default:
        lower_window(l);
        break;
    }
}
