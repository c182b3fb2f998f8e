/* cuda_tile.c - what is enqueued for a group of tiles: pictures up, load, steps, store, and the way back. */
#include "core/tiles/cuda.h"
#include "core/base/error.h"

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
    return (uint64_t)(a->view.n * a->view.h * a->view.w * a->view.c) *
           (dvk_dtype_size(a->view.dtype) + dvk_dtype_size(a->image.dtype));
}

uint64_t dv_cuda_piece(const dv_staging *staging) {
    return dv_align_up(staging->bytes, 256);
}

/* Of a tile, as it lies in the caller's picture. */
static dvk_image input_rectangle(const dv_cuda_run *r, int64_t tile, const dvk_view *input) {
    const dv_cached_tile_plan *route = r->j->route;
    const dv_tile_place at = dv_cuda_place(r, tile);
    return dv_image_part(&r->j->work->in, at.picture, route->y.origin[at.ty], route->x.origin[at.tx], input->h,
                         input->w);
}

static davy_result enqueue_load(dv_cuda_run *r, dv_instance *instance, dv_gpu_queue *q, const dvk_image *image,
                                const dvk_view *view) {
    const dvk_convert_args args = dv_load_args(r->j->work, image, view);
    return dv_instance_enqueue_op(instance, q, "load", &args, "load", convert_bytes(&args));
}

davy_result dv_cuda_load(dv_cuda_run *r, dv_instance *instance, dv_gpu_queue *q, const dv_group *g,
                         const dvk_view *input) {
    davy_result result = DAVY_OK;
    if (r->whole) {
        dvk_image image = input_rectangle(r, g->first, input);
        image.n = input->n;
        return enqueue_load(r, instance, q, &image, input);
    }
    for (int64_t k = g->first; result == DAVY_OK && k < g->end; k++) {
        const dvk_image image = input_rectangle(r, k, input);
        const dvk_view view = dv_view_pictures(input, k - g->first, 1);
        result = enqueue_load(r, instance, q, &image, &view);
    }
    return result;
}

/* The rectangles into device memory of the lane; *image: as they lie there. Two groups have that memory in turn: the
 * upload waits until the load before the last has read it, the load until the upload is through. */
static davy_result bring(dv_cuda_run *r, dv_lane *lane, const dv_group *g, const dvk_view *input, dvk_image *image) {
    const int32_t turn = turn_of(lane->begun);
    const bool apart = lane->up != lane->main;
    dvk_image host = input_rectangle(r, g->first, input);
    dv_staging staging;
    void *block = NULL;
    dv_staging_describe(&host, &staging);
    const uint64_t piece = dv_cuda_piece(&staging);
    davy_result result = dv_instance_memory(lane->instance, DV_SLOT_IN + turn, piece * (uint64_t)r->together, &block);
    if (result == DAVY_OK && apart) {
        result = dv_cuda_wait(lane, DV_SLOT_READ + turn, lane->up);
    }
    *image = dv_staging_image(&staging, block);
    image->n = r->together;
    image->sn = (int64_t)piece;
    for (int64_t k = 0; result == DAVY_OK && k < r->together; k++) {
        host = input_rectangle(r, g->first + k, input);
        dv_staging_describe(&host, &staging);
        result = dv_staging_upload(&staging, lane->up, r->j->e->services.heap, (char *)block + piece * (uint64_t)k);
    }
    if (result == DAVY_OK && apart) {
        result = dv_cuda_mark(lane, DV_SLOT_IN + turn, lane->up);
        result = result == DAVY_OK ? dv_cuda_wait(lane, DV_SLOT_IN + turn, lane->main) : result;
    }
    return result;
}

static davy_result load(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    const dvk_view input = dv_instance_input(lane->instance);
    if (r->j->work->in_device) {
        return lane->index > 0 ? dv_cuda_scatter(r, lane, g) : dv_cuda_load(r, lane->instance, lane->main, g, &input);
    }
    dvk_image image;
    davy_result result = bring(r, lane, g, &input, &image);
    if (result == DAVY_OK) {
        result = enqueue_load(r, lane->instance, lane->main, &image, &input);
    }
    if (result == DAVY_OK && lane->up != lane->main) {
        result = dv_cuda_mark(lane, DV_SLOT_READ + turn_of(lane->begun), lane->main);
    }
    return result;
}

