/* fuse_cuda_bands.c - frames that are transformed a band of rows at a time, between the steps of the convolution that reads them: what
 * is half as large again as they are never exists as a whole. The same bits: a band is but a part of the same tiles. What is
 * kept from slice to slice lies as ever, so that it does not matter which slices do so. */
#include "core/plan/fuse_winograd.h"

enum { FEWEST_BANDS = 6, MOST_BANDS = 16 };
#define WORTH_LESS_MEMORY 1.03 /* times the cost */

/* Of the convolution in `conv`, in bands of so many rows; 0: that cannot be. */
static double bands_cost(const dv_lowering *l, const dvk_conv2d_args *conv, int64_t rows) {
    double cost = 0.0;
    for (int64_t first = 0; first < conv->y.h; first += rows) {
        dv_args args = {.band = {.conv = *conv, .first = first, .rows = dv_min(rows, conv->y.h - first)}};
        args.band.conv.x.h = DVK_WINOGRAD_LINES * (dvk_band_to(&args.band) - dvk_band_from(&args.band));
        const dvk_cuda_kernel *k = dv_choose_kernel(l->options, "conv2d_winograd_band", &args).cuda;
        if (k == NULL || k->cost == NULL) {
            return 0.0;
        }
        cost += k->cost(&args, l->options->caps);
    }
    return cost;
}

/* Of half the largest pictures' width and height or more: what is smaller takes little. */
static bool is_large(const dv_graph *g, dv_shape s) {
    int64_t most = 0;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        const bool counts = !node->dead && node->op == DV_OP_CONV2D;
        const dv_shape y = counts ? dv_shape_of(g, node->out) : (dv_shape){0};
        most = dv_max(most, y.h * y.w);
    }
    return 4 * s.h * s.w >= most;
}

/* As few rows as hardly cost more than those that the kernel is fastest with; 0: all at once. */
static int64_t best_band(const dv_lowering *l, const dvk_conv2d_args *conv) {
    const int64_t least = dv_max(conv->y.h / MOST_BANDS, 1), most = conv->y.h / FEWEST_BANDS;
    double best = 0.0;
    for (int64_t n = least; n <= most; n++) {
        const double cost = bands_cost(l, conv, n);
        best = cost > 0.0 && (best <= 0.0 || cost < best) ? cost : best;
    }
    for (int64_t n = least; n <= most; n++) {
        const double cost = bands_cost(l, conv, n);
        if (cost > 0.0 && cost <= WORTH_LESS_MEMORY * best) {
            return n;
        }
    }
    return 0;
}

static davy_result find_band(dv_transformables *s, dv_transformable *c) {
    const dv_memory_plan *place = s->l.place;
    const dv_graph *g = place->graph;
    const int64_t conv = dv_frames_reader(g, &g->nodes[c->node]);
    if (g->nodes[c->node].op != DV_OP_FRAMES || conv < 0 || !is_large(g, dv_shape_of(g, g->nodes[conv].out))) {
        return DAVY_OK;
    }
    const davy_result r = dv_lower_try_conv(&s->l, conv);
    if (r == DAVY_OK) {
        dvk_conv2d_args a = s->l.step.args.conv;
        a.x = dv_view_transformed(a.x);
        a.x.n = a.y.n;
        c->band = best_band(&s->l, &a);
    }
    if (c->band > 0) {
        const dv_block *block = &place->blocks[place->places[g->nodes[c->node].out].buffer];
        const int64_t h = dv_shape_of(g, g->nodes[conv].out).h;
        c->less = (block->bytes + c->more) / (uint64_t)h * (uint64_t)dv_max(h - c->band - 2, 0);
        const dv_value raw = g->nodes[place->producer[g->nodes[c->node].in[0]]].in[0];
        c->longer = place->blocks[place->places[raw].buffer].last < conv ? dv_value_bytes(place, raw) : 0;
    }
    return r;
}

/* The frames shrink, and what they are made of lives as long as they do. */
static void add_band(dv_transformables *s, const dv_transformable *c, bool adds) {
    dv_add_live(s, c->first, c->last, adds ? 0 - c->less : c->less);
    dv_add_live(s, c->last, c->last, adds ? c->longer : 0 - c->longer);
}

/* As many bands as the workspace is smallest with, but no more: those that it would not grow without are none. */
davy_result dv_set_bands(dv_transformables *s) {
    const int64_t n = s->l.place->graph->n_nodes;
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < s->count; i++) {
        dv_transformable *c = &s->candidates[i];
        r = c->taken ? find_band(s, c) : DAVY_OK;
        add_band(s, c, true);
    }
    const uint64_t least = dv_most_live(s, 0, n);
    for (int64_t i = 0; i < s->count; i++) {
        dv_transformable *c = &s->candidates[i];
        add_band(s, c, false);
        if (dv_most_live(s, 0, n) > least) {
            add_band(s, c, true);
        } else {
            c->band = 0;
        }
    }
    return r;
}
