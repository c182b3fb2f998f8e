/* fuse_se.c - squeeze and excitation: a picture times factors that two small layers compute from its channels' means.
 * On CUDA the convolution that computes the picture also sums its channels. The readers of the product read the
 * picture itself. One is a convolution with weights that "excite" has scaled. The other may be an addition behind a
 * shuffle; it applies the factors to its residual. No separate pass over the picture remains. */
#include <stddef.h>
#include <stdio.h>

#include "core/base/error.h"
#include "core/plan/choose.h"
#include "core/plan/fuse_cuda.h"
#include "core/plan/lower.h"
#include "core/base/mem.h"

#define FIELD(member) ((uint32_t)offsetof(dvk_args, member))

enum { PART_IN, PART_OUT };   /* of a mean's `parts`: the two layers */
enum { MOST_CHANNELS = 256 }; /* bf16 represents these integers exactly */

typedef struct squeeze {
    int64_t conv, mean, in, out, product;
    int64_t reader, adder; /* convolution that reads the product; convolution that adds it behind a shuffle, or -1 */
    int64_t cut;           /* crop between product and adder; -1: none */
    dv_value x, y;
} squeeze;

static bool ends_with(const dv_node *node, dvk_act act) {
    return node->fused.act.kind == act && node->fused.n_res == 0;
}

static bool is_product(const dv_graph *g, const dv_node *node) {
    return !node->dead && node->op == DV_OP_MULTIPLY && node->act.kind == DVK_ACT_SIGMOID && node->out != g->output &&
           ends_with(node, DVK_ACT_NONE) && !node->fused.gate && dv_is_one(node->fused.alpha);
}

/* Walks from the product back to the picture and the convolution that computes it. */
static bool find_squeeze(const dv_memory_plan *place, int64_t at, squeeze *s) {
    const dv_graph *g = place->graph;
    const dv_node *product = &g->nodes[at];
    if (!is_product(g, product)) {
        return false;
    }
    *s = (squeeze){.product = at, .x = product->in[0], .y = product->out, .reader = -1, .adder = -1, .cut = -1};
    const dv_shape x = dv_shape_of(g, s->x), gate = dv_shape_of(g, product->in[1]);
    s->out = gate.h * gate.w == 1 && gate.c == x.c ? dv_behind(place, product->in[1], 1) : -1;
    if (s->out < 0 || !dv_is_linear(place, &g->nodes[s->out]) || !ends_with(&g->nodes[s->out], DVK_ACT_NONE)) {
        return false;
    }
    s->in = dv_behind(place, g->nodes[s->out].in[0], 1);
    if (s->in < 0 || !dv_is_linear(place, &g->nodes[s->in]) || !ends_with(&g->nodes[s->in], DVK_ACT_RELU)) {
        return false;
    }
    s->mean = dv_behind(place, g->nodes[s->in].in[0], 1);
    s->conv = dv_behind(place, s->x, 2);
    return s->mean >= 0 && g->nodes[s->mean].op == DV_OP_MEAN && g->nodes[s->mean].in[0] == s->x && s->conv >= 0 &&
           g->nodes[s->conv].op == DV_OP_CONV2D && place->cuda[s->conv].lower == NULL &&
           place->cuda[s->conv].shuffle <= 1 && x.n == 1 && x.c <= MOST_CHANNELS;
}

static bool adds(const dv_node *node, dv_value v) {
    return (node->fused.n_res > 0 && node->fused.res[0] == v) || (node->fused.n_res > 1 && node->fused.res[1] == v);
}

/* A convolution that reads the product without a prologue, with stored weights. */
static bool reads_plainly(const dv_memory_plan *place, const dv_node *node, dv_value y) {
    const dv_cuda_node *cuda = dv_cuda_of(place, node);
    return node->op == DV_OP_CONV2D && node->in[0] == y && !adds(node, y) && cuda->lower == NULL && !node->phased &&
           node->fused.upsample <= 1 && cuda->winograd == 0 && dv_begins_plain(node) && cuda->scale == DV_NO_VALUE;
}

