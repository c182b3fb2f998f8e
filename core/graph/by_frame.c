/* by_frame.c - rewrites a clip's graph to compute its large pictures frame by frame. The order is cut where only one
 * value is alive, at the ends of residual blocks. In each segment the nodes for its first frame come first, then those
 * for its second, and so on. Most values then live for one frame; earlier frames that a window still needs are in a
 * ring. Between segments each frame is a value of its own. Its memory is free once the next block has read it. */
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/graph/graph_priv.h"

/* ---- segments: runs of nodes with only one value alive between them ---- */

typedef struct segments {
    const dv_graph *graph;
    int64_t *last_use; /* of each value: index of the last node that reads it */
} segments;

enum { PIECES = 8 }; /* the channels of a frame must be a multiple of this, as in plan/memory.c */

static void find_last_uses(segments *s) {
    const dv_graph *g = s->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        for (int32_t i = 0; i < g->nodes[k].n_in; i++) {
            if (g->nodes[k].in[i] != DV_NO_VALUE) {
                s->last_use[g->nodes[k].in[i]] = k;
            }
        }
    }
    s->last_use[g->output] = g->n_nodes;
}

static bool works_by_frame(const segments *s, const dv_node *node) {
    if (node->op == DV_OP_FRAMES) {
        return node->time.step == 1 && node->time.lead == node->time.frames - 1 && node->time.frames > 1 &&
               dv_shape_of(s->graph, node->in[0]).c % PIECES == 0;
    }
    return dv_op_infos[node->op].trait == DV_TRAIT_BY_FRAME;
}

/* A segment may end at an addition (the end of a residual block). It may also end at a convolution over time that does
 * not work frame by frame. The third case is a convolution whose result cannot be processed frame by frame while its
 * input can. */
static bool may_end(const segments *s, const dv_node *node) {
    const dv_graph *g = s->graph;
    if (node->op != DV_OP_CONV2D) {
        return node->op == DV_OP_ADD;
    }
    const dv_node *from = &g->nodes[g->values[node->in[0]].producer];
    return (from->op == DV_OP_FRAMES && !works_by_frame(s, from)) ||
           (dv_shape_of(g, node->out).c % PIECES != 0 && dv_shape_of(g, node->in[0]).c % PIECES == 0);
}

/* The last node of the segment that begins at `first`. After it, only its result is alive. */
static int64_t segment_end(const segments *s, int64_t first) {
    const dv_graph *g = s->graph;
    if (g->nodes[first].op == DV_OP_INPUT) {
        return first;
    }
    for (int64_t k = first; k + 1 < g->n_nodes; k++) {
        bool alone = may_end(s, &g->nodes[k]);
        for (int64_t i = 0; alone && i < k; i++) {
            alone = s->last_use[g->nodes[i].out] <= k;
        }
        if (alone) {
            return k;
        }
    }
    return g->n_nodes - 1;
}

static int64_t pixels_of(const segments *s, dv_value v) {
    return dv_shape_of(s->graph, v).h * dv_shape_of(s->graph, v).w;
}

/* Whether frame by frame saves memory here, and every node of the segment works so. */
static bool segment_suits(const segments *s, int64_t first, int64_t last) {
    const dv_graph *g = s->graph;
    int64_t most = 0, here = 0;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const int64_t pixels = pixels_of(s, g->nodes[k].out);
        most = dv_max(most, pixels);
        here = k >= first && k <= last ? dv_max(here, pixels) : here;
    }
    bool suits = 4 * here >= most && (dv_shape_of(s->graph, g->nodes[last].out).n > 1 || g->continues || g->keeps);
    for (int64_t k = first; suits && k <= last; k++) {
        suits = works_by_frame(s, &g->nodes[k]);
    }
    return suits;
}

/* ---- memory of segments ---- */

static uint64_t elements_of(dv_shape s) {
    return (uint64_t)(s.n * s.h * s.w * s.c);
}

/* The elements alive when the segment's last frame begins: the results of the other frames, and the rings. */
static uint64_t least_of(const segments *s, int64_t first, int64_t last) {
    const dv_graph *g = s->graph;
    const dv_shape out = dv_shape_of(g, g->nodes[last].out);
    uint64_t sum = elements_of((dv_shape){out.n - 1, out.h, out.w, out.c});
    for (int64_t k = first; k <= last; k++) {
        dv_shape window = dv_shape_of(g, g->nodes[k].out);
        if (g->nodes[k].op == DV_OP_FRAMES && window.n == out.n) {
            window.n = 1;
            sum += elements_of(window);
        }
    }
    return sum > elements_of(out) ? sum : elements_of(out);
}

