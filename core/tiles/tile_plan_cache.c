/* tile_plan_cache.c - see tile_plan_cache.h. */
#include "core/tiles/tile_plan_cache.h"

#include <string.h>

#include "core/base/error.h"
#include "core/cuda/gpu.h"
#include "core/exec/autotune.h"
#include "core/tiles/picture_run.h"

/* ---- tile plans ---- */

void dv_tile_plan_release(dv_cached_tile_plan *tile_plan) {
    if (tile_plan != NULL && atomic_fetch_sub(&tile_plan->refs, 1) == 1) {
        dv_tile_schedule_drop_plan(&tile_plan->schedule);
        dv_axis_free(&tile_plan->y);
        dv_axis_free(&tile_plan->x);
        for (int32_t l = 0; l < DV_LANES; l++) {
            dv_program_release(tile_plan->programs[l]);
            dv_store_release(tile_plan->stores[l]);
        }
        dv_free(tile_plan);
    }
}

/* The remembered tile plans, least recently used first, referenced. */
static int list_tile_plans(dv_engine *e, dv_cached_tile_plan *list[DV_CACHED_TILE_PLANS]) {
    int count = 0;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        dv_cached_tile_plan *tile_plan = e->tile_plans[i];
        if (tile_plan == NULL) {
            continue;
        }
        atomic_fetch_add(&tile_plan->refs, 1);
        int at = count++;
        for (; at > 0 && list[at - 1]->used_at > tile_plan->used_at; at--) {
            list[at] = list[at - 1];
        }
        list[at] = tile_plan;
    }
    dv_mutex_unlock(e->lock);
    return count;
}

void dv_tile_plans_drop(dv_engine *e) {
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        dv_mutex_lock(e->lock);
        dv_cached_tile_plan *tile_plan = e->tile_plans[i];
        e->tile_plans[i] = NULL;
        dv_mutex_unlock(e->lock);
        dv_tile_plan_release(tile_plan);
    }
}

void dv_tile_plan_forget(dv_engine *e, dv_cached_tile_plan *tile_plan) {
    bool found = false;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        if (e->tile_plans[i] == tile_plan) {
            e->tile_plans[i] = NULL;
            found = true;
        }
    }
    dv_mutex_unlock(e->lock);
    if (found) {
        dv_tile_plan_release(tile_plan);
    }
}

/* ---- idle arenas ---- */

/* Idle bytes of list[i]'s program; 0 where an earlier tile plan has counted it. */
static uint64_t idle_of(dv_cached_tile_plan *const *list, int i, int32_t lane) {
    if (list[i]->programs[lane] == NULL) {
        return 0;
    }
    for (int k = 0; k < i; k++) {
        if (list[k]->programs[lane] == list[i]->programs[lane]) {
            return 0;
        }
    }
    return dv_program_trim(list[i]->programs[lane], UINT64_MAX);
}

static uint64_t idle_bytes(dv_engine *e, int32_t lane) {
    dv_cached_tile_plan *list[DV_CACHED_TILE_PLANS];
    const int count = list_tile_plans(e, list);
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += idle_of(list, i, lane);
    }
    for (int i = 0; i < count; i++) {
        dv_tile_plan_release(list[i]);
    }
    return bytes;
}

static bool is_other(const dv_cached_tile_plan *except, const dv_cached_tile_plan *tile_plan, int32_t lane) {
    return tile_plan->programs[lane] != NULL && (except == NULL || tile_plan->programs[lane] != except->programs[lane]);
}

static void trim_lane(dv_cached_tile_plan *const *list, int count, int32_t lane, const dv_cached_tile_plan *except,
                      uint64_t keep_bytes) {
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += is_other(except, list[i], lane) ? idle_of(list, i, lane) : 0;
    }
    for (int i = 0; i < count && bytes > keep_bytes; i++) {
        if (is_other(except, list[i], lane)) {
            const uint64_t own = idle_of(list, i, lane);
            const uint64_t others = bytes - own;
            bytes = others + dv_program_trim(list[i]->programs[lane], keep_bytes > others ? keep_bytes - others : 0);
        }
    }
}

void dv_tile_plans_trim(dv_engine *e, const dv_cached_tile_plan *except, uint64_t keep_bytes) {
    dv_cached_tile_plan *list[DV_CACHED_TILE_PLANS];
    const int count = list_tile_plans(e, list);
    for (int32_t l = 0; l < e->n_lanes; l++) {
        trim_lane(list, count, l, except, keep_bytes);
    }
    for (int i = 0; i < count; i++) {
        dv_tile_plan_release(list[i]);
    }
}

void dv_engine_trim(dv_engine *e, uint64_t keep_bytes) {
    dv_tile_plans_trim(e, NULL, keep_bytes);
}

