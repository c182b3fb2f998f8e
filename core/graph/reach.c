/* reach.c - properties of a whole graph: its receptive field (for tiles), its operations, its size.
 *
 * The reach is computed backwards. For every value it is the number of pixels that an output pixel needs beyond its
 * own place. On another grid, "its own place" covers the same area: the pixel it was enlarged from, or the block that
 * was folded or strided into it. Convolutions and windows add to the reach. Changes of grid scale it, rounded
 * outwards. */
#include "core/base/error.h"
#include "core/graph/graph_priv.h"
#include "core/base/mem.h"

static int64_t gcd(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static int64_t common(int64_t a, int64_t b) { /* least common multiple */
    return a / gcd(a, b) * b;
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
    switch (dv_op_infos[node->op].reach) {
    case DV_REACH_CONV:
        return scaled(in, node->fused.upsample > 1 ? node->fused.upsample : 1, node->stride);
    case DV_REACH_MEAN: /* its result has one pixel, which only gates read */
    case DV_REACH_RESIZE:
        return (dv_grid){1, 1};
    case DV_REACH_ENLARGE:
    case DV_REACH_SAMPLE:
        return scaled(in, node->r, 1);
    case DV_REACH_REDUCE:
        return scaled(in, 1, node->r);
    default:
        return in;
    }
}

/* Period of windows of this side, in input pixels. */
static int64_t window_step(int64_t side, dv_grid grid) {
    return side > 0 ? side * grid.den / gcd(side * grid.den, grid.num) : 1;
}

/* Distance from one end of a window to the other end of its keys, in pixels. */
static int64_t window_reach(const dv_window *w) {
    return dv_max((w->h + w->keys_h) / 2, (w->w + w->keys_w) / 2) - 1;
}

static bool sees_all(const dv_node *node) {
    const dv_reach_kind reach = dv_op_infos[node->op].reach;
    return reach == DV_REACH_ALL || reach == DV_REACH_RESIZE || node->window.grid ||
           (reach == DV_REACH_WINDOW && node->window.h == 0);
}

/* The pixels beyond its own place that an output pixel needs of a value: `before` to the top left, `after` to the
 * bottom right. Convolutions without padding shift places, so one of the two may be negative. */
typedef struct dv_extent {
    int64_t before, after;
    bool needed;
} dv_extent;

static int64_t up_div(int64_t a, int64_t b) { /* rounds up, for either sign */
    return a >= 0 ? dv_div_up(a, b) : -(-a / b);
}

/* The extent before a window of k pixels every `stride` that begins `pad` before its place. The operand's pixels are
 * `up` times larger. */
static dv_extent through_window(dv_extent e, int64_t k, int64_t stride, int64_t pad, int64_t up) {
    e.before = up_div(e.before * stride + pad, up);
    e.after = up_div(e.after * stride + (k - 1 - pad) - (stride - 1), up);
    return e;
}

static dv_extent moved(dv_extent e, int64_t by) {
    e.before += by;
    e.after -= by;
    return e;
}

/* The extent on the grid of in[0] from the extent on the result's grid. Rows and columns are alike. */
static dv_extent extent_before(const dv_node *node, dv_extent e) {
    switch (dv_op_infos[node->op].reach) {
    case DV_REACH_CONV: /* phased: one more pixel on either side, as for 3x3 on the enlarged picture */
        return through_window(e, node->phased ? 3 : node->kh, node->stride, node->pad_top,
                              node->fused.upsample > 1 ? node->fused.upsample : 1);
    case DV_REACH_ENLARGE:
    case DV_REACH_SAMPLE:
        return through_window(moved(e, -node->pad_top), 1, 1, 0, node->r);
    case DV_REACH_REDUCE:
        return through_window(e, node->r, node->r, node->pad_top, 1);
    case DV_REACH_PAD:
        return moved(e, node->pad_top);
    case DV_REACH_CROP:
        return moved(e, -node->pad_top);
    case DV_REACH_WINDOW:
        e.before += window_reach(&node->window);
        e.after += window_reach(&node->window);
        return e;
    default:
        return e;
    }
}

static void widen(dv_extent *extents, dv_value v, dv_extent e) {
    dv_extent *have = &extents[v];
    have->before = have->needed ? dv_max(have->before, e.before) : e.before;
    have->after = have->needed ? dv_max(have->after, e.after) : e.after;
    have->needed = true;
}

static void walk_back(const dv_graph *g, dv_extent *extents) {
    for (int64_t i = g->n_nodes - 1; i >= 0; i--) {
        const dv_node *node = &g->nodes[i];
        if (node->dead || !extents[node->out].needed) {
            continue;
        }
        const dv_extent out = extents[node->out];
        for (int32_t k = 0; k < node->n_in; k++) {
            /* The picture that a pixel shuffle adds lies on the grid of its first operand. */
            widen(extents, node->in[k], extent_before(node, out));
        }
        for (int32_t k = 0; k < node->fused.n_res; k++) {
            widen(extents, node->fused.res[k], out);
        }
    }
}

/* Counts the live nodes of that op. `of` receives the grids of the first operands, up to `room` of them. */
static int64_t find_shared(const dv_graph *g, const dv_grid *grids, dv_op op, dv_grid *of, int64_t room) {
    int64_t count = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const dv_node *node = &g->nodes[i];
        if (node->dead || node->op != op) {
            continue;
        }
        if (count < room) {
            of[count] = grids[node->in[0]];
        }
        count++;
    }
    return count;
}

