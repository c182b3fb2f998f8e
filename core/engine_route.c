/* engine_route.c - answers to requests, kept: a route holds the layout of a picture size and the program of its tile. A
 * few are remembered, so that the second picture of a size is computed without planning or allocating anything. */
#include "core/engine_priv.h"

#include "core/error.h"

void dv_route_release(dv_route *route) {
    if (route != NULL && atomic_fetch_sub(&route->refs, 1) == 1) {
        dv_axis_free(&route->y);
        dv_axis_free(&route->x);
        dv_program_release(route->program);
        dv_store_release(route->store);
        dv_free(route);
    }
}

dv_store *dv_engine_store(dv_engine *e) {
    dv_mutex_lock(e->lock);
    dv_store *store = dv_store_ref(e->store);
    dv_mutex_unlock(e->lock);
    return store;
}

static bool same_request(const dv_request *a, const dv_request *b) {
    return a->stage == b->stage && a->grey == b->grey && a->h == b->h && a->w == b->w &&
           a->tiling.width == b->tiling.width && a->tiling.height == b->tiling.height &&
           a->tiling.overlap == b->tiling.overlap;
}

/* Under the lock; referenced. */
static dv_route *find_route(dv_engine *e, const dv_request *request) {
    for (int i = 0; i < DV_ROUTES; i++) {
        dv_route *route = e->routes[i];
        if (route != NULL && same_request(&route->request, request)) {
            route->used_at = ++e->clock;
            atomic_fetch_add(&route->refs, 1);
            return route;
        }
    }
    return NULL;
}

/* A program another route has for the same tile; NULL: none. Referenced. */
static dv_program *find_program(dv_engine *e, const dv_request *request, const dv_layout *layout,
                                const dv_store *store) {
    dv_program *program = NULL;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_ROUTES && program == NULL && store == e->store; i++) {
        const dv_route *route = e->routes[i];
        if (route != NULL && route->request.stage == request->stage && route->request.grey == request->grey &&
            route->layout.tile_h == layout->tile_h && route->layout.tile_w == layout->tile_w &&
            route->layout.lean == layout->lean) {
            program = dv_program_ref(route->program);
        }
    }
    dv_mutex_unlock(e->lock);
    return program;
}

static davy_result make_program(dv_engine *e, dv_store *store, const dv_request *request, const dv_layout *layout,
                                dv_program **out) {
    dv_program *shared = find_program(e, request, layout, store);
    if (shared != NULL) {
        *out = shared;
        return DAVY_OK;
    }
    dv_plan *plan = NULL;
    const davy_result r = dv_engine_make_plan(e, request, layout->tile_h, layout->tile_w, layout->lean, &plan);
    if (r != DAVY_OK) {
        return r;
    }
    const dv_program_desc desc = {.services = &e->services, .store = store, .stage = request->stage, .plan = plan};
    return dv_program_create(&desc, out);
}

/* The remembered routes, least recently used first, referenced. */
static int list_routes(dv_engine *e, dv_route *list[DV_ROUTES]) {
    int count = 0;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_ROUTES; i++) {
        dv_route *route = e->routes[i];
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
static uint64_t idle_of(dv_route *const *list, int i) {
    for (int k = 0; k < i; k++) {
        if (list[k]->program == list[i]->program) {
            return 0;
        }
    }
    return dv_program_trim(list[i]->program, UINT64_MAX);
}

static uint64_t idle_bytes(dv_engine *e) {
    dv_route *list[DV_ROUTES];
    const int count = list_routes(e, list);
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += idle_of(list, i);
    }
    for (int i = 0; i < count; i++) {
        dv_route_release(list[i]);
    }
    return bytes;
}

/* What runs of this engine hold now counts as available: a run that finds it taken waits for them (engine_run.c), so
 * that the tiles of a picture do not depend on what else is going on. */
uint64_t dv_engine_available(dv_engine *e) {
    const uint64_t budget = dv_heap_budget(e->services.heap);
    if (budget == 0) {
        return INT64_MAX;
    }
    const uint64_t used =
        dv_heap_used(e->services.heap, DV_MEM_WEIGHTS) + dv_heap_used(e->services.heap, DV_MEM_WORKSPACE);
    dv_mutex_lock(e->lock);
    const uint64_t running = e->running_bytes;
    dv_mutex_unlock(e->lock);
    const uint64_t ours = idle_bytes(e) + running;
    const uint64_t foreign = used > ours ? used - ours : 0;
    return budget > foreign ? budget - foreign : 0;
}

