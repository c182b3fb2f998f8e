/* lower.c - emits the steps of every node. Most nodes have one step. A group norm has statistics and coefficients, at
 * its own place in the order. A concat has one copy for each input that could not be written in place. lower_conv.c,
 * lower_time.c and fuse_*.c lower convolutions, a clip's frames and merged CUDA nodes. */
#include "core/plan/lower.h"

#include <stddef.h>

#include "core/base/error.h"
#include "kernels/dtype.h"

#define FIELD(member) ((uint32_t)offsetof(dvk_args, member))

/* ---- norms and element-wise steps ---- */

static void lower_stats(dv_lowering *l, const dv_norm_place *where) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_group_norm_stats_args *stats = &l->step.args.stats;
    stats->groups = node->groups;
    stats->chunks = where->chunks;
    dv_lower_view(l, &stats->x, node->in[0]);
    dv_lower_bind(l, DV_BIND_ARENA, FIELD(stats.partial), l->place->blocks[where->partial].offset);
    const dvk_view nothing = {0};
    dv_lower_commit(l, "group_norm_stats", &stats->x, &nothing, 0);
}

/* Statistics and coefficients. dv_norm_used names the node that applies them. */
static void lower_norm(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_norm_place *where = &l->place->norms[l->node];
    const uint64_t partial = l->place->blocks[where->partial].offset;
    const uint64_t scale = l->place->blocks[where->coefficients].offset;
    if (l->options->given_means) {
        dv_lower_note_given(l);
    } else if (where->conv < 0) {
        lower_stats(l, where);
    }
    dv_lower_begin(l);
    dvk_group_norm_finish_args *finish = &l->step.args.finish;
    const dv_shape x = dv_lower_shape(l, node->in[0]);
    *finish = (dvk_group_norm_finish_args){
        .n = x.n, .h = x.h, .w = x.w, .c = x.c, .groups = node->groups, .eps = node->eps, .chunks = where->chunks};
    dv_lower_bind(l, DV_BIND_ARENA, FIELD(finish.partial), partial);
    dv_lower_bind(l, DV_BIND_ARENA, FIELD(finish.scale), scale);
    dv_lower_bind(l, DV_BIND_ARENA, FIELD(finish.shift),
                  scale + (uint64_t)dv_norm_stride(l->plan->graph, (int32_t)l->node) * sizeof(float));
    dv_lower_vector(l, FIELD(finish.gamma), node->weight, x.c);
    dv_lower_vector(l, FIELD(finish.beta), node->bias, x.c);
    const dvk_view nothing = {0};
    dv_lower_commit(l, "group_norm_finish", &nothing, &nothing, 0);
}

static void lower_pointwise(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_pointwise_args *a = &l->step.args.pointwise;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_fused(l, &a->pro, &a->epi);
    dv_lower_commit(l, "pointwise", &a->x, &a->y, 0);
}

static void lower_normed(dv_lowering *l) {
    lower_norm(l);
    if (dv_norm_used(l->plan->graph, l->node) >= 0) {
        lower_pointwise(l);
    }
}

/* ---- moves of pictures: resampling, padding, the copies that a concat still needs ---- */

static void lower_resample(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_resample_args *a = &l->step.args.resample;
    a->r = node->r;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    if (node->n_in > 1 && node->in[1] != DV_NO_VALUE) {
        dv_lower_view(l, &a->res, node->in[1]);
        l->step.bytes += dv_view_bytes(&a->res);
    }
    dv_lower_commit(l, dv_op_name(node->op), &a->x, &a->y, 0);
}

static void lower_fold(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_fold_args *a = &l->step.args.fold;
    *a = (dvk_fold_args){.r = node->r, .heads = node->heads, .top = node->pad_top, .left = node->pad_left};
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, dv_op_name(node->op), &a->x, &a->y, 0);
}

static void lower_pad(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_pad_args *a = &l->step.args.pad;
    a->mode = node->pad_mode;
    a->top = node->pad_top;
    a->left = node->pad_left;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, "pad", &a->x, &a->y, 0);
}

