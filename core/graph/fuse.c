/* fuse.c - rewrites a graph so that each kernel does as much as possible per pass over memory. Three ops in one kernel
 * need one pass instead of three. Every rewrite is exact and independent of sizes and devices.
 *
 * "Hosts" are nodes whose kernels have a prologue and an epilogue: convolutions, products and pointwise ops. First
 * every host is brought into the form that graph.h describes. Then a host absorbs the op behind it into its epilogue.
 * A node that consists only of a prologue moves into the convolutions behind it. A value is absorbed only if it has
 * one reader. If the other operand of an addition is computed after the host, the host moves down to the addition's
 * place. That is safe: no node in between reads its result. */
#include "core/base/error.h"
#include "core/graph/graph_priv.h"

static bool is_host(const dv_node *node) {
    switch (node->op) {
    case DV_OP_CONV2D:
    case DV_OP_DEPTHWISE:
    case DV_OP_MULTIPLY:
    case DV_OP_ACT:
    case DV_OP_ADD:
    case DV_OP_GATE:
    case DV_OP_AFFINE:
    case DV_OP_GROUP_NORM:
        return !node->dead;
    default:
        return false;
    }
}

/* Attributes of pointwise ops become prologue and epilogue. */
static void normalise(dv_graph *g, int64_t index) {
    dv_node *node = &g->nodes[index];
    switch (node->op) {
    case DV_OP_ACT:
        node->fused.act = node->act;
        break;
    case DV_OP_ADD:
        node->fused.alpha = node->alpha;
        node->fused.beta[0] = node->beta;
        node->fused.n_res = 1;
        break;
    case DV_OP_GATE:
        node->fused.gate = 1;
        node->fused.n_res = 1;
        break;
    case DV_OP_AFFINE:
        node->fused.pro_scale = node->weight;
        node->fused.pro_shift = node->bias;
        break;
    case DV_OP_GROUP_NORM:
        node->fused.norm = (int32_t)index;
        node->fused.norm_of = node->in[0];
        break;
    default:
        break;
    }
    if (node->fused.n_res == 1) {
        node->fused.res[0] = node->in[1];
        node->in[1] = DV_NO_VALUE;
        node->n_in = 1;
    }
}

static dv_node *producer_of(dv_graph *g, dv_value v) {
    return &g->nodes[g->values[v].producer];
}

static bool only_read_once(const dv_graph *g, dv_value v) {
    return g->values[v].uses == 1;
}

static bool plain_epilogue(const dv_node *node) {
    return node->fused.n_res == 0 && !node->fused.gate && !(node->fused.alpha < 1.0f) && !(node->fused.alpha > 1.0f);
}

static void bury(dv_node *node) {
    node->dead = true;
    node->n_in = 0;
    node->out = DV_NO_VALUE;
}

/* Node `keep` computes the result of node `gone` from now on. If `operand` is computed later than `keep`, keep's node
 * moves into gone's slot. operand may be DV_NO_VALUE. */
static void take_over(dv_graph *g, int64_t keep, int64_t gone, dv_value operand) {
    dv_node *k = &g->nodes[keep];
    dv_node *x = &g->nodes[gone];
    g->values[k->out].uses = 0;
    k->out = x->out;
    bury(x);
    int64_t at = keep;
    if (operand != DV_NO_VALUE && g->values[operand].producer > keep) {
        const dv_node moved = *k;
        *k = *x; /* dead, but it owns its label */
        *x = moved;
        at = gone;
        if (x->op == DV_OP_GROUP_NORM) {
            x->fused.norm = (int32_t)at;
        }
    }
    g->values[g->nodes[at].out].producer = (int32_t)at;
}

static bool take_act(dv_graph *g, int64_t index) {
    const dv_node *act = &g->nodes[index];
    const dv_value v = act->in[0];
    dv_node *host = producer_of(g, v);
    if (!only_read_once(g, v) || !is_host(host) || host->fused.gate || host->fused.act.kind != DVK_ACT_NONE) {
        return false;
    }
    host->fused.act = act->fused.act;
    host->fused.act_last = !plain_epilogue(host);
    take_over(g, g->values[v].producer, index, DV_NO_VALUE);
    return true;
}