/* ---- weights ---- */

dv_store *dv_engine_store(dv_engine *e, int32_t lane) {
    dv_mutex_lock(e->lock);
    dv_store *store = dv_store_ref(e->stores[lane]);
    dv_mutex_unlock(e->lock);
    return store;
}

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

/* ---- runs under way ---- */

void dv_engine_begin_run(dv_picture_run *run) {
    dv_engine *e = run->e;
    dv_mutex_lock(e->lock);
    e->running++;
    e->running_bytes += dv_tile_plan_bytes(run->tile_plan);
    run->next = e->runs;
    e->runs = run;
    dv_mutex_unlock(e->lock);
}

/* Those who wait for memory go on when this run's is free, also weights that only it had left. */
void dv_engine_end_run(dv_picture_run *run) {
    dv_engine *e = run->e;
    const uint64_t bytes = dv_tile_plan_bytes(run->tile_plan);
    dv_mutex_lock(e->lock);
    dv_picture_run **at = &e->runs;
    while (*at != run) {
        at = &(*at)->next;
    }
    *at = run->next;
    dv_mutex_unlock(e->lock);
    dv_tile_plan_release(run->tile_plan);
    dv_mutex_lock(e->lock);
    e->running--;
    e->running_bytes -= bytes;
    dv_cond_broadcast(e->finished);
    dv_mutex_unlock(e->lock);
}

bool dv_engine_others_run(dv_engine *e, int32_t own) {
    dv_mutex_lock(e->lock);
    const bool others = e->running > own;
    dv_mutex_unlock(e->lock);
    return others;
}

static uint64_t leaving_bytes(const dv_engine *e, int32_t lane) {
    uint64_t bytes = 0;
    for (const dv_picture_run *run = e->runs; run != NULL; run = run->next) {
        dv_store *store = run->tile_plan->stores[lane];
        bool counted = store == NULL || store == e->stores[lane];
        for (const dv_picture_run *k = e->runs; k != run && !counted; k = k->next) {
            counted = k->tile_plan->stores[lane] == store;
        }
        bytes += counted ? 0 : dv_store_bytes(store);
    }
    return bytes;
}

/* ---- memory that is left ---- */

/* What runs of this engine hold now, but for the weights that the next one uses, too, counts as available: a run that finds it
 * taken waits for them (run.c), so that the tiles of a picture do not depend on what else is going on. */
static uint64_t available_on(dv_engine *e, int32_t lane) {
    dv_gpu *gpu = dv_engine_gpu(e, lane);
    dv_heap *heap = e->services.heap;
    const uint64_t budget = gpu != NULL ? dv_gpu_budget(gpu) : dv_heap_budget(heap);
    if (budget == 0) {
        return INT64_MAX;
    }
    const uint64_t used = gpu != NULL ? dv_gpu_used(gpu, DV_MEM_WEIGHTS) + dv_gpu_used(gpu, DV_MEM_WORKSPACE)
                                      : dv_heap_used(heap, DV_MEM_WEIGHTS) + dv_heap_used(heap, DV_MEM_WORKSPACE);
    dv_mutex_lock(e->lock);
    const uint64_t running = e->running_bytes + leaving_bytes(e, lane);
    dv_mutex_unlock(e->lock);
    const uint64_t ours = idle_bytes(e, lane) + running;
    const uint64_t foreign = used > ours ? used - ours : 0;
    return budget > foreign ? budget - foreign : 0;
}

uint64_t dv_engine_available(dv_engine *e) {
    uint64_t least = UINT64_MAX;
    for (int32_t l = 0; l < e->n_lanes; l++) {
        const uint64_t bytes = available_on(e, l);
        least = bytes < least ? bytes : least;
    }
    return least;
}

void dv_engine_review(dv_engine *e) {
    dv_cached_tile_plan *list[DV_CACHED_TILE_PLANS];
    const int count = list_tile_plans(e, list);
    const uint64_t available = dv_engine_available(e);
    for (int i = 0; i < count; i++) {
        const dv_tile_schedule *l = &list[i]->schedule;
        const bool cut = l->tiles > 1 && list[i]->request.tiling.width == 0;
        if (cut || l->workspace + l->band > available) {
            dv_tile_plan_forget(e, list[i]);
        }
        dv_tile_plan_release(list[i]);
    }
}

/* ---- a request is answered ---- */

static bool same_request(const dv_request *a, const dv_request *b) {
    return a->stage == b->stage && a->grey == b->grey && a->pictures == b->pictures && a->continues == b->continues &&
           a->apart == b->apart && a->batch == b->batch && a->h == b->h && a->w == b->w &&
           a->tiling.width == b->tiling.width && a->tiling.height == b->tiling.height &&
           a->tiling.overlap == b->tiling.overlap && a->limit == b->limit && a->most == b->most;
}

