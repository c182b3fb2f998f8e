/* engine_cuda_tile.c - what is enqueued for one tile: picture up, load, steps, store, and the way back. */
#include "core/engine_cuda.h"
#include "core/error.h"

/* ---- events ---- */

davy_result dv_cuda_mark(dv_lane *lane, int32_t slot, dv_gpu_queue *q) {
    dv_gpu_event *event = NULL;
    const davy_result r = dv_instance_event(lane->instance, slot, &event);
    return r == DAVY_OK ? dv_gpu_event_record(event, q) : r;
}

davy_result dv_cuda_wait(dv_lane *lane, int32_t slot, dv_gpu_queue *q) {
    dv_gpu_event *event = NULL;
    const davy_result r = dv_instance_event(lane->instance, slot, &event);
    return r == DAVY_OK ? dv_gpu_event_wait(q, event) : r;
}

static int32_t turn_of(int64_t count) {
    return (int32_t)(count % DV_DEPTH);
}

/* ---- in ---- */

static uint64_t convert_bytes(const dvk_convert_args *a) {
    return (uint64_t)(a->view.h * a->view.w * a->view.c) *
           (dvk_dtype_size(a->view.dtype) + dvk_dtype_size(a->image.dtype));
}

/* The rectangle into device memory of the lane; *image: as it lies there. Two tiles have that memory in turn: the upload
 * waits until the load before the last has read it, the load until the upload is through. */
static davy_result bring(dv_cuda_run *r, dv_lane *lane, const dvk_image *host, dvk_image *image) {
    const int32_t turn = turn_of(lane->begun);
    const bool apart = lane->up != lane->main;
    dv_staging staging;
    void *block = NULL;
    dv_staging_describe(host, &staging);
    davy_result result = dv_instance_memory(lane->instance, DV_SLOT_IN + turn, staging.bytes, &block);
    if (result == DAVY_OK && apart) {
        result = dv_cuda_wait(lane, DV_SLOT_READ + turn, lane->up);
    }
    if (result == DAVY_OK) {
        result = dv_staging_upload(&staging, lane->up, r->j->e->services.heap, block);
    }
    if (result == DAVY_OK && apart) {
        result = dv_cuda_mark(lane, DV_SLOT_IN + turn, lane->up);
        result = result == DAVY_OK ? dv_cuda_wait(lane, DV_SLOT_IN + turn, lane->main) : result;
    }
    *image = dv_staging_image(&staging, block);
    return result;
}

static davy_result load(dv_cuda_run *r, dv_lane *lane, dv_tile_place at) {
    const dv_work *w = r->j->work;
    const dv_route *route = r->j->route;
    const dvk_view input = dv_instance_input(lane->instance);
    dvk_image image =
        dv_image_part(&w->in, at.picture, route->y.origin[at.ty], route->x.origin[at.tx], input.h, input.w);
    if (w->in_device && lane->index > 0) {
        return dv_cuda_load_away(r, lane, &image);
    }
    davy_result result = w->in_device ? DAVY_OK : bring(r, lane, &image, &image);
    if (result == DAVY_OK) {
        const dvk_convert_args args = dv_load_args(w, &image, &input);
        result = dv_instance_enqueue_op(lane->instance, lane->main, "load", &args, "load", convert_bytes(&args));
    }
    if (result == DAVY_OK && !w->in_device && lane->up != lane->main) {
        result = dv_cuda_mark(lane, DV_SLOT_READ + turn_of(lane->begun), lane->main);
    }
    return result;
}

/* ---- out ---- */

davy_result dv_cuda_fetch(dv_cuda_run *r, dv_lane *lane) {
    const int32_t turn = turn_of(lane->fetched++);
    const dv_fetch *f = &lane->fetches[turn];
    const davy_result result = r->several ? dv_cuda_wait(lane, DV_SLOT_OUT + turn, lane->down) : DAVY_OK;
    return result == DAVY_OK ? dv_staging_download(&f->staging, lane->down, r->j->e->services.heap, f->block) : result;
}

/* Device memory for a rectangle of the host's; *image: as it will lie there. */
static davy_result prepare_fetch(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, int64_t tile, dvk_image *image) {
    davy_result result = DAVY_OK;
    if (lane->stored - lane->fetched == DV_DEPTH) {
        result = dv_cuda_fetch(r, lane);
    }
    const int32_t turn = turn_of(lane->stored);
    dv_fetch *f = &lane->fetches[turn];
    f->tile = tile;
    dv_staging_describe(image, &f->staging);
    if (result == DAVY_OK) {
        result = dv_instance_memory(lane->instance, DV_SLOT_OUT + turn, f->staging.bytes, &f->block);
    }
    if (result == DAVY_OK && f->staging.gaps) { /* what lies between is the caller's and comes back as it was */
        result = dv_staging_upload(&f->staging, q, r->j->e->services.heap, f->block);
    }
    *image = dv_staging_image(&f->staging, f->block);
    return result;
}

