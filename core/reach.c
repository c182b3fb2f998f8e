/* reach.c - questions about a whole graph: how far an output pixel sees (for tiles), what it costs, how large it is.
 *
 * The reach runs backwards. For every value it holds how many pixels beyond its own place an output pixel needs, where
 * a pixel's own place on another grid is what covers the same area: the pixel it was enlarged from, or the block that
 * was folded or strided into it. Only convolutions add to it; changes of grid scale it, rounded outwards. */
#include "core/error.h"
#include "core/graph_priv.h"
#include "core/mem.h"

typedef struct dv_grid { /* pixels of this value per input pixel; num / den in lowest terms */
    int64_t num, den;
} dv_grid;

static int64_t gcd(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static dv_grid scaled(dv_grid grid, int64_t num, int64_t den) {
    dv_grid out = {grid.num * num, grid.den * den};
    const int64_t d = gcd(out.num, out.den);
    out.num /= d;
    out.den /= d;
    return out;
}

/* Grid of a node's result from the grid of its first operand. */
static dv_grid grid_after(const dv_node *node, dv_grid in) {
    switch (node->op) {
    case DV_OP_CONV2D:
        return scaled(in, node->fused.upsample > 1 ? node->fused.upsample : 1, node->stride);
    case DV_OP_UPSAMPLE:
    case DV_OP_PIXEL_SHUFFLE:
        return scaled(in, node->r, 1);
    case DV_OP_PIXEL_UNSHUFFLE:
        return scaled(in, 1, node->r);
    default:
        return in;
    }
}

/* Reach on the grid of in[0] from the reach on the grid of the result. */
static int64_t reach_before(const dv_node *node, int64_t reach) {
    switch (node->op) {
    case DV_OP_CONV2D: {
        const int64_t up = node->fused.upsample > 1 ? node->fused.upsample : 1;
        const int64_t pad = dv_max(node->pad_top, node->pad_left);
        const int64_t before = reach * node->stride + pad;
        const int64_t after = reach * node->stride + (node->kh - 1 - node->pad_top) - (node->stride - 1);
        return dv_div_up(dv_max(dv_max(before, after), 0), up);
    }
    case DV_OP_UPSAMPLE:
    case DV_OP_PIXEL_SHUFFLE:
        return dv_div_up(reach, node->r);
    case DV_OP_PIXEL_UNSHUFFLE:
        return reach * node->r;
    default:
        return reach;
    }
}

static void widen(int64_t *reach, dv_value v, int64_t r) {
    reach[v] = dv_max(reach[v], r);
}

static void walk_back(const dv_graph *g, int64_t *reach) {
    for (int64_t i = g->n_nodes - 1; i >= 0; i--) {
        const dv_node *node = &g->nodes[i];
        if (node->dead || reach[node->out] < 0) {
            continue;
        }
        const int64_t out = reach[node->out];
        for (int32_t k = 0; k < node->n_in; k++) {
            /* The picture a pixel shuffle adds lies on the grid of its first operand. */
            widen(reach, node->in[k], reach_before(node, out));
        }
        for (int32_t k = 0; k < node->fused.n_res; k++) {
            widen(reach, node->fused.res[k], out);
        }
    }
}

davy_result dv_graph_reach(const dv_graph *g, dv_reach *out) {
    int64_t *reach = dv_calloc((uint64_t)g->n_values, sizeof *reach);
    dv_grid *grids = dv_calloc((uint64_t)g->n_values, sizeof *grids);
    if (reach == NULL || grids == NULL || g->input == DV_NO_VALUE || g->output == DV_NO_VALUE) {
        dv_free(reach);
        dv_free(grids);
        return g->output == DV_NO_VALUE ? dv_fail(DAVY_E_INTERNAL, "the graph has no output")
                                        : dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the reach of a graph");
    }
    dv_reach result = {false, 0, 1, 1, 1};
    for (int64_t v = 0; v < g->n_values; v++) {
        reach[v] = -1; /* not needed for the output */
    }
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const dv_node *node = &g->nodes[i];
        if (node->dead) {
            continue;
        }
        const dv_grid one = {1, 1};
        grids[node->out] = node->op == DV_OP_INPUT ? one : grid_after(node, grids[node->in[0]]);
        const int64_t den = grids[node->out].den;
        result.align = result.align / gcd(result.align, den) * den;
        result.global = result.global || node->op == DV_OP_GROUP_NORM || node->op == DV_OP_ATTENTION;
    }
    reach[g->output] = 0;
    walk_back(g, reach);
    result.halo = dv_max(reach[g->input], 0);
    result.num = grids[g->output].num;
    result.den = grids[g->output].den;
    *out = result;
    dv_free(reach);
    dv_free(grids);
    return DAVY_OK;
}

static uint64_t times(uint64_t a, uint64_t b) { /* saturates */
    uint64_t product = UINT64_MAX;
    dv_mul_u64(a, b, &product);
    return product;
}

static uint64_t elements(dv_shape s) {
    return times(times((uint64_t)s.n, (uint64_t)s.h), times((uint64_t)s.w, (uint64_t)s.c));
}

uint64_t dv_graph_flops(const dv_graph *g) {
    uint64_t total = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const dv_node *node = &g->nodes[i];
        if (node->dead) {
            continue;
        }
        const dv_shape out = dv_shape_of(g, node->out);
        const dv_shape in = dv_shape_of(g, node->in[0]);
        uint64_t flops = 0;
        if (node->op == DV_OP_CONV2D) {
            flops = times(times(2u * elements(out), (uint64_t)in.c), (uint64_t)node->kh * (uint64_t)node->kw);
        } else if (node->op == DV_OP_ATTENTION) { /* q k^T and A v */
            flops = times(times(4, elements(out)), (uint64_t)out.h * (uint64_t)out.w);
        }
        if (!dv_add_u64(total, flops, &total)) {
            return UINT64_MAX;
        }
    }
    return total;
}

uint64_t dv_graph_parameters(const dv_graph *g) {
    uint64_t total = 0;
    for (int64_t i = 0; i < g->n_params; i++) {
        const dv_param_info *p = &g->params[i];
        uint64_t count = p->constant == NULL ? 1 : 0; /* constants belong to the architecture, not to the weights */
        for (int32_t k = 0; k < p->ndim; k++) {
            count = times(count, (uint64_t)p->shape[k]);
        }
        if (!dv_add_u64(total, count, &total)) {
            return UINT64_MAX;
        }
    }
    return total;
}