static bool adds_behind_shuffle(const dv_memory_plan *place, const dv_node *node, dv_value v) {
    const dv_graph *g = place->graph;
    const dv_cuda_node *cuda = dv_cuda_of(place, node);
    return node->op == DV_OP_CONV2D && node->in[0] != v && cuda->shuffle > 1 && node->fused.n_res == 1 &&
           node->fused.res[0] == v && cuda->res_scale == DV_NO_VALUE &&
           dv_shape_of(g, v).h == dv_shape_of(g, node->out).h;
}

static bool reads(const dv_node *node, dv_value v) {
    bool yes = adds(node, v);
    for (int32_t i = 0; i < node->n_in; i++) {
        yes = yes || node->in[i] == v;
    }
    return yes && !node->dead;
}

/* The only node that reads v; -1: none, or several. */
static int64_t only_reader(const dv_graph *g, dv_value v) {
    int64_t found = -1;
    for (int64_t k = 0; k < g->n_nodes && v != g->output && g->values[v].uses == 1; k++) {
        found = reads(&g->nodes[k], v) ? k : found;
    }
    return found;
}

/* Finds the readers of the product: one convolution, and at most one that adds it or a crop of it. False if there are
 * others. */
static bool find_readers(const dv_memory_plan *place, squeeze *s) {
    const dv_graph *g = place->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (!reads(node, s->y)) {
            continue;
        }
        const bool cut = node->op == DV_OP_CROP;
        const int64_t user = cut ? only_reader(g, node->out) : k;
        if (!cut && s->reader < 0 && reads_plainly(place, node, s->y)) {
            s->reader = k;
        } else if (user >= 0 && s->adder < 0 && adds_behind_shuffle(place, &g->nodes[user], cut ? node->out : s->y)) {
            s->adder = user;
            s->cut = cut ? k : -1;
        } else {
            return false;
        }
    }
    return s->reader >= 0 && g->values[s->y].uses == 1 + (s->adder >= 0);
}

/* Rows of channel sums that the convolution's kernel would write; 0: it cannot. */
static int64_t rows_of(dv_lowering *l, int64_t conv) {
    if (dv_lower_try_conv(l, conv) < 0) {
        return 0;
    }
    dvk_args args = l->step.args;
    const dvk_cuda_kernel *k = dv_lower_choose_conv(l, &args).cuda;
    return k != NULL && k->sums_chunks != NULL ? k->sums_chunks(&args, l->options->caps) : 0;
}

/* The kernel of the convolution `reader` and its arguments, if it can read scaled weights; else NULL. */
static const dvk_cuda_kernel *scalable(dv_lowering *l, int64_t reader, dvk_args *args) {
    if (dv_lower_try_conv(l, reader) < 0) {
        return NULL;
    }
    *args = l->step.args;
    const dvk_cuda_kernel *k = dv_lower_choose_conv(l, args).cuda;
    return k != NULL && k->scalable != NULL && k->scalable(args, l->options->caps) ? k : NULL;
}

/* A parameter that holds, for every weight of the reader, its input channel. It is packed as the weights are, so it
 * shows which channel's factor applies where. */
static dv_param channels_of(dv_graph *g, const dv_node *reader) {
    const dv_param_info *w = &g->params[reader->weight];
    const int64_t taps = w->shape[2] * w->shape[3], count = w->shape[0] * w->shape[1] * taps;
    float *values = dv_calloc((uint64_t)count, sizeof *values);
    if (values == NULL) {
        dv_graph_fail(g, dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory"));
        return DV_NO_PARAM;
    }
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)(i / taps % w->shape[1]);
    }
    char label[96];
    snprintf(label, sizeof label, "input channels of %lldx%lldx%lldx%lld", (long long)w->shape[0],
             (long long)w->shape[1], (long long)w->shape[2], (long long)w->shape[3]);
    const int64_t shape[4] = {w->shape[0], w->shape[1], w->shape[2], w->shape[3]};
    const dv_param p = dv_param_constant(g, label, 4, shape, values);
    dv_free(values);
    return p;
}

/* ---- buffers and steps ---- */

static bool is_excite(const dv_lowering *l, int64_t k) {
    const dv_node *node = &l->plan->graph->nodes[k];
    return !node->dead && node->op == DV_OP_MEAN && l->cuda[k].lower != NULL;
}

