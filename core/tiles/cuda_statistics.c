/* cuda_statistics.c - passes over a picture's tiles on GPUs for the means, or the norms, that they share: a part of each tile is
 * summed where the tile is, and when all are through the host puts the parts together, a few numbers each, and hands out the
 * result. */
#include "core/tiles/cuda.h"
#include "core/base/error.h"

bool dv_cuda_seeks_mean(const dv_cuda_run *r) {
    return r->mean < r->j->route->layout.means;
}

bool dv_cuda_seeks(const dv_cuda_run *r) {
    return r->norm < r->j->route->layout.norms || dv_cuda_seeks_mean(r);
}

/* Floats of a tile: a mean, or a norm's partial statistics. */
static int64_t sums_of_tile(const dv_plan *plan) {
    int64_t most = dv_norm_floats(plan);
    for (int32_t k = 0; k < plan->n_means; k++) {
        most = dv_max(most, plan->means[k].x.c);
    }
    return most;
}

uint64_t dv_cuda_sum_bytes(const dv_cuda_run *r, const dv_lane *lane) {
    return (uint64_t)(r->tiles * sums_of_tile(dv_program_plan(lane->program))) * sizeof(float);
}

static const dv_reach *reach_of(const dv_cuda_run *r) {
    return &r->j->e->reach[r->j->work->stage];
}

static davy_result sum_mean(dv_cuda_run *r, dv_lane *lane, const dv_group *g, float *sums) {
    const dvk_view x = dv_instance_mean_of(lane->instance, r->mean);
    davy_result result = dv_instance_enqueue_to_mean(lane->instance, r->mean);
    for (int64_t k = g->fresh; result == DAVY_OK && k < g->end; k++) {
        const dv_tile_place at = dv_cuda_place(r, k);
        const dvk_view one = dv_view_pictures(&x, k - g->first, 1);
        const dvk_view part = dv_tile_part(r->j, reach_of(r)->means[r->mean], &one, at.ty, at.tx);
        result = dv_instance_enqueue_mean(lane->instance, r->mean, &part, sums + k * x.c);
    }
    return result;
}

static davy_result sum_norm(dv_cuda_run *r, dv_lane *lane, const dv_group *g, float *sums) {
    const dvk_view x = dv_instance_norm_of(lane->instance, r->norm);
    davy_result result = dv_instance_enqueue_to_norm(lane->instance, r->norm);
    for (int64_t k = g->fresh; result == DAVY_OK && k < g->end; k++) {
        const dv_tile_place at = dv_cuda_place(r, k);
        const dvk_view one = dv_view_pictures(&x, k - g->first, 1);
        const dvk_view part = dv_tile_part(r->j, reach_of(r)->norms[r->norm], &one, at.ty, at.tx);
        result = dv_instance_enqueue_norm(lane->instance, r->norm, &part,
                                          sums + k * sums_of_tile(dv_program_plan(lane->program)));
    }
    return result == DAVY_OK ? dv_cuda_keep(r, lane, g, r->norm, false) : result;
}

uint64_t dv_cuda_kept_bytes(const dv_cuda_run *r, const dv_lane *lane) {
    return (uint64_t)dv_div_up(r->groups, r->n_lanes) * dv_program_plan(lane->program)->live_bytes;
}

davy_result dv_cuda_keep(dv_cuda_run *r, dv_lane *lane, const dv_group *g, int64_t norm, bool back) {
    void *kept = NULL;
    const davy_result result = dv_instance_memory(lane->instance, DV_SLOT_KEPT, dv_cuda_kept_bytes(r, lane), &kept);
    const uint64_t at = (uint64_t)(g->index / r->n_lanes) * dv_program_plan(lane->program)->live_bytes;
    return result == DAVY_OK ? dv_instance_enqueue_live(lane->instance, norm, (char *)kept + at, back) : result;
}

davy_result dv_cuda_sum_group(dv_cuda_run *r, dv_lane *lane, const dv_group *g) {
    void *sums = NULL;
    const davy_result result = dv_instance_memory(lane->instance, DV_SLOT_MEANS, dv_cuda_sum_bytes(r, lane), &sums);
    return result != DAVY_OK ? result : dv_cuda_seeks_mean(r) ? sum_mean(r, lane, g, sums) : sum_norm(r, lane, g, sums);
}

/* A lane's own tiles of `all`, [tile][c]. */
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
        const dvk_view part = dv_tile_part(r->j, reach_of(r)->means[r->mean], &x, at.ty, at.tx);
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

davy_result dv_cuda_give_mean(dv_cuda_run *r) {
    const int64_t c = dv_instance_mean_of(r->lanes[0].instance, r->mean).c;
    dv_mean_sum sum;
    float *all = NULL;
    davy_result result = dv_mean_begin(&sum, c);
    result = result == DAVY_OK ? fetch_all(r, c, &all) : result;
    result = result == DAVY_OK ? add_up(r, &sum, all) : result;
    dv_free(all);
    dv_mean_free(&sum);
    return result;
}

static void add_up_norm(const dv_cuda_run *r, dv_norm_sum *sum, const float *all) {
    const dvk_view x = dv_instance_norm_of(r->lanes[0].instance, r->norm);
    for (int64_t k = 0; k < r->tiles; k++) {
        const dv_tile_place at = dv_cuda_place(r, k);
        const dvk_view part = dv_tile_part(r->j, reach_of(r)->norms[r->norm], &x, at.ty, at.tx);
        dv_norm_add(sum, all + k * sums_of_tile(dv_program_plan(r->lanes[0].program)), &part);
    }
    dv_norm_end(sum);
}

/* To each picture of a group. */
static davy_result hand_out(const dv_cuda_run *r, const dv_lane *lane, const dv_norm_sum *sum) {
    const uint64_t bytes = (uint64_t)sum->groups * 3 * sizeof(float);
    char *given = dv_instance_given_norm(lane->instance, r->norm);
    davy_result result = DAVY_OK;
    for (int64_t k = 0; result == DAVY_OK && k < r->together; k++) {
        result = dv_gpu_upload(lane->main, given + bytes * (uint64_t)k, sum->given, bytes);
    }
    return result;
}

davy_result dv_cuda_give_norm(dv_cuda_run *r) {
    const dv_plan *plan = dv_program_plan(r->lanes[0].program);
    dv_norm_sum sum;
    float *all = NULL;
    davy_result result = dv_norm_begin(&sum, plan->norms[r->norm].groups);
    result = result == DAVY_OK ? fetch_all(r, sums_of_tile(plan), &all) : result;
    if (result == DAVY_OK) {
        add_up_norm(r, &sum, all);
    }
    for (int32_t l = 0; result == DAVY_OK && l < r->n_lanes; l++) {
        result = hand_out(r, &r->lanes[l], &sum);
    }
    dv_free(all);
    dv_norm_free(&sum);
    return result;
}