/* Copies the inputs that were not written into their slice of the result. */
static void lower_concat(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_place out = l->place->places[node->out];
    int64_t channel = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dv_place in = l->place->places[node->in[i]];
        const int64_t channels = dv_lower_shape(l, node->in[i]).c;
        if (in.buffer != out.buffer || in.channel != out.channel + channel || in.y != out.y || in.x != out.x) {
            dv_lower_begin(l);
            dvk_pointwise_args *a = &l->step.args.pointwise;
            a->epi.alpha = 1.0f;
            dv_lower_view(l, &a->x, node->in[i]);
            dv_lower_view(l, &a->y, node->out);
            a->y.c = channels;
            if (l->result == DAVY_OK) {
                const uint64_t ahead = (uint64_t)channel * dvk_dtype_size(a->y.dtype);
                l->plan->binds[l->plan->n_binds - 1].at += ahead;
                a->y.data = (char *)a->y.data + (l->options->caps != NULL ? ahead : 0);
            }
            dv_lower_commit(l, "pointwise", &a->x, &a->y, 0);
        }
        channel += channels;
    }
}

/* ---- gated networks ---- */

static void lower_depthwise(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_depthwise_args *a = &l->step.args.depthwise;
    a->kh = node->kh;
    a->kw = node->kw;
    a->paired = dv_lower_cuda(l)->paired;
    a->stride = node->stride;
    a->pad_top = node->pad_top;
    a->pad_left = node->pad_left;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    const int64_t taps = (int64_t)node->kh * node->kw;
    dv_lower_vector(l, FIELD(depthwise.w), node->weight, taps * a->x.c);
    dv_lower_vector(l, FIELD(depthwise.epi.bias), node->bias, a->x.c);
    dv_lower_fused(l, &a->pro, &a->epi);
    const uint64_t elements = (uint64_t)(a->y.n * a->y.h * a->y.w) * (uint64_t)a->x.c;
    dv_lower_commit(l, "depthwise", &a->x, &a->y, 2 * elements * (uint64_t)taps);
}

static void lower_multiply(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_multiply_args *a = &l->step.args.multiply;
    dvk_prologue none = {0}; /* fuse.c gives products no prologue */
    a->act = node->act.kind;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->g, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_fused(l, &none, &a->epi);
    l->step.bytes += dv_view_bytes(&a->g);
    dv_lower_commit(l, "multiply", &a->x, &a->y, 0);
}

static void lower_pool(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_pool_args *a = &l->step.args.pool;
    a->k = node->kh;
    a->stride = node->stride;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, dv_op_name(node->op), &a->x, &a->y, 0);
}

static void lower_dysample(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_dysample_args *a = &l->step.args.dysample;
    a->groups = node->groups;
    a->r = node->r;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->offset, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    l->step.bytes += dv_view_bytes(&a->offset);
    dv_lower_commit(l, "dysample", &a->x, &a->y, 0);
}

/* ---- transformers ---- */

static void bind_rows(dv_lowering *l, dvk_rows *out, uint32_t field, dv_value v) {
    uint64_t at = 0;
    const dvk_view view = dv_view_of(l->place, v, &at);
    if (view.sh != view.w * view.sw || (view.n > 1 && view.sn != view.h * view.sh)) {
        l->result = dv_fail(DAVY_E_INTERNAL, "%s: the pixels are not contiguous", l->step.label);
        return;
    }
    *out = (dvk_rows){.form = (dvk_form)view.dtype, .row = view.sw, .head = view.c};
    dv_lower_bind(l, DV_BIND_ARENA, field, at);
}

static void lower_layer_norm(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_shape s = dv_lower_shape(l, node->out);
    dv_lower_begin(l);
    dvk_row_norm_args *a = &l->step.args.row_norm;
    *a = (dvk_row_norm_args){.m = s.n * s.h * s.w, .heads = 1, .dim = s.c, .eps = node->eps};
    a->center = node->op == DV_OP_LAYER_NORM;
    bind_rows(l, &a->x, FIELD(row_norm.x.data), node->in[0]);
    bind_rows(l, &a->y, FIELD(row_norm.y.data), node->out);
    dv_lower_vector(l, FIELD(row_norm.w), node->weight, s.c);
    dv_lower_vector(l, FIELD(row_norm.b), node->bias, s.c);
    uint64_t at = 0;
    const dvk_view in = dv_view_of(l->place, node->in[0], &at);
    const dvk_view out = dv_view_of(l->place, node->out, &at);
    dv_lower_commit(l, "row_norm", &in, &out, 0);
}

