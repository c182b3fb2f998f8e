/* engine_cpu.c - pictures on the CPU, tile by tile: load, steps, store. Tiles that fade into each other are added up in a
 * band of f32 rows one tile high; rows that no later tile touches are converted and stored at once, so that memory does
 * not grow with the picture. */
#include <string.h>

#include "core/engine_job.h"
#include "core/error.h"

typedef struct run {
    dv_job *j;
    dv_instance *instance;
    dvk_view output; /* of a tile */
    float *band;     /* rows of the picture's output from band_row on, [width][channels] */
    float *clear;    /* the first of those that are being cleared */
    float *weights_x;
    int64_t picture, band_row, width;
} run;

static davy_result load_tile(run *r, int64_t ty, int64_t tx) {
    const dv_job *j = r->j;
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

typedef struct blend {
    const run *r;
    int64_t ty, tx;
} blend;

static void blend_rows(void *user, int64_t first, int64_t last, int32_t worker) {
    const blend *b = user;
    const run *r = b->r;
    const dv_axis *ay = &r->j->route->y;
    const dv_axis *ax = &r->j->route->x;
    const int64_t channels = r->output.c;
    const int64_t x0 = dv_axis_first(ax, b->tx);
    const int64_t x1 = dv_axis_end(ax, b->tx);
    (void)worker;
    for (int64_t y = dv_axis_first(ay, b->ty) + first; y < dv_axis_first(ay, b->ty) + last; y++) {
        const float wy = dv_axis_weight(ay, b->ty, y);
        const float *from = (const float *)r->output.data + dv_axis_local(ay, b->ty, y) * r->output.sh +
                            dv_axis_local(ax, b->tx, x0) * r->output.sw;
        float *to = r->band + ((y - r->band_row) * r->width + x0) * channels;
        for (int64_t x = x0; x < x1; x++, from += r->output.sw, to += channels) {
            const float w = wy * r->weights_x[x - x0];
            for (int64_t c = 0; c < channels; c++) {
                to[c] += w * from[c];
            }
        }
    }
}

static davy_result blend_tile(run *r, int64_t ty, int64_t tx) {
    const dv_axis *x = &r->j->route->x;
    const dv_axis *y = &r->j->route->y;
    for (int64_t at = dv_axis_first(x, tx); at < dv_axis_end(x, tx); at++) {
        r->weights_x[at - dv_axis_first(x, tx)] = dv_axis_weight(x, tx, at);
    }
    blend b = {.r = r, .ty = ty, .tx = tx};
    const dv_loop loop = {.units = dv_axis_end(y, ty) - dv_axis_first(y, ty), .run = blend_rows, .user = &b};
    return dv_watch_loop(&r->j->watch, r->j->e->services.pool, &loop, 0.0);
}

/* Stores the rows that are finished after row ty of tiles and moves the rest to the top of the band. */
static davy_result store_band(run *r, int64_t ty) {
    const dv_axis *y = &r->j->route->y;
    const int64_t done = y->fade_first[ty + 1];
    const int64_t end = y->fade_end[ty + 1];
    const int64_t channels = r->output.c;
    const int64_t row = r->width * channels;
    const dvk_view view = {.data = r->band,
                           .dtype = DVK_F32,
                           .n = 1,
                           .h = done - r->band_row,
                           .w = r->width,
                           .c = r->j->work->out.channels,
                           .sn = row * (end - r->band_row),
                           .sh = row,
                           .sw = channels};
    davy_result result = view.h > 0 ? store_rectangle(r, &view, r->band_row, 0) : DAVY_OK;
    for (int64_t k = 0; result == DAVY_OK && k < end - done && done > r->band_row; k++) {
        memcpy(r->band + k * row, r->band + (done - r->band_row + k) * row, (size_t)row * sizeof(float));
        result = dv_watch_poll(&r->j->watch);
    }
    r->band_row = done;
    return result;
}

static void clear_rows(void *user, int64_t first, int64_t last, int32_t worker) {
    const run *r = user;
    const int64_t row = r->width * r->output.c;
    (void)worker;
    memset(r->clear + first * row, 0, (size_t)((last - first) * row) * sizeof(float));
}

/* Rows that only this row of tiles has reached start at zero. Memory that is touched for the first time is slow: hence a
 * loop, which can be cancelled, and not one memset. */
static davy_result clear_band(run *r, int64_t ty) {
    const dv_axis *y = &r->j->route->y;
    const int64_t from = y->fade_end[ty] - r->band_row;
    r->clear = r->band + from * r->width * r->output.c;
    const dv_loop loop = {.units = dv_axis_end(y, ty) - y->fade_end[ty], .run = clear_rows, .user = r};
    return dv_watch_loop(&r->j->watch, r->j->e->services.pool, &loop, 0.0);
}

/* ---- the run ---- */

static davy_result run_tile(run *r, int64_t ty, int64_t tx) {
    davy_result result = load_tile(r, ty, tx);
    if (result == DAVY_OK) {
        result = dv_instance_run(r->instance, &r->j->watch);
    }
    if (result == DAVY_OK) {
        result = r->band != NULL ? blend_tile(r, ty, tx) : store_tile(r, ty, tx);
    }
    return result;
}

static davy_result run_picture(run *r) {
    const dv_route *route = r->j->route;
    davy_result result = DAVY_OK;
    r->band_row = 0;
    for (int64_t ty = 0; result == DAVY_OK && ty < route->y.count; ty++) {
        if (r->band != NULL) {
            result = clear_band(r, ty);
        }
        for (int64_t tx = 0; result == DAVY_OK && tx < route->x.count; tx++) {
            result = run_tile(r, ty, tx);
        }
        if (result == DAVY_OK && r->band != NULL) {
            result = store_band(r, ty);
        }
    }
    return result;
}

static void let_go(run *r) {
    const dv_job *j = r->j;
    dv_heap_free(j->e->services.heap, DV_MEM_WORKSPACE, r->band, j->route->layout.band);
    dv_free(r->weights_x);
    dv_program_give(j->route->programs[0], r->instance);
    dv_program_trim(j->route->programs[0], dv_job_keep(j));
}

/* Weights, arena, band. */
static davy_result acquire(run *r) {
    dv_job *j = r->j;
    dv_route *route = j->route;
    davy_result result = dv_program_load(route->programs[0], &j->watch);
    if (result == DAVY_OK) {
        result = dv_program_take(route->programs[0], &r->instance);
    }
    if (result == DAVY_OK && (dv_axis_fades(&route->y) || dv_axis_fades(&route->x))) {
        void *band = NULL;
        r->weights_x = dv_calloc((uint64_t)dv_instance_output(r->instance).w, sizeof *r->weights_x);
        result = r->weights_x == NULL
                     ? dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory")
                     : dv_heap_alloc(j->e->services.heap, DV_MEM_WORKSPACE, route->layout.band, "tiles", &band);
        r->band = band;
    }
    if (result == DAVY_OK) {
        r->output = dv_instance_output(r->instance);
        r->width = dv_axis_end(&route->x, route->x.count - 1);
    }
    return result;
}

davy_result dv_job_run_cpu(dv_job *j, bool *acquired) {
    run r = {.j = j};
    davy_result result = acquire(&r);
    *acquired = result == DAVY_OK;
    for (r.picture = 0; result == DAVY_OK && r.picture < j->work->in.n; r.picture++) {
        result = run_picture(&r);
    }
    let_go(&r);
    return result;
}
