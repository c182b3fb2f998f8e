/* cpu.c - pictures on the CPU, tile by tile: load, steps, store. Tiles that fade into each other are added up in a
 * band. */
#include <string.h>

#include "core/tiles/fade_band.h"
#include "core/tiles/picture_run.h"
#include "core/base/error.h"

typedef struct run {
    dv_picture_run *j;
    dv_instance *instance;
    dvk_view output;   /* of a tile */
    dv_fade_band band; /* no rows: tiles do not fade */
    int64_t picture;
    char *kept;         /* of tiles that share norms, of each what its rest needs */
    float *partial;     /* statistics of one's part */
    uint64_t kept_tile; /* bytes */
} run;

static davy_result load_tile(run *r, int64_t ty, int64_t tx) {
    const dv_picture_run *j = r->j;
    const dvk_view input = dv_instance_input(r->instance);
    const dvk_image image =
        dv_image_part(&j->work->in, r->picture, j->route->y.origin[ty], j->route->x.origin[tx], input.h, input.w);
    const dvk_convert_args args = dv_load_args(j->work, &image, &input);
    return dv_convert_run(r->instance, "load", &args, &r->j->watch);
}

/* Stores `view` as the rectangle of the picture's output that begins at y0, x0. */
static davy_result store_rectangle(run *r, const dvk_view *view, int64_t y0, int64_t x0) {
    const dv_work *w = r->j->work;
    const dvk_image image = dv_image_part(&w->out, r->picture, y0, x0, view->h, view->w);
    const dvk_convert_args args = dv_store_args(w, &image, view);
    return dv_convert_run(r->instance, "store", &args, &r->j->watch);
}

static davy_result store_tile(run *r, int64_t ty, int64_t tx) {
    const dv_axis *y = &r->j->route->y;
    const dv_axis *x = &r->j->route->x;
    const int64_t y0 = dv_axis_first(y, ty);
    const int64_t x0 = dv_axis_first(x, tx);
    const dvk_view part = dv_view_part(&r->output, dv_axis_local(y, ty, y0), dv_axis_local(x, tx, x0),
                                       dv_axis_end(y, ty) - y0, dv_axis_end(x, tx) - x0, r->j->work->out.channels);
    return store_rectangle(r, &part, y0, x0);
}

/* ---- fades ---- */

/* Stores the rows that are finished after row ty of tiles. */
static davy_result store_band(run *r, int64_t ty) {
    const dvk_view view = dv_fade_band_finished(&r->band, ty, r->j->work->out.channels);
    const davy_result result = view.h > 0 ? store_rectangle(r, &view, r->band.row, 0) : DAVY_OK;
    return result == DAVY_OK ? dv_fade_band_end_row(&r->band, ty, &r->j->watch) : result;
}

/* ---- the run ---- */

static davy_result compute_tile(run *r, int64_t ty, int64_t tx) {
    const int32_t norms = r->j->route->layout.norms;
    if (norms > 0) {
        char *kept = r->kept + (uint64_t)(ty * r->j->route->x.count + tx) * r->kept_tile;
        const davy_result result = dv_instance_live(r->instance, norms - 1, kept, true, &r->j->watch);
        return result == DAVY_OK ? dv_instance_run_to_norm(r->instance, norms, &r->j->watch) : result;
    }
    const davy_result result = load_tile(r, ty, tx);
    return result == DAVY_OK ? dv_instance_run(r->instance, &r->j->watch) : result;
}

static davy_result run_tile(run *r, int64_t ty, int64_t tx) {
    davy_result result = compute_tile(r, ty, tx);
    if (result == DAVY_OK) {
        result = r->band.rows != NULL ? dv_fade_band_add(&r->band, &r->output, 0, ty, tx, &r->j->watch)
                                      : store_tile(r, ty, tx);
    }
    return result;
}

