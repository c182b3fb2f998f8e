/* picture_run.c - a picture gets a tile plan, memory, and a back end that computes it; where memory is short, others are waited
 * for or smaller tiles are taken. */
#include "core/tiles/picture_run.h"

#include "core/base/error.h"

#define WAIT_NS              20000000ull
#define KEEP_OTHER_BYTES     (256ull << 20) /* idle arenas of other sizes */
#define KEEP_OTHER_GPU_BYTES (1ull << 30)

enum { ATTEMPTS = 4 };

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
    const davy_result r = dv_engine_check_stage(e, w->stage);
    if (r != DAVY_OK) {
        return r;
    }
    if (w->in.h < 1 || w->in.w < 1 || w->in.n < 1 || w->out.n != w->in.n) {
        return dv_fail(DAVY_E_SHAPE, "%s: a picture of %lld x %lld (%lld of them)", dv_stage_name(w->stage),
                       (long long)w->in.w, (long long)w->in.h, (long long)w->in.n);
    }
    return DAVY_OK;
}

static davy_result check_tile_plan(const dv_work *w, const dv_cached_tile_plan *tile_plan) {
    const dv_plan *plan = dv_program_plan(tile_plan->programs[0]);
    const int64_t out_h = dv_axis_end(&tile_plan->y, tile_plan->y.count - 1);
    const int64_t out_w = dv_axis_end(&tile_plan->x, tile_plan->x.count - 1);
    if (w->in.channels != plan->input.c) {
        return dv_fail(DAVY_E_SHAPE, "%s: %d channels, the network takes %lld", dv_stage_name(w->stage),
                       (int)w->in.channels, (long long)plan->input.c);
    }
    if (w->out.h != out_h || w->out.w != out_w || w->out.channels < 1 || w->out.channels > tile_plan->out_c) {
        return dv_fail(DAVY_E_SHAPE,
                       "%s: output of %lld x %lld with %d channels, expected %lld x %lld with at most %lld",
                       dv_stage_name(w->stage), (long long)w->out.w, (long long)w->out.h, (int)w->out.channels,
                       (long long)out_w, (long long)out_h, (long long)tile_plan->out_c);
    }
    return DAVY_OK;
}

/* Of all tiles in all passes and of what is to be packed for them; sets the part of a group of them. */
static double total_cost(dv_picture_run *run) {
    const dv_tile_schedule *l = &run->tile_plan->schedule;
    const dvk_image *out = &run->work->out;
    const dv_plan *plan = dv_program_plan(run->tile_plan->programs[0]);
    const dvk_convert_args load = {.view = plan->input};
    const dvk_convert_args store = {.view = {.h = out->h, .w = out->w, .c = out->channels}};
    const double loads = (double)(l->tiles * (1 + l->means)) * dv_convert_cost(&load);
    const double picture = l->cost + loads + dv_convert_cost(&store);
    uint64_t missing = 0;
    for (int32_t lane = 0; lane < run->tile_plan->n_lanes; lane++) {
        missing += dv_store_missing(run->tile_plan->stores[lane], run->work->stage,
                                    dv_program_plan(run->tile_plan->programs[lane]));
    }
    run->group_cost = picture * (double)run->work->in.n / (double)l->groups;
    return picture * (double)run->work->in.n + dv_store_cost(missing);
}

