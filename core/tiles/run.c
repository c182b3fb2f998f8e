/* run.c - a picture gets a route, memory, and a back end that computes it; where memory is short, others are waited
 * for or smaller tiles are taken. */
#include "core/tiles/picture_run.h"
#include "core/base/error.h"

#define WAIT_NS              20000000ull
#define KEEP_OTHER_BYTES     (256ull << 20) /* idle arenas of other sizes */
#define KEEP_OTHER_GPU_BYTES (1ull << 30)

enum { ATTEMPTS = 4 };

static uint64_t route_bytes(const dv_cached_tile_plan *route) {
    return route->layout.workspace + route->layout.band;
}

static void begin_running(dv_picture_run *j) {
    dv_engine *e = j->e;
    dv_mutex_lock(e->lock);
    e->running++;
    e->running_bytes += route_bytes(j->route);
    j->other = e->jobs;
    e->jobs = j;
    dv_mutex_unlock(e->lock);
}

/* Those who wait for memory go on when this run's is free, also weights that only it had left. */
static void end_running(dv_picture_run *j) {
    dv_engine *e = j->e;
    const uint64_t bytes = route_bytes(j->route);
    dv_mutex_lock(e->lock);
    dv_picture_run **at = &e->jobs;
    while (*at != j) {
        at = &(*at)->other;
    }
    *at = j->other;
    dv_mutex_unlock(e->lock);
    dv_tile_plan_release(j->route);
    dv_mutex_lock(e->lock);
    e->running--;
    e->running_bytes -= bytes;
    dv_cond_broadcast(e->finished);
    dv_mutex_unlock(e->lock);
}

uint64_t dv_engine_leaving(const dv_engine *e, int32_t lane) {
    uint64_t bytes = 0;
    for (const dv_picture_run *j = e->jobs; j != NULL; j = j->other) {
        dv_store *store = j->route->stores[lane];
        bool counted = store == NULL || store == e->stores[lane];
        for (const dv_picture_run *k = e->jobs; k != j && !counted; k = k->other) {
            counted = k->route->stores[lane] == store;
        }
        bytes += counted ? 0 : dv_store_bytes(store);
    }
    return bytes;
}

static bool others_run(dv_engine *e, int32_t ours) {
    dv_mutex_lock(e->lock);
    const bool others = e->running > ours;
    dv_mutex_unlock(e->lock);
    return others;
}

/* By a run that holds nothing. */
static davy_result wait_for_others(dv_engine *e, const dv_work *w) {
    dv_watch watch;
    dv_mutex_lock(e->lock);
    if (e->running > 0) {
        dv_cond_wait(e->finished, e->lock, WAIT_NS);
    }
    dv_mutex_unlock(e->lock);
    dv_watch_begin(&watch, &w->control, dv_stage_name(w->stage), 1.0);
    return dv_watch_poll(&watch);
}

static dv_request request_of(const dv_work *work) {
    return (dv_request){.stage = work->stage,
                        .grey = work->grey,
                        .batch = work->in.n,
                        .h = work->in.h,
                        .w = work->in.w,
                        .tiling = work->tiling};
}

static davy_result check_work(const dv_engine *e, const dv_work *w) {
    if (w->stage < DV_STAGE_UPSCALE || w->stage > DV_STAGE_DECODE || !e->has_stage[w->stage]) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: these weights cannot %s", e->file_name, dv_stage_name(w->stage));
    }
    if (w->in.h < 1 || w->in.w < 1 || w->in.n < 1 || w->out.n != w->in.n) {
        return dv_fail(DAVY_E_SHAPE, "%s: a picture of %lld x %lld (%lld of them)", dv_stage_name(w->stage),
                       (long long)w->in.w, (long long)w->in.h, (long long)w->in.n);
    }
    return DAVY_OK;
}

static davy_result check_route(const dv_work *w, const dv_cached_tile_plan *route) {
    const dv_plan *plan = dv_program_plan(route->programs[0]);
    const int64_t out_h = dv_axis_end(&route->y, route->y.count - 1);
    const int64_t out_w = dv_axis_end(&route->x, route->x.count - 1);
    if (w->in.channels != plan->input.c) {
        return dv_fail(DAVY_E_SHAPE, "%s: %d channels, the network takes %lld", dv_stage_name(w->stage),
                       (int)w->in.channels, (long long)plan->input.c);
    }
    if (w->out.h != out_h || w->out.w != out_w || w->out.channels < 1 || w->out.channels > route->out_c) {
        return dv_fail(DAVY_E_SHAPE,
                       "%s: output of %lld x %lld with %d channels, expected %lld x %lld with at most %lld",
                       dv_stage_name(w->stage), (long long)w->out.w, (long long)w->out.h, (int)w->out.channels,
                       (long long)out_w, (long long)out_h, (long long)route->out_c);
    }
    return DAVY_OK;
}

