/* arena.h - packs blocks with known lifetimes into one arena. Blocks that are alive together never overlap. */
#ifndef DV_ARENA_H
#define DV_ARENA_H

#include "core/base/common.h"

enum { DV_ARENA_ALIGN = 64 };

typedef struct dv_block {
    uint64_t bytes;
    int64_t first, last; /* steps, both inclusive; first > last: never alive */
    uint64_t offset;     /* result, a multiple of DV_ARENA_ALIGN */
} dv_block;

/* Sets every offset and *total, the size of the arena. If *total exceeds `enough`, other orders are tried, which takes
 * longer. Returns DAVY_E_NOMEM_HOST, or DAVY_E_SHAPE if the sizes overflow. */
davy_result dv_arena_pack(dv_block *blocks, int64_t count, uint64_t enough, uint64_t *total);

#endif
