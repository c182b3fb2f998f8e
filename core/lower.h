/* lower.h - from a graph node to steps. Internal to planning: plan.c calls it node by node. */
#ifndef DV_LOWER_H
#define DV_LOWER_H

#include "core/place.h"
#include "core/plan.h"

typedef struct dv_lowering {
    dv_plan *plan;
    const dv_placement *place; /* offsets known, but for folding */
    const dv_plan_options *options;
    int64_t node;       /* being lowered */
    dv_step step;       /* being made */
    davy_result result; /* sticky; the record holds why */
} dv_lowering;

davy_result dv_lower_node(dv_lowering *l, int64_t node);
/* The arguments that a convolution would get, in l->step; nothing is added to the plan. */
davy_result dv_lower_try_conv(dv_lowering *l, int64_t node);
/* View of a value without its address, and where in the arena it begins. */
dvk_view dv_view_of(const dv_placement *place, dv_value v, uint64_t *at);
/* The same with the stand-in for an address that CUDA kernels are chosen by. */
dvk_view dv_view_planned(const dv_placement *place, dv_value v);

/* ---- fold.c: what CUDA kernels take over from the steps around them ---- */

/* Rewrites the plan's graph where a convolution's kernel shuffles pixels itself; *changed: place the values anew. */
davy_result dv_fold_shuffles(dv_plan *plan, const dv_placement *place, const dv_plan_options *options, bool *changed);
/* Decides how each group norm gets its statistics: `conv` and `chunks` of place->norms. */
davy_result dv_fold_norms(dv_plan *plan, dv_placement *place, const dv_plan_options *options);
/* Sets plan->direct, and the output's buffer takes no room, where the last convolution's kernel can store it. */
davy_result dv_fold_store(dv_plan *plan, dv_placement *place, const dv_plan_options *options);

/* ---- choose.c ---- */

/* None: nothing suits. CUDA: sets args.conv.compute. */
dv_kernel dv_choose_kernel(const dv_plan_options *options, const char *op, dv_args *args);
davy_result dv_choose_failed(const dv_plan_options *options, const char *op, const char *label, const dvk_view *in,
                             const dvk_view *out);
/* Sets units and cost of a step with a kernel. */
void dv_step_measure(dv_step *s, const dv_plan_options *options, uint64_t *scratch);
uint64_t dv_convert_scratch(const dv_plan_options *options, const char *op, const dvk_view *view);
const char *dv_dtype_name(dvk_dtype t);

#endif
