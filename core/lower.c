/* lower.c - fills a step's arguments from a node, notes which of their pointers stand for what, and chooses the kernel.
 * Most nodes give one step; a group norm gives statistics and coefficients where they are first needed, a concat one
 * copy for each input that could not be written in place. */
#include "core/lower.h"

#include <string.h>

#include "core/error.h"
#include "core/mem.h"
#include "kernels/dtype.h"

/* Kernels are chosen before there is memory; what they look at is whether a pointer is set. */
static float placeholder[16];

#define FIELD(member) ((uint32_t)offsetof(dv_args, member))

static void no_memory(dv_lowering *l) {
    l->result = dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
}

static const dv_node *node_of(const dv_lowering *l) {
    return &l->plan->graph->nodes[l->node];
}

static dv_shape shape_of(const dv_lowering *l, dv_value v) {
    return dv_shape_of(l->plan->graph, v);
}

/* ---- binds ---- */

static void set_pointer(dv_args *args, uint32_t field, const void *p) {
    memcpy((char *)args + field, &p, sizeof p);
}

static void bind(dv_lowering *l, dv_bind_kind kind, uint32_t field, uint64_t at) {
    dv_plan *p = l->plan;
    dv_bind *binds = dv_grow(p->binds, p->n_binds + 1, &p->cap_binds, sizeof *binds);
    if (binds == NULL) {
        no_memory(l);
        return;
    }
    p->binds = binds;
    binds[p->n_binds++] = (dv_bind){.kind = kind, .field = field, .at = at};
    set_pointer(&l->step.args, field, placeholder);
}

dvk_view dv_view_of(const dv_placement *place, dv_value v, uint64_t *at) {
    const dv_place where = place->places[v];
    const dv_buffer *b = &place->buffers[where.buffer];
    const dv_shape s = place->graph->values[v].shape;
    *at = place->blocks[where.buffer].offset + (uint64_t)where.channel * dvk_dtype_size(b->dtype);
    return (dvk_view){.dtype = b->dtype,
                      .n = s.n,
                      .h = s.h,
                      .w = s.w,
                      .c = s.c,
                      .sn = b->shape.h * b->shape.w * b->shape.c,
                      .sh = b->shape.w * b->shape.c,
                      .sw = b->shape.c};
}

/* Writes the view of v to `out`, a member of the step's args, and binds its data. */
static void bind_view(dv_lowering *l, dvk_view *out, dv_value v) {
    uint64_t at = 0;
    *out = dv_view_of(l->place, v, &at);
    const uint32_t field = (uint32_t)((const char *)&out->data - (const char *)&l->step.args);
    bind(l, DV_BIND_ARENA, field, at);
}

static dv_weight *add_weight(dv_lowering *l, const dv_weight *w) {
    dv_plan *p = l->plan;
    dv_weight *weights = dv_grow(p->weights, p->n_weights + 1, &p->cap_weights, sizeof *weights);
    if (weights == NULL) {
        no_memory(l);
        return NULL;
    }
    p->weights = weights;
    p->weight_bytes += dv_align_up(w->bytes, 64);
    weights[p->n_weights] = *w;
    return &weights[p->n_weights++];
}

static void bind_vector(dv_lowering *l, uint32_t field, dv_param param, int64_t count) {
    if (param == DV_NO_PARAM) {
        return;
    }
    const dv_weight w = {.param = param, .bytes = (uint64_t)count * sizeof(float), .count = count};
    if (add_weight(l, &w) != NULL) {
        bind(l, DV_BIND_WEIGHT, field, (uint64_t)l->plan->n_weights - 1);
    }
}

/* ---- steps ---- */

static void begin(dv_lowering *l) {
    memset(&l->step, 0, sizeof l->step);
    l->step.label = node_of(l)->label;
    l->step.first_bind = l->plan->n_binds;
}

/* A lean kernel keeps weights at most twice as large as f32 has them: the direct ones do, Winograd's do not. */
static bool is_lean(const dvk_kernel *k, const dvk_conv2d_args *a) {
    return k->packed_bytes == NULL ||
           k->packed_bytes(a) <= 2 * sizeof(float) * (size_t)(a->x.c * a->y.c * a->kh * a->kw) + 4096;
}

static double cost_of(const dvk_kernel *k, const void *args) {
    return k->cost != NULL ? k->cost(args) : 1e30;
}