/* Weights packed for other tiles may be what leaves no room: where giving them up makes the better layout, they go. */
static davy_result choose_layout(dv_engine *e, const dv_request *request, dv_layout *out) {
    dv_store *store = dv_engine_store(e);
    const uint64_t available = dv_engine_available(e);
    const uint64_t packed = dv_store_bytes(store);
    davy_result r = dv_layout_choose(e, store, request, available, out);
    dv_store_release(store);
    if (packed == 0 || (r != DAVY_OK && r != DAVY_E_BUDGET) || (r == DAVY_OK && out->tiles == 1)) {
        return r;
    }
    dv_mutex_lock(e->lock);
    const bool others = e->running > 0;
    dv_mutex_unlock(e->lock);
    dv_layout fresh = {0};
    if (!others && dv_layout_choose(e, NULL, request, available + packed, &fresh) == DAVY_OK &&
        (r != DAVY_OK || dv_layout_better(&fresh, out))) {
        *out = fresh;
        r = dv_engine_unload(e);
    }
    return r;
}

static davy_result fill_route(dv_engine *e, dv_route *route) {
    const dv_request *request = &route->request;
    davy_result r = choose_layout(e, request, &route->layout);
    if (r != DAVY_OK) {
        return r;
    }
    route->store = dv_engine_store(e);
    r = make_program(e, route->store, request, &route->layout, &route->program);
    if (r != DAVY_OK) {
        return r;
    }
    dv_axis_desc y;
    dv_axis_desc x;
    route->out_c = dv_program_plan(route->program)->output.c;
    dv_layout_axes(e, request, &route->layout, &y, &x);
    r = dv_axis_create(&y, &route->y);
    return r == DAVY_OK ? dv_axis_create(&x, &route->x) : r;
}

/* Keeps the route in the place of the one not used for longest; returns what is to be released for it. A route whose
 * store has been given up meanwhile is not kept. */
static dv_route *remember(dv_engine *e, dv_route *route) {
    int oldest = 0;
    dv_route *old = NULL;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_ROUTES; i++) {
        if (e->routes[i] == NULL) {
            oldest = i;
            break;
        }
        if (e->routes[i]->used_at < e->routes[oldest]->used_at) {
            oldest = i;
        }
    }
    if (route->store == e->store) {
        old = e->routes[oldest];
        route->used_at = ++e->clock;
        atomic_fetch_add(&route->refs, 1);
        e->routes[oldest] = route;
    }
    dv_mutex_unlock(e->lock);
    return old;
}

davy_result dv_route_get(dv_engine *e, const dv_request *request, dv_route **out) {
    dv_mutex_lock(e->lock);
    dv_route *route = find_route(e, request);
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
    route->request = *request;
    const davy_result r = fill_route(e, route);
    if (r != DAVY_OK) {
        dv_route_release(route);
        return r;
    }
    dv_route_release(remember(e, route));
    *out = route;
    return DAVY_OK;
}

void dv_route_forget(dv_engine *e, dv_route *route) {
    bool found = false;
    dv_mutex_lock(e->lock);
    for (int i = 0; i < DV_ROUTES; i++) {
        if (e->routes[i] == route) {
            e->routes[i] = NULL;
            found = true;
        }
    }
    dv_mutex_unlock(e->lock);
    if (found) {
        dv_route_release(route);
    }
}

void dv_routes_drop(dv_engine *e) {
    for (int i = 0; i < DV_ROUTES; i++) {
        dv_mutex_lock(e->lock);
        dv_route *route = e->routes[i];
        e->routes[i] = NULL;
        dv_mutex_unlock(e->lock);
        dv_route_release(route);
    }
}

void dv_routes_trim(dv_engine *e, const dv_route *except, uint64_t keep_bytes) {
    dv_route *list[DV_ROUTES];
    const int count = list_routes(e, list);
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += except == NULL || list[i]->program != except->program ? idle_of(list, i) : 0;
    }
    for (int i = 0; i < count && bytes > keep_bytes; i++) {
        if (except == NULL || list[i]->program != except->program) {
            const uint64_t own = idle_of(list, i);
            const uint64_t others = bytes - own;
            bytes = others + dv_program_trim(list[i]->program, keep_bytes > others ? keep_bytes - others : 0);
        }
    }
    for (int i = 0; i < count; i++) {
        dv_route_release(list[i]);
    }
}
