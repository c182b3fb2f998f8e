/* fuse_swin.c - merges each half of a transformer block, from the layer norm to the residual, into one step. CUDA must
 * have a kernel "norm_mlp" or "norm_window" for it. */
#include <stddef.h>

#include "core/plan/choose.h"
#include "core/plan/fuse_cuda.h"
#include "core/plan/lower.h"
#include "kernels/cuda/window/swin_pack.h"

#define FIELD(member) ((uint32_t)offsetof(dvk_args, member))

enum { PART_NORM, PART_IN, PART_MIDDLE /* the attention; PART_IN again for an MLP */ };

/* Finds the layer norm and the 1x1 convolution that compute v for `readers` readers. */
static bool find_in(const dv_memory_plan *place, dv_value v, int32_t readers, dvk_act act, int32_t *parts) {
    const dv_graph *g = place->graph;
    const int64_t in = dv_behind(place, v, readers);
    if (in < 0 || !dv_is_linear(place, &g->nodes[in]) || g->nodes[in].fused.n_res > 0 ||
        g->nodes[in].fused.act.kind != act) {
        return false;
    }
    const int64_t norm = dv_behind(place, g->nodes[in].in[0], 1);
    if (norm < 0 || g->nodes[norm].op != DV_OP_LAYER_NORM) {
        return false;
    }
    parts[PART_NORM] = (int32_t)norm;
    parts[PART_IN] = (int32_t)in;
    return true;
}

/* The value whose thirds are the attention's queries, keys and values; DV_NO_VALUE: they are not thirds of one
 * value. */
static dv_value thirds_of(const dv_memory_plan *place, const dv_node *attention) {
    const dv_graph *g = place->graph;
    dv_value whole = DV_NO_VALUE;
    for (int i = 0; i < 3; i++) {
        const int64_t k = dv_behind(place, attention->in[i], 1);
        const int64_t c = dv_shape_of(g, attention->in[i]).c;
        if (k < 0 || g->nodes[k].op != DV_OP_SLICE || g->nodes[k].first != i * c ||
            (i > 0 && g->nodes[k].in[0] != whole)) {
            return DV_NO_VALUE;
        }
        whole = g->nodes[k].in[0];
    }
    return dv_shape_of(g, whole).c == 3 * dv_shape_of(g, attention->in[0]).c ? whole : DV_NO_VALUE;
}

/* Finds the nodes that lead to the 1x1 convolution `last`. */
static bool find_parts(const dv_memory_plan *place, const dv_node *last, int32_t *parts) {
    const dv_graph *g = place->graph;
    const int64_t k = dv_behind(place, last->in[0], 1);
    if (k >= 0 && g->nodes[k].op == DV_OP_WINDOW_ATTENTION) {
        const dv_value whole = thirds_of(place, &g->nodes[k]);
        parts[PART_MIDDLE] = (int32_t)k;
        return whole != DV_NO_VALUE && find_in(place, whole, 3, DVK_ACT_NONE, parts);
    }
    if (k < 0 || !find_in(place, last->in[0], 1, DVK_ACT_GELU, parts)) {
        return false;
    }
    parts[PART_MIDDLE] = parts[PART_IN];
    return true;
}

/* ---- arguments ---- */

static bool is_window(const dv_graph *g, const int32_t *parts) {
    return g->nodes[parts[PART_MIDDLE]].op == DV_OP_WINDOW_ATTENTION;
}

/* Queries and keys have the same square window, and the frame is the picture. */
static bool is_plain_window(const dv_window *w, dv_shape s) {
    return w->w == w->h && w->keys_h == w->h && w->keys_w == w->w && w->padded_h == s.h && w->padded_w == s.w &&
           (w->cut_y == 0 || w->cut_y == w->shift_y) && (w->cut_x == 0 || w->cut_x == w->shift_x);
}

/* Fills in all but views, pointers and the norm. */
static void fill(const dv_graph *g, const int32_t *parts, dvk_args *args) {
    const dv_node *middle = &g->nodes[parts[PART_MIDDLE]];
    const int64_t wide = g->params[g->nodes[parts[PART_IN]].weight].shape[0];
    if (!is_window(g, parts)) {
        args->norm_mlp.hidden = wide;
        return;
    }
    dvk_norm_window_args *a = &args->norm_window;
    a->heads = middle->heads;
    a->dim = wide / 3 / middle->heads;
    a->window = middle->window.h;
    a->shift_y = middle->window.shift_y;
    a->shift_x = middle->window.shift_x;
    a->grid = middle->window.grid;
    a->scale = middle->scale;
}

static bool has_kernel(const dv_lowering *l, const int32_t *parts, const dv_node *last) {
    static const float some[1] = {0.0f};
    const dv_graph *g = l->plan->graph;
    const dvk_view x = dv_view_planned(l->place, g->nodes[parts[PART_NORM]].in[0]);
    const dvk_view y = dv_view_planned(l->place, last->out);
    const dvk_view none = {0};
    const dvk_view res = last->fused.n_res > 0 ? dv_view_planned(l->place, last->fused.res[0]) : none;
    const dvk_swin_linear linear = {.packed = some};
    dvk_args args = {0};
    if (is_window(g, parts)) {
        args.norm_window = (dvk_norm_window_args){.x = x, .y = y, .res = res, .in = linear, .out = linear};
        fill(g, parts, &args);
        return is_plain_window(&g->nodes[parts[PART_MIDDLE]].window, dv_shape_of(g, last->out)) &&
               dv_choose_kernel(l->options, "norm_window", &args).cuda != NULL;
    }
    args.norm_mlp = (dvk_norm_mlp_args){.x = x, .y = y, .res = res, .in = linear, .out = linear};
    fill(g, parts, &args);
    return dv_choose_kernel(l->options, "norm_mlp", &args).cuda != NULL;
}

