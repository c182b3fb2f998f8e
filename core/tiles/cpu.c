/* cpu.c - computes pictures on the CPU, tile by tile: load, steps, store. Faded tiles are added up in a band. */
#include <string.h>

#include "core/base/error.h"
#include "core/tiles/fade_band.h"
#include "core/tiles/picture_run.h"
#include "core/tiles/statistics.h"

typedef struct cpu_run {
    dv_picture_run *run;
    dv_instance *instance;
    dvk_view output;   /* of a tile */
    dv_fade_band band; /* no rows: tiles do not fade */
    int64_t picture;
    char *kept;         /* for shared norms: for each tile, the values that its remaining steps need */
    float *partial;     /* statistics of the part of a tile */
    uint64_t kept_tile; /* bytes */
} cpu_run;

static davy_result load_tile(cpu_run *r, int64_t ty, int64_t tx) {
    const dv_picture_run *run = r->run;
    const dvk_view input = dv_instance_input(r->instance);
    const dvk_image image = dv_image_part(&run->work->in, r->picture, run->tile_plan->y.origin[ty],
                                          run->tile_plan->x.origin[tx], input.h, input.w);
    const dvk_convert_args args = dv_load_args(run->work, &image, &input);
    return dv_convert_run(r->instance, "load", &args, &r->run->watch);
}

/* Stores `view` as the rectangle of the picture's output that begins at y0, x0. */
static davy_result store_rectangle(cpu_run *r, const dvk_view *view, int64_t y0, int64_t x0) {
    const dv_work *w = r->run->work;
    const dvk_image image = dv_image_part(&w->out, r->picture, y0, x0, view->h, view->w);
    const dvk_convert_args args = dv_store_args(w, &image, view);
    return dv_convert_run(r->instance, "store", &args, &r->run->watch);
}

static davy_result store_tile(cpu_run *r, int64_t ty, int64_t tx) {
    const dv_axis *y = &r->run->tile_plan->y;
    const dv_axis *x = &r->run->tile_plan->x;
    const int64_t y0 = dv_axis_first(y, ty);
    const int64_t x0 = dv_axis_first(x, tx);
    const dvk_view part = dv_view_part(&r->output, dv_axis_local(y, ty, y0), dv_axis_local(x, tx, x0),
                                       dv_axis_end(y, ty) - y0, dv_axis_end(x, tx) - x0, r->run->work->out.channels);
    return store_rectangle(r, &part, y0, x0);
}

/* ---- fades ---- */

/* Stores the rows that are finished after row ty of tiles. */
static davy_result store_band(cpu_run *r, int64_t ty) {
    const dvk_view view = dv_fade_band_finished(&r->band, ty, r->run->work->out.channels);
    const davy_result result = view.h > 0 ? store_rectangle(r, &view, r->band.row, 0) : DAVY_OK;
    return result < 0 ? result : dv_fade_band_end_row(&r->band, ty, &r->run->watch);
}

/* ---- the run ---- */

static davy_result compute_tile(cpu_run *r, int64_t ty, int64_t tx) {
    const int32_t norms = r->run->tile_plan->schedule.norms;
    if (norms > 0) {
        char *kept = r->kept + (uint64_t)(ty * r->run->tile_plan->x.count + tx) * r->kept_tile;
        const davy_result result = dv_instance_live(r->instance, norms - 1, kept, true, &r->run->watch);
        return result < 0 ? result : dv_instance_run_to_norm(r->instance, norms, &r->run->watch);
    }
    const davy_result result = load_tile(r, ty, tx);
    return result < 0 ? result : dv_instance_run(r->instance, &r->run->watch);
}

static davy_result run_tile(cpu_run *r, int64_t ty, int64_t tx) {
    davy_result result = compute_tile(r, ty, tx);
    if (result == DAVY_OK) {
        const dv_fade_place at = {.ty = ty, .tx = tx};
        result =
            r->band.rows != NULL ? dv_fade_band_add(&r->band, &r->output, &at, &r->run->watch) : store_tile(r, ty, tx);
    }
    return result;
}

/* Computes a mean in a pass over all tiles. */
static davy_result share_mean(cpu_run *r, int32_t k) {
    const dv_cached_tile_plan *tile_plan = r->run->tile_plan;
    const dvk_view x = dv_instance_mean_of(r->instance, k);
    dv_mean_sum sum;
    davy_result result = dv_mean_begin(&sum, x.c);
    for (int64_t i = 0; result == DAVY_OK && i < tile_plan->y.count * tile_plan->x.count; i++) {
        const int64_t ty = i / tile_plan->x.count;
        const int64_t tx = i % tile_plan->x.count;
        const dvk_view part = dv_tile_part(&r->run->tile_plan->y, &r->run->tile_plan->x,
                                           r->run->e->reach[r->run->work->stage].means[k], &x, ty, tx);
        result = load_tile(r, ty, tx);
        result = result < 0 ? result : dv_instance_run_to_mean(r->instance, k, &r->run->watch);
        result = result < 0 ? result : dv_instance_mean(r->instance, k, &part, sum.mean, &r->run->watch);
        if (result == DAVY_OK) {
            dv_mean_add(&sum, sum.mean, &part);
        }
    }
    if (result == DAVY_OK) {
        memcpy(dv_instance_given(r->instance, k), dv_mean_end(&sum), (size_t)x.c * sizeof(float));
    }
    dv_mean_free(&sum);
    return result;
}

