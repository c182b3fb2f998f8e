/* tile_plan_cache.c - answers to requests, kept: a route holds the layout of a picture size and the program of its tile. A
 * few are remembered, so that the second picture of a size is computed without planning or allocating anything. */
#include "core/tiles/engine_priv.h"

#include "core/cuda/gpu.h"
#include "core/base/error.h"
#include "core/exec/autotune.h"

void dv_tile_plan_release(dv_cached_tile_plan *route) {
    if (route != NULL && atomic_fetch_sub(&route->refs, 1) == 1) {
        dv_axis_free(&route->y);
        dv_axis_free(&route->x);
        for (int32_t l = 0; l < DV_LANES; l++) {
            dv_program_release(route->programs[l]);
            dv_store_release(route->stores[l]);
        }
        dv_free(route);
    }
}

dv_store *dv_engine_store(dv_engine *e, int32_t lane) {
    dv_mutex_lock(e->lock);
    dv_store *store = dv_store_ref(e->stores[lane]);
    dv_mutex_unlock(e->lock);
    return store;
}

static bool same_request(const dv_request *a, const dv_request *b) {
    return a->stage == b->stage && a->grey == b->grey && a->pictures == b->pictures && a->continues == b->continues &&
           a->apart == b->apart && a->batch == b->batch && a->h == b->h && a->w == b->w &&
           a->tiling.width == b->tiling.width && a->tiling.height == b->tiling.height &&
           a->tiling.overlap == b->tiling.overlap && a->limit == b->limit && a->most == b->most;
}

/* Under the lock; referenced. */
static dv_cached_tile_plan *find_route(dv_engine *e, const dv_request *request) {
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        dv_cached_tile_plan *route = e->routes[i];
        if (route != NULL && same_request(&route->request, request)) {
            route->used_at = ++e->clock;
            atomic_fetch_add(&route->refs, 1);
            return route;
        }
    }
    return NULL;
}

/* A program another route has for the same tile; NULL: none. Referenced. */
static dv_program *find_program(dv_engine *e, int32_t lane, const dv_request *request, const dv_tile_schedule *layout,
                                const dv_store *store) {
    dv_program *program = NULL;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_CACHED_TILE_PLANS && program == NULL && store == e->stores[lane]; i++) {
        const dv_cached_tile_plan *route = e->routes[i];
        if (route != NULL && route->programs[lane] != NULL && route->request.stage == request->stage &&
            route->request.grey == request->grey && route->request.pictures == request->pictures &&
            route->request.continues == request->continues && route->layout.tile_h == layout->tile_h &&
            route->layout.tile_w == layout->tile_w && route->layout.lean == layout->lean &&
            route->layout.together == layout->together && route->layout.apart == layout->apart &&
            route->layout.means == layout->means && route->layout.norms == layout->norms &&
            dv_tile_is_whole(&route->request, layout->tile_h, layout->tile_w) ==
                dv_tile_is_whole(request, layout->tile_h, layout->tile_w)) {
            program = dv_program_ref(route->programs[lane]);
        }
    }
    dv_mutex_unlock(e->lock);
    return program;
}

static davy_result make_program(dv_engine *e, int32_t lane, dv_store *store, const dv_request *request,
                                const dv_tile_schedule *layout, dv_program **out) {
    dv_program *shared = find_program(e, lane, request, layout, store);
    if (shared != NULL) {
        *out = shared;
        return DAVY_OK;
    }
    dv_plan *plan = NULL;
    const dv_request q = dv_tile_schedule_request(request, layout);
    const davy_result r = dv_engine_make_plan(e, lane, &q, layout->tile_h, layout->tile_w, layout->lean, &plan);
    if (r != DAVY_OK) {
        return r;
    }
    if (dv_engine_gpu(e, lane) != NULL) {
        dv_plan_measure(plan, dv_engine_gpu(e, lane), e->services.log);
    }
    const dv_program_desc desc = {.services = &e->services, .store = store, .stage = request->stage, .plan = plan};
    return dv_program_create(&desc, out);
}

