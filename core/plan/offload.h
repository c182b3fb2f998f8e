/* offload.h - the state of a clip's rings: its room in the resident and offloaded state, and the transfers between the
 * arena and host memory (offload.c). */
#ifndef DV_PLAN_OFFLOAD_H
#define DV_PLAN_OFFLOAD_H

#include "core/plan/memory.h"
#include "core/plan/plan.h"

/* Call it after the rings' values are placed: reserves room for their state, and extends the lives of offloaded
 * rings. */
davy_result dv_memory_plan_rings(dv_memory_plan *p);
/* The ring of node k (a PAST, a window or FRAMES side by side); NULL: nothing is kept. */
const dv_frame_ring *dv_frame_ring_of(const dv_memory_plan *p, int64_t k);

/* For a plan with all its steps: sets the rings' part of the state, the transfers and the duration. The array
 * first_step holds the index of each node's first step, and of the end. */
davy_result dv_plan_rings(dv_plan *p, const dv_memory_plan *place, const int64_t *first_step);

#endif
