/* lower_transformed.c - the steps of frames that a convolution over time reads transformed: transforms in front of it, and
 * plain frames for the next slice. */
#include "core/plan/lower_operand.h"

void dv_lower_transform(dv_lowering *l, const dv_operand *from, const dv_operand *to, const dv_transform *how) {
    dvk_epilogue none = {0};
    dv_lower_begin(l);
    dvk_winograd_input_args *a = &l->step.args.winograd_input;
    dv_lower_operand(l, &a->x, from);
    dv_lower_operand(l, &a->y, to);
    if (how->applies) {
        dv_lower_fused(l, &a->pro, &none);
    }
    if (how->kept.view.n > 0) {
        dv_lower_operand(l, &a->kept, &how->kept);
    }
    a->repeats = how->before;
    a->repeat_step = -from->view.c;
    l->step.bytes += dv_view_bytes(&a->kept);
    dv_lower_commit(l, "winograd_input", &a->x, &a->y, 0);
}

/* ---- plain frames for the next slice: the last `keep` of all so far, as they were before they were transformed ---- */

typedef struct part { /* of a slice, that is being transformed */
    const dv_frame_ring *ring;
    int64_t first;     /* number of its first frame */
    int64_t slice;     /* frames of the slice */
    int64_t row, rows; /* of the pictures: that are kept */
} part;

static dv_operand kept_rows(const dv_lowering *l, const part *p, bool leaves) {
    return dv_operand_rows(dv_operand_kept(l, p->ring, leaves), p->row, p->rows);
}

/* Where `count` frames are kept: the slice's last ones. */
static dv_operand kept_of(const dv_lowering *l, const part *p, int64_t count) {
    const int64_t lead = dv_lower_now(l)->time.lead;
    const int64_t skipped = dv_max(p->slice - lead - p->first, 0);
    const dv_operand kept = kept_rows(l, p, true);
    return skipped < count ? dv_operand_frames(kept, p->first + skipped - (p->slice - lead), count - skipped)
                           : (dv_operand){0};
}

/* A slice shorter than what is kept: the rest are of those before. Upwards, as the state may be moved within itself. */
static void keep_before(dv_lowering *l, const part *p) {
    const dv_operand before = kept_rows(l, p, false), kept = kept_rows(l, p, true);
    for (int64_t i = 0; i < dv_lower_now(l)->time.lead - p->slice; i++) {
        const dv_operand from = dv_operand_frames(before, i + p->slice, 1);
        const dv_operand to = dv_operand_frames(kept, i, 1);
        dv_lower_copy(l, &from, &to, 1.0f);
    }
}

/* The same where nothing was before; the first frame has been kept. */
static void keep_first(dv_lowering *l, const part *p) {
    const dv_time *t = &dv_lower_now(l)->time;
    const dv_operand kept = kept_rows(l, p, true);
    for (int64_t i = 0; i < t->lead - p->slice; i++) {
        const dv_operand from = dv_operand_frames(kept, t->lead - p->slice, 1);
        const dv_operand to = dv_operand_frames(kept, i, 1);
        dv_lower_copy(l, &from, &to, t->before == DV_BEFORE_FIRST ? 1.0f : 0.0f);
    }
}

/* The transform of x, and what of its frames is kept. */
static void transform_and_keep(dv_lowering *l, const dv_operand *x, const dv_operand *to, const part *p) {
    const dv_graph *g = l->plan->graph;
    const dv_time *t = &dv_lower_now(l)->time;
    const bool begins = p->first == 0 && !g->continues;
    dv_transform how = {.applies = true, .before = begins && t->before == DV_BEFORE_FIRST ? t->lead : 0};
    if (g->keeps) {
        how.kept = kept_of(l, p, x->view.n);
    }
    if (g->keeps && p->first == 0 && g->continues) {
        keep_before(l, p);
    }
    dv_lower_transform(l, x, to, &how);
    if (g->keeps && begins) {
        keep_first(l, p);
    }
}

/* Zeros before a clip's first frame. */
static void clear_before(dv_lowering *l, const dv_operand *slots, const dv_operand *first) {
    const dv_time *t = &dv_lower_now(l)->time;
    for (int32_t i = 0; i < t->lead && t->before == DV_BEFORE_ZERO; i++) {
        const dv_operand to = dv_operand_frames(*slots, i, 1);
        dv_lower_copy(l, first, &to, 0.0f);
    }
}

void dv_lower_transformed(dv_lowering *l, const dv_windows *w, const dv_transform_rows *band) {
    const dv_time *t = w->time;
    const int64_t rows = band->to - band->from;
    dv_operand slots = dv_operand_channels(w->y, 0, w->x.view.c);
    slots.view.sn = w->x.view.c;
    slots = dv_operand_rows(slots, 0, DVK_WINOGRAD_LINES * rows);
    if (w->continues) {
        const dv_operand kept = dv_operand_rows(dv_operand_kept(l, w->ring, false), band->from, rows);
        const dv_operand from = dv_operand_joined(kept, t->lead);
        const dv_operand before = dv_operand_joined(dv_operand_frames(slots, 0, 1), t->lead);
        dv_lower_transform(l, &from, &before, &(dv_transform){0});
    }
    const part p = {w->ring, 0, w->x.view.n, band->from, band->kept_to - band->from};
    const dv_operand x = dv_operand_rows(w->x, band->from, rows);
    const dv_operand to = dv_operand_frames(slots, t->lead, w->x.view.n);
    transform_and_keep(l, &x, &to, &p);
    if (!w->continues) {
        const dv_operand first = dv_operand_frames(to, 0, 1);
        clear_before(l, &slots, &first);
    }
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

void dv_lower_window_transformed(dv_lowering *l, const dv_operand *newest) {
    const dv_node *node = dv_lower_now(l);
    const dv_operand x = dv_operand_of(l, node->in[0]);
    const dv_frame_ring *ring = l->plan->graph->keeps ? dv_frame_ring_of(l->place, l->node) : NULL;
    const part p = {ring, node->first, ring != NULL ? frames_in_ring(l) : 0, 0, x.view.h};
    transform_and_keep(l, &x, newest, &p);
    if (node->first == 0 && !l->plan->graph->continues) {
        dv_operand slots = dv_operand_ring(l, node->out, dv_frame_ring_base(node), 1);
        slots.view.sn = slots.view.c;
        clear_before(l, &slots, newest);
    }
}
