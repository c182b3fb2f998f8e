/* fuse_cuda.c - lets a CUDA convolution absorb neighbouring steps. These are the pixel shuffle behind it, the product
 * with its result, the statistics of the group norm behind it, and the final "store". It also fuses the product of the
 * two halves of a depthwise convolution's channels. Each fusion saves a pass over the largest pictures of a network.
 * Whether a fusion is possible depends on the kernel. Therefore the arguments are built as in the final plan, except
 * for arena offsets, and offered to the kernels. */
#include "core/plan/fuse_cuda.h"

#include <stddef.h>

#include "core/base/error.h"
#include "core/plan/choose.h"
#include "core/plan/lower.h"

enum { STATS_CHUNKS = 512 }; /* most chunks of a picture in a step that only computes statistics */

/* ---- pixel shuffle ---- */

/* The convolution whose result only this shuffle reads, without an epilogue that a shuffle would disturb; -1: none. */
static int64_t conv_before(const dv_memory_plan *place, const dv_node *shuffle) {
    const dv_graph *g = place->graph;
    const dv_value v = shuffle->in[0];
    const int64_t k = place->producer[v];
    const dv_node *conv = k >= 0 ? &g->nodes[k] : NULL;
    const bool own_place =
        place->places[shuffle->out].channel == 0 &&
        place->buffers[place->places[shuffle->out].buffer].shape.c == g->values[shuffle->out].shape.c;
    return conv != NULL && conv->op == DV_OP_CONV2D && g->values[v].uses == 1 && v != g->output &&
                   conv->fused.n_res == 0 && !conv->fused.gate && own_place
               ? k
               : -1;
}

static bool has_skip(const dv_node *shuffle) {
    return shuffle->n_in > 1 && shuffle->in[1] != DV_NO_VALUE;
}

static double cost_of(const dv_lowering *l, const dvk_cuda_kernel *k, const void *args) {
    return k->cost != NULL ? k->cost(args, l->options->caps) : 0.0;
}

/* The cost of the shuffle as a step of its own. */
static double shuffle_cost(const dv_lowering *l, const dv_node *shuffle) {
    dvk_args args = {.resample = {.r = shuffle->r}};
    args.resample.x = dv_view_planned(l->place, shuffle->in[0]);
    args.resample.y = dv_view_planned(l->place, shuffle->out);
    if (has_skip(shuffle)) {
        args.resample.res = dv_view_planned(l->place, shuffle->in[1]);
    }
    const dvk_cuda_kernel *k = dv_choose_kernel(l->options, "pixel_shuffle", &args).cuda;
    return k != NULL ? cost_of(l, k, &args) : 1e30;
}

static davy_result can_shuffle(dv_lowering *l, int64_t k, const dv_node *shuffle, bool *yes) {
    const davy_result r = dv_lower_try_conv(l, k);
    if (r < 0) {
        return r;
    }
    dvk_args apart = l->step.args;
    const dvk_cuda_kernel *apart_kernel = dv_lower_choose_conv(l, &apart).cuda;
    dvk_conv2d_args *a = &l->step.args.conv;
    a->y = dv_view_planned(l->place, shuffle->out);
    a->epi.shuffle = shuffle->r;
    if (has_skip(shuffle)) {
        a->epi.res[0] = dv_view_planned(l->place, shuffle->in[1]);
        a->epi.beta[0] = 1.0f;
        a->epi.n_res = 1;
    }
    const dvk_cuda_kernel *kernel = dv_lower_choose_conv(l, &l->step.args).cuda;
    *yes = kernel != NULL && (apart_kernel == NULL ||
                              cost_of(l, kernel, a) <= cost_of(l, apart_kernel, &apart) + shuffle_cost(l, shuffle));
    return DAVY_OK;
}

/* The convolution moves to the shuffle's place in the order and computes its result. At that place the skip already
 * exists. */
