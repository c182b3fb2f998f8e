/* lowering.c - fills in a step's arguments from a node, records the meaning of their pointers as binds, and appends
 * the step. */
#include "core/plan/lowering.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/plan/choose.h"
#include "kernels/dtype.h"

/* Kernels are chosen before memory is allocated. They only test whether a pointer is set and, on CUDA, its
 * alignment. */
static float placeholder[16];
#define PLANNED_ARENA ((uint64_t)1 << 30)

static void no_memory(dv_lowering *l) {
    l->result = dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
}

/* ---- binds ---- */

static void set_pointer(dvk_args *args, uint32_t field, const void *p) {
    memcpy((char *)args + field, &p, sizeof p);
}

void dv_lower_bind(dv_lowering *l, dv_bind_kind kind, uint32_t field, uint64_t at) {
    dv_plan *p = l->plan;
    dv_bind *binds = dv_grow(p->binds, p->n_binds + 1, &p->cap_binds, sizeof *binds);
    if (binds == NULL) {
        no_memory(l);
        return;
    }
    p->binds = binds;
    binds[p->n_binds++] = (dv_bind){.kind = kind, .field = field, .at = at};
    const bool cuda = kind != DV_BIND_WEIGHT && l->options->caps != NULL;
    set_pointer(&l->step.args, field, cuda ? (const void *)(uintptr_t)(PLANNED_ARENA + at) : placeholder);
}

dvk_view dv_view_of(const dv_memory_plan *place, dv_value v, uint64_t *at) {
    const dv_place where = place->places[v];
    const dv_plan_buffer *b = &place->buffers[where.buffer];
    const dv_shape s = place->graph->values[v].shape;
    const int64_t first = where.frame * b->frame + ((int64_t)where.y * b->shape.w + where.x) * b->pixel + where.channel;
    *at = place->blocks[where.buffer].offset + (uint64_t)first * dvk_dtype_size(b->dtype);
    return (dvk_view){.dtype = b->dtype,
                      .n = s.n,
                      .h = s.h,
                      .w = s.w,
                      .c = s.c,
                      .sn = where.stride * b->frame,
                      .sh = b->shape.w * b->pixel,
                      .sw = b->pixel};
}

dvk_view dv_view_planned(const dv_memory_plan *place, dv_value v) {
    uint64_t at = 0;
    dvk_view view = dv_view_of(place, v, &at);
    view.data = (void *)(uintptr_t)(PLANNED_ARENA + at);
    return view;
}

void dv_lower_view(dv_lowering *l, dvk_view *out, dv_value v) {
    uint64_t at = 0;
    *out = dv_view_of(l->place, v, &at);
    const uint32_t field = (uint32_t)((const char *)&out->data - (const char *)&l->step.args);
    dv_lower_bind(l, DV_BIND_ARENA, field, at);
}

dv_weight *dv_lower_weight(dv_lowering *l, const dv_weight *w) {
    dv_plan *p = l->plan;
    dv_weight *weights = dv_grow(p->weights, p->n_weights + 1, &p->cap_weights, sizeof *weights);
    if (weights == NULL) {
        no_memory(l);
        return NULL;
    }
    p->weights = weights;
    p->weight_bytes += dv_align_up(w->bytes, l->options->caps != NULL ? DV_WEIGHT_ALIGN : 64);
    weights[p->n_weights] = *w;
    return &weights[p->n_weights++];
}

void dv_lower_vector(dv_lowering *l, uint32_t field, dv_param param, int64_t count) {
    if (param == DV_NO_PARAM) {
        return;
    }
    const dv_weight w = {.param = param, .bytes = (uint64_t)count * sizeof(float), .count = count};
    if (dv_lower_weight(l, &w) != NULL) {
        dv_lower_bind(l, DV_BIND_WEIGHT, field, (uint64_t)l->plan->n_weights - 1);
    }
}

/* ---- steps ---- */

void dv_lower_begin(dv_lowering *l) {
    memset(&l->step, 0, sizeof l->step);
    l->step.label = dv_lower_now(l)->label;
    l->step.first_bind = l->plan->n_binds;
}

/* Scratch of a CPU thread lies behind the arena. Scratch of a GPU step begins behind the part of the arena that is in
 * use at that step. */
