/* cuda.c - computes pictures on GPUs: memory, queues and the order of the groups of tiles. The calling thread enqueues all work.
 * While a group is computed, the next group's pictures are uploaded and the results of the one before are downloaded. Groups are
 * distributed over the GPUs in turn. All device memory of a run is taken before its first tile. So a device without enough memory
 * fails before anything is computed, and no tile is computed again in smaller tiles. */
#include "core/base/error.h"
#include "core/tiles/cuda_group.h"

/* ---- memory ---- */

static davy_result take(dv_lane *lane, int32_t slot, uint64_t bytes) {
    void *ignored = NULL;
    return dv_instance_memory(lane->instance, slot, bytes, &ignored);
}

/* Takes `bytes` for each of the groups that are under way at once. */
static davy_result take_turns(const dv_cuda_run *r, dv_lane *lane, int32_t slot, uint64_t bytes) {
    davy_result result = DAVY_OK;
    for (int32_t turn = 0; result == DAVY_OK && turn < (r->several ? DV_DEPTH : 1); turn++) {
        result = take(lane, slot + turn, bytes);
    }
    return result;
}

static uint64_t piece_of(const dvk_image *part) {
    dv_staging staging;
    dv_staging_describe(part, &staging);
    return dv_cuda_piece(&staging);
}

static davy_result take_inputs(dv_cuda_run *r, dv_lane *lane) {
    const dv_work *w = r->run->work;
    const dvk_view input = dv_instance_input(lane->instance);
    if (w->in_device) {
        return lane->index > 0 ? take(&r->lanes[0], DV_SLOT_SENT + lane->index, dv_view_span(&input)) : DAVY_OK;
    }
    const dvk_image part = dv_image_part(&w->in, 0, 0, 0, input.h, input.w);
    return take_turns(r, lane, DV_SLOT_IN, piece_of(&part) * (uint64_t)r->together);
}

/* The largest rectangle that is stored at once: the used part of a tile, or the finished rows of the band. */
static dvk_image largest_part(const dv_cuda_run *r) {
    const dv_axis *y = &r->run->tile_plan->y;
    const dv_axis *x = &r->run->tile_plan->x;
    int64_t h = 1;
    int64_t w = 1;
    for (int64_t k = 0; k < y->count; k++) {
        const int64_t end = r->fades ? y->fade_first[k + 1] : dv_axis_end(y, k);
        h = dv_max(h, end - dv_axis_first(y, k));
    }
    for (int64_t k = 0; k < x->count; k++) {
        w = dv_max(w, r->fades ? r->width : dv_axis_end(x, k) - dv_axis_first(x, k));
    }
    return dv_image_part(&r->run->work->out, 0, 0, 0, h, w);
}

static davy_result take_outputs(dv_cuda_run *r, dv_lane *lane) {
    davy_result result = DAVY_OK;
    if (r->gathers && lane->index > 0) {
        const dvk_view output = dv_instance_output(lane->instance);
        result = take(&r->lanes[0], DV_SLOT_TAKEN + lane->index, dv_view_span(&output));
    }
    if (result == DAVY_OK && !r->run->work->out_device && (lane->index == 0 || !r->gathers)) {
        result = take_turns(r, lane, DV_SLOT_OUT, r->part_bytes * (uint64_t)r->parts);
        lane->fetches = dv_calloc((uint64_t)(DV_DEPTH * r->parts), sizeof *lane->fetches);
        result =
            result == DAVY_OK && lane->fetches == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory") : result;
    }
    return result;
}

/* A group stores whole pictures at once, or one rectangle per tile, or the band rows that its tiles finish. */
static void count_parts(dv_cuda_run *r) {
    const dvk_image part = largest_part(r);
    r->parts = r->whole ? 1 : r->fades ? dv_div_up(r->together, r->run->tile_plan->x.count) : r->together;
    r->part_bytes = piece_of(&part) * (uint64_t)(r->whole ? r->together : 1);
}

static davy_result reserve(dv_cuda_run *r) {
    davy_result result = DAVY_OK;
    count_parts(r);
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = take_inputs(r, &r->lanes[l]);
        result = result < 0 ? result : take_outputs(r, &r->lanes[l]);
        result = result < 0 ? result : dv_cuda_reserve_statistics(r, &r->lanes[l]);
    }
    return result;
}

static void fill_weights(const dv_axis *a, int64_t k, float *w) {
    for (int64_t at = dv_axis_first(a, k); at < dv_axis_end(a, k); at++) {
        *w++ = dv_axis_weight(a, k, at);
    }
}