/* A 1x1 mix of f32 pictures (luma, a latent's quantisation) stays f32: it costs nothing and must not band. */
static dvk_dtype compute_of(const dv_lowering *l, const char *op) {
    const dvk_conv2d_args *a = &l->step.args.conv;
    const bool mix = strcmp(op, "conv2d") == 0 && a->kh == 1 && a->x.dtype == DVK_F32 && a->y.dtype == DVK_F32;
    return mix ? DVK_F32 : l->options->compute;
}

static const dvk_kernel *choose_lean(const dv_lowering *l, const char *op, const void *args) {
    const dvk_kernel *best = dvk_find(op, "ref");
    for (int32_t i = 0; i < dvk_kernel_count; i++) {
        const dvk_kernel *k = dvk_kernels[i];
        if (strcmp(k->op, op) == 0 && (k->cpu & ~l->options->cpu) == 0 &&
            (k->compute == DVK_F32 || k->compute == compute_of(l, op)) && (k->supports == NULL || k->supports(args)) &&
            is_lean(k, args) && cost_of(k, args) < cost_of(best, args)) {
            best = k;
        }
    }
    return best;
}

static const dvk_kernel *choose(const dv_lowering *l, const char *op) {
    const void *args = &l->step.args;
    if (l->options->lean && strcmp(op, "conv2d") == 0) {
        return choose_lean(l, op, args);
    }
    return dvk_choose(op, args, l->options->cpu, compute_of(l, op));
}

static uint64_t view_bytes(const dvk_view *v) {
    return (uint64_t)(v->n * v->h * v->w * v->c) * dvk_dtype_size(v->dtype);
}

/* Chooses the kernel and appends the step. Without a kernel's own estimate: memory at 4 GB/s, arithmetic at 4 GFLOP/s.
 */
static void commit(dv_lowering *l, const char *op, const dvk_view *in, const dvk_view *out, uint64_t flops) {
    if (l->result != DAVY_OK) {
        return;
    }
    dv_plan *p = l->plan;
    dv_step *s = &l->step;
    s->kernel = choose(l, op);
    if (s->kernel == NULL) {
        l->result = dv_fail(DAVY_E_INTERNAL, "no kernel for op %s of %s", op, s->label);
        return;
    }
    s->n_binds = p->n_binds - s->first_bind;
    s->units = s->kernel->units(&s->args);
    s->flops = flops;
    s->bytes += view_bytes(in) + view_bytes(out);
    s->cost = s->kernel->cost != NULL ? s->kernel->cost(&s->args) : (double)s->bytes / 4.0 + (double)flops / 4.0;
    const uint64_t scratch = s->kernel->scratch_bytes != NULL ? s->kernel->scratch_bytes(&s->args) : 0;
    dv_step *steps = dv_grow(p->steps, p->n_steps + 1, &p->cap_steps, sizeof *steps);
    if (steps == NULL) {
        no_memory(l);
        return;
    }
    p->steps = steps;
    steps[p->n_steps++] = *s;
    p->flops += flops;
    p->cost += s->cost;
    if (dv_align_up(scratch, 64) > p->scratch_bytes) {
        p->scratch_bytes = dv_align_up(scratch, 64);
    }
}

/* ---- prologue and epilogue ---- */

static uint32_t field_of(const dv_lowering *l, const void *member) {
    return (uint32_t)((const char *)member - (const char *)&l->step.args);
}

static void bind_norm(dv_lowering *l, dvk_prologue *pro, int32_t norm) {
    const uint64_t at = l->place->blocks[l->place->norms[norm].coefficients].offset;
    const uint64_t stride = (uint64_t)dv_norm_stride(l->plan->graph, norm) * sizeof(float);
    bind(l, DV_BIND_ARENA, field_of(l, &pro->scale), at);
    bind(l, DV_BIND_ARENA, field_of(l, &pro->shift), at + stride);
}

