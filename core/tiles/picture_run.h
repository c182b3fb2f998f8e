/* picture_run.h - one run: a picture, or several of one size, computed by a tile plan. pictures.c passes it to cpu.c or cuda.c. */
#ifndef DV_PICTURE_RUN_H
#define DV_PICTURE_RUN_H

#include "core/tiles/picture_view.h"
#include "core/tiles/pictures.h"

typedef struct dv_picture_run {
    dv_engine *e;
    const dv_work *work;
    dv_cached_tile_plan *tile_plan;
    dv_watch watch;
    struct dv_picture_run *next; /* of the engine's runs, under its lock */
    double group_cost;           /* cost of one group of tiles in all passes; on the CPU a group is one tile */
} dv_picture_run;

/* Loads weights, takes memory and computes all tiles. *acquired: weights and memory were there and computing has begun. */
davy_result dv_picture_run_cpu(dv_picture_run *run, bool *acquired);
davy_result dv_picture_run_cuda(dv_picture_run *run, bool *acquired);

/* The most bytes of idle arenas of this size that are kept after a run. One arena is always kept. */
static inline uint64_t dv_picture_run_keep_bytes(const dv_picture_run *run) {
    const uint64_t own = run->tile_plan->schedule.workspace, least = 1ull << 30;
    return own > least ? own : least;
}

#endif
