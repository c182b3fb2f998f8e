/* pictures.h - the pictures of an engine, which engine.h plans and runs: what is kept between runs, and the memory that is left.
 * Kept are packed weights, and tile plans of the last sizes with their idle arenas. A tile plan is the schedule of a picture size
 * and the program of its tile for each GPU: the second picture of a size is computed without planning or allocating. */
#ifndef DV_TILE_PICTURES_H
#define DV_TILE_PICTURES_H

#include <stdatomic.h>

#include "core/tiles/search.h"

/* Reference-counted. */
typedef struct dv_cached_tile_plan {
    _Atomic int32_t refs;
    dv_request request;
    dv_tile_schedule schedule;
    dv_axis y, x;
    int64_t out_c; /* channels of the network's output */
    int32_t n_lanes;
    dv_store *stores[DV_LANES];
    dv_program *programs[DV_LANES];
    uint64_t used_at; /* under the engine's lock */
} dv_cached_tile_plan;

/* Memory of one run: workspace, and the band of fades. */
static inline uint64_t dv_tile_plan_bytes(const dv_cached_tile_plan *p) {
    return p->schedule.workspace + p->schedule.band;
}

davy_result dv_tile_plan_get(dv_engine *e, const dv_request *request, dv_cached_tile_plan **out); /* referenced */
void dv_tile_plan_release(dv_cached_tile_plan *p);
void dv_tile_plans_drop(dv_engine *e);
/* Frees idle arenas of all tile plans but `except`, least recently used first, until at most keep_bytes remain. */
void dv_tile_plans_trim(dv_engine *e, const dv_cached_tile_plan *except, uint64_t keep_bytes);

/* ---- memory and weights ---- */

uint64_t dv_engine_available(dv_engine *e);            /* of the lane that has least */
dv_store *dv_engine_store(dv_engine *e, int32_t lane); /* referenced */

/* A store for each lane; NULL behind them. */
davy_result dv_stores_create(dv_engine *e, dv_store *out[DV_LANES]);
void dv_stores_release(dv_store *stores[DV_LANES]);
/* dv_engine_unload, if only the caller uses the store, which is that of the first lane. */
davy_result dv_engine_unload_alone(dv_engine *e, const dv_store *store, bool *unloaded);

#endif
