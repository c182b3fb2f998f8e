/* lowering.h - the operations that lower a node: begin a step, fill in and bind its arguments, append it to the plan
 * (lowering.c). The files that lower nodes use them, and so do the fusing passes that try kernels. */
#ifndef DV_PLAN_LOWERING_H
#define DV_PLAN_LOWERING_H

#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "kernels/dtype.h"

typedef struct dv_lowering {
    dv_plan *plan;
    dv_cuda_node *cuda;    /* one per node of the graph */
    dv_memory_plan *place; /* offsets are known after all fusing */
    const dv_plan_options *options;
    int64_t node;       /* the node being lowered */
    dv_step step;       /* the step being built */
    davy_result result; /* sticky; the error record has the reason */
} dv_lowering;

/* The view of a value without its address; *at: its byte offset in the arena. */
dvk_view dv_view_of(const dv_memory_plan *place, dv_value v, uint64_t *at);
/* The same with a stand-in address, for choosing CUDA kernels. */
dvk_view dv_view_planned(const dv_memory_plan *place, dv_value v);

/* The node being lowered, and its entry in the table of CUDA nodes. */
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

/* Begins a new step in l->step. */
void dv_lower_begin(dv_lowering *l);
/* Records what the pointer at `field` refers to. */
void dv_lower_bind(dv_lowering *l, dv_bind_kind kind, uint32_t field, uint64_t at);
/* Writes the view of v to `out`, a member of the step's args, and binds its data. */
void dv_lower_view(dv_lowering *l, dvk_view *out, dv_value v);
/* Binds the pointer at `field` to a vector of weights; DV_NO_PARAM: leaves it NULL. */
void dv_lower_vector(dv_lowering *l, uint32_t field, dv_param param, int64_t count);
/* Fills in the prologue and epilogue that fuse.c gave the node. */
void dv_lower_fused(dv_lowering *l, dvk_prologue *pro, dvk_epilogue *epi);
/* Adds a weight to the plan; NULL: out of memory. */
dv_weight *dv_lower_weight(dv_lowering *l, const dv_weight *w);
/* Chooses the kernel if the step has none, and appends the step. */
void dv_lower_commit(dv_lowering *l, const char *op, const dvk_view *in, const dvk_view *out, uint64_t flops);

#endif