davy_result dv_by_frame_least(const dv_graph *g, uint64_t *elements) {
    segments s = {.graph = g, .last_use = dv_calloc((uint64_t)g->n_values + 1, sizeof *s.last_use)};
    *elements = 0;
    if (s.last_use == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a graph");
    }
    find_last_uses(&s);
    for (int64_t k = 0, last = 0; k < g->n_nodes; k = last + 1) {
        last = segment_end(&s, k);
        const uint64_t here =
            segment_suits(&s, k, last) ? least_of(&s, k, last) : elements_of(dv_shape_of(g, g->nodes[last].out));
        *elements = here > *elements ? here : *elements;
    }
    dv_free(s.last_use);
    return DAVY_OK;
}

typedef struct rewriting {
    dv_graph *from, *to;
    segments segments;
    int64_t *first;   /* of each old value: index of its first frame in the arrays below */
    dv_value *whole;  /* of each old value: all frames as one value; DV_NO_VALUE: not built yet */
    dv_value *frame;  /* of each frame of each old value */
    dv_value *past;   /* of each frame of a window: its PAST node */
    bool *needed;     /* of each frame: it belongs to the batch being collected */
    dv_value missing; /* a window that must be built first although no node reads it, and its frame */
    int64_t missing_at;
    int64_t n_frames;
    bool changed;
} rewriting;

static dv_shape shape_of(const rewriting *r, dv_value v) {
    return r->from->values[v].shape;
}

static dv_value *frame_at(const rewriting *r, dv_value v, int64_t t) {
    return &r->frame[r->first[v] + t];
}

/* ---- new nodes ---- */

/* Appends a copy of the old node with other operands. */
static dv_value put_node(rewriting *r, const dv_node *old, dv_op op, const dv_value *in, int32_t n_in, dv_shape shape) {
    dv_node *node = dv_graph_append(r->to, op, old->label, in, n_in, shape);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    dv_node copy = *old;
    copy.op = op;
    copy.label = node->label;
    copy.out = node->out;
    copy.n_in = n_in;
    for (int32_t i = 0; i < DV_MAX_INPUTS; i++) {
        copy.in[i] = node->in[i];
    }
    *node = copy;
    return node->out;
}

/* All frames of an old value as one value. Separate frames are joined, up to DV_MAX_INPUTS at a time. */
static dv_value whole_of(rewriting *r, dv_value v) {
    if (r->whole[v] == DV_NO_VALUE) {
        const int64_t n = shape_of(r, v).n;
        dv_value all = *frame_at(r, v, 0);
        for (int64_t t = 1; t < n; t += DV_MAX_INPUTS - 1) {
            dv_value parts[DV_MAX_INPUTS] = {all};
            const int64_t count = dv_min(n - t, DV_MAX_INPUTS - 1);
            for (int64_t i = 0; i < count; i++) {
                parts[1 + i] = *frame_at(r, v, t + i);
            }
            all = dv_join_frames(r->to, parts, (int32_t)(1 + count));
        }
        r->whole[v] = all;
    }
    return r->whole[v];
}

static dv_value frame_of(rewriting *r, dv_value v, int64_t t) {
    dv_value *frame = frame_at(r, v, t);
    if (*frame == DV_NO_VALUE) {
        *frame = dv_take_frames(r->to, r->whole[v], t, 1);
    }
    return *frame;
}

static void put_whole(rewriting *r, const dv_node *old) {
    dv_value in[DV_MAX_INPUTS];
    for (int32_t i = 0; i < old->n_in; i++) {
        in[i] = old->in[i] != DV_NO_VALUE ? whole_of(r, old->in[i]) : DV_NO_VALUE;
    }
    r->whole[old->out] = put_node(r, old, old->op, in, old->n_in, shape_of(r, old->out));
}

/* ---- a frame ---- */

/* Of a node of time: the operand behind its frame t; *t becomes the frame of that operand. Other nodes read frame t of
 * all operands. */
static dv_value source_of(const rewriting *r, const dv_node *node, int64_t *t) {
    int32_t part = 0;
    switch (node->op) {
    case DV_OP_TO_FRAMES:
        *t /= node->r;
        break;
    case DV_OP_TAKE_FRAMES:
        *t += node->first;
        break;
    case DV_OP_JOIN_FRAMES:
        for (; *t >= shape_of(r, node->in[part]).n; part++) {
            *t -= shape_of(r, node->in[part]).n;
        }
        break;
    default:
        break;
    }
    return node->in[part];
}

