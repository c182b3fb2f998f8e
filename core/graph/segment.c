/* segment.c - see segment.h. */
#include "core/graph/segment.h"

#include "core/base/error.h"
#include "core/base/mem.h"

enum { PIECES = 8 }; /* a frame in a pixel is a multiple of so many channels, as plan/memory.c has it */

void dv_segments_find_uses(dv_segments *s) {
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

/* ---- where ---- */

static bool works_by_frame(const dv_segments *s, const dv_node *node) {
    if (node->op == DV_OP_FRAMES) {
        return node->time.step == 1 && node->time.lead == node->time.frames - 1 && node->time.frames > 1 &&
               dv_shape_of(s->graph, node->in[0]).c % PIECES == 0;
    }
    return dv_op_infos[node->op].trait == DV_TRAIT_BY_FRAME;
}

/* The end of a residual block, a convolution over time that does not work frame by frame: what follows it may; or one whose
 * result does not go on so, while what it reads does. */
static bool may_end(const dv_segments *s, const dv_node *node) {
    const dv_graph *g = s->graph;
    if (node->op != DV_OP_CONV2D) {
        return node->op == DV_OP_ADD;
    }
    const dv_node *from = &g->nodes[g->values[node->in[0]].producer];
    return (from->op == DV_OP_FRAMES && !works_by_frame(s, from)) ||
           (dv_shape_of(g, node->out).c % PIECES != 0 && dv_shape_of(g, node->in[0]).c % PIECES == 0);
}

int64_t dv_segment_end(const dv_segments *s, int64_t first) {
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

/* ---- memory ---- */

static uint64_t elements_of(dv_shape s) {
    return (uint64_t)(s.n * s.h * s.w * s.c);
}

/* When the segment's last frame is begun, what comes of the others is there, and of the rings that go on with it all. */
static uint64_t least_of(const dv_segments *s, int64_t first, int64_t last) {
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

davy_result dv_segments_least(const dv_graph *g, uint64_t *elements) {
    dv_segments s = {.graph = g, .last_use = dv_calloc((uint64_t)g->n_values + 1, sizeof *s.last_use)};
    *elements = 0;
    if (s.last_use == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a graph");
    }
    dv_segments_find_uses(&s);
    for (int64_t k = 0, last = 0; k < g->n_nodes; k = last + 1) {
        last = dv_segment_end(&s, k);
        const uint64_t here =
            dv_segment_suits(&s, k, last) ? least_of(&s, k, last) : elements_of(dv_shape_of(g, g->nodes[last].out));
        *elements = here > *elements ? here : *elements;
    }
    dv_free(s.last_use);
    return DAVY_OK;
}
