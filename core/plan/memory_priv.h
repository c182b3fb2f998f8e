/* memory_priv.h - what memory.c, memory_types.c and memory_time.c share. */
#ifndef DV_PLACE_PRIV_H
#define DV_PLACE_PRIV_H

#include "core/plan/memory.h"

/* Uses, producers and types of all values; they have none yet. */
void dv_place_types(dv_memory_plan *p);

static inline const dv_node *dv_place_producer(const dv_memory_plan *p, dv_value v) {
    return &p->graph->nodes[p->producer[v]];
}

/* A buffer of pixels with room for so many channels, no fewer than the shape's; -1: out of memory. */
int32_t dv_place_add(dv_memory_plan *p, dvk_dtype dtype, dv_shape shape, int64_t room, int64_t first, int64_t last);
void dv_place_put(dv_memory_plan *p, dv_value v, dv_place where);
/* Whether v may be written straight into a part of another: nothing else decides where it lies, and its type is the part's. */
bool dv_place_can_move(const dv_memory_plan *p, dv_value v, dvk_dtype dtype);

/* Nodes of time; nothing for others. false: out of memory. */
bool dv_place_clip(dv_memory_plan *p, int64_t k);

#endif