/* One try on the tile plan: short of memory with nothing kept where somebody else has taken it. */
static davy_result run_once(dv_picture_run *run) {
    dv_engine *e = run->e;
    davy_result (*const back_end)(dv_picture_run *, bool *) =
        e->services.n_gpus > 0 ? dv_picture_run_cuda : dv_picture_run_cpu;
    bool acquired = false;
    dv_watch_begin(&run->watch, &run->work->control, dv_stage_name(run->work->stage), total_cost(run));
    davy_result r = dv_watch_poll(&run->watch);
    if (r != DAVY_OK) {
        return r;
    }
    dv_tile_plans_trim(e, run->tile_plan, e->services.n_gpus > 0 ? KEEP_OTHER_GPU_BYTES : KEEP_OTHER_BYTES);
    r = back_end(run, &acquired);
    if (dv_is_short(r) && !acquired) {
        dv_tile_plans_trim(e, run->tile_plan, 0);
        r = back_end(run, &acquired);
    }
    if (r == DAVY_OK) {
        r = dv_watch_end(&run->watch);
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
static int take_less(const dv_engine *e, dv_request *request, davy_result r, const dv_cached_tile_plan *tile_plan) {
    const int64_t together = tile_plan->schedule.together;
    if (r == DAVY_E_NOMEM_DEVICE && together > 1) {
        request->most = together / 2;
        return 0;
    }
    if (r == DAVY_E_NOMEM_DEVICE) {
        const bool shared = e->reach[request->stage].n_norms > 0 && tile_plan->schedule.tiles == 1;
        request->limit = shared ? dv_tile_plan_bytes(tile_plan) / 4 * 3 : dv_tile_plan_bytes(tile_plan) / 2;
    }
    return 1;
}

/* *others: what it is short of, runs that are at work may give back. Else *attempt counts, and *request asks for less. */
static davy_result try_run(dv_picture_run *run, dv_request *request, int *attempt, davy_error_info *refused,
                           bool *others) {
    dv_engine *e = run->e;
    davy_result r = dv_tile_plan_get(e, request, &run->tile_plan);
    if (r != DAVY_OK) {
        *attempt = ATTEMPTS;
        *others = dv_is_short(r) && dv_engine_others_run(e, 0);
        return r == DAVY_E_BUDGET && request->limit != 0 && !*others ? device_is_full(run->work, refused) : r;
    }
    dv_engine_begin_run(run);
    r = check_tile_plan(run->work, run->tile_plan);
    r = r == DAVY_OK ? run_once(run) : r;
    *others = dv_is_short(r) && dv_engine_others_run(e, 1);
    if (dv_is_short(r) && !*others) { /* somebody beyond this engine has taken it */
        if (r == DAVY_E_NOMEM_DEVICE) {
            dv_error_get(refused);
        }
        *attempt += take_less(e, request, r, run->tile_plan);
        dv_tile_plan_forget(e, run->tile_plan);
    }
    dv_engine_end_run(run);
    return r;
}

davy_result dv_engine_run(dv_engine *e, const dv_work *work) {
    dv_request request = request_of(work);
    davy_error_info refused = {.struct_size = sizeof refused};
    davy_result r = check_work(e, work);
    for (int attempt = 0; r == DAVY_OK && attempt < ATTEMPTS;) {
        dv_picture_run run = {.e = e, .work = work};
        bool others = false;
        const int before = attempt;
        r = try_run(&run, &request, &attempt, &refused, &others);
        if (!dv_is_short(r)) {
            return r;
        }
        attempt = others ? before : attempt;
        r = others ? wait_for_others(e, work) : attempt < ATTEMPTS ? DAVY_OK : r;
    }
    return r;
}

davy_result dv_engine_plan(dv_engine *e, dv_stage stage, int64_t h, int64_t w, const dv_tiling *tiling,
                           davy_plan_info *out) {
    return dv_engine_plan_batch(e, stage, 1, h, w, tiling, out);
}

davy_result dv_engine_plan_batch(dv_engine *e, dv_stage stage, int64_t n, int64_t h, int64_t w, const dv_tiling *tiling,
                                 davy_plan_info *out) {
    const dv_tiling none = {0};
    const dv_request q = {.stage = stage, .batch = n, .h = h, .w = w, .tiling = tiling != NULL ? *tiling : none};
    davy_result r = dv_engine_check_stage(e, stage);
    if (r != DAVY_OK) {
        return r;
    }
    if (h < 1 || w < 1) {
        return dv_fail(DAVY_E_SHAPE, "%s: a picture of %lld x %lld", dv_stage_name(stage), (long long)w, (long long)h);
    }
    dv_cached_tile_plan *tile_plan = NULL;
    r = dv_tile_plan_get(e, &q, &tile_plan);
    if (r != DAVY_OK) {
        return r;
    }
    out->shape[0] = dv_axis_end(&tile_plan->y, tile_plan->y.count - 1);
    out->shape[1] = dv_axis_end(&tile_plan->x, tile_plan->x.count - 1);
    out->shape[2] = tile_plan->out_c;
    out->workspace_bytes = dv_tile_plan_bytes(tile_plan);
    out->flops = tile_plan->schedule.flops;
    out->tiles_x = (int32_t)tile_plan->x.count;
    out->tiles_y = (int32_t)tile_plan->y.count;
    out->tiles_t = 1;
    out->tile_width = (int32_t)tile_plan->x.tile;
    out->tile_height = (int32_t)tile_plan->y.tile;
    out->tile_frames = 1;
    dv_tile_plan_release(tile_plan);
    return DAVY_OK;
}
