/* lowering.h - what lowering a node is made of: a step is begun, its arguments are filled and bound, it is appended to the
 * plan (lowering.c). The files that lower nodes, and those that try out what CUDA kernels take over, are made of it. */
#ifndef DV_PLAN_LOWERING_H
#define DV_PLAN_LOWERING_H

#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "kernels/dtype.h"

typedef struct dv_lowering {
    dv_plan *plan;
    dv_cuda_node *cuda;    /* of the graph's nodes */
    dv_memory_plan *place; /* offsets are known once all fusing is done */
    const dv_plan_options *options;
    int64_t node;       /* being lowered */
    dv_step step;       /* being made */
    davy_result result; /* sticky; the record holds why */
} dv_lowering;

/* View of a value without its address, and where in the arena it begins. */
dvk_view dv_view_of(const dv_memory_plan *place, dv_value v, uint64_t *at);
/* The same with the stand-in for an address that CUDA kernels are chosen by. */
dvk_view dv_view_planned(const dv_memory_plan *place, dv_value v);

/* The node being lowered, and what CUDA kernels compute along with it. */
static inline const dv_node *dv_lower_now(const dv_lowering *l) {
    return &l->plan->graph->nodes[l->node];
}

static inline const dv_cuda_node *dv_lower_cuda(const dv_lowering *l) {
    return &l->cuda[l->node];
}

static inline dv_shape dv_lower_shape(const dv_lowering *l, dv_value v) {
    return dv_shape_of(l->plan->graph, v);
}

/* Offset of a member of l->step.args. */
static inline uint32_t dv_lower_field(const dv_lowering *l, const void *member) {
    return (uint32_t)((const char *)member - (const char *)&l->step.args);
}

static inline uint64_t dv_view_bytes(const dvk_view *v) {
    return (uint64_t)(v->n * v->h * v->w * v->c) * dvk_dtype_size(v->dtype);
}

/* A new step in l->step. */
void dv_lower_begin(dv_lowering *l);
/* Notes what the pointer at `field` stands for. */
void dv_lower_bind(dv_lowering *l, dv_bind_kind kind, uint32_t field, uint64_t at);
/* Writes the view of v to `out`, a member of the step's args, and binds its data. */
void dv_lower_view(dv_lowering *l, dvk_view *out, dv_value v);
/* Binds the pointer at `field` to a vector of weights; DV_NO_PARAM: leaves it NULL. */
void dv_lower_vector(dv_lowering *l, uint32_t field, dv_param param, int64_t count);
/* Prologue and epilogue of the node, as fuse.c left them. */
void dv_lower_fused(dv_lowering *l, dvk_prologue *pro, dvk_epilogue *epi);
/* Adds a weight to the plan; NULL: out of memory. */
dv_weight *dv_lower_weight(dv_lowering *l, const dv_weight *w);
/* Chooses the kernel, if that has not been done, and appends the step. */
void dv_lower_commit(dv_lowering *l, const char *op, const dvk_view *in, const dvk_view *out, uint64_t flops);

#endif