/* ---- out ---- */

/* The turn of the memory that the lane's rectangle number `index` has. */
static int32_t turn_of_part(const dv_cuda_run *r, int64_t index) {
    return turn_of(index / r->parts);
}

davy_result dv_cuda_fetch(dv_cuda_run *r, dv_lane *lane) {
    const int64_t index = lane->fetched++;
    const dv_fetch *f = &lane->fetches[index % (DV_DEPTH * r->parts)];
    davy_result result = r->several ? dv_cuda_wait(lane, DV_SLOT_OUT + turn_of_part(r, index), lane->down) : DAVY_OK;
    dv_staging staging = f->staging;
    for (int64_t k = 0; result == DAVY_OK && k < f->n; k++) {
        staging.host.data = (char *)f->staging.host.data + k * f->step;
        result = dv_staging_download(&staging, lane->down, r->j->e->services.heap,
                                     f->block + dv_cuda_piece(&staging) * (uint64_t)k);
    }
    return result;
}

/* What lies between the pixels is the caller's and comes back as it was. */
static davy_result bring_gaps(dv_cuda_run *r, dv_gpu_queue *q, const dv_fetch *f) {
    davy_result result = DAVY_OK;
    dv_staging staging = f->staging;
    for (int64_t k = 0; result == DAVY_OK && staging.gaps && k < f->n; k++) {
        staging.host.data = (char *)f->staging.host.data + k * f->step;
        result =
            dv_staging_upload(&staging, q, r->j->e->services.heap, f->block + dv_cuda_piece(&staging) * (uint64_t)k);
    }
    return result;
}

/* Device memory for a rectangle of the host's; *image: as it will lie there. */
static davy_result prepare_fetch(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, int64_t group, dvk_image *image) {
    davy_result result = lane->stored - lane->fetched == DV_DEPTH * r->parts ? dv_cuda_fetch(r, lane) : DAVY_OK;
    dv_fetch *f = &lane->fetches[lane->stored % (DV_DEPTH * r->parts)];
    *f = (dv_fetch){.n = image->n, .step = image->sn, .group = group};
    dv_staging_describe(image, &f->staging);
    f->staging.host.n = 1;
    void *block = NULL;
    if (result == DAVY_OK && dv_cuda_piece(&f->staging) * (uint64_t)f->n > r->part_bytes) {
        result = dv_fail(DAVY_E_INTERNAL, "a rectangle of %lld x %lld is larger than any of this run",
                         (long long)image->w, (long long)image->h);
    }
    if (result == DAVY_OK) {
        result = dv_instance_memory(lane->instance, DV_SLOT_OUT + turn_of_part(r, lane->stored),
                                    r->part_bytes * (uint64_t)r->parts, &block);
    }
    if (result == DAVY_OK) {
        f->block = (char *)block + r->part_bytes * (uint64_t)(lane->stored % r->parts);
        result = bring_gaps(r, q, f);
    }
    *image = dv_staging_image(&f->staging, f->block);
    image->n = f->n;
    image->sn = (int64_t)dv_cuda_piece(&f->staging);
    return result;
}

