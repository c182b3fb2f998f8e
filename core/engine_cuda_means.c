/* engine_cuda_means.c - passes over a picture's tiles on GPUs for the means that they share: a part of each tile is summed
 * where the tile is, and when all are through the host puts the parts' means together, a few hundred numbers, and hands out
 * the result. */
#include "core/engine_cuda.h"
#include "core/error.h"

bool dv_cuda_seeks_mean(const dv_cuda_run *r) {
    return r->mean < r->j->route->layout.means;
}

uint64_t dv_cuda_sum_bytes(const dv_cuda_run *r, const dv_lane *lane) {
    const dv_plan *plan = dv_program_plan(lane->program);
    int64_t most = 0;
    for (int32_t k = 0; k < plan->n_means; k++) {
        most = dv_max(most, plan->means[k].x.c);
    }
    return (uint64_t)(r->tiles * most) * sizeof(float);
}

davy_result dv_cuda_sum_group(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    const dvk_view x = dv_instance_mean_of(lane->instance, r->mean);
    void *sums = NULL;
    davy_result result = dv_instance_memory(lane->instance, DV_SLOT_MEANS, dv_cuda_sum_bytes(r, lane), &sums);
    result = result == DAVY_OK ? dv_instance_enqueue_to_mean(lane->instance, r->mean) : result;
    for (int64_t k = g->fresh; result == DAVY_OK && k < g->end; k++) {
        const dv_tile_place at = dv_cuda_place(r, k);
        const dvk_view one = dv_view_pictures(&x, k - g->first, 1);
        const dvk_view part = dv_mean_part(r->j, r->mean, &one, at.ty, at.tx);
        result = dv_instance_enqueue_mean(lane->instance, r->mean, &part, (float *)sums + k * x.c);
    }
    return result;
}

/* A lane's own tiles of `all`, [tile][channel]. */
static davy_result fetch(const dv_cuda_run *r, dv_lane *lane, int64_t c, float *all) {
    const uint64_t row = (uint64_t)c * sizeof(float);
    void *sums = NULL;
    davy_result result = dv_instance_memory(lane->instance, DV_SLOT_MEANS, dv_cuda_sum_bytes(r, lane), &sums);
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
        const dv_tile_place at = dv_cuda_place(r, k);
        const dvk_view part = dv_mean_part(r->j, r->mean, &x, at.ty, at.tx);
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

davy_result dv_cuda_give_mean(dv_cuda_run *r) {
    const int64_t c = dv_instance_mean_of(r->lanes[0].instance, r->mean).c;
    dv_mean_sum sum;
    davy_result result = dv_mean_begin(&sum, c);
    float *all = dv_calloc((uint64_t)(r->tiles * c), sizeof *all);
    if (result == DAVY_OK && all == NULL) {
        result = dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
    }
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = fetch(r, &r->lanes[l], c, all);
    }
    result = result == DAVY_OK ? add_up(r, &sum, all) : result;
    dv_free(all);
    dv_mean_free(&sum);
    return result;
}