/* What fuse.c put around a node: the same for convolutions and element-wise ones. */
static void apply_fused(dv_lowering *l, dvk_prologue *pro, dvk_epilogue *epi) {
    const dv_node *node = node_of(l);
    const int32_t norm = dv_norm_used(l->plan->graph, l->node);
    if (norm >= 0) {
        bind_norm(l, pro, norm);
    } else {
        const int64_t channels = shape_of(l, node->in[0]).c;
        bind_vector(l, field_of(l, &pro->scale), node->fused.pro_scale, channels);
        bind_vector(l, field_of(l, &pro->shift), node->fused.pro_shift, channels);
    }
    pro->act = node->fused.pro_act.kind;
    epi->act = node->fused.act.kind;
    epi->slope = node->fused.act.slope;
    if (epi->act == DVK_ACT_PRELU) {
        bind_vector(l, field_of(l, &epi->slopes), node->fused.act.slopes, shape_of(l, node->out).c);
    }
    epi->act_last = node->fused.act_last;
    epi->gate = node->fused.gate;
    epi->alpha = node->fused.alpha;
    epi->n_res = node->fused.n_res;
    for (int32_t i = 0; i < epi->n_res; i++) {
        epi->beta[i] = node->fused.beta[i];
        bind_view(l, &epi->res[i], node->fused.res[i]);
        l->step.bytes += view_bytes(&epi->res[i]);
    }
}

/* ---- nodes ---- */

static void lower_conv(dv_lowering *l) {
    const dv_node *node = node_of(l);
    begin(l);
    dvk_conv2d_args *a = &l->step.args.conv;
    a->kh = node->kh;
    a->kw = node->kw;
    a->stride = node->stride > 0 ? node->stride : 1;
    a->pad_top = node->pad_top;
    a->pad_left = node->pad_left;
    a->upsample = node->fused.upsample > 1 ? node->fused.upsample : 1;
    bind_view(l, &a->x, node->in[0]);
    bind_view(l, &a->y, node->out);
    bind_vector(l, field_of(l, &a->epi.bias), node->bias, a->y.c);
    apply_fused(l, &a->pro, &a->epi);
    bind(l, DV_BIND_WEIGHT, FIELD(conv.w), (uint64_t)l->plan->n_weights);
    const dvk_kernel *k = l->result == DAVY_OK ? choose(l, "conv2d") : NULL;
    if (k == NULL) {
        return;
    }
    dv_weight w = {.param = node->weight, .kernel = k, .conv = *a, .bytes = k->packed_bytes(a)};
    w.conv.w = NULL;
    add_weight(l, &w);
    l->step.bytes += w.bytes;
    const uint64_t macs =
        (uint64_t)(a->y.n * a->y.h * a->y.w) * (uint64_t)(a->y.c * a->x.c) * (uint64_t)(a->kh * a->kw);
    commit(l, "conv2d", &a->x, &a->y, 2 * macs);
}

/* Statistics and coefficients; who applies them says dv_norm_used. */
static void lower_norm(dv_lowering *l) {
    const dv_node *node = node_of(l);
    const dv_norm_place *where = &l->place->norms[l->node];
    const uint64_t partial = l->place->blocks[where->partial].offset;
    const uint64_t scale = l->place->blocks[where->coefficients].offset;
    begin(l);
    dvk_group_norm_stats_args *stats = &l->step.args.stats;
    stats->groups = node->groups;
    bind_view(l, &stats->x, node->in[0]);
    bind(l, DV_BIND_ARENA, FIELD(stats.partial), partial);
    const dvk_view nothing = {0};
    const dvk_view x = stats->x;
    commit(l, "group_norm_stats", &x, &nothing, 0);

    begin(l);
    dvk_group_norm_finish_args *finish = &l->step.args.finish;
    *finish =
        (dvk_group_norm_finish_args){.n = x.n, .h = x.h, .w = x.w, .c = x.c, .groups = node->groups, .eps = node->eps};
    bind(l, DV_BIND_ARENA, FIELD(finish.partial), partial);
    bind(l, DV_BIND_ARENA, FIELD(finish.scale), scale);
    bind(l, DV_BIND_ARENA, FIELD(finish.shift),
         scale + (uint64_t)dv_norm_stride(l->plan->graph, (int32_t)l->node) * sizeof(float));
    bind_vector(l, FIELD(finish.gamma), node->weight, x.c);
    bind_vector(l, FIELD(finish.beta), node->bias, x.c);
    commit(l, "group_norm_finish", &nothing, &nothing, 0);
}

