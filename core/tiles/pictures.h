/* pictures.h - the resources that an engine keeps between runs of pictures, and the memory that is available to it. It keeps packed
 * weights, and tile plans of recent sizes with their idle arenas. A tile plan has the schedule of a picture size and the program of
 * its tile for each GPU. A second picture of the same size needs no planning and no allocation. */
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

/* Memory of one run: the workspace and the fade band. */
static inline uint64_t dv_tile_plan_bytes(const dv_cached_tile_plan *p) {
    return p->schedule.workspace + p->schedule.band;
}

davy_result dv_tile_plan_get(dv_engine *e, const dv_request *request, dv_cached_tile_plan **out); /* referenced */
void dv_tile_plan_release(dv_cached_tile_plan *p);
void dv_tile_plans_drop(dv_engine *e);
/* Frees idle arenas of all tile plans but `except`, least recently used first, until at most keep_bytes remain. */
void dv_tile_plans_trim(dv_engine *e, const dv_cached_tile_plan *except, uint64_t keep_bytes);

/* ---- memory and weights ---- */

uint64_t dv_engine_available(dv_engine *e);            /* bytes; of the lane that has the least */
dv_store *dv_engine_store(dv_engine *e, int32_t lane); /* referenced */

/* Creates a store for each lane; the remaining entries are NULL. */
davy_result dv_stores_create(dv_engine *e, dv_store *out[DV_LANES]);
void dv_stores_release(dv_store *stores[DV_LANES]);
/* Calls dv_engine_unload if nothing but the caller uses `store`, the first lane's store. *unloaded: whether it did. */
davy_result dv_engine_unload_alone(dv_engine *e, const dv_store *store, bool *unloaded);

#endif