static davy_result prepare_fades(dv_cuda_run *r) {
    const dv_axis *y = &r->run->tile_plan->y;
    const dv_axis *x = &r->run->tile_plan->x;
    const int64_t tiles = y->count + x->count;
    r->fade_at = dv_calloc((uint64_t)tiles + 1, sizeof *r->fade_at);
    if (r->fade_at == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
    }
    for (int64_t k = 0; k < tiles; k++) {
        const dv_axis *a = k < y->count ? y : x;
        const int64_t of = k < y->count ? k : k - y->count;
        r->fade_at[k + 1] = r->fade_at[k] + dv_axis_end(a, of) - dv_axis_first(a, of);
    }
    const uint64_t bytes = (uint64_t)r->fade_at[tiles] * sizeof(float);
    float *weights = dv_calloc((uint64_t)r->fade_at[tiles], sizeof *weights);
    if (weights == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
    }
    for (int64_t k = 0; k < tiles; k++) {
        fill_weights(k < y->count ? y : x, k < y->count ? k : k - y->count, weights + r->fade_at[k]);
    }
    void *device = NULL;
    davy_result result = dv_instance_memory(r->lanes[0].instance, DV_SLOT_FADE, bytes, &device);
    result = result < 0 ? result : dv_gpu_upload(r->lanes[0].main, device, weights, bytes);
    r->fade = device;
    dv_free(weights);
    return result;
}

/* ---- several GPUs ---- */

static davy_result open_gather_queue(dv_cuda_run *r) {
    dv_lane *first = &r->lanes[0];
    r->gather_queue = first->main;
    if (r->n_lanes == 1 || !(r->gathers || r->run->work->in_device)) {
        return DAVY_OK;
    }
    for (int32_t l = 1; l < r->n_lanes; l++) {
        dv_gpu_reach(first->main->gpu, r->lanes[l].main->gpu);
        dv_gpu_reach(r->lanes[l].main->gpu, first->main->gpu);
    }
    davy_result result = dv_instance_side_queue(first->instance, 2, &r->gather_queue);
    if (result == DAVY_OK) { /* wait for the host's earlier work and for the instance's last run */
        result = dv_cuda_mark(first, DV_SLOT_GATHER, first->main);
    }
    return result < 0 ? result : dv_cuda_wait(first, DV_SLOT_GATHER, r->gather_queue);
}

static davy_result close_gather_queue(dv_cuda_run *r) {
    dv_lane *first = &r->lanes[0];
    if (r->gather_queue == first->main) {
        return DAVY_OK;
    }
    davy_result result = dv_cuda_mark(first, DV_SLOT_GATHER, r->gather_queue);
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = dv_cuda_wait(first, DV_SLOT_GATHER, r->lanes[l].main);
    }
    return result;
}

/* ---- lanes ---- */

static davy_result acquire_lane(dv_cuda_run *r, int32_t l) {
    dv_lane *lane = &r->lanes[l];
    lane->index = l;
    lane->program = r->run->tile_plan->programs[l];
    davy_result result = dv_program_load(lane->program, &r->run->watch);
    result = result < 0 ? result : dv_program_take(lane->program, &lane->instance);
    result = result < 0 ? result : dv_instance_begin(lane->instance, l == 0 ? r->run->work->stream : NULL);
    if (result < 0) {
        dv_program_give(lane->program, lane->instance);
        lane->instance = NULL;
        return result;
    }
    lane->main = lane->up = lane->down = dv_instance_queue(lane->instance);
    if (r->several) {
        result = dv_instance_side_queue(lane->instance, 0, &lane->up);
        result = result < 0 ? result : dv_instance_side_queue(lane->instance, 1, &lane->down);
    }
    for (int turn = 0; result == DAVY_OK && r->several && turn < DV_DEPTH;
         turn++) { /* the first uploads wait for this */
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
        result = dv_instance_memory(r->lanes[0].instance, DV_SLOT_BAND, r->run->tile_plan->schedule.band, &band);
        r->band = band;
        result = result < 0 ? result : prepare_fades(r);
    }
    result = result < 0 ? result : reserve(r);
    return result < 0 ? result : open_gather_queue(r);
}

/* Called after an error. The main queues wait for all other queues of the run, so that the instances can be used again. If pictures
 * are in device memory, the host waits, too: the caller may free that memory at once. */
static void settle(dv_cuda_run *r) {
    const dv_work *w = r->run->work;
    for (int32_t l = 0; l < r->n_lanes; l++) {
        dv_lane *lane = &r->lanes[l];
        if (lane->instance != NULL && lane->up != lane->main && dv_cuda_mark(lane, DV_SLOT_IN, lane->up) == DAVY_OK) {
            dv_cuda_wait(lane, DV_SLOT_IN, lane->main);
        }
    }
    if (r->gather_queue != NULL) {
        close_gather_queue(r);
    }
    if (!w->in_device && !w->out_device) {
        return;
    }
    for (int32_t l = 0; l < r->n_lanes; l++) {
        if (r->lanes[l].instance != NULL) {
            dv_gpu_queue_wait(r->lanes[l].main, NULL, NULL);
        }
    }
    if (r->gather_queue != NULL) {
        dv_gpu_queue_wait(r->gather_queue, NULL, NULL);
    }
}