static void take_shuffle(dv_lowering *l, int64_t conv, int64_t at) {
    const dv_graph *g = l->plan->graph;
    const dv_node *shuffle = &g->nodes[at];
    dv_node *node = &l->plan->graph->nodes[conv];
    l->cuda[conv].shuffle = shuffle->r;
    if (has_skip(shuffle)) {
        node->fused.res[0] = shuffle->in[1];
        node->fused.beta[0] = 1.0f;
        node->fused.n_res = 1;
    }
    dv_take_place(l, conv, at);
}

static bool only_adds(const dv_node *add) {
    return add->fused.n_res == 1 && dv_is_one(add->fused.alpha) && dv_is_one(add->fused.beta[0]) && !add->fused.gate &&
           add->fused.act.kind == DVK_ACT_NONE && add->fused.norm < 0 && add->fused.pro_scale == DV_NO_PARAM &&
           add->fused.pro_act.kind == DVK_ACT_NONE;
}

/* For a convolution that has just absorbed a shuffle: the addition that is its only reader, with an operand of the
 * same size; -1: none. */
static int64_t add_behind(const dv_graph *g, int64_t conv) {
    const dv_value v = g->nodes[conv].out;
    if (g->nodes[conv].fused.n_res > 0 || g->values[v].uses != 1 || v == g->output) {
        return -1;
    }
    for (int64_t k = conv + 1; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (!node->dead && node->op == DV_OP_ADD && (node->in[0] == v || node->fused.res[0] == v)) {
            return only_adds(node) ? k : -1;
        }
    }
    return -1;
}

static dv_value other_of(const dv_node *add, dv_value v) {
    return add->in[0] == v ? add->fused.res[0] : add->in[0];
}

/* Only some kernels support this. It saves the three passes of the addition. */
static davy_result can_add(dv_lowering *l, int64_t conv, const dv_node *add, bool *yes) {
    const davy_result r = dv_lower_try_conv(l, conv);
    if (r < 0) {
        return r;
    }
    dvk_epilogue *e = &l->step.args.conv.epi;
    e->res[0] = dv_view_planned(l->place, other_of(add, l->plan->graph->nodes[conv].out));
    l->step.args.conv.y = dv_view_planned(l->place, add->out);
    e->beta[0] = 1.0f;
    e->n_res = 1;
    *yes = dv_lower_choose_conv(l, &l->step.args).cuda != NULL;
    return DAVY_OK;
}

/* The convolution moves to the addition's place, where the other operand already exists. */
static void take_add(dv_lowering *l, int64_t conv, int64_t at) {
    const dv_graph *g = l->plan->graph;
    dv_node *node = &g->nodes[conv];
    node->fused.res[0] = other_of(&g->nodes[at], node->out);
    node->fused.beta[0] = 1.0f;
    node->fused.n_res = 1;
    dv_take_place(l, conv, at);
}

static davy_result fuse_add(dv_lowering *l, int64_t conv) {
    dv_graph *g = l->plan->graph;
    const int64_t add = add_behind(g, conv);
    bool yes = false;
    const davy_result r = add >= 0 ? can_add(l, conv, &g->nodes[add], &yes) : DAVY_OK;
    if (yes) {
        take_add(l, conv, add);
    }
    return r;
}

static davy_result fuse_shuffles(dv_lowering *l, bool *changed) {
    const dv_graph *g = l->plan->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        const bool shuffle = !node->dead && node->op == DV_OP_PIXEL_SHUFFLE;
        const int64_t conv = shuffle ? conv_before(l->place, node) : -1;
        bool yes = false;
        const davy_result r = conv >= 0 ? can_shuffle(l, conv, node, &yes) : DAVY_OK;
        if (r < 0) {
            return r;
        }
        if (yes) {
            take_shuffle(l, conv, k);
            *changed = true;
            const davy_result added = fuse_add(l, k);
            if (added < 0) {
                return added;
            }
        }
    }
    return DAVY_OK;
}

/* ---- products ---- */

/* No epilogue follows the node's own op. */
static bool ends_plain(const dv_node *node) {
    return node->fused.act.kind == DVK_ACT_NONE && node->fused.n_res == 0 && !node->fused.gate &&
           dv_is_one(node->fused.alpha);
}

static bool is_live(const dv_node *node, dv_op op) {
    return !node->dead && node->op == op;
}