static bool can_add(const dv_graph *g, const dv_node *host, dv_value v) {
    return only_read_once(g, v) && is_host(host) && !host->fused.gate && host->fused.n_res < 2 &&
           !(host->fused.act_last && host->fused.act.kind != DVK_ACT_NONE);
}

static bool take_add(dv_graph *g, int64_t index) {
    const dv_node *add = &g->nodes[index];
    const dv_value operands[2] = {add->in[0], add->fused.res[0]};
    const float factors[2] = {add->fused.alpha, add->fused.beta[0]};
    int best = -1;
    for (int i = 0; i < 2; i++) {
        const bool later = best < 0 || g->values[operands[i]].producer > g->values[operands[best]].producer;
        if (later && can_add(g, producer_of(g, operands[i]), operands[i])) {
            best = i;
        }
    }
    if (best < 0 || operands[0] == operands[1]) {
        return false;
    }
    dv_node *host = producer_of(g, operands[best]);
    const dv_value other = operands[1 - best];
    host->fused.alpha *= factors[best];
    for (int32_t i = 0; i < host->fused.n_res; i++) {
        host->fused.beta[i] *= factors[best];
    }
    host->fused.res[host->fused.n_res] = other;
    host->fused.beta[host->fused.n_res] = factors[1 - best];
    host->fused.n_res++;
    take_over(g, g->values[operands[best]].producer, index, other);
    return true;
}

static bool take_gate(dv_graph *g, int64_t index) {
    const dv_node *gate = &g->nodes[index];
    const dv_value v = gate->in[0];
    const dv_value other = gate->fused.res[0];
    dv_node *host = producer_of(g, v);
    if (!only_read_once(g, v) || !is_host(host) || !plain_epilogue(host) || host->fused.act.kind != DVK_ACT_NONE) {
        return false;
    }
    host->fused.gate = 1;
    host->fused.res[0] = other;
    host->fused.n_res = 1;
    take_over(g, g->values[v].producer, index, other);
    return true;
}

/* pixel_shuffle(x) + upsample(y) with the same factor: the shuffle adds y's nearest neighbour. */
static bool take_skip(dv_graph *g, int64_t index) {
    const dv_node *add = &g->nodes[index];
    const bool plain = !(add->fused.alpha < 1.0f) && !(add->fused.alpha > 1.0f) && !(add->fused.beta[0] < 1.0f) &&
                       !(add->fused.beta[0] > 1.0f);
    const dv_value operands[2] = {add->in[0], add->fused.res[0]};
    for (int i = 0; plain && i < 2; i++) {
        dv_node *shuffle = producer_of(g, operands[i]);
        dv_node *up = producer_of(g, operands[1 - i]);
        if (shuffle->op != DV_OP_PIXEL_SHUFFLE || shuffle->n_in != 1 || !only_read_once(g, operands[i]) ||
            up->op != DV_OP_UPSAMPLE || up->r != shuffle->r) {
            continue;
        }
        const dv_value small = up->in[0];
        shuffle->in[1] = small;
        shuffle->n_in = 2;
        g->values[small].uses++;
        g->values[up->out].uses--;
        if (g->values[up->out].uses == 0) {
            g->values[small].uses--;
            bury(up);
        }
        take_over(g, g->values[operands[i]].producer, index, small);
        return true;
    }
    return false;
}

static bool reads_as_input(const dv_node *node, dv_value v) {
    return !node->dead && node->op == DV_OP_CONV2D && node->in[0] == v;
}

static int32_t count_operands(const dv_node *node, dv_value v) {
    int32_t count = 0;
    for (int32_t i = 0; !node->dead && i < node->n_in; i++) {
        count += node->in[i] == v;
    }
    for (int32_t i = 0; !node->dead && i < node->fused.n_res; i++) {
        count += node->fused.res[i] == v;
    }
    return count;
}

/* Counts the convolutions after `index` that read v as their input and fit. If the count equals v's uses, v has no
 * other readers. */
