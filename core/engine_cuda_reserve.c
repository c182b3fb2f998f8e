/* engine_cuda_reserve.c - all device memory of a run is taken before its first tile: a device that has no more says so while
 * nothing is lost, and no tile that has been computed is computed again in smaller ones. */
#include "core/engine_cuda.h"

#include "core/error.h"

static uint64_t bytes_of(const dvk_view *v) {
    return (uint64_t)(v->n * v->h * v->w * v->c) * dvk_dtype_size(v->dtype);
}

static davy_result take(dv_lane *lane, int32_t slot, uint64_t bytes) {
    void *ignored = NULL;
    return dv_instance_memory(lane->instance, slot, bytes, &ignored);
}

/* For each of the tiles that are under way at once. */
static davy_result take_turns(const dv_cuda_run *r, dv_lane *lane, int32_t slot, const dvk_image *image) {
    dv_staging staging;
    davy_result result = DAVY_OK;
    dv_staging_describe(image, &staging);
    for (int32_t turn = 0; result == DAVY_OK && turn < (r->several ? DV_DEPTH : 1); turn++) {
        result = take(lane, slot + turn, staging.bytes);
    }
    return result;
}

static davy_result take_inputs(dv_cuda_run *r, dv_lane *lane) {
    const dv_work *w = r->j->work;
    const dvk_view input = dv_instance_input(lane->instance);
    if (w->in_device) {
        return lane->index > 0 ? take(&r->lanes[0], DV_SLOT_SENT + lane->index, bytes_of(&input)) : DAVY_OK;
    }
    const dvk_image part = dv_image_part(&w->in, 0, 0, 0, input.h, input.w);
    return take_turns(r, lane, DV_SLOT_IN, &part);
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
        result = take(&r->lanes[0], DV_SLOT_TAKEN + lane->index, bytes_of(&output));
    }
    if (result == DAVY_OK && !r->j->work->out_device && (lane->index == 0 || !r->gathers)) {
        const dvk_image part = largest_part(r);
        result = take_turns(r, lane, DV_SLOT_OUT, &part);
    }
    return result;
}

davy_result dv_cuda_reserve(dv_cuda_run *r) {
    davy_result result = DAVY_OK;
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = take_inputs(r, &r->lanes[l]);
        result = result == DAVY_OK ? take_outputs(r, &r->lanes[l]) : result;
    }
    return result;
}
