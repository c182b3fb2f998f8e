/* cuda_group.c - see cuda_group.h. All work is enqueued: upload, conversion, computing, store or fade, download. Faded tiles are
 * added up in a band of f32 rows in device memory, one tile high, as cpu.c does in host memory. They are added in the order of the
 * tiles, so the sums are always the same. */
#include "core/tiles/cuda_group.h"

#include "core/base/error.h"
#include "core/tiles/staging.h"
#include "core/tiles/statistics.h"

typedef struct tile_place {
    int64_t picture, ty, tx;
} tile_place;

static tile_place place_of(const dv_cuda_run *r, int64_t tile) {
    const int64_t columns = r->run->tile_plan->x.count;
    const int64_t of_picture = r->run->tile_plan->y.count * columns;
    return (tile_place){.picture = r->picture + tile / of_picture,
                        .ty = tile % of_picture / columns,
                        .tx = tile % of_picture % columns};
}

static int32_t turn_of(int64_t count) {
    return (int32_t)(count % DV_DEPTH);
}

/* ---- in ---- */

static uint64_t convert_bytes(const dvk_convert_args *a) {
    return (uint64_t)(a->view.n * a->view.h * a->view.w * a->view.c) *
           (dvk_dtype_size(a->view.dtype) + dvk_dtype_size(a->image.dtype));
}

/* The rectangle of the caller's picture that is a tile's input. */
static dvk_image input_rectangle(const dv_cuda_run *r, int64_t tile, const dvk_view *input) {
    const dv_cached_tile_plan *tile_plan = r->run->tile_plan;
    const tile_place at = place_of(r, tile);
    return dv_image_part(&r->run->work->in, at.picture, tile_plan->y.origin[at.ty], tile_plan->x.origin[at.tx],
                         input->h, input->w);
}

static davy_result enqueue_load(dv_cuda_run *r, dv_instance *instance, dv_gpu_queue *q, const dvk_image *image,
                                const dvk_view *view) {
    const dvk_convert_args args = dv_load_args(r->run->work, image, view);
    return dv_instance_enqueue_op(instance, q, "load", &args, convert_bytes(&args));
}

static davy_result load_group(dv_cuda_run *r, dv_instance *instance, dv_gpu_queue *q, const dv_group *g,
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

/* Uploads the rectangles of a group to the lane. *image: the image of them in device memory. There are two such blocks, used in
 * turn. The upload waits until the load two groups before has read its block; the load waits for the upload. */
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
        result = dv_staging_upload(&staging, lane->up, r->run->e->services.heap, (char *)block + piece * (uint64_t)k);
    }
    if (result == DAVY_OK && apart) {
        result = dv_cuda_mark(lane, DV_SLOT_IN + turn, lane->up);
        result = result < 0 ? result : dv_cuda_wait(lane, DV_SLOT_IN + turn, lane->main);
    }
    return result;
}

/* ---- out ---- */

/* The turn (0 or 1) whose memory holds the lane's rectangle number `index`. */
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
        result = dv_staging_download(&staging, lane->down, r->run->e->services.heap,
                                     f->block + dv_cuda_piece(&staging) * (uint64_t)k);
    }
    return result;
}

/* Uploads the bytes between the pixels: they belong to the caller and must come back unchanged. */
static davy_result bring_gaps(dv_cuda_run *r, dv_gpu_queue *q, const dv_fetch *f) {
    davy_result result = DAVY_OK;
    dv_staging staging = f->staging;
    for (int64_t k = 0; result == DAVY_OK && staging.gaps && k < f->n; k++) {
        staging.host.data = (char *)f->staging.host.data + k * f->step;
        result =
            dv_staging_upload(&staging, q, r->run->e->services.heap, f->block + dv_cuda_piece(&staging) * (uint64_t)k);
    }
    return result;
}

