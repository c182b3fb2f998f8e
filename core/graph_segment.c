/* graph_segment.c - see graph_segment.h. */
#include "core/graph_segment.h"

enum { PIECES = 8 }; /* a frame in a pixel is a multiple of so many channels, as place_time.c has it */

/* ---- where ---- */

static bool works_by_frame(const dv_segments *s, const dv_node *node) {
    switch (node->op) {
    case DV_OP_CONV2D:
    case DV_OP_ACT:
    case DV_OP_GROUP_NORM:
    case DV_OP_ADD:
    case DV_OP_AFFINE:
    case DV_OP_UPSAMPLE:
    case DV_OP_PIXEL_SHUFFLE:
    case DV_OP_PIXEL_UNSHUFFLE:
    case DV_OP_SLICE:
    case DV_OP_CONCAT:
    case DV_OP_LAYER_NORM:
    case DV_OP_RMS_NORM:
    case DV_OP_TO_FRAMES:
    case DV_OP_TAKE_FRAMES:
    case DV_OP_JOIN_FRAMES:
        return true;
    case DV_OP_FRAMES:
        return node->time.step == 1 && node->time.lead == node->time.frames - 1 && node->time.frames > 1 &&
               dv_shape_of(s->graph, node->in[0]).c % PIECES == 0;
    default:
        return false;
    }
}

int64_t dv_segment_end(const dv_segments *s, int64_t first) {
    const dv_graph *g = s->graph;
    if (g->nodes[first].op == DV_OP_INPUT) {
        return first;
    }
    for (int64_t k = first; k + 1 < g->n_nodes; k++) {
        bool alone = g->nodes[k].op == DV_OP_ADD;
        for (int64_t i = 0; alone && i < k; i++) {
            alone = s->last_use[g->nodes[i].out] <= k;
        }
        if (alone) {
            return k;
        }
    }
    return g->n_nodes - 1;
}

static int64_t pixels_of(const dv_segments *s, dv_value v) {
    return dv_shape_of(s->graph, v).h * dv_shape_of(s->graph, v).w;
}

bool dv_segment_suits(const dv_segments *s, int64_t first, int64_t last) {
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

/* ---- slots ---- */

typedef struct room { /* of a segment, in elements */
    int64_t slot;     /* of all its rings */
    int64_t frames;   /* that lead to it, or are its result: as one comes another goes */
    int64_t beside;   /* what is made of a frame meanwhile */
} room;

static int64_t picture_of(const dv_segments *s, dv_value v) {
    return pixels_of(s, v) * dv_shape_of(s->graph, v).c;
}

static room room_of(const dv_segments *s, int64_t first, int64_t last) {
    const dv_graph *g = s->graph;
    const dv_value out = g->nodes[last].out;
    room all = {.frames = dv_shape_of(s->graph, out).n * picture_of(s, out)};
    for (int64_t k = first; k <= last; k++) {
        const dv_node *node = &g->nodes[k];
        const dv_value x = node->in[0];
        if (node->op == DV_OP_FRAMES) {
            all.slot += picture_of(s, x);
        } else {
            all.beside = dv_max(all.beside, picture_of(s, node->out));
        }
        if (g->values[x].producer < first) {
            all.frames = dv_max(all.frames, dv_shape_of(s->graph, x).n * picture_of(s, x));
        }
    }
    return all;
}

int64_t dv_segments_room(const dv_segments *s, int64_t slots) {
    int64_t most = 0;
    for (int64_t k = 0, last = 0; k < s->graph->n_nodes; k = last + 1) {
        last = dv_segment_end(s, k);
        if (dv_segment_suits(s, k, last)) {
            const room here = room_of(s, k, last);
            most = dv_max(most, here.slot * slots + here.frames);
        }
    }
    return most;
}

int64_t dv_segment_slots(const dv_segments *s, int64_t first, int64_t last, int64_t slots, int64_t most) {
    const room here = room_of(s, first, last);
    return dv_max(slots, here.slot > 0 ? (most - here.frames - 2 * here.beside) / here.slot : 0);
}
