/* fold_winograd.c - convolutions over time that read their frames transformed along the width, as "conv2d_winograd" has it:
 * two thirds of the products, twice the memory of frames. What made a frame, a norm or an activation, is applied as the
 * node of frames transforms it. What is decided depends on nothing that differs from slice to slice of a clip: the state
 * between them is f16 where it is so, and its frames are plain. */
#include "core/fold_parts.h"

static bool is_conv(const dv_graph *g, const dv_node *node) {
    if (node->dead || node->op != DV_OP_CONV2D) {
        return false;
    }
    const dv_shape x = dv_shape_of(g, node->in[0]), y = dv_shape_of(g, node->out);
    return node->kh == 3 && node->kw == 3 && node->stride <= 1 && node->pad_top == 1 && node->pad_left == 1 &&
           x.h == y.h && x.w == y.w && !node->phased && !node->fused.mixed && node->fused.upsample <= 1 &&
           node->fused.shuffle <= 1 && node->fused.winograd == 0 && dv_begins_plain(node);
}

/* A norm or an activation, and nothing but what a prologue does. */
static bool is_prologue(const dv_node *node) {
    const dvk_act act = node->fused.act.kind;
    const bool known = act == DVK_ACT_NONE || act == DVK_ACT_RELU || act == DVK_ACT_SILU;
    const bool norm = node->op == DV_OP_GROUP_NORM && node->fused.pro_act.kind == DVK_ACT_NONE;
    return !node->dead && (norm || (node->op == DV_OP_ACT && dv_begins_plain(node))) && known &&
           node->fused.n_res == 0 && !node->fused.gate && dv_is_one(node->fused.alpha);
}

static dv_shape transformed(dv_shape s) {
    s.h *= 4;
    s.w = (s.w + 1) / 2;
    return s;
}

/* ---- costs ---- */

/* Of one frame, in one piece: of any slice the same. */
static void make_alone(dvk_view *v) {
    const int64_t octet = v->dtype == DVK_F32 ? 1 : 8;
    v->n = 1;
    v->sw = dv_div_up(v->c, octet) * octet;
    v->sh = v->w * v->sw;
    v->sn = v->h * v->sh;
}

static dvk_view view_alone(const dv_placement *place, dv_value v) {
    dvk_view view = dv_view_planned(place, v);
    make_alone(&view);
    return view;
}

static dvk_view view_transformed(dvk_view v) {
    v.dtype = DVK_F16;
    v.h *= 4;
    v.w = (v.w + 1) / 2;
    make_alone(&v);
    return v;
}

static double cost_of(const dv_lowering *l, const char *op, dv_args *args) {
    const dvk_cuda_kernel *k = dv_choose_kernel(l->options, op, args).cuda;
    return k == NULL || k->cost == NULL ? 1e30 : k->cost(args, l->options->caps);
}

/* Of the convolution and of what leads to a frame that it reads, `raw`. */
static double plain_cost(const dv_lowering *l, const dvk_conv2d_args *conv, dv_value raw) {
    dv_args args = {.conv = *conv};
    dv_args apply = {.pointwise = {.epi.alpha = 1.0f, .pro.act = DVK_ACT_SILU}};
    apply.pointwise.x = view_alone(l->place, raw);
    apply.pointwise.y = apply.pointwise.x;
    return cost_of(l, "conv2d", &args) + cost_of(l, "pointwise", &apply);
}

static double winograd_cost(const dv_lowering *l, const dvk_conv2d_args *conv, dv_value raw) {
    dv_args args = {.conv = *conv};
    dv_args apply = {.winograd_input = {.pro.act = DVK_ACT_SILU}};
    apply.winograd_input.x = view_alone(l->place, raw);
    apply.winograd_input.y = view_transformed(apply.winograd_input.x);
    args.conv.x = view_transformed(args.conv.x);
    return cost_of(l, "conv2d_winograd", &args) + cost_of(l, "winograd_input", &apply);
}

/* Whether it can be done, and gains. */
static davy_result asks_for(dv_lowering *l, int64_t conv, dv_value raw, bool *yes) {
    const davy_result r = dv_lower_try_conv(l, conv);
    *yes = false;
    if (r == DAVY_OK) {
        dvk_conv2d_args a = l->step.args.conv;
        make_alone(&a.x);
        make_alone(&a.y);
        for (int32_t i = 0; i < a.epi.n_res; i++) {
            make_alone(&a.epi.res[i]);
        }
        *yes = a.x.dtype != DVK_F32 && winograd_cost(l, &a, raw) < plain_cost(l, &a, raw);
    }
    return r;
}

/* ---- frames ---- */

/* The next node of the same ring's windows from k on, or the only one of frames; n_nodes: none. */
static int64_t next_window(const dv_graph *g, const dv_node *of, int64_t k) {
    for (; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (node == of ||
            (!node->dead && node->op == DV_OP_WINDOW && of->op == DV_OP_WINDOW && node->time.ring == of->time.ring)) {
            return k;
        }
    }
    return k;
}