/* Of all tiles in all passes and of what is to be packed for them; sets the part of a group of them. */
static double total_cost(dv_picture_run *j) {
    const dv_tile_schedule *l = &j->route->layout;
    const dvk_image *out = &j->work->out;
    const dv_plan *plan = dv_program_plan(j->route->programs[0]);
    const dvk_convert_args load = {.view = plan->input};
    const dvk_convert_args store = {.view = {.h = out->h, .w = out->w, .c = out->channels}};
    const double loads = (double)(l->tiles * (1 + l->means)) * dv_convert_cost(&load);
    const double picture = l->cost + loads + dv_convert_cost(&store);
    uint64_t missing = 0;
    for (int32_t lane = 0; lane < j->route->n_lanes; lane++) {
        missing += dv_store_missing(j->route->stores[lane], j->work->stage, dv_program_plan(j->route->programs[lane]));
    }
    j->group_cost = picture * (double)j->work->in.n / (double)l->groups;
    return picture * (double)j->work->in.n + dv_store_cost(missing);
}

/* One try on the route: short of memory with nothing kept where somebody else has taken it. */
static davy_result run_route(dv_picture_run *j) {
    dv_engine *e = j->e;
    davy_result (*const run)(dv_picture_run *, bool *) =
        e->services.n_gpus > 0 ? dv_picture_run_cuda : dv_picture_run_cpu;
    bool acquired = false;
    dv_watch_begin(&j->watch, &j->work->control, dv_stage_name(j->work->stage), total_cost(j));
    davy_result r = dv_watch_poll(&j->watch);
    if (r != DAVY_OK) {
        return r;
    }
    dv_tile_plans_trim(e, j->route, e->services.n_gpus > 0 ? KEEP_OTHER_GPU_BYTES : KEEP_OTHER_BYTES);
    r = run(j, &acquired);
    if (dv_is_short(r) && !acquired) {
        dv_tile_plans_trim(e, j->route, 0);
        r = run(j, &acquired);
    }
    if (r == DAVY_OK) {
        r = dv_watch_end(&j->watch);
    }
    return r;
}

/* No tiles fit what a full device may still have; the budget is not why. */
static davy_result device_is_full(const dv_work *w, const davy_error_info *refused) {
    return dv_fail_in(DAVY_E_NOMEM_DEVICE, refused->domain, refused->native,
                      "%s of %lld x %lld: %s; smaller tiles do not fit either", dv_stage_name(w->stage),
                      (long long)w->in.w, (long long)w->in.h, refused->message);
}

/* What to ask for next, when a device has refused memory: fewer tiles at once, then smaller ones. 1: an attempt. Tiles that share
 * norms keep half of what the whole picture takes. */
static int take_less(const dv_engine *e, dv_request *request, davy_result r, const dv_cached_tile_plan *route) {
    const int64_t together = route->layout.together;
    if (r == DAVY_E_NOMEM_DEVICE && together > 1) {
        request->most = together / 2;
        return 0;
    }
    if (r == DAVY_E_NOMEM_DEVICE) {
        const bool shared = e->reach[request->stage].n_norms > 0 && route->layout.tiles == 1;
        request->limit = shared ? route_bytes(route) / 4 * 3 : route_bytes(route) / 2;
    }
    return 1;
}

/* *others: what it is short of, runs that are at work may give back. Else *attempt counts, and *request asks for less. */
static davy_result try_run(dv_picture_run *j, dv_request *request, int *attempt, davy_error_info *refused,
                           bool *others) {
    dv_engine *e = j->e;
    davy_result r = dv_tile_plan_get(e, request, &j->route);
    if (r != DAVY_OK) {
        *attempt = ATTEMPTS;
        *others = dv_is_short(r) && others_run(e, 0);
        return r == DAVY_E_BUDGET && request->limit != 0 && !*others ? device_is_full(j->work, refused) : r;
    }
    begin_running(j);
    r = check_route(j->work, j->route);
    r = r == DAVY_OK ? run_route(j) : r;
    *others = dv_is_short(r) && others_run(e, 1);
    if (dv_is_short(r) && !*others) { /* somebody beyond this engine has taken it */
        if (r == DAVY_E_NOMEM_DEVICE) {
            dv_error_get(refused);
        }
        *attempt += take_less(e, request, r, j->route);
        dv_tile_plan_forget(e, j->route);
    }
    end_running(j);
    return r;
}

davy_result dv_engine_run(dv_engine *e, const dv_work *work) {
    dv_request request = request_of(work);
    davy_error_info refused = {.struct_size = sizeof refused};
    davy_result r = check_work(e, work);
    for (int attempt = 0; r == DAVY_OK && attempt < ATTEMPTS;) {
        dv_picture_run j = {.e = e, .work = work};
        bool others = false;
        const int before = attempt;
        r = try_run(&j, &request, &attempt, &refused, &others);
        if (!dv_is_short(r)) {
            return r;
        }
        attempt = others ? before : attempt;
        r = others ? wait_for_others(e, work) : attempt < ATTEMPTS ? DAVY_OK : r;
    }
    return r;
}