/* Prepares device memory for a rectangle that will be downloaded. *image: in: the caller's; out: its image in device memory. */
static davy_result prepare_fetch(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, int64_t group, dvk_image *image) {
    davy_result result = lane->stored - lane->fetched == DV_DEPTH * r->parts ? dv_cuda_fetch(r, lane) : DAVY_OK;
    dv_fetch *f = &lane->fetches[lane->stored % (DV_DEPTH * r->parts)];
    *f = (dv_fetch){.n = image->n, .step = image->sn, .group = group};
    dv_staging_describe(image, &f->staging);
    f->staging.host.n = 1;
    void *block = NULL;
    if (result == DAVY_OK && dv_cuda_piece(&f->staging) * (uint64_t)f->n > r->part_bytes) {
        result = dv_fail(DAVY_E_INTERNAL, "tiles: a rectangle of %lld x %lld exceeds the largest of this run",
                         (long long)image->w, (long long)image->h);
    }
    result = result < 0 ? result
                        : dv_instance_memory(lane->instance, DV_SLOT_OUT + turn_of_part(r, lane->stored),
                                             r->part_bytes * (uint64_t)r->parts, &block);
    if (result == DAVY_OK) {
        f->block = (char *)block + r->part_bytes * (uint64_t)(lane->stored % r->parts);
        result = bring_gaps(r, q, f);
    }
    *image = dv_staging_image(&f->staging, f->block);
    image->n = f->n;
    image->sn = (int64_t)dv_cuda_piece(&f->staging);
    return result;
}

typedef struct finished { /* pixels, and their place in the output */
    dvk_view view;
    int64_t picture, y, x;
    int64_t group; /* the group that computed them */
} finished;