static void lower_pointwise(dv_lowering *l) {
    const dv_node *node = node_of(l);
    begin(l);
    dvk_pointwise_args *a = &l->step.args.pointwise;
    bind_view(l, &a->x, node->in[0]);
    bind_view(l, &a->y, node->out);
    apply_fused(l, &a->pro, &a->epi);
    commit(l, "pointwise", &a->x, &a->y, 0);
}

static void lower_attention(dv_lowering *l) {
    const dv_node *node = node_of(l);
    begin(l);
    dvk_attention_args *a = &l->step.args.attention;
    a->heads = node->heads;
    a->scale = node->scale;
    bind_view(l, &a->q, node->in[0]);
    bind_view(l, &a->k, node->in[1]);
    bind_view(l, &a->v, node->in[2]);
    bind_view(l, &a->y, node->out);
    const uint64_t tokens = (uint64_t)(a->q.h * a->q.w);
    const uint64_t keys = (uint64_t)(a->k.h * a->k.w);
    l->step.bytes += view_bytes(&a->k) + view_bytes(&a->v);
    commit(l, "attention", &a->q, &a->y, 4 * (uint64_t)a->q.n * tokens * keys * (uint64_t)a->q.c);
}

static void lower_resample(dv_lowering *l, const char *op) {
    const dv_node *node = node_of(l);
    begin(l);
    dvk_resample_args *a = &l->step.args.resample;
    a->r = node->r;
    bind_view(l, &a->x, node->in[0]);
    bind_view(l, &a->y, node->out);
    if (node->n_in > 1 && node->in[1] != DV_NO_VALUE) {
        bind_view(l, &a->res, node->in[1]);
        l->step.bytes += view_bytes(&a->res);
    }
    commit(l, op, &a->x, &a->y, 0);
}

static void lower_pad(dv_lowering *l) {
    const dv_node *node = node_of(l);
    begin(l);
    dvk_pad_args *a = &l->step.args.pad;
    a->mode = node->pad_mode;
    bind_view(l, &a->x, node->in[0]);
    bind_view(l, &a->y, node->out);
    commit(l, "pad", &a->x, &a->y, 0);
}

/* Copies the inputs that were not written into their slice of the result. */
static void lower_concat(dv_lowering *l) {
    const dv_node *node = node_of(l);
    const dv_place out = l->place->places[node->out];
    int64_t channel = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dv_place in = l->place->places[node->in[i]];
        const int64_t channels = shape_of(l, node->in[i]).c;
        if (in.buffer != out.buffer || in.channel != out.channel + channel) {
            begin(l);
            dvk_pointwise_args *a = &l->step.args.pointwise;
            a->epi.alpha = 1.0f;
            bind_view(l, &a->x, node->in[i]);
            bind_view(l, &a->y, node->out);
            a->y.c = channels;
            if (l->result == DAVY_OK) {
                l->plan->binds[l->plan->n_binds - 1].at += (uint64_t)channel * dvk_dtype_size(a->y.dtype);
            }
            commit(l, "pointwise", &a->x, &a->y, 0);
        }
        channel += channels;
    }
}

davy_result dv_lower_node(dv_lowering *l, int64_t k) {
    const dv_node *node = &l->plan->graph->nodes[k];
    l->node = k;
    switch (node->op) {
    case DV_OP_INPUT: /* written by the load */
    case DV_OP_CROP:  /* a view */
        break;
    case DV_OP_CONV2D:
        lower_conv(l);
        break;
    case DV_OP_GROUP_NORM:
        lower_norm(l);
        if (dv_norm_used(l->plan->graph, k) >= 0) {
            lower_pointwise(l);
        }
        break;
    case DV_OP_ACT:
    case DV_OP_ADD:
    case DV_OP_GATE:
    case DV_OP_AFFINE:
        lower_pointwise(l);
        break;
    case DV_OP_ATTENTION:
        lower_attention(l);
        break;
    case DV_OP_UPSAMPLE:
        lower_resample(l, "upsample");
        break;
    case DV_OP_PIXEL_SHUFFLE:
        lower_resample(l, "pixel_shuffle");
        break;
    case DV_OP_PIXEL_UNSHUFFLE:
        lower_resample(l, "pixel_unshuffle");
        break;
    case DV_OP_CONCAT:
        lower_concat(l);
        break;
    case DV_OP_PAD:
        lower_pad(l);
        break;
    }
    return l->result;
}
