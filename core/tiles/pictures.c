/* pictures.c - see pictures.h. A run gets a tile plan, takes memory and calls the back end for its device. If memory is short, it
 * waits for other runs or takes smaller tiles. */
#include "core/tiles/pictures.h"

#include <string.h>

#include "core/base/error.h"
#include "core/cuda/gpu.h"
#include "core/exec/autotune.h"
#include "core/tiles/picture_run.h"

#define WAIT_NS              20000000ull
#define KEEP_OTHER_BYTES     (256ull << 20) /* idle arenas of other sizes */
#define KEEP_OTHER_GPU_BYTES (1ull << 30)

enum { ATTEMPTS = 4 };

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

/* The cached tile plans, least recently used first, referenced. */
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

static void forget_tile_plan(dv_engine *e, dv_cached_tile_plan *tile_plan) {
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

/* Idle bytes of list[i]'s program; 0 if an earlier tile plan in the list has the same program. */
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
        if (r < 0) {
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
    if (r < 0) {
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
    *unloaded = dv_store_refs(store) == 1 + e->n_lanes; /* held by the caller, the engine, the stores of other GPUs */
    return *unloaded ? dv_engine_unload(e) : DAVY_OK;
}

/* ---- runs under way ---- */

static void begin_run(dv_picture_run *run) {
    dv_engine *e = run->e;
    dv_mutex_lock(e->lock);
    e->running++;
    e->running_bytes += dv_tile_plan_bytes(run->tile_plan);
    run->next = e->runs;
    e->runs = run;
    dv_mutex_unlock(e->lock);
}

/* Wakes runs that wait for memory after this run's memory is free, and the weights that only this run used. */
static void end_run(dv_picture_run *run) {
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

static bool others_run(dv_engine *e, int32_t own) {
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

/* ---- available memory ---- */

/* Memory held by running runs of this engine counts as available, except weights that the next run shares. A run that cannot get it
 * yet waits for them. So the tiles of a picture do not depend on concurrent runs. */
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
            forget_tile_plan(e, list[i]);
        }
        dv_tile_plan_release(list[i]);
    }
}

/* ---- the tile plan of a request ---- */

static bool same_request(const dv_request *a, const dv_request *b) {
    return a->stage == b->stage && a->grey == b->grey && a->pictures == b->pictures && a->continues == b->continues &&
           a->apart == b->apart && a->batch == b->batch && a->h == b->h && a->w == b->w &&
           a->tiling.width == b->tiling.width && a->tiling.height == b->tiling.height &&
           a->tiling.overlap == b->tiling.overlap && a->memory_limit == b->memory_limit &&
           a->max_together == b->max_together;
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

/* The program of another tile plan for the same tile, referenced; NULL: none. */
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

/* The first lane uses the plan by which the schedule was chosen. For other GPUs a plan is made. */
static davy_result make_program(dv_engine *e, int32_t lane, dv_cached_tile_plan *tile_plan, dv_program **out) {
    dv_store *store = tile_plan->stores[lane];
    const dv_request *request = &tile_plan->request;
    dv_tile_schedule *schedule = &tile_plan->schedule;
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
        r = dv_engine_make_plan(
            e, &q, &(dv_plan_desc){.lane = lane, .h = schedule->tile_h, .w = schedule->tile_w, .lean = schedule->lean},
            &plan);
    }
    if (r < 0) {
        return r;
    }
    if (dv_engine_gpu(e, lane) != NULL) {
        dv_plan_autotune(plan, dv_engine_gpu(e, lane), e->services.log);
    }
    const dv_program_desc desc = {.services = &e->services, .store = store, .stage = request->stage, .plan = plan};
    return dv_program_create(&desc, out);
}

/* Weights that were packed for other tiles take memory. They are freed if that allows a better schedule. */
static davy_result choose_schedule(dv_engine *e, const dv_request *request, dv_tile_schedule *out) {
    dv_store *store = dv_engine_store(e, 0);
    const uint64_t free_bytes = dv_engine_available(e);
    const uint64_t available =
        request->memory_limit != 0 && request->memory_limit < free_bytes ? request->memory_limit : free_bytes;
    const uint64_t packed = dv_store_bytes(store);
    davy_result r = dv_tile_schedule_choose(e, store, request, available, out);
    dv_store_release(store);
    if (packed == 0 || (r < 0 && !dv_is_short(r)) || (r == DAVY_OK && out->tiles == 1)) {
        return r;
    }
    dv_mutex_lock(e->lock);
    const bool others = e->running > 0;
    dv_mutex_unlock(e->lock);
    dv_tile_schedule fresh = {0};
    if (!others && dv_tile_schedule_choose(e, NULL, request, available + packed, &fresh) == DAVY_OK &&
        (r < 0 || dv_tile_schedule_better(&fresh, out))) {
        dv_tile_schedule_move(out, &fresh);
        r = dv_engine_unload(e);
    }
    dv_tile_schedule_drop_plan(&fresh);
    return r;
}

/* With tiles, an attention or a norm over the whole picture becomes one over a tile. Fades only hide the seams. */
static void log_tiles(const dv_engine *e, const dv_request *request, const dv_tile_schedule *schedule) {
    if (schedule->means > 0) {
        dv_logf(e->services.log, DAVY_LOG_INFO,
                "%s of %lld x %lld in %lld tiles, in %d passes: %d passes compute means over the whole picture",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h, (long long)schedule->tiles,
                (int)schedule->means + 1, (int)schedule->means);
    }
    if (schedule->norms > 0) {
        dv_logf(e->services.log, DAVY_LOG_INFO,
                "%s of %lld x %lld in %lld tiles; %llu bytes are kept for %d norms over the whole picture",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h, (long long)schedule->tiles,
                (unsigned long long)schedule->kept, (int)schedule->norms);
    }
    if (schedule->tiles > 1 && schedule->norms < e->reach[request->stage].n_norms) {
        dv_logf(
            e->services.log, DAVY_LOG_WARN,
            "%s of %lld x %lld in %lld tiles: memory is too short for norms over the whole picture, so tiles change "
            "the result",
            dv_stage_name(request->stage), (long long)request->w, (long long)request->h, (long long)schedule->tiles);
    }
    if (schedule->tiles > 1 && e->reach[request->stage].global) {
        dv_logf(e->services.log, DAVY_LOG_WARN,
                "%s of %lld x %lld in %lld tiles: this network looks at the whole picture, so tiles change the result",
                dv_stage_name(request->stage), (long long)request->w, (long long)request->h,
                (long long)schedule->tiles);
    }
}

static davy_result fill_tile_plan(dv_engine *e, dv_cached_tile_plan *tile_plan) {
    const dv_request *request = &tile_plan->request;
    davy_result r = choose_schedule(e, request, &tile_plan->schedule);
    if (r < 0) {
        return r;
    }
    log_tiles(e, request, &tile_plan->schedule);
    uint64_t added = 0;
    tile_plan->n_lanes = tile_plan->schedule.lanes;
    for (int32_t l = 0; r == DAVY_OK && l < tile_plan->n_lanes; l++) {
        tile_plan->stores[l] = dv_engine_store(e, l);
        r = make_program(e, l, tile_plan, &tile_plan->programs[l]);
        if (r == DAVY_OK && dv_program_plan(tile_plan->programs[l])->scratch_added > added) {
            added = dv_program_plan(tile_plan->programs[l])->scratch_added;
        }
    }
    dv_tile_schedule_drop_plan(&tile_plan->schedule); /* another tile plan has the program */
    if (r < 0) {
        return r;
    }
    tile_plan->schedule.workspace += added;
    dv_axis_desc y;
    dv_axis_desc x;
    tile_plan->out_c = dv_program_plan(tile_plan->programs[0])->output.c;
    dv_tile_schedule_axes(e, request, &tile_plan->schedule, &y, &x);
    r = dv_axis_create(&y, &tile_plan->y);
    return r < 0 ? r : dv_axis_create(&x, &tile_plan->x);
}

/* Caches the tile plan in the place of the least recently used one. Returns the replaced plan, which the caller releases. The plan
 * is not cached if its store has been replaced meanwhile. */
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

davy_result dv_tile_plan_get(dv_engine *e, const dv_request *original, dv_cached_tile_plan **out) {
    dv_request request = *original; /* the CPU computes one picture at a time */
    request.batch = e->services.n_gpus > 0 ? dv_max(original->batch, 1) : 1;
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
    if (r < 0) {
        dv_tile_plan_release(tile_plan);
        return r;
    }
    dv_tile_plan_release(keep_tile_plan(e, tile_plan));
    *out = tile_plan;
    return DAVY_OK;
}

/* ---- a run ---- */

static davy_result check_stage(const dv_engine *e, dv_stage stage) {
    return stage >= DV_STAGE_UPSCALE && stage <= DV_STAGE_DECODE && e->has_stage[stage]
               ? DAVY_OK
               : dv_fail(DAVY_E_UNSUPPORTED, "%s: these weights cannot %s", e->file_name, dv_stage_name(stage));
}

/* The caller must hold no memory, or runs could wait for each other. */
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
    const davy_result r = check_stage(e, w->stage);
    if (r < 0) {
        return r;
    }
    if (w->in.h < 1 || w->in.w < 1 || w->in.n < 1 || w->out.n != w->in.n) {
        return dv_fail(
            DAVY_E_SHAPE,
            "%s: %lld x %lld pixels and %lld pictures are not possible; each must be at least 1, and the output "
            "needs the same number of pictures",
            dv_stage_name(w->stage), (long long)w->in.w, (long long)w->in.h, (long long)w->in.n);
    }
    return DAVY_OK;
}

