/* arena.h - puts blocks that live for a stretch of steps into one arena, so that blocks alive together never
 * overlap. */
#ifndef DV_LIVENESS_H
#define DV_LIVENESS_H

#include "core/base/common.h"

enum { DV_ARENA_ALIGN = 64 };

typedef struct dv_block {
    uint64_t bytes;
    int64_t first, last; /* steps, both included; first > last: never alive */
    uint64_t offset;     /* answer, a multiple of DV_ARENA_ALIGN */
} dv_block;

/* Sets every offset and *total, the size of the arena; where that is more than `enough`, other orders are tried, which takes longer.
 * DAVY_E_NOMEM_HOST, or DAVY_E_SHAPE when the sizes overflow. */
davy_result dv_arena_pack(dv_block *blocks, int64_t count, uint64_t enough, uint64_t *total);

#endif