/* The convolution whose weights this mean scales. */
static int64_t reader_of(const dv_lowering *l, int64_t mean) {
    const dv_graph *g = l->plan->graph;
    int64_t k = mean + 1;
    while (g->nodes[k].dead || g->nodes[k].op != DV_OP_CONV2D || l->cuda[k].scale != g->nodes[mean].out) {
        k++;
    }
    return k;
}

static davy_result kernel_rejected(const dv_graph *g, int64_t k) {
    return dv_fail(DAVY_E_INTERNAL, "%s: its kernel in the final plan cannot read scaled weights", g->nodes[k].label);
}

/* The channel sums that the convolution's kernel writes while it stores the picture. */
static davy_result place_sums(dv_lowering *l, int64_t k) {
    dv_memory_plan *place = l->place;
    const dv_graph *g = l->plan->graph;
    dv_norm_place *at = &place->norms[k];
    const int64_t c = dv_shape_of(g, g->nodes[k].out).c;
    at->conv = place->producer[g->nodes[k].in[0]];
    place->norms[at->conv].writes++;
    at->chunks = rows_of(l, at->conv);
    if (at->chunks <= 0) {
        return l->result < 0 ? l->result : kernel_rejected(g, k);
    }
    const dv_buffer_spec partial = {DVK_F32, {1, 1, at->chunks, c}, .first = at->conv, .last = k};
    at->partial = dv_memory_plan_add(place, &partial);
    return at->partial >= 0 ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
}

/* Adds the buffers. A convolution that scales its weights itself, such as "up_conv" (fuse_pair.c), needs no scaled
 * copy of them. */
static davy_result place_excite(dv_lowering *l, int64_t k) {
    dv_memory_plan *place = l->place;
    dv_norm_place *at = &place->norms[k];
    const int64_t reader = reader_of(l, k);
    const davy_result r = l->options->given_means ? DAVY_OK : place_sums(l, k);
    bool fine = true;
    if (r == DAVY_OK && l->cuda[reader].lower == NULL) {
        dvk_args args;
        const dvk_cuda_kernel *kernel = scalable(l, reader, &args);
        if (kernel == NULL) {
            return l->result < 0 ? l->result : kernel_rejected(l->plan->graph, k);
        }
        const int64_t words = dv_div_up((int64_t)kernel->packed_bytes(&args), 4);
        const dv_buffer_spec packed = {DVK_F32, {1, 1, 1, words}, .first = k, .last = reader};
        at->coefficients = dv_memory_plan_add(place, &packed);
        fine = at->coefficients >= 0;
    }
    return r < 0 || fine ? r : dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
}

davy_result dv_place_se(dv_lowering *l) {
    for (int64_t k = 0; k < l->plan->graph->n_nodes; k++) {
        if (!is_excite(l, k)) {
            continue;
        }
        const davy_result r = place_excite(l, k);
        if (r < 0) {
            return r;
        }
    }
    return DAVY_OK;
}

static void bind_packed(dv_lowering *l, uint32_t field, const dv_weight *w) {
    if (dv_lower_weight(l, w) != NULL) {
        dv_lower_bind(l, DV_BIND_WEIGHT, field, (uint64_t)l->plan->n_weights - 1);
        l->step.bytes += w->bytes;
    }
}

/* Call it before the step is begun: trying the convolution overwrites l->step. */
static bool weight_of(dv_lowering *l, dv_weight *w) {
    const int64_t mean = l->node, reader = reader_of(l, mean);
    dvk_args args;
    w->kernel.cuda = scalable(l, reader, &args);
    l->node = mean;
    if (w->kernel.cuda == NULL) {
        l->result = l->result < 0 ? l->result : kernel_rejected(l->plan->graph, mean);
        return false;
    }
    w->param = l->plan->graph->nodes[reader].weight;
    w->conv = args.conv;
    w->bytes = w->kernel.cuda->packed_bytes(&args);
    return true;
}