static void let_go(dv_cuda_run *r) {
    for (int32_t l = 0; l < r->n_lanes; l++) {
        dv_lane *lane = &r->lanes[l];
        if (lane->instance != NULL) {
            dv_instance_end(lane->instance);
            dv_program_give(lane->program, lane->instance);
            dv_program_trim(lane->program, dv_picture_run_keep_bytes(r->run));
        }
        dv_free(lane->fetches);
    }
    dv_free(r->fade_at);
}

/* ---- the order of the groups ---- */

static dv_group group_of(const dv_cuda_run *r, int64_t index) {
    const int64_t fresh = index * r->together;
    const int64_t end = dv_min(fresh + r->together, r->tiles);
    return (dv_group){.index = index, .first = end - r->together, .fresh = fresh, .end = end};
}

/* Ends the groups of all lanes in their order, then the rest of the gather queue's work. */
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
    if (result == DAVY_OK && r->run->work->out_device && r->gathers) {
        result = dv_gpu_queue_wait(r->gather_queue, dv_cuda_poll, &r->run->watch);
    }
    return result;
}

static davy_result run_groups(dv_cuda_run *r) {
    const bool waits = r->waits || dv_cuda_is_statistics_pass(r);
    davy_result result = DAVY_OK;
    for (int32_t l = 0; l < r->n_lanes; l++) { /* forget the pass before */
        r->lanes[l].begun = r->lanes[l].ended = 0;
    }
    for (int64_t k = 0; result == DAVY_OK && k < r->groups; k++) {
        dv_lane *lane = &r->lanes[k % r->n_lanes];
        const dv_group group = group_of(r, k);
        result = dv_watch_poll(&r->run->watch);
        result = result < 0 ? result : dv_cuda_begin_group(r, lane, &group);
        if (result == DAVY_OK && waits && lane->begun - lane->ended == DV_DEPTH) {
            result = dv_cuda_end_group(r, lane);
        }
    }
    return result == DAVY_OK && waits ? end_all(r) : result;
}

/* Computes all pictures at once. If tiles share means or norms: picture by picture, with a pass for each of them and one for the
 * result. */
static davy_result run_passes(dv_cuda_run *r) {
    const dv_tile_schedule *l = &r->run->tile_plan->schedule;
    davy_result result = DAVY_OK;
    for (r->picture = 0; result == DAVY_OK && r->picture < (dv_tile_schedule_shares(l) ? r->run->work->in.n : 1);
         r->picture++) {
        for (r->mean = 0; result == DAVY_OK && r->mean < l->means; r->mean++) {
            result = run_groups(r);
            result = result < 0 ? result : dv_cuda_give_statistics(r);
        }
        for (r->norm = 0; result == DAVY_OK && r->norm < l->norms; r->norm++) {
            result = run_groups(r);
            result = result < 0 ? result : dv_cuda_give_statistics(r);
        }
        result = result < 0 ? result : run_groups(r);
    }
    return result;
}

davy_result dv_picture_run_cuda(dv_picture_run *run, bool *acquired) {
    const dv_cached_tile_plan *tile_plan = run->tile_plan;
    const dv_work *w = run->work;
    const int64_t together = dv_tile_schedule_shares(&tile_plan->schedule) ? 1 : w->in.n; /* pictures */
    dv_cuda_run r = {.run = run,
                     .n_lanes = tile_plan->n_lanes,
                     .tiles = tile_plan->y.count * tile_plan->x.count * together,
                     .together = tile_plan->schedule.together,
                     .groups = tile_plan->schedule.groups * together / w->in.n,
                     .whole = tile_plan->y.count * tile_plan->x.count == 1,
                     .fades = dv_axis_fades(&tile_plan->y) || dv_axis_fades(&tile_plan->x),
                     .waits = !(w->stream_ordered && w->in_device && w->out_device),
                     .width = dv_axis_end(&tile_plan->x, tile_plan->x.count - 1)};
    r.several = r.groups > 1;
    r.gathers = r.n_lanes > 1 && (r.fades || w->out_device);
    davy_result result = acquire(&r);
    *acquired = result == DAVY_OK;
    result = result < 0 ? result : run_passes(&r);
    result = result < 0 ? result : close_gather_queue(&r);
    if (result < 0) {
        davy_error_info error = {.struct_size = sizeof error};
        dv_error_get(&error);
        settle(&r);
        dv_error_set(&error);
    }
    let_go(&r);
    return result;
}
