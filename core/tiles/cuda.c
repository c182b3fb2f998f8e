/* cuda.c - pictures on GPUs: memory and queues, and the order of the tiles. All is enqueued from the calling thread;
 * while a group of tiles is computed, the next one's pictures go up and the results of the one before come down. Groups go
 * to the GPUs in turn. */
#include "core/tiles/cuda.h"

#include "core/base/error.h"

static davy_result acquire_lane(dv_cuda_run *r, int32_t l) {
    dv_lane *lane = &r->lanes[l];
    lane->index = l;
    lane->program = r->j->route->programs[l];
    davy_result result = dv_program_load(lane->program, &r->j->watch);
    if (result == DAVY_OK) {
        result = dv_program_take(lane->program, &lane->instance);
    }
    if (result == DAVY_OK) {
        result = dv_instance_begin(lane->instance, l == 0 ? r->j->work->stream : NULL);
    }
    if (result != DAVY_OK) {
        dv_program_give(lane->program, lane->instance);
        lane->instance = NULL;
        return result;
    }
    lane->main = lane->up = lane->down = dv_instance_queue(lane->instance);
    if (r->several) {
        result = dv_instance_side_queue(lane->instance, 0, &lane->up);
        result = result == DAVY_OK ? dv_instance_side_queue(lane->instance, 1, &lane->down) : result;
    }
    for (int turn = 0; result == DAVY_OK && r->several && turn < DV_DEPTH; turn++) { /* by an earlier run */
        result = dv_cuda_mark(lane, DV_SLOT_READ + turn, lane->main);
    }
    return result;
}

static davy_result acquire(dv_cuda_run *r) {
    davy_result result = DAVY_OK;
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = acquire_lane(r, l);
    }
    if (result == DAVY_OK && r->fades) {
        void *band = NULL;
        result = dv_instance_memory(r->lanes[0].instance, DV_SLOT_BAND, r->j->route->layout.band, &band);
        r->band = band;
        result = result == DAVY_OK ? dv_cuda_prepare_fades(r) : result;
    }
    if (result == DAVY_OK) {
        result = dv_cuda_reserve(r);
    }
    return result == DAVY_OK ? dv_cuda_open_multi_gpu(r) : result;
}

/* After an error. Main queues go on when all others of the run are done, so that the instances can be used again; and the
 * memory of a caller who gets an error back is his again: nothing on the device may still use it. */
static void settle(dv_cuda_run *r) {
    const dv_work *w = r->j->work;
    for (int32_t l = 0; l < r->n_lanes; l++) {
        dv_lane *lane = &r->lanes[l];
        if (lane->instance != NULL && lane->up != lane->main && dv_cuda_mark(lane, DV_SLOT_IN, lane->up) == DAVY_OK) {
            dv_cuda_wait(lane, DV_SLOT_IN, lane->main);
        }
    }
    if (r->home != NULL) {
        dv_cuda_close_multi_gpu(r);
    }
    if (!w->in_device && !w->out_device) {
        return;
    }
    for (int32_t l = 0; l < r->n_lanes; l++) {
        if (r->lanes[l].instance != NULL) {
            dv_gpu_queue_wait(r->lanes[l].main, NULL, NULL);
        }
    }
    if (r->home != NULL) {
        dv_gpu_queue_wait(r->home, NULL, NULL);
    }
}

static void let_go(dv_cuda_run *r) {
    for (int32_t l = 0; l < r->n_lanes; l++) {
        dv_lane *lane = &r->lanes[l];
        if (lane->instance != NULL) {
            dv_instance_end(lane->instance);
            dv_program_give(lane->program, lane->instance);
            dv_program_trim(lane->program, dv_job_keep(r->j));
        }
        dv_free(lane->fetches);
    }
    dv_free(r->fade_at);
}

dv_tile_place dv_cuda_place(const dv_cuda_run *r, int64_t tile) {
    const int64_t columns = r->j->route->x.count;
    const int64_t of_picture = r->j->route->y.count * columns;
    return (dv_tile_place){.picture = r->picture + tile / of_picture,
                           .ty = tile % of_picture / columns,
                           .tx = tile % of_picture % columns};
}

static dv_group group_of(const dv_cuda_run *r, int64_t index) {
    const int64_t fresh = index * r->together;
    const int64_t end = dv_min(fresh + r->together, r->tiles);
    return (dv_group){.index = index, .first = end - r->together, .fresh = fresh, .end = end};
}