static davy_result check_tile_plan(const dv_work *w, const dv_cached_tile_plan *tile_plan) {
    const dv_plan *plan = dv_program_plan(tile_plan->programs[0]);
    const int64_t out_h = dv_axis_end(&tile_plan->y, tile_plan->y.count - 1);
    const int64_t out_w = dv_axis_end(&tile_plan->x, tile_plan->x.count - 1);
    if (w->in.channels != plan->input.c) {
        return dv_fail(DAVY_E_SHAPE, "%s: the picture has %d channels, the network takes %lld", dv_stage_name(w->stage),
                       (int)w->in.channels, (long long)plan->input.c);
    }
    if (w->out.h != out_h || w->out.w != out_w || w->out.channels < 1 || w->out.channels > tile_plan->out_c) {
        return dv_fail(DAVY_E_SHAPE,
                       "%s: the output has %lld x %lld pixels and %d channels, expected %lld x %lld and 1 to %lld",
                       dv_stage_name(w->stage), (long long)w->out.w, (long long)w->out.h, (int)w->out.channels,
                       (long long)out_w, (long long)out_h, (long long)tile_plan->out_c);
    }
    return DAVY_OK;
}

/* The cost of all tiles in all passes and of packing their weights. Also sets group_cost. */
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

/* One attempt. If memory is short, idle arenas are freed and the back end is called again. If it is still short, the memory is held
 * outside this engine. */