/* Marks the frames needed for frame t of v, as far as nodes from `first` on compute them. */
static void collect(rewriting *r, int64_t first, dv_value v, int64_t t) {
    const int32_t k = r->from->values[v].producer;
    const dv_node *node = &r->from->nodes[k];
    bool *needed = &r->needed[r->first[v] + t];
    if (k < first || *needed || *frame_at(r, v, t) != DV_NO_VALUE) {
        return;
    }
    *needed = true;
    if (node->op == DV_OP_FRAMES && t > 0 && *frame_at(r, v, t - 1) == DV_NO_VALUE) {
        r->missing = v;
        r->missing_at = t - 1;
    }
    if (node->op == DV_OP_TO_FRAMES || node->op == DV_OP_TAKE_FRAMES || node->op == DV_OP_JOIN_FRAMES) {
        const dv_value source = source_of(r, node, &t);
        collect(r, first, source, t);
        return;
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        if (node->in[i] != DV_NO_VALUE) {
            collect(r, first, node->in[i], t);
        }
    }
}

static dv_time ring_time(const rewriting *r, const dv_node *old, bool keeps) {
    dv_time time = old->time;
    time.keep = keeps && (r->from->continues || r->from->keeps) ? time.lead : 0;
    return time;
}

/* Appends the PAST node, before any frame is written into the ring. */
static void put_past(rewriting *r, const dv_node *old, int64_t t) {
    const dv_value before = t > 0 ? *frame_at(r, old->out, t - 1) : DV_NO_VALUE;
    dv_shape shape = shape_of(r, old->out);
    shape.n = 1;
    shape.c = shape.c / old->time.frames * old->time.lead;
    const dv_value past = put_node(r, old, DV_OP_PAST, &before, t > 0 ? 1 : 0, shape);
    if (past != DV_NO_VALUE) {
        dv_node *node = &r->to->nodes[r->to->n_nodes - 1];
        node->time = ring_time(r, old, t == 0);
        node->first = t;
    }
    r->past[r->first[old->out] + t] = past;
}

static dv_value put_window(rewriting *r, const dv_node *old, int64_t t) {
    const dv_value in[2] = {frame_of(r, old->in[0], t), r->past[r->first[old->out] + t]};
    dv_shape shape = shape_of(r, old->out);
    const bool last = t + 1 == shape.n;
    shape.n = 1;
    const dv_value out = put_node(r, old, DV_OP_WINDOW, in, 2, shape);
    if (out != DV_NO_VALUE) {
        dv_node *node = &r->to->nodes[r->to->n_nodes - 1];
        node->time = ring_time(r, old, last && r->from->keeps);
        node->first = t;
    }
    return out;
}

static dv_value put_frame(rewriting *r, const dv_node *old, int64_t t) {
    dv_value in[DV_MAX_INPUTS];
    dv_shape shape = shape_of(r, old->out);
    int64_t at = t;
    const dv_value source = source_of(r, old, &at);
    switch (old->op) {
    case DV_OP_FRAMES:
        return put_window(r, old, t);
    case DV_OP_TO_FRAMES:
        return dv_slice(r->to, frame_of(r, source, at), t % old->r * shape.c, shape.c);
    case DV_OP_TAKE_FRAMES:
    case DV_OP_JOIN_FRAMES:
        return frame_of(r, source, at);
    default:
        for (int32_t i = 0; i < old->n_in; i++) {
            in[i] = old->in[i] != DV_NO_VALUE ? frame_of(r, old->in[i], t) : DV_NO_VALUE;
        }
        shape.n = 1;
        return put_node(r, old, old->op, in, old->n_in, shape);
    }
}

/* First the room in the rings, then the nodes in their old order. */
static void put_needed(rewriting *r, int64_t first, int64_t last) {
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t k = first; k <= last; k++) {
            const dv_node *node = &r->from->nodes[k];
            for (int64_t i = 0; i < shape_of(r, node->out).n; i++) {
                bool *needed = &r->needed[r->first[node->out] + i];
                if (*needed && pass == 0 && node->op == DV_OP_FRAMES) {
                    put_past(r, node, i);
                } else if (*needed && pass == 1) {
                    *frame_at(r, node->out, i) = put_frame(r, node, i);
                    *needed = false;
                }
            }
        }
    }
}

/* Marks all that is still missing for frame t of v, which nodes `first` to `last` compute. A ring advances frame by
 * frame, so windows that no node reads are built first. */
static void collect_all(rewriting *r, int64_t first, int64_t last, dv_value v, int64_t t) {
    for (bool again = true; again && dv_graph_ok(r->to);) {
        r->missing = DV_NO_VALUE;
        collect(r, first, v, t);
        again = r->missing != DV_NO_VALUE;
        if (again) {
            for (int64_t i = 0; i < r->n_frames; i++) {
                r->needed[i] = false;
            }
            collect_all(r, first, last, r->missing, r->missing_at);
            put_needed(r, first, last);
        }
    }
}

/* ---- all of it ---- */