static void lower_excite(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    const dv_node *node = dv_lower_now(l);
    const dv_norm_place *at = &l->place->norms[l->node];
    const int32_t *parts = dv_lower_cuda(l)->parts;
    const dv_node *in = &g->nodes[parts[PART_IN]], *out = &g->nodes[parts[PART_OUT]];
    dv_weight w = {.param = DV_NO_PARAM, .conv = {.compute = DVK_F16}};
    if (at->coefficients >= 0 && !weight_of(l, &w)) {
        return;
    }
    dv_lower_begin(l);
    const dv_shape x = dv_lower_shape(l, node->in[0]);
    dvk_excite_args *a = &l->step.args.excite;
    *a = (dvk_excite_args){.rows = at->chunks,
                           .c = x.c,
                           .hidden = g->params[in->weight].shape[0],
                           .pixels = l->options->given_means ? 1 : x.h * x.w,
                           .count = (int64_t)w.bytes / 2,
                           .dtype = w.conv.compute};
    dv_lower_vector(l, FIELD(excite.w_in), in->weight, a->hidden * x.c);
    dv_lower_vector(l, FIELD(excite.b_in), in->bias, a->hidden);
    dv_lower_vector(l, FIELD(excite.w_out), out->weight, x.c * a->hidden);
    dv_lower_vector(l, FIELD(excite.b_out), out->bias, x.c);
    if (at->coefficients >= 0) {
        bind_packed(l, FIELD(excite.w), &w);
        w.param = node->weight;
        bind_packed(l, FIELD(excite.channel), &w);
        dv_lower_bind(l, DV_BIND_ARENA, FIELD(excite.scaled), l->place->blocks[at->coefficients].offset);
    }
    uint64_t scale = 0;
    const dvk_view nothing = {0};
    dv_view_of(l->place, node->out, &scale);
    dv_lower_bind(l, DV_BIND_ARENA, FIELD(excite.scale), scale);
    dv_lower_bind(l, DV_BIND_ARENA, FIELD(excite.sums), l->place->blocks[at->partial].offset);
    l->step.bytes += w.bytes;
    dv_lower_commit(l, "excite", &nothing, &nothing, 4 * (uint64_t)(x.c * a->hidden));
}

/* ---- fusing ---- */

static void take(dv_lowering *l, const squeeze *s, dv_param channels) {
    dv_graph *g = l->plan->graph;
    dv_cuda_node *cuda = &l->cuda[s->mean];
    dv_node *mean = &g->nodes[s->mean], *reader = &g->nodes[s->reader];
    const dv_value scale = g->nodes[s->product].in[1];
    g->values[mean->out].uses = 0;
    dv_node_remove(g, s->in);
    dv_node_remove(g, s->out);
    dv_node_remove(g, s->product);
    mean->out = scale;
    mean->weight = channels;
    cuda->lower = lower_excite;
    cuda->parts[PART_IN] = (int32_t)s->in;
    cuda->parts[PART_OUT] = (int32_t)s->out;
    reader->in[0] = s->x;
    l->cuda[s->reader].scale = scale;
    if (s->adder >= 0) {
        dv_node *adder = &g->nodes[s->adder];
        l->cuda[s->adder].res_scale = scale;
        *(s->cut >= 0 ? &g->nodes[s->cut].in[0] : &adder->fused.res[0]) = s->x;
    }
    g->values[scale].producer = (int32_t)s->mean;
    g->values[scale].uses = 1 + (s->adder >= 0);
    g->values[s->x].uses = 2 + (s->adder >= 0);
}

davy_result dv_fuse_se(dv_lowering *l, bool *changed) {
    dv_graph *g = l->plan->graph;
    for (int64_t k = 0; k < g->n_nodes && l->result == DAVY_OK; k++) {
        squeeze s;
        dvk_args args;
        if (!find_squeeze(l->place, k, &s) || !find_readers(l->place, &s) ||
            (!l->options->given_means && rows_of(l, s.conv) <= 0) || scalable(l, s.reader, &args) == NULL) {
            continue;
        }
        const dv_param channels = channels_of(g, &g->nodes[s.reader]);
        if (channels == DV_NO_PARAM) {
            return dv_graph_check(g);
        }
        take(l, &s, channels);
        *changed = true;
    }
    return l->result;
}