/* The remembered routes, least recently used first, referenced. */
static int list_routes(dv_engine *e, dv_cached_tile_plan *list[DV_CACHED_TILE_PLANS]) {
    int count = 0;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        dv_cached_tile_plan *route = e->routes[i];
        if (route == NULL) {
            continue;
        }
        atomic_fetch_add(&route->refs, 1);
        int at = count++;
        for (; at > 0 && list[at - 1]->used_at > route->used_at; at--) {
            list[at] = list[at - 1];
        }
        list[at] = route;
    }
    dv_mutex_unlock(e->lock);
    return count;
}

/* Idle bytes of list[i]'s program; 0 where an earlier route has counted it. */
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
    const int count = list_routes(e, list);
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += idle_of(list, i, lane);
    }
    for (int i = 0; i < count; i++) {
        dv_tile_plan_release(list[i]);
    }
    return bytes;
}

uint64_t dv_engine_budget(const dv_engine *e) {
    return e->services.n_gpus > 0 ? dv_gpu_budget(dv_engine_gpu(e, 0)) : dv_heap_budget(e->services.heap);
}

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
    const uint64_t running = e->running_bytes + dv_engine_leaving(e, lane);
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

/* Weights packed for other tiles may be what leaves no room: where giving them up makes the better layout, they go. */
static davy_result choose_layout(dv_engine *e, const dv_request *request, dv_tile_schedule *out) {
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
        *out = fresh;
        r = dv_engine_unload(e);
    }
    return r;
}

/* An attention over the whole picture, or a norm, is one over a tile then, and faded seams do not make it another. */
static void tell_tiles(const dv_engine *e, const dv_request *request, const dv_tile_schedule *layout) {
    if (layout->means > 0) {
        dv_logf(e->services.log, DAVY_LOG_INFO,
                "%s of %lld x %lld in %lld tiles, in %d passes: %d means over all of the picture come first",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h, (long long)layout->tiles,
                (int)layout->means + 1, (int)layout->means);
    }
    if (layout->norms > 0) {
        dv_logf(e->services.log, DAVY_LOG_INFO,
                "%s of %lld x %lld in %lld tiles, of which %llu bytes are kept: %d norms are over all of the picture",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h, (long long)layout->tiles,
                (unsigned long long)layout->kept, (int)layout->norms);
    }
    if (layout->tiles > 1 && layout->norms < e->reach[request->stage].n_norms) {
        dv_logf(e->services.log, DAVY_LOG_WARN,
                "%s of %lld x %lld in %lld tiles: there is no memory for what norms over all of the picture need, so "
                "that tiles change the result",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h, (long long)layout->tiles);
    }
    if (layout->tiles > 1 && e->reach[request->stage].global) {
        dv_logf(e->services.log, DAVY_LOG_WARN,
                "%s of %lld x %lld in %lld tiles: this network looks at all of a picture at once, so that tiles change "
                "the result",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h, (long long)layout->tiles);
    }
}

static davy_result fill_route(dv_engine *e, dv_cached_tile_plan *route) {
    const dv_request *request = &route->request;
    davy_result r = choose_layout(e, request, &route->layout);
    if (r != DAVY_OK) {
        return r;
    }
    tell_tiles(e, request, &route->layout);
    uint64_t added = 0;
    route->n_lanes = route->layout.lanes;
    for (int32_t l = 0; r == DAVY_OK && l < route->n_lanes; l++) {
        route->stores[l] = dv_engine_store(e, l);
        r = make_program(e, l, route->stores[l], request, &route->layout, &route->programs[l]);
        if (r == DAVY_OK && dv_program_plan(route->programs[l])->scratch_added > added) {
            added = dv_program_plan(route->programs[l])->scratch_added;
        }
    }
    if (r != DAVY_OK) {
        return r;
    }
    route->layout.workspace += added;
    dv_axis_desc y;
    dv_axis_desc x;
    route->out_c = dv_program_plan(route->programs[0])->output.c;
    dv_tile_schedule_axes(e, request, &route->layout, &y, &x);
    r = dv_axis_create(&y, &route->y);
    return r == DAVY_OK ? dv_axis_create(&x, &route->x) : r;
}