/* The live node that computes v, if it has that op and v has one reader; else NULL. */
static const dv_node *only_for_this(const dv_graph *g, const dv_memory_plan *place, dv_value v, dv_op op) {
    const int64_t k = place->producer[v];
    return k >= 0 && is_live(&g->nodes[k], op) && g->values[v].uses == 1 && v != g->output ? &g->nodes[k] : NULL;
}

/* ---- products with a convolution's result ---- */

/* The other factor of a convolution's activated result: a value, or a sum of two values. */
typedef struct factor {
    dv_value of[2];
    float beta[2];
    int32_t count;
    int64_t sum; /* node of the sum, -1: none */
} factor;

static factor factor_of(const dv_graph *g, const dv_memory_plan *place, dv_value v) {
    factor f = {.of = {v, DV_NO_VALUE}, .beta = {1.0f, 0.0f}, .count = 1, .sum = -1};
    const dv_node *add = only_for_this(g, place, v, DV_OP_ADD);
    if (add != NULL && add->fused.n_res == 1 && add->fused.act.kind == DVK_ACT_NONE && !add->fused.gate &&
        add->fused.pro_act.kind == DVK_ACT_NONE && add->fused.norm < 0 && add->fused.pro_scale == DV_NO_PARAM) {
        f = (factor){.of = {add->in[0], add->fused.res[0]},
                     .beta = {add->fused.alpha, add->fused.beta[0]},
                     .count = 2,
                     .sum = place->producer[v]};
    }
    return f;
}

/* *yes: a kernel computes convolution and product in one step, and costs no more than the two steps. */
static davy_result can_gate(dv_lowering *l, int64_t conv, const dv_node *product, const factor *f, bool *yes) {
    const davy_result r = dv_lower_try_conv(l, conv);
    if (r < 0) {
        return r;
    }
    dvk_args apart = l->step.args;
    dvk_args multiply = {.multiply = {.act = product->act.kind, .epi = {.alpha = 1.0f}}};
    multiply.multiply.x = dv_view_planned(l->place, product->in[0]);
    multiply.multiply.g = dv_view_planned(l->place, product->in[1]);
    multiply.multiply.y = dv_view_planned(l->place, product->out);
    const dvk_cuda_kernel *kernels[3];
    kernels[0] = dv_lower_choose_conv(l, &apart).cuda;
    kernels[1] = dv_choose_kernel(l->options, "multiply", &multiply).cuda;
    dvk_conv2d_args *a = &l->step.args.conv;
    a->y = multiply.multiply.y;
    a->epi.gate = 2;
    a->epi.act = product->act.kind;
    a->epi.n_res = f->count;
    for (int32_t i = 0; i < f->count; i++) {
        a->epi.res[i] = dv_view_planned(l->place, f->of[i]);
        a->epi.beta[i] = f->beta[i];
    }
    kernels[2] = dv_lower_choose_conv(l, &l->step.args).cuda;
    *yes = kernels[2] != NULL &&
           (kernels[0] == NULL || kernels[1] == NULL ||
            cost_of(l, kernels[2], a) <= cost_of(l, kernels[0], &apart) + cost_of(l, kernels[1], &multiply));
    return DAVY_OK;
}

static void take_factor(dv_lowering *l, int64_t conv, int64_t at, const factor *f) {
    dv_graph *g = l->plan->graph;
    dv_node *node = &g->nodes[conv];
    node->fused.gate = 2;
    node->fused.act = g->nodes[at].act;
    node->fused.n_res = f->count;
    for (int32_t i = 0; i < f->count; i++) {
        node->fused.res[i] = f->of[i];
        node->fused.beta[i] = f->beta[i];
    }
    if (f->sum >= 0) {
        g->nodes[f->sum].fused.n_res = 0;
        dv_node_remove(g, f->sum);
    }
    dv_take_place(l, conv, at);
}

static bool same_size(const dv_graph *g, dv_value a, dv_value b) {
    const dv_shape x = dv_shape_of(g, a), y = dv_shape_of(g, b);
    return x.n == y.n && x.h == y.h && x.w == y.w && x.c == y.c;
}

