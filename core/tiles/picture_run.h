/* picture_run.h - one picture (or several of one size) on its way through a tile plan: what pictures.c hands to cpu.c and
 * cuda.c. */
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
    double group_cost; /* of the tiles that are computed together, in all passes; on the CPU that is one tile */
} dv_picture_run;

/* Weights, memory, all tiles. *acquired: whether it got as far as computing; an error before that keeps nothing. */
davy_result dv_picture_run_cpu(dv_picture_run *run, bool *acquired);
davy_result dv_picture_run_cuda(dv_picture_run *run, bool *acquired);

/* Idle arenas of this size up to so many bytes are kept after a run; one always is. */
static inline uint64_t dv_picture_run_keep_bytes(const dv_picture_run *run) {
    const uint64_t own = run->tile_plan->schedule.workspace, least = 1ull << 30;
    return own > least ? own : least;
}

#endif