static bool prepare(rewriting *r) {
    const dv_graph *g = r->from;
    int64_t frames = 0;
    for (int64_t v = 0; v < g->n_values; v++) {
        frames += g->values[v].shape.n;
    }
    r->segments.last_use = dv_calloc((uint64_t)g->n_values, sizeof *r->segments.last_use);
    r->first = dv_calloc((uint64_t)g->n_values, sizeof *r->first);
    r->whole = dv_calloc((uint64_t)g->n_values, sizeof *r->whole);
    r->frame = dv_calloc((uint64_t)frames, sizeof *r->frame);
    r->past = dv_calloc((uint64_t)frames, sizeof *r->past);
    r->needed = dv_calloc((uint64_t)frames, sizeof *r->needed);
    if (r->segments.last_use == NULL || r->first == NULL || r->whole == NULL || r->frame == NULL || r->past == NULL ||
        r->needed == NULL) {
        return false;
    }
    r->n_frames = frames;
    frames = 0;
    for (int64_t v = 0; v < g->n_values; v++) {
        r->whole[v] = DV_NO_VALUE;
        r->first[v] = frames;
        frames += g->values[v].shape.n;
    }
    for (int64_t i = 0; i < frames; i++) {
        r->frame[i] = DV_NO_VALUE;
        r->past[i] = DV_NO_VALUE;
    }
    find_last_uses(&r->segments);
    return true;
}

static void put_all(rewriting *r) {
    const dv_graph *g = r->from;
    for (int64_t k = 0; k < g->n_nodes && dv_graph_ok(r->to);) {
        const int64_t last = segment_end(&r->segments, k);
        const bool by_frame = segment_suits(&r->segments, k, last);
        for (int64_t i = k; i <= last && !by_frame; i++) {
            put_whole(r, &g->nodes[i]);
        }
        const int64_t frames = shape_of(r, g->nodes[last].out).n;
        for (int64_t t = 0; by_frame && t < frames; t++) {
            collect_all(r, k, last, g->nodes[last].out, t);
            put_needed(r, k, last);
        }
        for (int64_t i = k; by_frame && i <= last && g->keeps; i++) {
            if (g->nodes[i].op == DV_OP_FRAMES) { /* kept frames may have no reader */
                collect_all(r, k, last, g->nodes[i].out, shape_of(r, g->nodes[i].out).n - 1);
                put_needed(r, k, last);
            }
        }
        r->changed = r->changed || by_frame;
        k = last + 1;
    }
    if (dv_graph_ok(r->to)) {
        r->to->input = r->whole[g->input];
        dv_output(r->to, whole_of(r, g->output));
    }
}

/* A ring may overwrite a window only after all its readers. That fails if a window is read after the next window's
 * PAST. forgotten: one flag per value, all false. */
static bool rings_hold(const dv_graph *g, bool *forgotten) {
    bool hold = true;
    for (int64_t k = 0; hold && k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        for (int32_t i = 0; i < node->n_in; i++) {
            hold = hold && (node->in[i] == DV_NO_VALUE || !forgotten[node->in[i]]);
        }
        if (node->op == DV_OP_PAST && node->n_in > 0) {
            forgotten[node->in[0]] = true;
        }
    }
    return hold;
}

/* Exchanges nodes and values; parameters stay. */
static void exchange(dv_graph *a, dv_graph *b) {
    const dv_graph old = *a;
    a->nodes = b->nodes;
    a->n_nodes = b->n_nodes;
    a->cap_nodes = b->cap_nodes;
    a->values = b->values;
    a->n_values = b->n_values;
    a->cap_values = b->cap_values;
    a->input = b->input;
    a->output = b->output;
    b->nodes = old.nodes;
    b->n_nodes = old.n_nodes;
    b->cap_nodes = old.cap_nodes;
    b->values = old.values;
    b->n_values = old.n_values;
    b->cap_values = old.cap_values;
}

static davy_result no_memory(void) {
    return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a graph");
}

davy_result dv_by_frame(dv_graph *g, bool *changed) {
    rewriting r = {.from = g, .segments.graph = g};
    *changed = false;
    davy_result result = dv_graph_check(g);
    result = result < 0 ? result : dv_graph_create(g->weights, &r.to);
    if (result == DAVY_OK && !prepare(&r)) {
        result = no_memory();
    }
    if (result == DAVY_OK) {
        put_all(&r);
        result = dv_graph_check(r.to);
    }
    bool *forgotten = result == DAVY_OK ? dv_calloc((uint64_t)r.to->n_values, sizeof *forgotten) : NULL;
    if (result == DAVY_OK && forgotten == NULL) {
        result = no_memory();
    }
    if (result == DAVY_OK && r.changed && rings_hold(r.to, forgotten)) {
        exchange(g, r.to);
        *changed = true;
    }
    dv_free(forgotten);
    dv_graph_release(r.to);
    dv_free(r.segments.last_use);
    dv_free(r.first);
    dv_free(r.whole);
    dv_free(r.frame);
    dv_free(r.past);
    dv_free(r.needed);
    return result;
}