static void lower_attention(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_attention_args *a = &l->step.args.attention;
    a->heads = node->heads;
    a->scale = node->scale;
    dv_lower_view(l, &a->q, node->in[0]);
    dv_lower_view(l, &a->k, node->in[1]);
    dv_lower_view(l, &a->v, node->in[2]);
    dv_lower_view(l, &a->y, node->out);
    const uint64_t tokens = (uint64_t)(a->q.h * a->q.w);
    const uint64_t keys = (uint64_t)(a->k.h * a->k.w);
    l->step.bytes += dv_view_bytes(&a->k) + dv_view_bytes(&a->v);
    dv_lower_commit(l, "attention", &a->q, &a->y, 4 * (uint64_t)a->q.n * tokens * keys * (uint64_t)a->q.c);
}

static void lower_window_attention(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_window *w = &node->window;
    const int64_t table = node->heads * (w->h + w->keys_h - 1) * (w->w + w->keys_w - 1);
    dv_lower_begin(l);
    dvk_window_attention_args *a = &l->step.args.window;
    *a = (dvk_window_attention_args){.heads = node->heads,
                                     .ph = w->padded_h,
                                     .pw = w->padded_w,
                                     .wh = w->h,
                                     .ww = w->w,
                                     .kh = w->keys_h,
                                     .kw = w->keys_w,
                                     .shift_y = w->shift_y,
                                     .shift_x = w->shift_x,
                                     .grid = w->grid,
                                     .scale = node->scale,
                                     .cut_y = w->cut_y,
                                     .cut_x = w->cut_x};
    dv_lower_view(l, &a->q, node->in[0]);
    dv_lower_view(l, &a->k, node->in[1]);
    dv_lower_view(l, &a->v, node->in[2]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(window.bias), node->weight, table);
    l->step.bytes += dv_view_bytes(&a->k) + dv_view_bytes(&a->v);
    const uint64_t pairs = (uint64_t)(a->q.n * a->ph * a->pw) * (uint64_t)(w->keys_h * w->keys_w);
    dv_lower_commit(l, "window_attention", &a->q, &a->y, 4 * pairs * (uint64_t)a->q.c);
}

static void lower_channel_attention(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_channel_attention_args *a = &l->step.args.channel;
    *a = (dvk_channel_attention_args){.heads = node->heads,
                                      .dim = node->groups,
                                      .wh = node->window.h,
                                      .ww = node->window.w,
                                      .grid = node->window.grid,
                                      .eps = node->eps};
    dv_lower_view(l, &a->q, node->in[0]);
    dv_lower_view(l, &a->k, node->in[1]);
    dv_lower_view(l, &a->v, node->in[2]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(channel.temperature), node->weight, node->heads);
    l->step.bytes += dv_view_bytes(&a->k) + dv_view_bytes(&a->v);
    const uint64_t pixels = (uint64_t)(a->q.n * a->q.h * a->q.w);
    dv_lower_commit(l, "channel_attention", &a->q, &a->y,
                    4 * pixels * (uint64_t)a->q.c * (uint64_t)(a->q.c / node->heads));
}

/* ---- a dictionary of tokens ---- */

/* Copies a parameter, which is stored with the weights as f32. */
static void lower_tokens(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const dv_shape s = dv_lower_shape(l, node->out);
    dv_lower_begin(l);
    dvk_pointwise_args *a = &l->step.args.pointwise;
    a->epi.alpha = 1.0f;
    a->x =
        (dvk_view){.dtype = DVK_F32, .n = 1, .h = 1, .w = s.w, .c = s.c, .sn = s.w * s.c, .sh = s.w * s.c, .sw = s.c};
    dv_lower_vector(l, FIELD(pointwise.x.data), node->weight, s.w * s.c);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, "pointwise", &a->x, &a->y, 0);
}