static davy_result fuse_factor(dv_lowering *l, int64_t at, bool *changed) {
    dv_graph *g = l->plan->graph;
    const dv_node *product = &g->nodes[at];
    const dv_node *conv = only_for_this(g, l->place, product->in[1], DV_OP_CONV2D);
    if (conv == NULL || !ends_plain(conv) || dv_cuda_of(l->place, conv)->shuffle > 1 ||
        !same_size(g, product->in[0], product->in[1])) {
        return DAVY_OK;
    }
    const int64_t k = l->place->producer[product->in[1]];
    factor f = factor_of(g, l->place, product->in[0]);
    bool yes = false;
    davy_result r = can_gate(l, k, product, &f, &yes);
    if (r == DAVY_OK && !yes && f.count > 1) { /* without fusing the sum */
        f = (factor){.of = {product->in[0], DV_NO_VALUE}, .beta = {1.0f, 0.0f}, .count = 1, .sum = -1};
        r = can_gate(l, k, product, &f, &yes);
    }
    if (r == DAVY_OK && yes) {
        take_factor(l, k, at, &f);
        *changed = true;
    }
    return r;
}

/* ---- a convolution gated by a 1x1 convolution of its own result ---- */

/* For a 1x1 convolution with gate 2: the index of the residual that is also its input; -1: neither. */
static int32_t own_residual(const dv_memory_plan *place, const dv_node *gate) {
    const bool gates = dv_reads_plain_1x1(place, gate) && gate->fused.gate == 2 && gate->fused.n_res == 2 &&
                       gate->fused.res[0] != gate->fused.res[1];
    return !gates ? -1 : gate->fused.res[0] == gate->in[0] ? 0 : gate->fused.res[1] == gate->in[0] ? 1 : -1;
}

static void set_gate(dvk_epilogue *e, const dv_node *gate, int32_t own, dvk_view other) {
    static const float some[1] = {0.0f};
    e->gate = 3;
    e->act = gate->fused.act.kind;
    e->alpha = gate->fused.beta[own];
    e->beta[0] = gate->fused.beta[1 - own];
    e->res[0] = other;
    e->n_res = 1;
    e->gate_w = some;
    e->gate_bias = gate->bias != DV_NO_PARAM ? some : NULL;
}

static davy_result can_gate_itself(dv_lowering *l, int64_t conv, int64_t at, int32_t own, bool *yes) {
    const dv_node *gate = &l->plan->graph->nodes[at];
    davy_result r = dv_lower_try_conv(l, at);
    const dvk_args behind = l->step.args;
    r = r < 0 ? r : dv_lower_try_conv(l, conv);
    if (r < 0) {
        return r;
    }
    dvk_args ahead = l->step.args, apart = behind;
    dvk_conv2d_args *a = &l->step.args.conv;
    a->y = behind.conv.y;
    set_gate(&a->epi, gate, own, behind.conv.epi.res[1 - own]);
    const dvk_cuda_kernel *kernels[3] = {dv_lower_choose_conv(l, &ahead).cuda, dv_lower_choose_conv(l, &apart).cuda,
                                         dv_lower_choose_conv(l, &l->step.args).cuda};
    *yes = kernels[2] != NULL &&
           (kernels[0] == NULL || kernels[1] == NULL ||
            cost_of(l, kernels[2], a) <= cost_of(l, kernels[0], &ahead) + cost_of(l, kernels[1], &apart));
    return DAVY_OK;
}

static void take_gate(dv_lowering *l, int64_t conv, int64_t at, int32_t own) {
    dv_graph *g = l->plan->graph;
    const dv_node *gate = &g->nodes[at];
    dv_node *node = &g->nodes[conv];
    node->fused.gate = 3;
    node->fused.act = gate->fused.act;
    node->fused.alpha = gate->fused.beta[own];
    node->fused.beta[0] = gate->fused.beta[1 - own];
    node->fused.res[0] = gate->fused.res[1 - own];
    node->fused.n_res = 1;
    l->cuda[conv].gate_weight = gate->weight;
    l->cuda[conv].gate_bias = gate->bias;
    dv_take_place(l, conv, at);
}