davy_result dv_cuda_store(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, const dvk_view *view, const dv_group *g,
                          int64_t picture, int64_t y0, int64_t x0) {
    const dv_work *w = r->j->work;
    dvk_image image = dv_image_part(&w->out, picture, y0, x0, view->h, view->w);
    image.n = view->n;
    davy_result result = w->out_device ? DAVY_OK : prepare_fetch(r, lane, q, g->index, &image);
    if (result == DAVY_OK) {
        const dvk_convert_args args = dv_store_args(w, &image, view);
        result = dv_instance_enqueue_store(lane->instance, q, &args, convert_bytes(&args));
    }
    if (result == DAVY_OK && !w->out_device) {
        result = r->several ? dv_cuda_mark(lane, DV_SLOT_OUT + turn_of_part(r, lane->stored), q) : DAVY_OK;
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

davy_result dv_cuda_put(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, const dv_group *g, const dvk_view *output) {
    const int64_t channels = r->j->work->out.channels;
    davy_result result = DAVY_OK;
    if (r->whole) { /* those that the group before has stored get the same values again */
        const dvk_view all = dv_view_part(output, 0, 0, output->h, output->w, channels);
        return dv_cuda_store(r, lane, q, &all, g, g->first, 0, 0);
    }
    for (int64_t k = g->fresh; result == DAVY_OK && k < g->end; k++) {
        const dv_tile_place at = dv_cuda_place(r, k);
        const dvk_view one = dv_view_pictures(output, k - g->first, 1);
        if (r->fades) {
            result = dv_cuda_fade(r, &one, g, at);
            continue;
        }
        const dvk_view part = dv_cuda_used(r, &one, at, channels);
        result = dv_cuda_store(r, lane, q, &part, g, at.picture, dv_axis_first(&r->j->route->y, at.ty),
                               dv_axis_first(&r->j->route->x, at.tx));
    }
    return result;
}

/* ---- a group ---- */

davy_result dv_cuda_begin_group(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    /* the input may lie where the output of the group before lies */
    davy_result result = r->gathers ? dv_cuda_await_gathered(r, lane) : DAVY_OK;
    if (result == DAVY_OK) {
        result = r->norm > 0 ? dv_cuda_keep(r, lane, g, r->norm - 1, true) : load(r, lane, g);
    }
    lane->begun_ns[turn_of(lane->begun)] = dv_now_ns();
    const bool stores = !dv_cuda_seeks(r);
    if (result == DAVY_OK) {
        result = !stores       ? dv_cuda_sum_group(r, lane, g)
                 : r->norm > 0 ? dv_instance_enqueue_to_norm(lane->instance, r->norm)
                               : dv_instance_enqueue(lane->instance);
    }
    if (result == DAVY_OK && stores && !r->gathers) { /* everything stays on its own GPU */
        const dvk_view output = dv_instance_output(lane->instance);
        result = dv_cuda_put(r, lane, lane->main, g, &output);
    }
    if (result == DAVY_OK && (r->several || r->waits || !stores)) {
        result = dv_cuda_mark(lane, DV_SLOT_TILE + turn_of(lane->begun), lane->main);
    }
    if (result == DAVY_OK && stores && r->gathers) {
        result = dv_cuda_gather(r, lane, g);
    }
    lane->begun++;
    return result == DAVY_OK && dv_instance_timed(lane->instance) ? dv_instance_collect(lane->instance) : result;
}

static davy_result poll(void *user) {
    return dv_watch_poll(user);
}

/* Of a group in this pass: of the whole, what the steps that it has are of all steps in all passes. */
static double pass_cost(const dv_cuda_run *r) {
    const dv_plan *plan = dv_program_plan(r->lanes[0].program);
    if (plan->n_norms > 0) {
        return r->j->group_cost / (double)(plan->n_norms + 1);
    }
    double all = plan->cost;
    for (int32_t k = 0; k < plan->n_means; k++) {
        all += plan->means[k].cost;
    }
    return r->j->group_cost * (dv_cuda_seeks_mean(r) ? plan->means[r->mean].cost : plan->cost) /
           (all > 1.0 ? all : 1.0);
}

davy_result dv_cuda_end_group(dv_cuda_run *r, dv_lane *lane) {
    dv_lane *stored = r->gathers ? &r->lanes[0] : lane;
    const int64_t group = lane->ended * r->n_lanes + lane->index;
    const uint64_t begun = lane->begun_ns[turn_of(lane->ended)];
    dv_gpu_event *event = NULL;
    davy_result result = dv_instance_event(lane->instance, DV_SLOT_TILE + turn_of(lane->ended), &event);
    if (result == DAVY_OK) { /* its steps began when those of the group before had ended */
        const uint64_t since = begun > lane->ended_ns ? begun : lane->ended_ns;
        result = dv_instance_await(lane->instance, event, since, poll, &r->j->watch);
        lane->ended_ns = dv_now_ns();
    }
    while (result == DAVY_OK && stored->fetched < stored->stored &&
           stored->fetches[stored->fetched % (DV_DEPTH * r->parts)].group <= group) {
        result = dv_cuda_fetch(r, stored);
    }
    lane->ended++;
    dv_watch_advance(&r->j->watch, pass_cost(r));
    return result;
}