davy_result dv_cuda_store(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, const dvk_view *view, dv_tile_place at,
                          int64_t y0, int64_t x0) {
    const dv_work *w = r->j->work;
    dvk_image image = dv_image_part(&w->out, at.picture, y0, x0, view->h, view->w);
    davy_result result = w->out_device ? DAVY_OK : prepare_fetch(r, lane, q, at.tile, &image);
    if (result == DAVY_OK) {
        const dvk_convert_args args = dv_store_args(w, &image, view);
        result = dv_instance_enqueue_store(lane->instance, q, &args, convert_bytes(&args));
    }
    if (result == DAVY_OK && !w->out_device) {
        result = r->several ? dv_cuda_mark(lane, DV_SLOT_OUT + turn_of(lane->stored), q) : DAVY_OK;
        lane->stored++;
    }
    return result;
}

dvk_view dv_cuda_used(const dv_cuda_run *r, const dvk_view *output, dv_tile_place at, int64_t channels) {
    const dv_axis *y = &r->j->route->y;
    const dv_axis *x = &r->j->route->x;
    const int64_t y0 = dv_axis_first(y, at.ty);
    const int64_t x0 = dv_axis_first(x, at.tx);
    return dv_view_part(output, dv_axis_local(y, at.ty, y0), dv_axis_local(x, at.tx, x0), dv_axis_end(y, at.ty) - y0,
                        dv_axis_end(x, at.tx) - x0, channels);
}

/* Where everything of a tile stays on its own GPU. */
static davy_result put(dv_cuda_run *r, dv_lane *lane, dv_tile_place at) {
    const dvk_view output = dv_instance_output(lane->instance);
    if (r->fades) {
        return dv_cuda_fade(r, &output, at);
    }
    const dvk_view part = dv_cuda_used(r, &output, at, r->j->work->out.channels);
    return dv_cuda_store(r, lane, lane->main, &part, at, dv_axis_first(&r->j->route->y, at.ty),
                         dv_axis_first(&r->j->route->x, at.tx));
}

/* ---- a tile ---- */

davy_result dv_cuda_begin_tile(dv_cuda_run *r, dv_lane *lane, dv_tile_place at) {
    /* the input may lie where the output of the tile before lies */
    davy_result result = r->gathers ? dv_cuda_await_taken(r, lane) : DAVY_OK;
    if (result == DAVY_OK) {
        result = load(r, lane, at);
    }
    lane->begun_ns[turn_of(lane->begun)] = dv_now_ns();
    if (result == DAVY_OK) {
        result = dv_instance_enqueue(lane->instance);
    }
    if (result == DAVY_OK && !r->gathers) {
        result = put(r, lane, at);
    }
    if (result == DAVY_OK && (r->several || r->waits)) {
        result = dv_cuda_mark(lane, DV_SLOT_TILE + turn_of(lane->begun), lane->main);
    }
    if (result == DAVY_OK && r->gathers) {
        result = dv_cuda_gather(r, lane, at);
    }
    lane->begun++;
    return result == DAVY_OK && dv_instance_timed(lane->instance) ? dv_instance_collect(lane->instance) : result;
}

static davy_result poll(void *user) {
    return dv_watch_poll(user);
}

davy_result dv_cuda_end_tile(dv_cuda_run *r, dv_lane *lane) {
    dv_lane *stored = r->gathers ? &r->lanes[0] : lane;
    const int64_t tile = lane->ended * r->n_lanes + lane->index;
    const uint64_t begun = lane->begun_ns[turn_of(lane->ended)];
    dv_gpu_event *event = NULL;
    davy_result result = dv_instance_event(lane->instance, DV_SLOT_TILE + turn_of(lane->ended), &event);
    if (result == DAVY_OK) { /* its steps began when those of the tile before had ended */
        const uint64_t since = begun > lane->ended_ns ? begun : lane->ended_ns;
        result = dv_instance_await(lane->instance, event, since, poll, &r->j->watch);
        lane->ended_ns = dv_now_ns();
    }
    while (result == DAVY_OK && stored->fetched < stored->stored &&
           stored->fetches[turn_of(stored->fetched)].tile <= tile) {
        result = dv_cuda_fetch(r, stored);
    }
    lane->ended++;
    dv_watch_advance(&r->j->watch, r->j->tile_cost);
    return result;
}