/* ---- lowering ---- */

static void bind_packed(dv_lowering *l, uint32_t field, const dv_node *node, dvk_swin_matrix m) {
    const dvk_cuda_kernel *packer = &dvk_swin_packers[m];
    const int64_t *shape = l->plan->graph->params[node->weight].shape;
    dv_weight w = {.param = node->weight, .kernel = {.cuda = packer}};
    w.conv = (dvk_conv2d_args){.x = {.c = shape[1]}, .y = {.c = shape[0]}, .kh = 1, .kw = 1, .stride = 1};
    w.conv.compute = dv_view_planned(l->place, dv_lower_now(l)->out).dtype;
    w.bytes = packer->packed_bytes(&w.conv);
    if (dv_lower_weight(l, &w) != NULL) {
        dv_lower_bind(l, DV_BIND_WEIGHT, field, (uint64_t)l->plan->n_weights - 1);
        l->step.bytes += w.bytes;
    }
}

static void bind_linear(dv_lowering *l, dvk_swin_linear *linear, const dv_node *node, dvk_swin_matrix m) {
    const int64_t out = l->plan->graph->params[node->weight].shape[0];
    bind_packed(l, dv_lower_field(l, &linear->packed), node, m);
    dv_lower_vector(l, dv_lower_field(l, &linear->bias), node->bias, out);
}

static void bind_norm(dv_lowering *l, dvk_swin_norm *n, const dv_node *norm, int64_t c) {
    n->eps = norm->eps;
    dv_lower_vector(l, dv_lower_field(l, &n->gamma), norm->weight, c);
    dv_lower_vector(l, dv_lower_field(l, &n->beta), norm->bias, c);
}

static void bind_views(dv_lowering *l, dvk_view *x, dvk_view *y, dvk_view *res) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_view(l, x, node->in[0]);
    dv_lower_view(l, y, node->out);
    if (node->fused.n_res > 0) {
        dv_lower_view(l, res, node->fused.res[0]);
        l->step.bytes += dv_view_bytes(res);
    }
}

/* Emits the step of one half. */
static void lower_half(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    const dv_node *node = dv_lower_now(l);
    const int32_t *parts = dv_lower_cuda(l)->parts;
    const dv_node *norm = &g->nodes[parts[PART_NORM]];
    const dv_node *in = &g->nodes[parts[PART_IN]];
    const dv_node *middle = &g->nodes[parts[PART_MIDDLE]];
    const dv_shape s = dv_lower_shape(l, node->out);
    const uint64_t pixels = (uint64_t)(s.n * s.h * s.w);
    dv_lower_begin(l);
    fill(g, parts, &l->step.args);
    if (!is_window(g, parts)) {
        dvk_norm_mlp_args *a = &l->step.args.norm_mlp;
        bind_views(l, &a->x, &a->y, &a->res);
        bind_norm(l, &a->norm, norm, s.c);
        bind_linear(l, &a->in, in, DVK_SWIN_MATRIX_MLP_IN);
        bind_linear(l, &a->out, node, DVK_SWIN_MATRIX_MLP_OUT);
        dv_lower_commit(l, "norm_mlp", &a->x, &a->y, 4 * pixels * (uint64_t)(s.c * a->hidden));
        return;
    }
    dvk_norm_window_args *a = &l->step.args.norm_window;
    const int64_t side = 2 * a->window - 1, width = a->heads * a->dim;
    bind_views(l, &a->x, &a->y, &a->res);
    bind_norm(l, &a->norm, norm, s.c);
    const bool small = a->dim < DVK_SWIN_DIM;
    bind_linear(l, &a->in, in, small ? DVK_SWIN_MATRIX_WINDOW16_IN : DVK_SWIN_MATRIX_WINDOW_IN);
    bind_linear(l, &a->out, node, small ? DVK_SWIN_MATRIX_WINDOW16_OUT : DVK_SWIN_MATRIX_WINDOW_OUT);
    dv_lower_vector(l, FIELD(norm_window.table), middle->weight, a->heads * side * side);
    const int64_t each = width * (8 * s.c + 4 * (int64_t)a->window * a->window);
    dv_lower_commit(l, "norm_window", &a->x, &a->y, pixels * (uint64_t)each);
}

/* ---- fusing ---- */

static void take(dv_lowering *l, const int32_t *parts, int64_t at) {
    dv_graph *g = l->plan->graph;
    dv_node *last = &g->nodes[at];
    const dv_value x = g->nodes[parts[PART_NORM]].in[0];
    if (is_window(g, parts)) {
        const dv_node *attention = &g->nodes[parts[PART_MIDDLE]];
        for (int i = 0; i < 3; i++) {
            dv_node_remove(g, l->place->producer[attention->in[i]]);
        }
        dv_node_remove(g, parts[PART_MIDDLE]);
    }
    dv_node_remove(g, parts[PART_IN]);
    dv_node_remove(g, parts[PART_NORM]);
    for (int i = PART_NORM; i <= PART_MIDDLE; i++) {
        l->cuda[at].parts[i] = parts[i];
    }
    last->in[0] = x;
    l->cuda[at].lower = lower_half;
}

void dv_fuse_swin(dv_lowering *l, bool *changed) {
    const dv_graph *g = l->plan->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *last = &g->nodes[k];
        int32_t parts[3];
        const bool ends = !last->dead && dv_is_linear(l->place, last) && last->fused.act.kind == DVK_ACT_NONE &&
                          dv_adds_one(last) && last->out != g->output;
        if (ends && find_parts(l->place, last, parts) && has_kernel(l, parts, last)) {
            take(l, parts, k);
            *changed = true;
        }
    }
}