static davy_result fuse_own_gate(dv_lowering *l, int64_t at, bool *changed) {
    dv_graph *g = l->plan->graph;
    const dv_node *gate = &g->nodes[at];
    const int32_t own = own_residual(l->place, gate);
    const int64_t k = own >= 0 ? dv_behind(l->place, gate->in[0], 2) : -1;
    if (k < 0 || g->nodes[k].op != DV_OP_CONV2D || !ends_plain(&g->nodes[k]) || l->cuda[k].shuffle > 1 ||
        !same_size(g, gate->in[0], gate->out)) {
        return DAVY_OK;
    }
    bool yes = false;
    const davy_result r = can_gate_itself(l, k, at, own, &yes);
    if (yes) {
        take_gate(l, k, at, own);
        *changed = true;
    }
    return r;
}

/* ---- halves of a depthwise convolution's channels ---- */

/* The depthwise node whose channel halves are the product's two factors, the activated half first; -1: none. */
static int64_t depthwise_halved(const dv_graph *g, const dv_memory_plan *place, const dv_node *product) {
    const dv_node *gate = only_for_this(g, place, product->in[1], DV_OP_SLICE);
    const dv_node *other = only_for_this(g, place, product->in[0], DV_OP_SLICE);
    if (gate == NULL || other == NULL || gate->in[0] != other->in[0]) {
        return -1;
    }
    const dv_value whole = gate->in[0];
    const int64_t k = place->producer[whole], half = dv_shape_of(g, product->out).c;
    const bool halves = gate->first == 0 && other->first == half && dv_shape_of(g, whole).c == 2 * half &&
                        dv_shape_of(g, gate->out).c == half && g->values[whole].uses == 2 && whole != g->output;
    return halves && k >= 0 && is_live(&g->nodes[k], DV_OP_DEPTHWISE) && ends_plain(&g->nodes[k]) &&
                   g->nodes[k].fused.norm < 0 && g->nodes[k].fused.pro_scale == DV_NO_PARAM &&
                   g->nodes[k].fused.pro_act.kind == DVK_ACT_NONE
               ? k
               : -1;
}

static bool can_pair(const dv_lowering *l, const dv_node *depthwise, const dv_node *product) {
    static const float vector[1] = {0.0f};
    dvk_args args = {.depthwise = {.kh = depthwise->kh,
                                   .kw = depthwise->kw,
                                   .pad_top = depthwise->pad_top,
                                   .pad_left = depthwise->pad_left,
                                   .w = vector,
                                   .epi = {.alpha = 1.0f, .act = product->act.kind},
                                   .paired = 1}};
    args.depthwise.x = dv_view_planned(l->place, depthwise->in[0]);
    args.depthwise.y = dv_view_planned(l->place, product->out);
    return dv_choose_kernel(l->options, "depthwise", &args).cuda != NULL;
}

static void fuse_halves(dv_lowering *l, int64_t at, bool *changed) {
    dv_graph *g = l->plan->graph;
    const dv_node *product = &g->nodes[at];
    const int64_t k = depthwise_halved(g, l->place, product);
    if (k < 0 || !can_pair(l, &g->nodes[k], product)) {
        return;
    }
    dv_node_remove(g, l->place->producer[product->in[0]]);
    dv_node_remove(g, l->place->producer[product->in[1]]);
    l->cuda[k].paired = true;
    g->nodes[k].fused.act = product->act;
    dv_take_place(l, k, at);
    *changed = true;
}

static davy_result fuse_products(dv_lowering *l, bool *changed) {
    const dv_graph *g = l->plan->graph;
    davy_result r = DAVY_OK;
    for (int64_t k = 0; k < g->n_nodes && r == DAVY_OK; k++) {
        const dv_node *node = &g->nodes[k];
        if (is_live(node, DV_OP_MULTIPLY) && ends_plain(node)) {
            fuse_halves(l, k, changed);
        }
        if (is_live(node, DV_OP_MULTIPLY) && ends_plain(node)) {
            r = fuse_factor(l, k, changed);
        }
        if (r == DAVY_OK && is_live(node, DV_OP_CONV2D)) {
            r = fuse_own_gate(l, k, changed);
        }
    }
    return r;
}