/* Under the lock; referenced. */
static dv_cached_tile_plan *find_tile_plan(dv_engine *e, const dv_request *request) {
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        dv_cached_tile_plan *tile_plan = e->tile_plans[i];
        if (tile_plan != NULL && same_request(&tile_plan->request, request)) {
            tile_plan->used_at = ++e->clock;
            atomic_fetch_add(&tile_plan->refs, 1);
            return tile_plan;
        }
    }
    return NULL;
}

/* A program another tile plan has for the same tile; NULL: none. Referenced. */
static dv_program *find_program(dv_engine *e, int32_t lane, const dv_request *request, const dv_tile_schedule *schedule,
                                const dv_store *store) {
    dv_program *program = NULL;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_CACHED_TILE_PLANS && program == NULL && store == e->stores[lane]; i++) {
        const dv_cached_tile_plan *tile_plan = e->tile_plans[i];
        if (tile_plan != NULL && tile_plan->programs[lane] != NULL && tile_plan->request.stage == request->stage &&
            tile_plan->request.grey == request->grey && tile_plan->request.pictures == request->pictures &&
            tile_plan->request.continues == request->continues && tile_plan->schedule.tile_h == schedule->tile_h &&
            tile_plan->schedule.tile_w == schedule->tile_w && tile_plan->schedule.lean == schedule->lean &&
            tile_plan->schedule.together == schedule->together && tile_plan->schedule.apart == schedule->apart &&
            tile_plan->schedule.means == schedule->means && tile_plan->schedule.norms == schedule->norms &&
            dv_tile_is_whole(&tile_plan->request, schedule->tile_h, schedule->tile_w) ==
                dv_tile_is_whole(request, schedule->tile_h, schedule->tile_w)) {
            program = dv_program_ref(tile_plan->programs[lane]);
        }
    }
    dv_mutex_unlock(e->lock);
    return program;
}

/* The first lane's plan is that by which the schedule was chosen; those of other GPUs are made. */
static davy_result make_program(dv_engine *e, int32_t lane, dv_store *store, const dv_request *request,
                                dv_tile_schedule *schedule, dv_program **out) {
    dv_program *shared = find_program(e, lane, request, schedule, store);
    if (shared != NULL) {
        *out = shared;
        return DAVY_OK;
    }
    const dv_request q = dv_tile_schedule_request(request, schedule);
    dv_plan *plan = lane == 0 ? schedule->plan : NULL;
    davy_result r = DAVY_OK;
    if (plan != NULL) {
        schedule->plan = NULL;
    } else {
        r = dv_engine_make_plan(e, lane, &q, schedule->tile_h, schedule->tile_w, schedule->lean, &plan);
    }
    if (r != DAVY_OK) {
        return r;
    }
    if (dv_engine_gpu(e, lane) != NULL) {
        dv_plan_measure(plan, dv_engine_gpu(e, lane), e->services.log);
    }
    const dv_program_desc desc = {.services = &e->services, .store = store, .stage = request->stage, .plan = plan};
    return dv_program_create(&desc, out);
}

/* Weights packed for other tiles may be what leaves no room: where giving them up makes the better schedule, they go. */
static davy_result choose_schedule(dv_engine *e, const dv_request *request, dv_tile_schedule *out) {
    dv_store *store = dv_engine_store(e, 0);
    const uint64_t free_bytes = dv_engine_available(e);
    const uint64_t available = request->limit != 0 && request->limit < free_bytes ? request->limit : free_bytes;
    const uint64_t packed = dv_store_bytes(store);
    davy_result r = dv_tile_schedule_choose(e, store, request, available, out);
    dv_store_release(store);
    if (packed == 0 || (r != DAVY_OK && !dv_is_short(r)) || (r == DAVY_OK && out->tiles == 1)) {
        return r;
    }
    dv_mutex_lock(e->lock);
    const bool others = e->running > 0;
    dv_mutex_unlock(e->lock);
    dv_tile_schedule fresh = {0};
    if (!others && dv_tile_schedule_choose(e, NULL, request, available + packed, &fresh) == DAVY_OK &&
        (r != DAVY_OK || dv_tile_schedule_better(&fresh, out))) {
        dv_tile_schedule_move(out, &fresh);
        r = dv_engine_unload(e);
    }
    dv_tile_schedule_drop_plan(&fresh);
    return r;
}