static davy_result store(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, const finished *f) {
    const dv_work *w = r->run->work;
    const dvk_view *view = &f->view;
    dvk_image image = dv_image_part(&w->out, f->picture, f->y, f->x, view->h, view->w);
    image.n = view->n;
    davy_result result = w->out_device ? DAVY_OK : prepare_fetch(r, lane, q, f->group, &image);
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

static dvk_view used_part(const dv_cuda_run *r, const dvk_view *output, tile_place at, int64_t channels) {
    const dv_axis *y = &r->run->tile_plan->y;
    const dv_axis *x = &r->run->tile_plan->x;
    const int64_t y0 = dv_axis_first(y, at.ty);
    const int64_t x0 = dv_axis_first(x, at.tx);
    return dv_view_part(output, dv_axis_local(y, at.ty, y0), dv_axis_local(x, at.tx, x0), dv_axis_end(y, at.ty) - y0,
                        dv_axis_end(x, at.tx) - x0, channels);
}

/* ---- fades ---- */

static int64_t channels_of(const dv_cuda_run *r) {
    return dv_program_plan(r->lanes[0].program)->output.c;
}

static dvk_view band_view(const dv_cuda_run *r, int64_t y0, int64_t x0, int64_t h, int64_t w, int64_t c) {
    const int64_t pixel = channels_of(r);
    const int64_t row = r->width * pixel;
    return (dvk_view){.data = r->band + (y0 - r->band_row) * row + x0 * pixel,
                      .dtype = DVK_F32,
                      .n = 1,
                      .h = h,
                      .w = w,
                      .c = c,
                      .sn = row * h,
                      .sh = row,
                      .sw = pixel};
}

/* Clears the rows that no earlier row of tiles has reached. */
static davy_result clear_band(dv_cuda_run *r, int64_t ty) {
    const dv_axis *y = &r->run->tile_plan->y;
    const int64_t row = r->width * channels_of(r);
    const int64_t from = y->fade_end[ty] - r->band_row;
    const int64_t rows = dv_axis_end(y, ty) - r->band_row - from;
    dvk_queue *q = &r->gather_queue->base;
    return dv_gpu_check(r->gather_queue->gpu, q->clear(q, r->band + from * row, (size_t)(rows * row) * sizeof(float)),
                        "tiles");
}

static davy_result blend(dv_cuda_run *r, const dvk_view *output, tile_place at) {
    const dv_axis *y = &r->run->tile_plan->y;
    const dv_axis *x = &r->run->tile_plan->x;
    const dvk_view part = used_part(r, output, at, channels_of(r));
    const dvk_blend_args args = {
        .x = part,
        .y = band_view(r, dv_axis_first(y, at.ty), dv_axis_first(x, at.tx), part.h, part.w, part.c),
        .wy = r->fade + r->fade_at[at.ty],
        .wx = r->fade + r->fade_at[y->count + at.tx]};
    return dv_instance_enqueue_op(r->lanes[0].instance, r->gather_queue, "blend", &args,
                                  (uint64_t)(part.h * part.w * part.c) * 3 * sizeof(float));
}

/* Stores the rows that row ty of tiles has finished and moves the rest to the top of the band, in copies that do not overlap. */
static davy_result store_band(dv_cuda_run *r, const dv_group *g, tile_place at) {
    const dv_axis *y = &r->run->tile_plan->y;
    const int64_t done = y->fade_first[at.ty + 1];
    const int64_t left = y->fade_end[at.ty + 1] - done;
    const int64_t up = done - r->band_row;
    const int64_t row = r->width * channels_of(r);
    const finished rows = {.view = band_view(r, r->band_row, 0, up, r->width, r->run->work->out.channels),
                           .picture = at.picture,
                           .y = r->band_row,
                           .group = g->index};
    davy_result result = up > 0 ? store(r, &r->lanes[0], r->gather_queue, &rows) : DAVY_OK;
    for (int64_t k = 0; result == DAVY_OK && k < left && up > 0; k += up) {
        result = dv_gpu_copy(r->gather_queue, r->band + k * row, r->gather_queue->gpu, r->band + (k + up) * row,
                             (uint64_t)(dv_min(up, left - k) * row) * sizeof(float));
    }
    r->band_row = at.ty + 1 < y->count ? done : 0;
    return result;
}

static davy_result fade(dv_cuda_run *r, const dvk_view *output, const dv_group *g, tile_place at) {
    davy_result result = at.tx == 0 ? clear_band(r, at.ty) : DAVY_OK;
    result = result < 0 ? result : blend(r, output, at);
    return result == DAVY_OK && at.tx + 1 == r->run->tile_plan->x.count ? store_band(r, g, at) : result;
}

static davy_result put(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, const dv_group *g, const dvk_view *output) {
    const int64_t channels = r->run->work->out.channels;
    davy_result result = DAVY_OK;
    if (r->whole) { /* pictures that the group before has stored are stored again with the same values */
        const finished all = {
            .view = dv_view_part(output, 0, 0, output->h, output->w, channels), .picture = g->first, .group = g->index};
        return store(r, lane, q, &all);
    }
    for (int64_t k = g->fresh; result == DAVY_OK && k < g->end; k++) {
        const tile_place at = place_of(r, k);
        const dvk_view one = dv_view_pictures(output, k - g->first, 1);
        if (r->fades) {
            result = fade(r, &one, g, at);
            continue;
        }
        const finished part = {.view = used_part(r, &one, at, channels),
                               .picture = at.picture,
                               .y = dv_axis_first(&r->run->tile_plan->y, at.ty),
                               .x = dv_axis_first(&r->run->tile_plan->x, at.tx),
                               .group = g->index};
        result = store(r, lane, q, &part);
    }
    return result;
}

/* ---- means and norms that the tiles of a picture share ---- */

static bool seeks_mean(const dv_cuda_run *r) {
    return r->mean < r->run->tile_plan->schedule.means;
}

/* The most floats of a tile's sums: a mean, or a norm's partial statistics. */
static int64_t sums_of_tile(const dv_plan *plan) {
    int64_t most = dv_norm_floats(plan);
    for (int32_t k = 0; k < plan->n_means; k++) {
        most = dv_max(most, plan->means[k].x.c);
    }
    return most;
}

static uint64_t sum_bytes(const dv_cuda_run *r, const dv_lane *lane) {
    return (uint64_t)(r->tiles * sums_of_tile(dv_program_plan(lane->program))) * sizeof(float);
}

static const dv_reach *reach_of(const dv_cuda_run *r) {
    return &r->run->e->reach[r->run->work->stage];
}

static uint64_t kept_bytes(const dv_cuda_run *r, const dv_lane *lane) {
    return (uint64_t)dv_div_up(r->groups, r->n_lanes) * dv_program_plan(lane->program)->live_bytes;
}

/* Copies the values that a group's remaining steps need after a norm: from the arena to the group's slot, or `back`. */
static davy_result keep(dv_cuda_run *r, dv_lane *lane, const dv_group *g, int64_t norm, bool back) {
    void *kept = NULL;
    const davy_result result = dv_instance_memory(lane->instance, DV_SLOT_KEPT, kept_bytes(r, lane), &kept);
    const uint64_t at = (uint64_t)(g->index / r->n_lanes) * dv_program_plan(lane->program)->live_bytes;
    return result < 0 ? result : dv_instance_enqueue_live(lane->instance, norm, (char *)kept + at, back);
}

static davy_result sum_mean(dv_cuda_run *r, dv_lane *lane, const dv_group *g, float *sums) {
    const dvk_view x = dv_instance_mean_of(lane->instance, r->mean);
    davy_result result = dv_instance_enqueue_to_mean(lane->instance, r->mean);
    for (int64_t k = g->fresh; result == DAVY_OK && k < g->end; k++) {
        const tile_place at = place_of(r, k);
        const dvk_view one = dv_view_pictures(&x, k - g->first, 1);
        const dvk_view part =
            dv_tile_part(&r->run->tile_plan->y, &r->run->tile_plan->x, reach_of(r)->means[r->mean], &one, at.ty, at.tx);
        result = dv_instance_enqueue_mean(lane->instance, r->mean, &part, sums + k * x.c);
    }
    return result;
}

static davy_result sum_norm(dv_cuda_run *r, dv_lane *lane, const dv_group *g, float *sums) {
    const dvk_view x = dv_instance_norm_of(lane->instance, r->norm);
    davy_result result = dv_instance_enqueue_to_norm(lane->instance, r->norm);
    for (int64_t k = g->fresh; result == DAVY_OK && k < g->end; k++) {
        const tile_place at = place_of(r, k);
        const dvk_view one = dv_view_pictures(&x, k - g->first, 1);
        const dvk_view part =
            dv_tile_part(&r->run->tile_plan->y, &r->run->tile_plan->x, reach_of(r)->norms[r->norm], &one, at.ty, at.tx);
        result = dv_instance_enqueue_norm(lane->instance, r->norm, &part,
                                          sums + k * sums_of_tile(dv_program_plan(lane->program)));
    }
    return result < 0 ? result : keep(r, lane, g, r->norm, false);
}

static davy_result sum_group(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    void *sums = NULL;
    const davy_result result = dv_instance_memory(lane->instance, DV_SLOT_MEANS, sum_bytes(r, lane), &sums);
    return result < 0 ? result : seeks_mean(r) ? sum_mean(r, lane, g, sums) : sum_norm(r, lane, g, sums);
}

/* Downloads the sums of a lane's tiles into `all`, [tile][c]. */
static davy_result fetch(const dv_cuda_run *r, dv_lane *lane, int64_t c, float *all) {
    const uint64_t row = (uint64_t)c * sizeof(float);
    void *sums = NULL;
    davy_result result = dv_instance_memory(lane->instance, DV_SLOT_MEANS, sum_bytes(r, lane), &sums);
    for (int64_t g = lane->index; result == DAVY_OK && g < r->groups; g += r->n_lanes) {
        const int64_t first = g * r->together;
        const int64_t count = dv_min(r->together, r->tiles - first);
        result = dv_gpu_download(lane->main, all + first * c, (const float *)sums + first * c, row * (uint64_t)count);
    }
    return result;
}

static davy_result add_up(const dv_cuda_run *r, dv_mean_sum *sum, const float *all) {
    const dvk_view x = dv_instance_mean_of(r->lanes[0].instance, r->mean);
    for (int64_t k = 0; k < r->tiles; k++) {
        const tile_place at = place_of(r, k);
        const dvk_view part =
            dv_tile_part(&r->run->tile_plan->y, &r->run->tile_plan->x, reach_of(r)->means[r->mean], &x, at.ty, at.tx);
        dv_mean_add(sum, all + k * x.c, &part);
    }
    const float *mean = dv_mean_end(sum);
    davy_result result = DAVY_OK;
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        const dv_lane *lane = &r->lanes[l];
        result =
            dv_gpu_upload(lane->main, dv_instance_given(lane->instance, r->mean), mean, (uint64_t)x.c * sizeof(float));
    }
    return result;
}