static davy_result run_once(dv_picture_run *run) {
    dv_engine *e = run->e;
    davy_result (*const back_end)(dv_picture_run *, bool *) =
        e->services.n_gpus > 0 ? dv_picture_run_cuda : dv_picture_run_cpu;
    bool acquired = false;
    dv_watch_begin(&run->watch, &run->work->control, dv_stage_name(run->work->stage), total_cost(run));
    davy_result r = dv_watch_poll(&run->watch);
    if (r < 0) {
        return r;
    }
    dv_tile_plans_trim(e, run->tile_plan, e->services.n_gpus > 0 ? KEEP_OTHER_GPU_BYTES : KEEP_OTHER_BYTES);
    r = back_end(run, &acquired);
    if (dv_is_short(r) && !acquired) {
        dv_tile_plans_trim(e, run->tile_plan, 0);
        r = back_end(run, &acquired);
    }
    r = r < 0 ? r : dv_watch_end(&run->watch);
    return r;
}

/* The error if no tiles fit the memory that a full device may still have. The budget is not the reason. */
static davy_result device_is_full(const dv_work *w, const davy_error_info *refused) {
    return dv_fail_in(DAVY_E_NOMEM_DEVICE, refused->domain, refused->native,
                      "%s of %lld x %lld: %s; smaller tiles do not fit either", dv_stage_name(w->stage),
                      (long long)w->in.w, (long long)w->in.h, refused->message);
}

