/* cuda_reserve.c - all device memory of a run is taken before its first tile: a device that has no more says so while
 * nothing is lost, and no tile that has been computed is computed again in smaller ones. */
#include "core/tiles/cuda.h"

#include "core/base/error.h"

static davy_result take(dv_lane *lane, int32_t slot, uint64_t bytes) {
    void *ignored = NULL;
    return dv_instance_memory(lane->instance, slot, bytes, &ignored);
}

/* For each of the groups that are under way at once. */
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
    const dv_work *w = r->j->work;
    const dvk_view input = dv_instance_input(lane->instance);
    if (w->in_device) {
        return lane->index > 0 ? take(&r->lanes[0], DV_SLOT_SENT + lane->index, dv_view_span(&input)) : DAVY_OK;
    }
    const dvk_image part = dv_image_part(&w->in, 0, 0, 0, input.h, input.w);
    return take_turns(r, lane, DV_SLOT_IN, piece_of(&part) * (uint64_t)r->together);
}

/* The largest rectangle that is stored at once: a tile's part of the picture, or rows of it that no tile adds to any more. */
static dvk_image largest_part(const dv_cuda_run *r) {
    const dv_axis *y = &r->j->route->y;
    const dv_axis *x = &r->j->route->x;
    int64_t h = 1;
    int64_t w = 1;
    for (int64_t k = 0; k < y->count; k++) {
        const int64_t end = r->fades ? y->fade_first[k + 1] : dv_axis_end(y, k);
        h = dv_max(h, end - dv_axis_first(y, k));
    }
    for (int64_t k = 0; k < x->count; k++) {
        w = dv_max(w, r->fades ? r->width : dv_axis_end(x, k) - dv_axis_first(x, k));
    }
    return dv_image_part(&r->j->work->out, 0, 0, 0, h, w);
}

static davy_result take_outputs(dv_cuda_run *r, dv_lane *lane) {
    davy_result result = DAVY_OK;
    if (r->gathers && lane->index > 0) {
        const dvk_view output = dv_instance_output(lane->instance);
        result = take(&r->lanes[0], DV_SLOT_TAKEN + lane->index, dv_view_span(&output));
    }
    if (result == DAVY_OK && !r->j->work->out_device && (lane->index == 0 || !r->gathers)) {
        result = take_turns(r, lane, DV_SLOT_OUT, r->part_bytes * (uint64_t)r->parts);
        lane->fetches = dv_calloc((uint64_t)(DV_DEPTH * r->parts), sizeof *lane->fetches);
        result =
            result == DAVY_OK && lane->fetches == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory") : result;
    }
    return result;
}

/* A group stores its pictures at once, or tile by tile, or the rows that become finished with some of its tiles. */
static void count_parts(dv_cuda_run *r) {
    const dvk_image part = largest_part(r);
    r->parts = r->whole ? 1 : r->fades ? dv_div_up(r->together, r->j->route->x.count) : r->together;
    r->part_bytes = piece_of(&part) * (uint64_t)(r->whole ? r->together : 1);
}

davy_result dv_cuda_reserve(dv_cuda_run *r) {
    davy_result result = DAVY_OK;
    count_parts(r);
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = take_inputs(r, &r->lanes[l]);
        result = result == DAVY_OK ? take_outputs(r, &r->lanes[l]) : result;
        if (result == DAVY_OK && dv_tile_schedule_shares(&r->j->route->layout)) {
            result = take(&r->lanes[l], DV_SLOT_MEANS, dv_cuda_sum_bytes(r, &r->lanes[l]));
        }
        if (result == DAVY_OK && r->j->route->layout.norms > 0) {
            result = take(&r->lanes[l], DV_SLOT_KEPT, dv_cuda_kept_bytes(r, &r->lanes[l]));
        }
    }
    return result;
}