static davy_result fetch_all(dv_cuda_run *r, int64_t c, float **out) {
    float *all = dv_calloc((uint64_t)(r->tiles * c), sizeof *all);
    davy_result result = all != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = fetch(r, &r->lanes[l], c, all);
    }
    *out = all;
    return result;
}

static davy_result give_mean(dv_cuda_run *r) {
    const int64_t c = dv_instance_mean_of(r->lanes[0].instance, r->mean).c;
    dv_mean_sum sum;
    float *all = NULL;
    davy_result result = dv_mean_begin(&sum, c);
    result = result < 0 ? result : fetch_all(r, c, &all);
    result = result < 0 ? result : add_up(r, &sum, all);
    dv_free(all);
    dv_mean_free(&sum);
    return result;
}

static void add_up_norm(const dv_cuda_run *r, dv_norm_sum *sum, const float *all) {
    const dvk_view x = dv_instance_norm_of(r->lanes[0].instance, r->norm);
    for (int64_t k = 0; k < r->tiles; k++) {
        const tile_place at = place_of(r, k);
        const dvk_view part =
            dv_tile_part(&r->run->tile_plan->y, &r->run->tile_plan->x, reach_of(r)->norms[r->norm], &x, at.ty, at.tx);
        dv_norm_add(sum, all + k * sums_of_tile(dv_program_plan(r->lanes[0].program)), &part);
    }
    dv_norm_end(sum);
}