enum { UNREAD = -1, OTHERS = -2 };

/* The convolution that alone reads such frames, but for the past behind them; UNREAD; OTHERS: there is another reader. */
static int64_t reader_of(const dv_graph *g, const dv_node *frames) {
    int64_t conv = UNREAD;
    int32_t uses = g->values[frames->out].uses;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        const bool reads = !node->dead && node->n_in > 0 && node->in[0] == frames->out;
        if (reads && node->op == DV_OP_PAST) {
            uses--;
        } else if (reads && is_conv(g, node)) {
            conv = k;
            uses--;
        }
    }
    return uses == 0 ? conv : OTHERS;
}

/* What makes the frames is but a prologue, and nobody else wants it. */
static bool made_by_prologue(const dv_graph *g, const dv_placement *place, const dv_node *frames) {
    const dv_value x = frames->in[0];
    const int64_t k = place->producer[x];
    return k >= 0 && g->values[x].uses == 1 && x != g->output && is_prologue(&g->nodes[k]) &&
           place->dtypes[x] != DVK_F32 && place->dtypes[g->nodes[k].in[0]] != DVK_F32;
}

static bool suits(const dv_graph *g, const dv_placement *place, const dv_node *frames) {
    const dv_time *t = &frames->time;
    return t->step == 1 && t->frames > 1 && t->lead == t->frames - 1 && (t->keep == 0 || t->keep == t->lead) &&
           dv_shape_of(g, frames->in[0]).c % 8 == 0 && made_by_prologue(g, place, frames) &&
           reader_of(g, frames) != OTHERS;
}

/* ---- rewriting ---- */

static void take_prologue(dv_graph *g, dv_node *frames, dv_node *maker) {
    const bool norm = maker->op == DV_OP_GROUP_NORM;
    char *label = frames->label; /* whose step that was is of interest */
    frames->label = maker->label;
    maker->label = label;
    g->values[frames->in[0]].uses = 0;
    frames->in[0] = maker->in[0];
    frames->fused.norm = maker->fused.norm;
    frames->fused.norm_of = maker->fused.norm_of;
    frames->fused.pro_act = maker->fused.act;
    if (norm) { /* which makes its coefficients still */
        g->values[maker->in[0]].uses++;
    } else {
        maker->dead = true;
        maker->n_in = 0;
        maker->out = DV_NO_VALUE;
    }
}

static void mark(dv_graph *g, dv_node *node, int64_t width) {
    node->fused.winograd = width;
    g->values[node->out].shape = transformed(g->values[node->out].shape);
}

static void rewrite(dv_graph *g, const dv_placement *place, int64_t k) {
    dv_node *frames = &g->nodes[k];
    const int64_t conv = reader_of(g, frames), width = dv_shape_of(g, frames->out).w;
    take_prologue(g, frames, &g->nodes[place->producer[frames->in[0]]]);
    mark(g, frames, width);
    if (frames->op == DV_OP_WINDOW) {
        mark(g, &g->nodes[place->producer[frames->in[1]]], width);
    }
    if (conv >= 0) {
        g->nodes[conv].fused.winograd = width;
    }
}

/* Of all windows of a ring, or a node of frames, that begin with node k. */
static davy_result fold(dv_lowering *l, int64_t k, bool *changed) {
    dv_graph *g = l->plan->graph;
    const dv_node *frames = &g->nodes[k];
    bool yes = true;
    int64_t conv = UNREAD;
    dv_value raw = DV_NO_VALUE;
    for (int64_t i = k; yes && i < g->n_nodes; i = next_window(g, frames, i + 1)) {
        yes = suits(g, l->place, &g->nodes[i]);
        if (yes && conv < 0) {
            conv = reader_of(g, &g->nodes[i]);
            raw = g->nodes[l->place->producer[g->nodes[i].in[0]]].in[0];
        }
    }
    const davy_result r = yes && conv >= 0 ? asks_for(l, conv, raw, &yes) : DAVY_OK;
    for (int64_t i = k; r == DAVY_OK && yes && conv >= 0 && i < g->n_nodes; i = next_window(g, frames, i + 1)) {
        rewrite(g, l->place, i);
        *changed = true;
    }
    return r;
}

davy_result dv_fold_winograd(dv_plan *plan, const dv_placement *place, const dv_plan_options *options, bool *changed) {
    const dv_graph *g = plan->graph;
    dv_lowering l = {.plan = plan, .place = place, .options = options};
    davy_result r = DAVY_OK;
    *changed = false;
    if ((options->compute != DVK_F16 && options->compute != DVK_BF16) || options->offload) {
        return DAVY_OK;
    }
    for (int64_t k = 0; r == DAVY_OK && k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        const bool first = node->op == DV_OP_FRAMES || (node->op == DV_OP_WINDOW && node->first == 0);
        r = !node->dead && first && node->fused.winograd == 0 ? fold(&l, k, changed) : DAVY_OK;
    }
    return r;
}