static davy_result add_norm(cpu_run *r, int64_t k, dv_norm_sum *sum, int64_t tile) {
    const int64_t ty = tile / r->run->tile_plan->x.count, tx = tile % r->run->tile_plan->x.count;
    const dvk_view x = dv_instance_norm_of(r->instance, k);
    const dvk_view part = dv_tile_part(&r->run->tile_plan->y, &r->run->tile_plan->x,
                                       r->run->e->reach[r->run->work->stage].norms[k], &x, ty, tx);
    char *kept = r->kept + (uint64_t)tile * r->kept_tile;
    davy_result result =
        k > 0 ? dv_instance_live(r->instance, k - 1, kept, true, &r->run->watch) : load_tile(r, ty, tx);
    result = result < 0 ? result : dv_instance_run_to_norm(r->instance, k, &r->run->watch);
    result = result < 0 ? result : dv_instance_norm(r->instance, k, &part, r->partial, &r->run->watch);
    if (result == DAVY_OK) {
        dv_norm_add(sum, r->partial, &part);
        result = dv_instance_live(r->instance, k, kept, false, &r->run->watch);
    }
    return result;
}

/* Runs all tiles from norm k - 1 to norm k and computes norm k's statistics. */
static davy_result share_norm(cpu_run *r, int64_t k) {
    const dv_cached_tile_plan *tile_plan = r->run->tile_plan;
    const int64_t groups = dv_program_plan(tile_plan->programs[0])->norms[k].groups;
    dv_norm_sum sum;
    davy_result result = dv_norm_begin(&sum, groups);
    for (int64_t i = 0; result == DAVY_OK && i < tile_plan->y.count * tile_plan->x.count; i++) {
        result = add_norm(r, k, &sum, i);
    }
    if (result == DAVY_OK) {
        memcpy(dv_instance_given_norm(r->instance, k), dv_norm_end(&sum), (size_t)groups * 3 * sizeof(float));
    }
    dv_norm_free(&sum);
    return result;
}

static davy_result run_picture(cpu_run *r) {
    const dv_cached_tile_plan *tile_plan = r->run->tile_plan;
    davy_result result = DAVY_OK;
    for (int32_t k = 0; result == DAVY_OK && k < tile_plan->schedule.means; k++) {
        result = share_mean(r, k);
    }
    for (int64_t k = 0; result == DAVY_OK && k < tile_plan->schedule.norms; k++) {
        result = share_norm(r, k);
    }
    for (int64_t ty = 0; result == DAVY_OK && ty < tile_plan->y.count; ty++) {
        if (r->band.rows != NULL) {
            result = dv_fade_band_begin_row(&r->band, ty, &r->run->watch);
        }
        for (int64_t tx = 0; result == DAVY_OK && tx < tile_plan->x.count; tx++) {
            result = run_tile(r, ty, tx);
        }
        if (result == DAVY_OK && r->band.rows != NULL) {
            result = store_band(r, ty);
        }
    }
    return result;
}

static void let_go(cpu_run *r) {
    const dv_picture_run *run = r->run;
    dv_heap_free(run->e->services.heap, DV_MEM_WORKSPACE, r->band.rows, run->tile_plan->schedule.band);
    dv_fade_band_free(&r->band);
    dv_heap_free(run->e->services.heap, DV_MEM_WORKSPACE, r->kept, run->tile_plan->schedule.kept);
    dv_free(r->partial);
    dv_program_give(run->tile_plan->programs[0], r->instance);
    dv_program_trim(run->tile_plan->programs[0], dv_picture_run_keep_bytes(run));
}

static davy_result acquire_kept(cpu_run *r) {
    const dv_tile_schedule *l = &r->run->tile_plan->schedule;
    const dv_plan *plan = dv_program_plan(r->run->tile_plan->programs[0]);
    void *kept = NULL;
    r->partial = dv_calloc((uint64_t)dv_norm_floats(plan), sizeof *r->partial);
    r->kept_tile = plan->live_bytes;
    const davy_result result = r->partial != NULL
                                   ? dv_heap_alloc(r->run->e->services.heap, DV_MEM_WORKSPACE, l->kept, "tiles", &kept)
                                   : dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
    r->kept = kept;
    return result;
}

/* Loads the weights and takes the arena, the band and the memory for kept values. */
static davy_result acquire(cpu_run *r) {
    dv_picture_run *run = r->run;
    dv_cached_tile_plan *tile_plan = run->tile_plan;
    davy_result result = dv_program_load(tile_plan->programs[0], &run->watch);
    result = result < 0 ? result : dv_program_take(tile_plan->programs[0], &r->instance);
    if (result == DAVY_OK) {
        r->output = dv_instance_output(r->instance);
    }
    if (result == DAVY_OK && (dv_axis_fades(&tile_plan->y) || dv_axis_fades(&tile_plan->x))) {
        void *rows = NULL;
        const dv_fade_band_desc band = {.y = &tile_plan->y,
                                        .x = &tile_plan->x,
                                        .frames = 1,
                                        .height = r->output.h,
                                        .channels = r->output.c,
                                        .pool = run->e->services.pool};
        result = dv_fade_band_create(&band, &r->band);
        result = result < 0
                     ? result
                     : dv_heap_alloc(run->e->services.heap, DV_MEM_WORKSPACE, tile_plan->schedule.band, "tiles", &rows);
        r->band.rows = rows;
    }
    return result == DAVY_OK && tile_plan->schedule.norms > 0 ? acquire_kept(r) : result;
}

davy_result dv_picture_run_cpu(dv_picture_run *run, bool *acquired) {
    cpu_run r = {.run = run};
    davy_result result = acquire(&r);
    *acquired = result == DAVY_OK;
    for (r.picture = 0; result == DAVY_OK && r.picture < run->work->in.n; r.picture++) {
        result = run_picture(&r);
    }
    let_go(&r);
    return result;
}