static davy_result poll(void *user) {
    return dv_watch_poll(user);
}

/* Groups of all lanes in their order, then what is left at home. */
static davy_result end_all(dv_cuda_run *r) {
    davy_result result = DAVY_OK;
    for (int d = 0; d < DV_DEPTH; d++) {
        for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
            dv_lane *lane = &r->lanes[(r->groups + l) % r->n_lanes];
            result = lane->begun - lane->ended == DV_DEPTH - d ? dv_cuda_end_group(r, lane) : DAVY_OK;
        }
    }
    while (result == DAVY_OK && r->lanes[0].fetched < r->lanes[0].stored) {
        result = dv_cuda_fetch(r, &r->lanes[0]);
    }
    if (result == DAVY_OK && r->j->work->out_device && r->gathers) {
        result = dv_gpu_queue_wait(r->home, poll, &r->j->watch);
    }
    return result;
}

static davy_result run_groups(dv_cuda_run *r) {
    const bool waits = r->waits || dv_cuda_seeks(r);
    davy_result result = DAVY_OK;
    for (int32_t l = 0; l < r->n_lanes; l++) { /* of the pass before */
        r->lanes[l].begun = r->lanes[l].ended = 0;
    }
    for (int64_t k = 0; result == DAVY_OK && k < r->groups; k++) {
        dv_lane *lane = &r->lanes[k % r->n_lanes];
        const dv_group group = group_of(r, k);
        result = dv_watch_poll(&r->j->watch);
        if (result == DAVY_OK) {
            result = dv_cuda_begin_group(r, lane, &group);
        }
        if (result == DAVY_OK && waits && lane->begun - lane->ended == DV_DEPTH) {
            result = dv_cuda_end_group(r, lane);
        }
    }
    return result == DAVY_OK && waits ? end_all(r) : result;
}

/* All pictures at once; those whose tiles share something one after the other, in passes for that and one for the result. */
static davy_result run_passes(dv_cuda_run *r) {
    const dv_tile_schedule *l = &r->j->route->layout;
    davy_result result = DAVY_OK;
    for (r->picture = 0; result == DAVY_OK && r->picture < (dv_tile_schedule_shares(l) ? r->j->work->in.n : 1);
         r->picture++) {
        for (r->mean = 0; result == DAVY_OK && r->mean < l->means; r->mean++) {
            result = run_groups(r);
            result = result == DAVY_OK ? dv_cuda_give_mean(r) : result;
        }
        for (r->norm = 0; result == DAVY_OK && r->norm < l->norms; r->norm++) {
            result = run_groups(r);
            result = result == DAVY_OK ? dv_cuda_give_norm(r) : result;
        }
        result = result == DAVY_OK ? run_groups(r) : result;
    }
    return result;
}

davy_result dv_picture_run_cuda(dv_picture_run *j, bool *acquired) {
    const dv_cached_tile_plan *route = j->route;
    const dv_work *w = j->work;
    const int64_t together = dv_tile_schedule_shares(&route->layout) ? 1 : w->in.n; /* pictures */
    dv_cuda_run r = {.j = j,
                     .n_lanes = route->n_lanes,
                     .tiles = route->y.count * route->x.count * together,
                     .together = route->layout.together,
                     .groups = route->layout.groups * together / w->in.n,
                     .whole = route->y.count * route->x.count == 1,
                     .fades = dv_axis_fades(&route->y) || dv_axis_fades(&route->x),
                     .waits = !(w->stream_ordered && w->in_device && w->out_device),
                     .width = dv_axis_end(&route->x, route->x.count - 1)};
    r.several = r.groups > 1;
    r.gathers = r.n_lanes > 1 && (r.fades || w->out_device);
    davy_result result = acquire(&r);
    *acquired = result == DAVY_OK;
    if (result == DAVY_OK) {
        result = run_passes(&r);
    }
    if (result == DAVY_OK) {
        result = dv_cuda_close_multi_gpu(&r);
    }
    if (result != DAVY_OK) {
        davy_error_info error = {.struct_size = sizeof error};
        dv_error_get(&error);
        settle(&r);
        dv_error_set(&error);
    }
    let_go(&r);
    return result;
}