static void place_scratch(dv_lowering *l, uint64_t bytes) {
    dv_plan *p = l->plan;
    uint64_t behind = bytes;
    if (bytes > 0 && l->options->caps != NULL) {
        const uint64_t arena = dv_align_up(p->arena_bytes, DV_ARENA_ALIGN);
        uint64_t *at = &l->step.scratch_at;
        for (int64_t b = 0; b < l->place->n_buffers; b++) {
            const dv_block *block = &l->place->blocks[b];
            const uint64_t end = dv_align_up(block->offset + block->bytes, DV_ARENA_ALIGN);
            const bool used = block->bytes > 0 && block->first <= l->node && l->node <= block->last;
            *at = used && end > *at ? end : *at;
        }
        behind = *at + bytes > arena ? *at + bytes - arena : 0;
    }
    p->scratch_bytes = behind > p->scratch_bytes ? behind : p->scratch_bytes;
}

void dv_lower_commit(dv_lowering *l, const char *op, const dvk_view *in, const dvk_view *out, uint64_t flops) {
    if (l->result < 0) {
        return;
    }
    dv_plan *p = l->plan;
    dv_step *s = &l->step;
    uint64_t scratch = 0;
    if (dv_kernel_none(s->kernel)) {
        s->kernel = dv_choose_kernel(l->options, op, &s->args);
    }
    if (dv_kernel_none(s->kernel)) {
        l->result = dv_choose_failed(l->options, op, s->label, in, out);
        return;
    }
    s->n_binds = p->n_binds - s->first_bind;
    s->flops = flops;
    s->bytes += dv_view_bytes(in) + dv_view_bytes(out);
    dv_step_measure(s, l->options, &scratch);
    place_scratch(l, scratch);
    dv_step *steps = dv_grow(p->steps, p->n_steps + 1, &p->cap_steps, sizeof *steps);
    if (steps == NULL) {
        no_memory(l);
        return;
    }
    p->steps = steps;
    steps[p->n_steps++] = *s;
    p->flops += flops;
    p->cost += s->cost;
}

/* ---- prologue and epilogue ---- */

static void bind_norm(dv_lowering *l, dvk_prologue *pro, int32_t norm) {
    const int32_t buffer = l->place->norms[norm].coefficients; /* -1: trial before the coefficients have a buffer */
    const uint64_t at = buffer >= 0 ? l->place->blocks[buffer].offset : 0;
    const uint64_t stride = (uint64_t)dv_norm_stride(l->plan->graph, norm) * sizeof(float);
    dv_lower_bind(l, DV_BIND_ARENA, dv_lower_field(l, &pro->scale), at);
    dv_lower_bind(l, DV_BIND_ARENA, dv_lower_field(l, &pro->shift), at + stride);
}

/* Fills in the prologue and epilogue that fuse.c gave the node, for convolutions and element-wise ops alike. */
void dv_lower_fused(dv_lowering *l, dvk_prologue *pro, dvk_epilogue *epi) {
    const dv_node *node = dv_lower_now(l);
    const int32_t norm = dv_norm_used(l->plan->graph, l->node);
    if (norm >= 0) {
        bind_norm(l, pro, norm);
    } else {
        const dv_shape x = dv_lower_shape(l, node->in[0]); /* repeated for every picture */
        dv_lower_vector(l, dv_lower_field(l, &pro->scale), node->fused.pro_scale, x.n * x.c);
        dv_lower_vector(l, dv_lower_field(l, &pro->shift), node->fused.pro_shift, x.n * x.c);
    }
    pro->act = node->fused.pro_act.kind;
    epi->act = node->fused.act.kind;
    epi->slope = node->fused.act.slope;
    if (epi->act == DVK_ACT_PRELU) {
        const int64_t channels = dv_lower_shape(l, node->out).c * dv_max(epi->shuffle * epi->shuffle, 1);
        dv_lower_vector(l, dv_lower_field(l, &epi->slopes), node->fused.act.slopes, channels);
    }
    epi->act_last = node->fused.act_last;
    epi->gate = node->fused.gate;
    epi->alpha = node->fused.alpha;
    epi->n_res = node->fused.n_res;
    for (int32_t i = 0; i < epi->n_res; i++) {
        epi->beta[i] = node->fused.beta[i];
        dv_lower_view(l, &epi->res[i], node->fused.res[i]);
        l->step.bytes += dv_view_bytes(&epi->res[i]);
    }
}