/* An attention over the whole picture, or a norm, is one over a tile then, and faded seams do not make it another. */
static void log_tiles(const dv_engine *e, const dv_request *request, const dv_tile_schedule *schedule) {
    if (schedule->means > 0) {
        dv_logf(e->services.log, DAVY_LOG_INFO,
                "%s of %lld x %lld in %lld tiles, in %d passes: %d means over all of the picture come first",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h, (long long)schedule->tiles,
                (int)schedule->means + 1, (int)schedule->means);
    }
    if (schedule->norms > 0) {
        dv_logf(e->services.log, DAVY_LOG_INFO,
                "%s of %lld x %lld in %lld tiles, of which %llu bytes are kept: %d norms are over all of the picture",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h, (long long)schedule->tiles,
                (unsigned long long)schedule->kept, (int)schedule->norms);
    }
    if (schedule->tiles > 1 && schedule->norms < e->reach[request->stage].n_norms) {
        dv_logf(e->services.log, DAVY_LOG_WARN,
                "%s of %lld x %lld in %lld tiles: there is no memory for what norms over all of the picture need, so "
                "that tiles change the result",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h,
                (long long)schedule->tiles);
    }
    if (schedule->tiles > 1 && e->reach[request->stage].global) {
        dv_logf(e->services.log, DAVY_LOG_WARN,
                "%s of %lld x %lld in %lld tiles: this network looks at all of a picture at once, so that tiles change "
                "the result",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h,
                (long long)schedule->tiles);
    }
}

static davy_result fill_tile_plan(dv_engine *e, dv_cached_tile_plan *tile_plan) {
    const dv_request *request = &tile_plan->request;
    davy_result r = choose_schedule(e, request, &tile_plan->schedule);
    if (r != DAVY_OK) {
        return r;
    }
    log_tiles(e, request, &tile_plan->schedule);
    uint64_t added = 0;
    tile_plan->n_lanes = tile_plan->schedule.lanes;
    for (int32_t l = 0; r == DAVY_OK && l < tile_plan->n_lanes; l++) {
        tile_plan->stores[l] = dv_engine_store(e, l);
        r = make_program(e, l, tile_plan->stores[l], request, &tile_plan->schedule, &tile_plan->programs[l]);
        if (r == DAVY_OK && dv_program_plan(tile_plan->programs[l])->scratch_added > added) {
            added = dv_program_plan(tile_plan->programs[l])->scratch_added;
        }
    }
    dv_tile_schedule_drop_plan(&tile_plan->schedule); /* another tile plan has the program */
    if (r != DAVY_OK) {
        return r;
    }
    tile_plan->schedule.workspace += added;
    dv_axis_desc y;
    dv_axis_desc x;
    tile_plan->out_c = dv_program_plan(tile_plan->programs[0])->output.c;
    dv_tile_schedule_axes(e, request, &tile_plan->schedule, &y, &x);
    r = dv_axis_create(&y, &tile_plan->y);
    return r == DAVY_OK ? dv_axis_create(&x, &tile_plan->x) : r;
}

/* Keeps the tile plan in the place of the one not used for longest; returns what is to be released for it. A tile plan whose
 * store has been given up meanwhile is not kept. */
static dv_cached_tile_plan *keep_tile_plan(dv_engine *e, dv_cached_tile_plan *tile_plan) {
    int oldest = 0;
    dv_cached_tile_plan *old = NULL;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        if (e->tile_plans[i] == NULL) {
            oldest = i;
            break;
        }
        if (e->tile_plans[i]->used_at < e->tile_plans[oldest]->used_at) {
            oldest = i;
        }
    }
    if (tile_plan->stores[0] == e->stores[0]) {
        old = e->tile_plans[oldest];
        tile_plan->used_at = ++e->clock;
        atomic_fetch_add(&tile_plan->refs, 1);
        e->tile_plans[oldest] = tile_plan;
    }
    dv_mutex_unlock(e->lock);
    return old;
}

davy_result dv_tile_plan_get(dv_engine *e, const dv_request *asked, dv_cached_tile_plan **out) {
    dv_request request = *asked; /* the CPU's pictures come one by one */
    request.batch = e->services.n_gpus > 0 ? dv_max(asked->batch, 1) : 1;
    dv_mutex_lock(e->lock);
    dv_cached_tile_plan *tile_plan = find_tile_plan(e, &request);
    dv_mutex_unlock(e->lock);
    if (tile_plan != NULL) {
        *out = tile_plan;
        return DAVY_OK;
    }
    tile_plan = dv_calloc(1, sizeof *tile_plan);
    if (tile_plan == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "engine: out of memory");
    }
    atomic_init(&tile_plan->refs, 1);
    tile_plan->request = request;
    const davy_result r = fill_tile_plan(e, tile_plan);
    if (r != DAVY_OK) {
        dv_tile_plan_release(tile_plan);
        return r;
    }
    dv_tile_plan_release(keep_tile_plan(e, tile_plan));
    *out = tile_plan;
    return DAVY_OK;
}
