/* offload.h - the state of a clip's rings: room for it in the resident and in the offloaded state, and the transfers between
 * the arena and the host's memory (offload.c). */
#ifndef DV_PLAN_OFFLOAD_H
#define DV_PLAN_OFFLOAD_H

#include "core/plan/memory.h"
#include "core/plan/plan.h"

/* Rings, once their values are placed: room for their state, and how long they live for the sake of what is offloaded. */
davy_result dv_memory_plan_rings(dv_memory_plan *p);
/* That of node k, a past, a window or frames side by side; NULL: nothing is kept. */
const dv_frame_ring *dv_frame_ring_of(const dv_memory_plan *p, int64_t k);

/* For a plan with all its steps: sets the part of the state that the rings take, the transfers, and the duration. first_step: of every node, and
 * behind the last. */
davy_result dv_plan_rings(dv_plan *p, const dv_memory_plan *place, const int64_t *first_step);

#endif