static uint64_t products(const dvk_view *v, int64_t with) {
    return 2 * (uint64_t)(v->h * v->w) * (uint64_t)v->c * (uint64_t)with;
}

static void lower_similarity(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_similarity_args *a = &l->step.args.similarity;
    dv_lower_view(l, &a->q, node->in[0]);
    dv_lower_view(l, &a->k, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(similarity.factor), node->weight, a->y.c);
    dv_lower_commit(l, "similarity", &a->q, &a->y, products(&a->y, a->q.c));
}

static void lower_mix(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_mix_args *a = &l->step.args.mix;
    dv_lower_view(l, &a->s, node->in[0]);
    dv_lower_view(l, &a->v, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, "mix", &a->s, &a->y, products(&a->y, a->s.c));
}

static void lower_order(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_order_args *a = &l->step.args.order;
    dv_lower_view(l, &a->s, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_commit(l, "order", &a->s, &a->y, 0);
}

static void lower_gather(dv_lowering *l, const char *op) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_gather_args *a = &l->step.args.gather;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->order, node->in[1]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(gather.scale), node->weight, a->y.c);
    dv_lower_commit(l, op, &a->x, &a->y, 0);
}

static void lower_refine(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_refine_args *a = &l->step.args.refine;
    a->eps = node->eps;
    dv_lower_view(l, &a->t, node->in[0]);
    dv_lower_view(l, &a->s, node->in[1]);
    dv_lower_view(l, &a->x, node->in[2]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, FIELD(refine.gamma), node->weight, a->s.c);
    dv_lower_vector(l, FIELD(refine.sigma), node->bias, a->s.c);
    l->step.bytes += dv_view_bytes(&a->s);
    dv_lower_commit(l, "refine", &a->x, &a->y, products(&a->x, a->s.c));
}

static void lower_dictionary(dv_lowering *l) {
    switch (dv_lower_now(l)->op) {
    case DV_OP_TOKENS:
        lower_tokens(l);
        break;
    case DV_OP_SIMILARITY:
        lower_similarity(l);
        break;
    case DV_OP_MIX:
        lower_mix(l);
        break;
    case DV_OP_ORDER:
        lower_order(l);
        break;
    case DV_OP_SCATTER:
        lower_gather(l, "scatter");
        break;
    case DV_OP_GATHER:
        lower_gather(l, "gather");
        break;
    default:
        lower_refine(l);
        break;
    }
}

/* ---- dispatch by op ---- */

/* Lowers a merged node with its own function, other nodes with `own`. */
static void lower_fused(dv_lowering *l, void (*own)(dv_lowering *l)) {
    const dv_cuda_node *cuda = dv_lower_cuda(l);
    (cuda->lower != NULL ? cuda->lower : own)(l);
}

static void lower_conv(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    if (g->values[dv_lower_now(l)->out].uses > 0) { /* otherwise only other slices of the clip read the result */
        lower_fused(l, dv_lower_conv);
    }
}

static void lower_any_depthwise(dv_lowering *l) {
    lower_fused(l, lower_depthwise);
}

static void lower_mean(dv_lowering *l) {
    if (l->options->given_means) {
        dv_lower_note_given(l);
    }
    if (l->result == DAVY_OK) {
        lower_fused(l, l->options->given_means ? dv_lower_given_mean : lower_pool);
    }
}

/* The load writes the input; the other ops are views. */
static void lower_nothing(dv_lowering *l) {
    (void)l;
}

static void (*const lower_op[])(dv_lowering *l) = {
    lower_nothing,
#define DV_OP(NAME, name, REACH, TRAIT, flops, show, lower) lower,
#include "core/graph/ops.def"
};

davy_result dv_lower_node(dv_lowering *l, int64_t k) {
    l->node = k;
    lower_op[l->plan->graph->nodes[k].op](l);
    return l->result;
}
