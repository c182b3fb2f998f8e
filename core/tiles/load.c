/* load.c - the weights of an engine: packed before the first run, and given back. */
#include <string.h>

#include "core/tiles/engine_priv.h"
#include "core/base/error.h"

void dv_stores_release(dv_store *stores[DV_LANES]) {
    for (int32_t l = 0; l < DV_LANES; l++) {
        dv_store_release(stores[l]);
    }
}

davy_result dv_stores_create(dv_engine *e, dv_store *out[DV_LANES]) {
    dv_store *stores[DV_LANES] = {0};
    for (int32_t l = 0; l < e->n_lanes; l++) {
        const davy_result r = dv_store_create(&e->services, dv_engine_gpu(e, l), e->tensors, &stores[l]);
        if (r != DAVY_OK) {
            dv_stores_release(stores);
            return r;
        }
        if (l > 0) {
            dv_store_set_model(stores[l], stores[0]);
        }
    }
    memcpy(out, stores, sizeof stores);
    return DAVY_OK;
}

/* The plan that a picture of moderate size gets; lean where the usual weights would leave little of the budget. */
static davy_result make_load_plan(dv_engine *e, int32_t lane, dv_store *store, dv_stage stage, dv_plan **out) {
    dv_clip_rule rule;
    dv_request q = {.stage = stage};
    if (dv_engine_clip(e, stage, &rule)) { /* those of a clip's slices, not of a picture by itself */
        q = (dv_request){.stage = stage, .pictures = rule.step, .continues = true, .keeps = true, .apart = true};
    }
    const int64_t side = stage == DV_STAGE_DECODE ? DV_PROBE_LATENTS * 8 : DV_PROBE_PIXELS * 8;
    const davy_result r = dv_engine_make_plan(e, lane, &q, side, side, false, out);
    if (r != DAVY_OK || e->services.n_gpus > 0 || dv_store_missing(store, stage, *out) <= dv_engine_available(e) / 2) {
        return r;
    }
    dv_plan_release(*out);
    return dv_engine_make_plan(e, lane, &q, side, side, true, out);
}

static davy_result load_stage(dv_engine *e, int32_t lane, dv_store *store, dv_stage stage, const dv_control *control) {
    dv_plan *plan = NULL;
    davy_result r = make_load_plan(e, lane, store, stage, &plan);
    if (r != DAVY_OK) {
        return r;
    }
    const void **pointers = dv_calloc((uint64_t)plan->n_weights + 1, sizeof *pointers);
    if (pointers == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    } else {
        dv_watch watch;
        dv_watch_begin(&watch, control, "load", dv_store_cost(dv_store_missing(store, stage, plan)));
        r = dv_store_bind(store, stage, plan, &watch, pointers);
        dv_free((void *)(uintptr_t)pointers);
    }
    dv_plan_release(plan);
    return r;
}

davy_result dv_engine_load(dv_engine *e, const dv_control *control) {
    static const dv_control nobody;
    const dv_control *c = control != NULL ? control : &nobody;
    davy_result r = DAVY_OK;
    const bool two = e->has_stage[DV_STAGE_ENCODE] && e->has_stage[DV_STAGE_DECODE];
    dv_control part = *c;
    part.share = (c->total > 0 ? c->share : 1000) / (two ? 2u : 1u) / (uint64_t)e->n_lanes;
    part.base = c->total > 0 ? c->base : 0;
    part.total = c->total > 0 ? c->total : 1000;
    for (int32_t l = 0; r == DAVY_OK && l < e->n_lanes; l++) {
        dv_store *store = dv_engine_store(e, l);
        for (dv_stage stage = DV_STAGE_UPSCALE; r == DAVY_OK && stage <= DV_STAGE_DECODE; stage++) {
            if (e->has_stage[stage]) {
                r = load_stage(e, l, store, stage, &part);
                part.base += part.share;
            }
        }
        dv_store_release(store);
    }
    return r;
}

davy_result dv_engine_unload(dv_engine *e) {
    dv_store *fresh[DV_LANES];
    dv_store *old[DV_LANES];
    const davy_result r = dv_stores_create(e, fresh);
    if (r != DAVY_OK) {
        return r;
    }
    dv_mutex_lock(e->lock);
    memcpy(old, e->stores, sizeof old);
    memcpy(e->stores, fresh, sizeof fresh);
    dv_mutex_unlock(e->lock);
    dv_tile_plans_drop(e);
    dv_stores_release(old);
    return DAVY_OK;
}

davy_result dv_engine_unload_alone(dv_engine *e, const dv_store *store, bool *unloaded) {
    dv_mutex_lock(e->lock);
    const bool ours = e->running == 0 && e->stores[0] == store;
    dv_mutex_unlock(e->lock);
    *unloaded = false;
    if (!ours) {
        return DAVY_OK;
    }
    dv_tile_plans_drop(e);
    *unloaded = dv_store_refs(store) == 1 + e->n_lanes; /* the caller's, the engine's, the other GPUs' stores' */
    return *unloaded ? dv_engine_unload(e) : DAVY_OK;
}

void dv_engine_trim(dv_engine *e, uint64_t keep_bytes) {
    dv_tile_plans_trim(e, NULL, keep_bytes);
}