static int32_t count_readers(const dv_graph *g, int64_t index, dv_value v, bool (*fits)(const dv_node *)) {
    int32_t count = 0, left = g->values[v].uses;
    for (int64_t i = index + 1; left > 0 && i < g->n_nodes; i++) {
        count += reads_as_input(&g->nodes[i], v) && fits(&g->nodes[i]);
        left -= count_operands(&g->nodes[i], v);
    }
    return count;
}

static bool upsample_free(const dv_node *conv) {
    return conv->fused.upsample <= 1 && conv->stride == 1;
}

static bool prologue_free(const dv_node *conv) {
    return conv->fused.norm < 0 && conv->fused.pro_scale == DV_NO_PARAM && conv->fused.pro_act.kind == DVK_ACT_NONE;
}

/* If a convolution is the only reader of an enlarged picture, it enlarges the picture as it reads. */
static void push_upsample(dv_graph *g, int64_t index) {
    dv_node *up = &g->nodes[index];
    if (up->r != 2 || !only_read_once(g, up->out) || count_readers(g, index, up->out, upsample_free) != 1) {
        return;
    }
    for (int64_t i = index + 1; i < g->n_nodes; i++) {
        if (reads_as_input(&g->nodes[i], up->out)) {
            g->nodes[i].in[0] = up->in[0];
            g->nodes[i].fused.upsample = 2;
        }
    }
    g->values[up->out].uses = 0;
    bury(up);
}

static bool prologue_act(dvk_act act) {
    return act == DVK_ACT_NONE || act == DVK_ACT_RELU || act == DVK_ACT_SILU || act == DVK_ACT_CLAMP3;
}

/* Convolutions apply a preceding norm, affine op or activation as they read. A norm goes into any number of
 * convolutions, since its coefficients are computed once. An affine op or activation goes only into a single reader:
 * several readers would repeat it. */
static void push_prologue(dv_graph *g, int64_t index) {
    dv_node *node = &g->nodes[index];
    const dv_value v = node->out;
    const int32_t uses = g->values[v].uses;
    const bool norm = node->op == DV_OP_GROUP_NORM;
    if (uses < 1 || (uses > 1 && !norm) || !plain_epilogue(node) || !prologue_act(node->fused.act.kind) ||
        count_readers(g, index, v, prologue_free) != uses) {
        return;
    }
    for (int64_t i = index + 1, left = uses; left > 0 && i < g->n_nodes; i++) {
        dv_node *conv = &g->nodes[i];
        if (reads_as_input(conv, v)) {
            left--;
            conv->in[0] = node->in[0];
            conv->fused.norm = node->fused.norm;
            conv->fused.norm_of = node->fused.norm_of;
            conv->fused.pro_scale = node->fused.pro_scale;
            conv->fused.pro_shift = node->fused.pro_shift;
            conv->fused.pro_act = node->fused.act;
        }
    }
    g->values[v].uses = 0;
    g->values[node->in[0]].uses += norm ? uses : uses - 1;
    if (!norm) {
        bury(node);
    }
}

davy_result dv_fuse(dv_graph *g) {
    const davy_result r = dv_graph_check(g);
    if (r < 0 || g->fused) {
        return r;
    }
    for (int64_t i = 0; i < g->n_nodes; i++) {
        normalise(g, i);
    }
    for (int64_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op == DV_OP_ADD) {
            if (!take_skip(g, i)) {
                take_add(g, i);
            }
        } else if (g->nodes[i].op == DV_OP_ACT) {
            take_act(g, i);
        } else if (g->nodes[i].op == DV_OP_GATE) {
            take_gate(g, i);
        }
    }
    for (int64_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op == DV_OP_UPSAMPLE && !g->nodes[i].dead) {
            push_upsample(g, i);
        }
    }
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const dv_op op = g->nodes[i].op;
        if (!g->nodes[i].dead && (op == DV_OP_GROUP_NORM || op == DV_OP_AFFINE || op == DV_OP_ACT)) {
            push_prologue(g, i);
        }
    }
    g->fused = true;
    return DAVY_OK;
}