/* A pass over all tiles. */
static davy_result share_mean(run *r, int32_t k) {
    const dv_cached_tile_plan *route = r->j->route;
    const dvk_view x = dv_instance_mean_of(r->instance, k);
    dv_mean_sum sum;
    davy_result result = dv_mean_begin(&sum, x.c);
    for (int64_t i = 0; result == DAVY_OK && i < route->y.count * route->x.count; i++) {
        const int64_t ty = i / route->x.count;
        const int64_t tx = i % route->x.count;
        const dvk_view part = dv_tile_part(r->j, r->j->e->reach[r->j->work->stage].means[k], &x, ty, tx);
        result = load_tile(r, ty, tx);
        result = result == DAVY_OK ? dv_instance_run_to_mean(r->instance, k, &r->j->watch) : result;
        result = result == DAVY_OK ? dv_instance_mean(r->instance, k, &part, sum.mean, &r->j->watch) : result;
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

static davy_result add_norm(run *r, int64_t k, dv_norm_sum *sum, int64_t tile) {
    const int64_t ty = tile / r->j->route->x.count, tx = tile % r->j->route->x.count;
    const dvk_view x = dv_instance_norm_of(r->instance, k);
    const dvk_view part = dv_tile_part(r->j, r->j->e->reach[r->j->work->stage].norms[k], &x, ty, tx);
    char *kept = r->kept + (uint64_t)tile * r->kept_tile;
    davy_result result = k > 0 ? dv_instance_live(r->instance, k - 1, kept, true, &r->j->watch) : load_tile(r, ty, tx);
    result = result == DAVY_OK ? dv_instance_run_to_norm(r->instance, k, &r->j->watch) : result;
    result = result == DAVY_OK ? dv_instance_norm(r->instance, k, &part, r->partial, &r->j->watch) : result;
    if (result == DAVY_OK) {
        dv_norm_add(sum, r->partial, &part);
        result = dv_instance_live(r->instance, k, kept, false, &r->j->watch);
    }
    return result;
}

/* All tiles go on from norm k - 1 to norm k. */
static davy_result share_norm(run *r, int64_t k) {
    const dv_cached_tile_plan *route = r->j->route;
    const int64_t groups = dv_program_plan(route->programs[0])->norms[k].groups;
    dv_norm_sum sum;
    davy_result result = dv_norm_begin(&sum, groups);
    for (int64_t i = 0; result == DAVY_OK && i < route->y.count * route->x.count; i++) {
        result = add_norm(r, k, &sum, i);
    }
    if (result == DAVY_OK) {
        memcpy(dv_instance_given_norm(r->instance, k), dv_norm_end(&sum), (size_t)groups * 3 * sizeof(float));
    }
    dv_norm_free(&sum);
    return result;
}

static davy_result run_picture(run *r) {
    const dv_cached_tile_plan *route = r->j->route;
    davy_result result = DAVY_OK;
    for (int32_t k = 0; result == DAVY_OK && k < route->layout.means; k++) {
        result = share_mean(r, k);
    }
    for (int64_t k = 0; result == DAVY_OK && k < route->layout.norms; k++) {
        result = share_norm(r, k);
    }
    for (int64_t ty = 0; result == DAVY_OK && ty < route->y.count; ty++) {
        if (r->band.rows != NULL) {
            result = dv_fade_band_begin_row(&r->band, ty, &r->j->watch);
        }
        for (int64_t tx = 0; result == DAVY_OK && tx < route->x.count; tx++) {
            result = run_tile(r, ty, tx);
        }
        if (result == DAVY_OK && r->band.rows != NULL) {
            result = store_band(r, ty);
        }
    }
    return result;
}

static void let_go(run *r) {
    const dv_picture_run *j = r->j;
    dv_heap_free(j->e->services.heap, DV_MEM_WORKSPACE, r->band.rows, j->route->layout.band);
    dv_fade_band_free(&r->band);
    dv_heap_free(j->e->services.heap, DV_MEM_WORKSPACE, r->kept, j->route->layout.kept);
    dv_free(r->partial);
    dv_program_give(j->route->programs[0], r->instance);
    dv_program_trim(j->route->programs[0], dv_job_keep(j));
}

static davy_result acquire_kept(run *r) {
    const dv_tile_schedule *l = &r->j->route->layout;
    const dv_plan *plan = dv_program_plan(r->j->route->programs[0]);
    void *kept = NULL;
    r->partial = dv_calloc((uint64_t)dv_norm_floats(plan), sizeof *r->partial);
    r->kept_tile = plan->live_bytes;
    const davy_result result = r->partial != NULL
                                   ? dv_heap_alloc(r->j->e->services.heap, DV_MEM_WORKSPACE, l->kept, "tiles", &kept)
                                   : dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
    r->kept = kept;
    return result;
}

/* Weights, arena, band, what tiles leave. */
static davy_result acquire(run *r) {
    dv_picture_run *j = r->j;
    dv_cached_tile_plan *route = j->route;
    davy_result result = dv_program_load(route->programs[0], &j->watch);
    if (result == DAVY_OK) {
        result = dv_program_take(route->programs[0], &r->instance);
    }
    if (result == DAVY_OK) {
        r->output = dv_instance_output(r->instance);
    }
    if (result == DAVY_OK && (dv_axis_fades(&route->y) || dv_axis_fades(&route->x))) {
        void *rows = NULL;
        result = dv_fade_band_create(&route->y, &route->x, 1, r->output.h, r->output.c, j->e->services.pool, &r->band);
        result = result == DAVY_OK
                     ? dv_heap_alloc(j->e->services.heap, DV_MEM_WORKSPACE, route->layout.band, "tiles", &rows)
                     : result;
        r->band.rows = rows;
    }
    return result == DAVY_OK && route->layout.norms > 0 ? acquire_kept(r) : result;
}

davy_result dv_picture_run_cpu(dv_picture_run *j, bool *acquired) {
    run r = {.j = j};
    davy_result result = acquire(&r);
    *acquired = result == DAVY_OK;
    for (r.picture = 0; result == DAVY_OK && r.picture < j->work->in.n; r.picture++) {
        result = run_picture(&r);
    }
    let_go(&r);
    return result;
}