davy_result dv_fuse_convs(dv_lowering *l, bool *changed) {
    const davy_result r = fuse_shuffles(l, changed);
    return r < 0 ? r : fuse_products(l, changed);
}

/* ---- group norm ---- */

/* The convolution that computes exactly the normalised value; -1: none. */
static int64_t conv_normalised(const dv_memory_plan *place, const dv_node *norm) {
    const dv_graph *g = place->graph;
    const dv_value v = norm->in[0];
    const int64_t k = place->producer[v];
    const dv_cuda_node *cuda = k >= 0 ? &place->cuda[k] : NULL;
    if (cuda == NULL || g->nodes[k].op != DV_OP_CONV2D || cuda->shuffle > 1 || cuda->lower != NULL ||
        place->norms[k].writes > 0) {
        return -1;
    }
    const dv_plan_buffer *b = &place->buffers[place->places[v].buffer];
    const bool whole = place->places[v].channel == 0 && b->shape.c == g->values[v].shape.c;
    return whole || b->ring ? k : -1;
}

/* Chunks of a picture that the convolution's kernel would write statistics for; 0: it cannot. */
static int64_t chunks_of(const dv_lowering *l, const dv_node *norm) {
    static float somewhere;
    dvk_args args = l->step.args;
    const dvk_cuda_kernel *k = dv_lower_choose_conv(l, &args).cuda;
    args.conv.epi.stats = &somewhere;
    args.conv.epi.stats_groups = norm->groups;
    return k == NULL || k->stats_chunks == NULL || (k->supports != NULL && !k->supports(&args, l->options->caps))
               ? 0
               : k->stats_chunks(&args, l->options->caps);
}

davy_result dv_fuse_statistics(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    dv_memory_plan *place = l->place;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (node->dead || node->op != DV_OP_GROUP_NORM) {
            continue;
        }
        const int64_t conv = conv_normalised(place, node);
        dv_norm_place *norm = &place->norms[k];
        norm->chunks = dv_min(dv_shape_of(g, node->in[0]).h, STATS_CHUNKS);
        if (conv >= 0 && dv_lower_try_conv(l, conv) < 0) {
            return l->result;
        }
        const int64_t chunks = conv >= 0 ? chunks_of(l, node) : 0;
        if (chunks > 0) {
            norm->conv = (int32_t)conv;
            norm->chunks = chunks;
            place->norms[conv].writes++;
        }
    }
    return DAVY_OK;
}

/* ---- store ---- */

/* The last live node, if it is a convolution that computes the whole output in a buffer of its own; else -1. */
static int64_t conv_last(const dv_graph *g, const dv_memory_plan *place) {
    const int32_t buffer = place->places[g->output].buffer;
    const int64_t conv = place->producer[g->output];
    bool alone = conv >= 0 && g->nodes[conv].op == DV_OP_CONV2D && g->output != g->input;
    for (int64_t v = 0; alone && v < g->n_values; v++) {
        alone = v == g->output || place->places[v].buffer != buffer;
    }
    for (int64_t k = conv + 1; alone && k < g->n_nodes; k++) {
        alone = g->nodes[k].dead;
    }
    return alone ? conv : -1;
}

davy_result dv_fuse_store(dv_lowering *l) {
    dv_plan *plan = l->plan;
    const int64_t conv = conv_last(plan->graph, l->place);
    const davy_result r = conv >= 0 ? dv_lower_try_conv(l, conv) : DAVY_OK;
    if (r < 0 || conv < 0) {
        return r;
    }
    const dvk_cuda_kernel *k = dv_lower_choose_conv(l, &l->step.args).cuda;
    plan->direct = k != NULL && k->stores != NULL && k->stores(&l->step.args, l->options->caps);
    if (plan->direct) {
        l->place->blocks[l->place->places[plan->graph->output].buffer].bytes = 0;
    }
    return DAVY_OK;
}