/* Uploads the statistics for each picture of a group. */
static davy_result give_to_lane(const dv_cuda_run *r, const dv_lane *lane, const dv_norm_sum *sum) {
    const uint64_t bytes = (uint64_t)sum->groups * 3 * sizeof(float);
    char *given = dv_instance_given_norm(lane->instance, r->norm);
    davy_result result = DAVY_OK;
    for (int64_t k = 0; result == DAVY_OK && k < r->together; k++) {
        result = dv_gpu_upload(lane->main, given + bytes * (uint64_t)k, sum->given, bytes);
    }
    return result;
}

static davy_result give_norm(dv_cuda_run *r) {
    const dv_plan *plan = dv_program_plan(r->lanes[0].program);
    dv_norm_sum sum;
    float *all = NULL;
    davy_result result = dv_norm_begin(&sum, plan->norms[r->norm].groups);
    result = result < 0 ? result : fetch_all(r, sums_of_tile(plan), &all);
    if (result == DAVY_OK) {
        add_up_norm(r, &sum, all);
    }
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = give_to_lane(r, &r->lanes[l], &sum);
    }
    dv_free(all);
    dv_norm_free(&sum);
    return result;
}

davy_result dv_cuda_give_statistics(dv_cuda_run *r) {
    return seeks_mean(r) ? give_mean(r) : give_norm(r);
}

davy_result dv_cuda_reserve_statistics(const dv_cuda_run *r, dv_lane *lane) {
    const dv_tile_schedule *l = &r->run->tile_plan->schedule;
    void *ignored = NULL;
    davy_result result = DAVY_OK;
    if (dv_tile_schedule_shares(l)) {
        result = dv_instance_memory(lane->instance, DV_SLOT_MEANS, sum_bytes(r, lane), &ignored);
    }
    if (result == DAVY_OK && l->norms > 0) {
        result = dv_instance_memory(lane->instance, DV_SLOT_KEPT, kept_bytes(r, lane), &ignored);
    }
    return result;
}

/* ---- several GPUs ---- */

static davy_result scatter(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    dv_lane *first = &r->lanes[0];
    const dvk_view input = dv_instance_input(lane->instance);
    dvk_view here = input;
    davy_result result =
        dv_instance_memory(first->instance, DV_SLOT_SENT + lane->index, dv_view_span(&input), &here.data);
    if (result == DAVY_OK) { /* wait until the copy before has read this memory */
        result = dv_cuda_wait(lane, DV_SLOT_READ, r->gather_queue);
    }
    result = result < 0 ? result : load_group(r, first->instance, r->gather_queue, g, &here);
    result = result < 0 ? result : dv_cuda_mark(first, DV_SLOT_SENT + lane->index, r->gather_queue);
    result = result < 0 ? result : dv_cuda_wait(first, DV_SLOT_SENT + lane->index, lane->main);
    result = result < 0 ? result
                        : dv_gpu_copy(lane->main, input.data, r->gather_queue->gpu, here.data, dv_view_span(&input));
    return result < 0 ? result : dv_cuda_mark(lane, DV_SLOT_READ, lane->main);
}

static davy_result await_gathered(dv_cuda_run *r, dv_lane *lane) {
    return dv_cuda_wait(&r->lanes[0], DV_SLOT_TAKEN + lane->index, lane->main);
}

