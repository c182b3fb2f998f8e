/* multi_gpu.c - several GPUs and one place: pictures in the first GPU's memory are handed out to the others as
 * network inputs, and the others' outputs come back to be faded or stored there. Each lane has memory for one input and
 * one output on the first GPU. */
#include "core/tiles/cuda.h"
#include "core/base/error.h"

davy_result dv_cuda_open_multi_gpu(dv_cuda_run *r) {
    dv_lane *first = &r->lanes[0];
    r->home = first->main;
    if (r->n_lanes == 1 || !(r->gathers || r->j->work->in_device)) {
        return DAVY_OK;
    }
    for (int32_t l = 1; l < r->n_lanes; l++) {
        dv_gpu_reach(first->main->gpu, r->lanes[l].main->gpu);
        dv_gpu_reach(r->lanes[l].main->gpu, first->main->gpu);
    }
    davy_result result = dv_instance_side_queue(first->instance, 2, &r->home);
    if (result == DAVY_OK) { /* after what the host has enqueued, and the last run of the instance */
        result = dv_cuda_mark(first, DV_SLOT_HOME, first->main);
    }
    return result == DAVY_OK ? dv_cuda_wait(first, DV_SLOT_HOME, r->home) : result;
}

davy_result dv_cuda_close_multi_gpu(dv_cuda_run *r) {
    dv_lane *first = &r->lanes[0];
    if (r->home == first->main) {
        return DAVY_OK;
    }
    davy_result result = dv_cuda_mark(first, DV_SLOT_HOME, r->home);
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = dv_cuda_wait(first, DV_SLOT_HOME, r->lanes[l].main);
    }
    return result;
}

davy_result dv_cuda_scatter(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    dv_lane *first = &r->lanes[0];
    const dvk_view input = dv_instance_input(lane->instance);
    dvk_view here = input;
    davy_result result =
        dv_instance_memory(first->instance, DV_SLOT_SENT + lane->index, dv_view_span(&input), &here.data);
    if (result == DAVY_OK) { /* the copy before has read it */
        result = dv_cuda_wait(lane, DV_SLOT_READ, r->home);
    }
    if (result == DAVY_OK) {
        result = dv_cuda_load(r, first->instance, r->home, g, &here);
    }
    if (result == DAVY_OK) {
        result = dv_cuda_mark(first, DV_SLOT_SENT + lane->index, r->home);
    }
    if (result == DAVY_OK) {
        result = dv_cuda_wait(first, DV_SLOT_SENT + lane->index, lane->main);
    }
    if (result == DAVY_OK) {
        result = dv_gpu_copy(lane->main, input.data, r->home->gpu, here.data, dv_view_span(&input));
    }
    return result == DAVY_OK ? dv_cuda_mark(lane, DV_SLOT_READ, lane->main) : result;
}

davy_result dv_cuda_await_gathered(dv_cuda_run *r, dv_lane *lane) {
    return dv_cuda_wait(&r->lanes[0], DV_SLOT_TAKEN + lane->index, lane->main);
}

davy_result dv_cuda_gather(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    dv_lane *first = &r->lanes[0];
    dvk_view output = dv_instance_output(lane->instance);
    davy_result result = dv_cuda_wait(lane, DV_SLOT_TILE + (int32_t)(lane->begun % DV_DEPTH), r->home);
    if (result == DAVY_OK && lane != first) {
        const void *there = output.data;
        result = dv_instance_memory(first->instance, DV_SLOT_TAKEN + lane->index, dv_view_span(&output), &output.data);
        if (result == DAVY_OK) {
            result = dv_gpu_copy(r->home, output.data, lane->main->gpu, there, dv_view_span(&output));
        }
    }
    if (result == DAVY_OK) {
        result = dv_cuda_put(r, first, r->home, g, &output);
    }
    return result == DAVY_OK ? dv_cuda_mark(first, DV_SLOT_TAKEN + lane->index, r->home) : result;
}