/* Tiles share means or the statistics of norms if these are few and no other op needs the whole picture. The operands
 * of the means and norms then must be as exact as the output. */
static void find_statistics(const dv_graph *g, const dv_grid *grids, dv_extent *extents, dv_reach *result) {
    const int64_t means = find_shared(g, grids, DV_OP_MEAN, result->means, DV_MEANS);
    const int64_t norms = find_shared(g, grids, DV_OP_GROUP_NORM, result->norms, DV_NORMS);
    result->global = result->global || means > DV_MEANS || norms > DV_NORMS || (means > 0 && norms > 0);
    result->n_means = result->global ? 0 : (int32_t)means;
    result->n_norms = result->global ? 0 : (int32_t)norms;
    for (int64_t i = 0; i < g->n_nodes && !result->global; i++) {
        const dv_node *node = &g->nodes[i];
        if (!node->dead && (node->op == DV_OP_MEAN || node->op == DV_OP_GROUP_NORM)) {
            widen(extents, node->in[0], (dv_extent){0});
        }
    }
}

davy_result dv_graph_reach(const dv_graph *g, dv_reach *out) {
    dv_extent *extents = dv_calloc((uint64_t)g->n_values, sizeof *extents);
    dv_grid *grids = dv_calloc((uint64_t)g->n_values, sizeof *grids);
    if (extents == NULL || grids == NULL || g->input == DV_NO_VALUE || g->output == DV_NO_VALUE) {
        dv_free(extents);
        dv_free(grids);
        return g->output == DV_NO_VALUE ? dv_fail(DAVY_E_INTERNAL, "the graph has no output")
                                        : dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the reach of a graph");
    }
    dv_reach result = {.align = 1, .num = 1, .den = 1};
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const dv_node *node = &g->nodes[i];
        if (node->dead) {
            continue;
        }
        const dv_grid one = {1, 1};
        grids[node->out] = node->n_in == 0 ? one : grid_after(node, grids[node->in[0]]);
        result.align = common(result.align, grids[node->out].den);
        result.align = common(result.align, window_step(node->window.h, grids[node->out]));
        result.align = common(result.align, window_step(node->window.w, grids[node->out]));
        result.global = result.global || sees_all(node);
        result.strays = result.strays || dv_op_infos[node->op].reach == DV_REACH_SAMPLE;
    }
    extents[g->output].needed = true;
    find_statistics(g, grids, extents, &result);
    walk_back(g, extents);
    result.halo = dv_max(dv_max(extents[g->input].before, extents[g->input].after), 0);
    result.num = grids[g->output].num;
    result.den = grids[g->output].den;
    *out = result;
    dv_free(extents);
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

/* ---- flops_<...> of ops.def; cheap ops count as nothing ---- */

static uint64_t flops_nothing(const dv_graph *g, const dv_node *node) {
    (void)g;
    (void)node;
    return 0;
}

static uint64_t flops_depthwise(const dv_graph *g, const dv_node *node) {
    return times(2u * elements(dv_shape_of(g, node->out)), (uint64_t)node->kh * (uint64_t)node->kw);
}

/* Every result is a sum of as many products as in[0] has channels. */
static uint64_t flops_product(const dv_graph *g, const dv_node *node) {
    return times(2u * elements(dv_shape_of(g, node->out)), (uint64_t)dv_shape_of(g, node->in[0]).c);
}

static uint64_t flops_conv(const dv_graph *g, const dv_node *node) {
    return times(flops_product(g, node), (uint64_t)node->kh * (uint64_t)node->kw);
}

static uint64_t flops_attention(const dv_graph *g, const dv_node *node) { /* q k^T and A v */
    const dv_shape keys = dv_shape_of(g, node->in[1]);
    return times(times(4, elements(dv_shape_of(g, node->out))), (uint64_t)keys.h * (uint64_t)keys.w);
}

static uint64_t flops_window(const dv_graph *g, const dv_node *node) {
    const dv_window *w = &node->window;
    const dv_shape out = dv_shape_of(g, node->out);
    const uint64_t keys = (uint64_t)w->keys_h * (uint64_t)w->keys_w;
    return times(4 * (uint64_t)out.n * (uint64_t)out.c, times((uint64_t)(w->padded_h * w->padded_w), keys));
}

static uint64_t flops_channel(const dv_graph *g, const dv_node *node) {
    const dv_shape out = dv_shape_of(g, node->out);
    return times(times(4, elements(out)), (uint64_t)(out.c / node->heads));
}

static uint64_t flops_refine(const dv_graph *g, const dv_node *node) {
    const dv_shape picture = dv_shape_of(g, node->in[1]);
    return times(2u * elements(dv_shape_of(g, node->out)), (uint64_t)(picture.h * picture.w));
}

uint64_t dv_graph_flops(const dv_graph *g) {
    static uint64_t (*const flops_of[])(const dv_graph *, const dv_node *) = {
        flops_nothing,
#define DV_OP(NAME, name, REACH, TRAIT, flops, show, lower) flops_##flops,
#include "core/graph/ops.def"
    };
    uint64_t total = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const dv_node *node = &g->nodes[i];
        if (!node->dead && !dv_add_u64(total, flops_of[node->op](g, node), &total)) {
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
        count = p->stored != 0 ? (uint64_t)dv_max(p->stored, 0) : count;
        if (!dv_add_u64(total, count, &total)) {
            return UINT64_MAX;
        }
    }
    return total;
}