static davy_result gather(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    dv_lane *first = &r->lanes[0];
    dvk_view output = dv_instance_output(lane->instance);
    davy_result result = dv_cuda_wait(lane, DV_SLOT_TILE + (int32_t)(lane->begun % DV_DEPTH), r->gather_queue);
    if (result == DAVY_OK && lane != first) {
        const void *there = output.data;
        result = dv_instance_memory(first->instance, DV_SLOT_TAKEN + lane->index, dv_view_span(&output), &output.data);
        result = result < 0 ? result
                            : dv_gpu_copy(r->gather_queue, output.data, lane->main->gpu, there, dv_view_span(&output));
    }
    result = result < 0 ? result : put(r, first, r->gather_queue, g, &output);
    return result < 0 ? result : dv_cuda_mark(first, DV_SLOT_TAKEN + lane->index, r->gather_queue);
}

static davy_result load(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    const dvk_view input = dv_instance_input(lane->instance);
    if (r->run->work->in_device) {
        return lane->index > 0 ? scatter(r, lane, g) : load_group(r, lane->instance, lane->main, g, &input);
    }
    dvk_image image;
    davy_result result = bring(r, lane, g, &input, &image);
    result = result < 0 ? result : enqueue_load(r, lane->instance, lane->main, &image, &input);
    if (result == DAVY_OK && lane->up != lane->main) {
        result = dv_cuda_mark(lane, DV_SLOT_READ + turn_of(lane->begun), lane->main);
    }
    return result;
}

/* ---- a group ---- */

davy_result dv_cuda_begin_group(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    /* the input may share memory with the output of the group before */
    davy_result result = r->gathers ? await_gathered(r, lane) : DAVY_OK;
    result = result < 0 ? result : r->norm > 0 ? keep(r, lane, g, r->norm - 1, true) : load(r, lane, g);
    lane->begun_ns[turn_of(lane->begun)] = dv_now_ns();
    const bool stores = !dv_cuda_is_statistics_pass(r);
    result = result < 0    ? result
             : !stores     ? sum_group(r, lane, g)
             : r->norm > 0 ? dv_instance_enqueue_to_norm(lane->instance, r->norm)
                           : dv_instance_enqueue(lane->instance);
    if (result == DAVY_OK && stores && !r->gathers) { /* each GPU stores its own results */
        const dvk_view output = dv_instance_output(lane->instance);
        result = put(r, lane, lane->main, g, &output);
    }
    if (result == DAVY_OK && (r->several || r->waits || !stores)) {
        result = dv_cuda_mark(lane, DV_SLOT_TILE + turn_of(lane->begun), lane->main);
    }
    if (result == DAVY_OK && stores && r->gathers) {
        result = gather(r, lane, g);
    }
    lane->begun++;
    return result == DAVY_OK && dv_instance_timed(lane->instance) ? dv_instance_collect(lane->instance) : result;
}

/* The cost of a group in this pass: its share of the steps of all passes. */
static double pass_cost(const dv_cuda_run *r) {
    const dv_plan *plan = dv_program_plan(r->lanes[0].program);
    if (plan->n_norms > 0) {
        return r->run->group_cost / (double)(plan->n_norms + 1);
    }
    double all = plan->cost;
    for (int32_t k = 0; k < plan->n_means; k++) {
        all += plan->means[k].cost;
    }
    return r->run->group_cost * (seeks_mean(r) ? plan->means[r->mean].cost : plan->cost) / (all > 1.0 ? all : 1.0);
}

davy_result dv_cuda_end_group(dv_cuda_run *r, dv_lane *lane) {
    dv_lane *stored = r->gathers ? &r->lanes[0] : lane;
    const int64_t group = lane->ended * r->n_lanes + lane->index;
    const uint64_t begun = lane->begun_ns[turn_of(lane->ended)];
    dv_gpu_event *event = NULL;
    davy_result result = dv_instance_event(lane->instance, DV_SLOT_TILE + turn_of(lane->ended), &event);
    if (result == DAVY_OK) { /* its steps began no earlier than the group before ended */
        const uint64_t since = begun > lane->ended_ns ? begun : lane->ended_ns;
        result = dv_instance_await(lane->instance, event, since, dv_cuda_poll, &r->run->watch);
        lane->ended_ns = dv_now_ns();
    }
    while (result == DAVY_OK && stored->fetched < stored->stored &&
           stored->fetches[stored->fetched % (DV_DEPTH * r->parts)].group <= group) {
        result = dv_cuda_fetch(r, stored);
    }
    lane->ended++;
    dv_watch_advance(&r->run->watch, pass_cost(r));
    return result;
}
