/* lower.h - from a graph node to steps. Internal to planning: plan.c calls it node by node. */
#ifndef DV_LOWER_H
#define DV_LOWER_H

#include "core/place.h"
#include "core/plan.h"

typedef struct dv_lowering {
    dv_plan *plan;
    const dv_placement *place; /* offsets known */
    const dv_plan_options *options;
    int64_t node;       /* being lowered */
    dv_step step;       /* being made */
    davy_result result; /* sticky; the record holds why */
} dv_lowering;

davy_result dv_lower_node(dv_lowering *l, int64_t node);
/* View of a value without its address, and where in the arena it begins. */
dvk_view dv_view_of(const dv_placement *place, dv_value v, uint64_t *at);

#endif