/* Keeps the route in the place of the one not used for longest; returns what is to be released for it. A route whose
 * store has been given up meanwhile is not kept. */
static dv_cached_tile_plan *remember(dv_engine *e, dv_cached_tile_plan *route) {
    int oldest = 0;
    dv_cached_tile_plan *old = NULL;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        if (e->routes[i] == NULL) {
            oldest = i;
            break;
        }
        if (e->routes[i]->used_at < e->routes[oldest]->used_at) {
            oldest = i;
        }
    }
    if (route->stores[0] == e->stores[0]) {
        old = e->routes[oldest];
        route->used_at = ++e->clock;
        atomic_fetch_add(&route->refs, 1);
        e->routes[oldest] = route;
    }
    dv_mutex_unlock(e->lock);
    return old;
}

davy_result dv_tile_plan_get(dv_engine *e, const dv_request *asked, dv_cached_tile_plan **out) {
    dv_request request = *asked; /* the CPU's pictures come one by one */
    request.batch = e->services.n_gpus > 0 ? dv_max(asked->batch, 1) : 1;
    dv_mutex_lock(e->lock);
    dv_cached_tile_plan *route = find_route(e, &request);
    dv_mutex_unlock(e->lock);
    if (route != NULL) {
        *out = route;
        return DAVY_OK;
    }
    route = dv_calloc(1, sizeof *route);
    if (route == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "engine: out of memory");
    }
    atomic_init(&route->refs, 1);
    route->request = request;
    const davy_result r = fill_route(e, route);
    if (r != DAVY_OK) {
        dv_tile_plan_release(route);
        return r;
    }
    dv_tile_plan_release(remember(e, route));
    *out = route;
    return DAVY_OK;
}

void dv_tile_plan_forget(dv_engine *e, dv_cached_tile_plan *route) {
    bool found = false;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        if (e->routes[i] == route) {
            e->routes[i] = NULL;
            found = true;
        }
    }
    dv_mutex_unlock(e->lock);
    if (found) {
        dv_tile_plan_release(route);
    }
}

void dv_tile_plans_drop(dv_engine *e) {
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        dv_mutex_lock(e->lock);
        dv_cached_tile_plan *route = e->routes[i];
        e->routes[i] = NULL;
        dv_mutex_unlock(e->lock);
        dv_tile_plan_release(route);
    }
}

void dv_engine_review(dv_engine *e) {
    dv_cached_tile_plan *list[DV_CACHED_TILE_PLANS];
    const int count = list_routes(e, list);
    const uint64_t available = dv_engine_available(e);
    for (int i = 0; i < count; i++) {
        const dv_tile_schedule *l = &list[i]->layout;
        const bool cut = l->tiles > 1 && list[i]->request.tiling.width == 0;
        if (cut || l->workspace + l->band > available) {
            dv_tile_plan_forget(e, list[i]);
        }
        dv_tile_plan_release(list[i]);
    }
}

static bool is_other(const dv_cached_tile_plan *except, const dv_cached_tile_plan *route, int32_t lane) {
    return route->programs[lane] != NULL && (except == NULL || route->programs[lane] != except->programs[lane]);
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
    const int count = list_routes(e, list);
    for (int32_t l = 0; l < e->n_lanes; l++) {
        trim_lane(list, count, l, except, keep_bytes);
    }
    for (int i = 0; i < count; i++) {
        dv_tile_plan_release(list[i]);
    }
}