/* Reduces a request after a device has refused memory: first fewer tiles at once, then smaller tiles. Returns the attempts this
 * counts as: 0 or 1. Tiles that share norms keep half of the memory of the whole picture, so the limit falls more slowly. */
static int take_less(const dv_engine *e, dv_request *request, davy_result r, const dv_cached_tile_plan *tile_plan) {
    const int64_t together = tile_plan->schedule.together;
    if (r == DAVY_E_NOMEM_DEVICE && together > 1) {
        request->max_together = together / 2;
        return 0;
    }
    if (r == DAVY_E_NOMEM_DEVICE) {
        const bool shared = e->reach[request->stage].n_norms > 0 && tile_plan->schedule.tiles == 1;
        request->memory_limit = shared ? dv_tile_plan_bytes(tile_plan) / 4 * 3 : dv_tile_plan_bytes(tile_plan) / 2;
    }
    return 1;
}

/* *others: memory is short, and runs under way will free some. Otherwise *attempt is advanced and *request reduced. */
static davy_result try_run(dv_picture_run *run, dv_request *request, int *attempt, davy_error_info *refused,
                           bool *others) {
    dv_engine *e = run->e;
    davy_result r = dv_tile_plan_get(e, request, &run->tile_plan);
    if (r < 0) {
        *attempt = ATTEMPTS;
        *others = dv_is_short(r) && others_run(e, 0);
        return r == DAVY_E_BUDGET && request->memory_limit != 0 && !*others ? device_is_full(run->work, refused) : r;
    }
    begin_run(run);
    r = check_tile_plan(run->work, run->tile_plan);
    r = r < 0 ? r : run_once(run);
    *others = dv_is_short(r) && others_run(e, 1);
    if (dv_is_short(r) && !*others) { /* the memory is held outside this engine */
        if (r == DAVY_E_NOMEM_DEVICE) {
            dv_error_get(refused);
        }
        *attempt += take_less(e, request, r, run->tile_plan);
        forget_tile_plan(e, run->tile_plan);
    }
    end_run(run);
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

davy_result dv_engine_plan(dv_engine *e, const dv_batch_desc *desc, davy_plan_info *out) {
    const dv_tiling none = {0};
    const dv_request q = {.stage = desc->stage,
                          .batch = dv_max(desc->n, 1),
                          .h = desc->h,
                          .w = desc->w,
                          .tiling = desc->tiling != NULL ? *desc->tiling : none};
    davy_result r = check_stage(e, q.stage);
    if (r < 0) {
        return r;
    }
    if (q.h < 1 || q.w < 1) {
        return dv_fail(DAVY_E_SHAPE, "%s: a picture of %lld x %lld is not possible; width and height start at 1",
                       dv_stage_name(q.stage), (long long)q.w, (long long)q.h);
    }
    dv_cached_tile_plan *tile_plan = NULL;
    r = dv_tile_plan_get(e, &q, &tile_plan);
    if (r < 0) {
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
