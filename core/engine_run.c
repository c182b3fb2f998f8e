/* engine_run.c - one picture through a route: tile by tile load, steps, store. Tiles that fade into each other are
 * added up in a band of f32 rows one tile high; rows that no later tile touches are converted and stored at once, so
 * that memory does not grow with the picture. */
#include "core/engine_priv.h"

#include <string.h>

#include "core/error.h"

#define WAIT_NS          20000000ull
#define KEEP_OTHER_BYTES (256ull << 20) /* idle arenas of other sizes */
#define KEEP_OWN_BYTES   (1ull << 30)   /* of this size, left by concurrent runs; one is always kept */

enum { ATTEMPTS = 4 };

typedef struct job {
    dv_engine *e;
    const dv_work *work;
    dv_route *route;
    dv_instance *instance;
    dvk_view output; /* of a tile */
    float *band;     /* rows of the picture's output from band_row on, [width][channels] */
    float *weights_x;
    int64_t band_row, width;
    dv_watch watch;
} job;

static dvk_image rectangle(const dvk_image *image, int64_t y, int64_t x, int64_t h, int64_t w) {
    dvk_image part = *image;
    part.data = (char *)image->data + y * image->sh + x * image->sw;
    part.h = h;
    part.w = w;
    return part;
}

static dvk_view part_of(const dvk_view *v, int64_t y, int64_t x, int64_t h, int64_t w, int64_t c) {
    dvk_view part = *v;
    const int64_t size = v->dtype == DVK_F32 ? 4 : 2;
    part.data = (char *)v->data + (y * v->sh + x * v->sw) * size;
    part.h = h;
    part.w = w;
    part.c = c;
    return part;
}

static davy_result load_tile(job *j, int64_t ty, int64_t tx) {
    const dvk_view input = dv_instance_input(j->instance);
    const dvk_convert_args args = {
        .image = rectangle(&j->work->in, j->route->y.origin[ty], j->route->x.origin[tx], input.h, input.w),
        .view = input,
        .mul = j->work->in_mul,
        .add = j->work->in_add};
    return dv_convert_run(j->instance, "load", &args, &j->watch);
}

/* Stores rows [y0, y1) and columns [x0, x1) of the picture's output, which begin at `view`. */
static davy_result store_rectangle(job *j, const dvk_view *view, int64_t y0, int64_t x0) {
    const dv_work *w = j->work;
    const dvk_convert_args args = {.image = rectangle(&w->out, y0, x0, view->h, view->w),
                                   .view = *view,
                                   .mul = w->out_mul,
                                   .add = w->out_add,
                                   .lo = w->out_lo,
                                   .hi = w->out_hi,
                                   .clamp = w->out_clamp};
    return dv_convert_run(j->instance, "store", &args, &j->watch);
}

static davy_result store_tile(job *j, int64_t ty, int64_t tx) {
    const dv_axis *y = &j->route->y;
    const dv_axis *x = &j->route->x;
    const int64_t y0 = dv_axis_first(y, ty);
    const int64_t x0 = dv_axis_first(x, tx);
    const dvk_view part = part_of(&j->output, dv_axis_local(y, ty, y0), dv_axis_local(x, tx, x0),
                                  dv_axis_end(y, ty) - y0, dv_axis_end(x, tx) - x0, j->work->out.channels);
    return store_rectangle(j, &part, y0, x0);
}

/* ---- fades ---- */

typedef struct blend {
    const job *j;
    int64_t ty, tx;
} blend;

static void blend_rows(void *user, int64_t first, int64_t last, int32_t worker) {
    const blend *b = user;
    const job *j = b->j;
    const dv_axis *ay = &j->route->y;
    const dv_axis *ax = &j->route->x;
    const int64_t channels = j->output.c;
    const int64_t x0 = dv_axis_first(ax, b->tx);
    const int64_t x1 = dv_axis_end(ax, b->tx);
    (void)worker;
    for (int64_t y = dv_axis_first(ay, b->ty) + first; y < dv_axis_first(ay, b->ty) + last; y++) {
        const float wy = dv_axis_weight(ay, b->ty, y);
        const float *from = (const float *)j->output.data + dv_axis_local(ay, b->ty, y) * j->output.sh +
                            dv_axis_local(ax, b->tx, x0) * j->output.sw;
        float *to = j->band + ((y - j->band_row) * j->width + x0) * channels;
        for (int64_t x = x0; x < x1; x++, from += j->output.sw, to += channels) {
            const float w = wy * j->weights_x[x - x0];
            for (int64_t c = 0; c < channels; c++) {
                to[c] += w * from[c];
            }
        }
    }
}

static davy_result blend_tile(job *j, int64_t ty, int64_t tx) {
    const dv_axis *x = &j->route->x;
    const dv_axis *y = &j->route->y;
    for (int64_t at = dv_axis_first(x, tx); at < dv_axis_end(x, tx); at++) {
        j->weights_x[at - dv_axis_first(x, tx)] = dv_axis_weight(x, tx, at);
    }
    blend b = {.j = j, .ty = ty, .tx = tx};
    const dv_loop loop = {.units = dv_axis_end(y, ty) - dv_axis_first(y, ty), .run = blend_rows, .user = &b};
    return dv_watch_loop(&j->watch, j->e->services.pool, &loop, 0.0);
}

/* Stores the rows that are finished after row ty of tiles and moves the rest to the top of the band. */
static davy_result store_band(job *j, int64_t ty) {
    const dv_axis *y = &j->route->y;
    const int64_t done = y->fade_first[ty + 1];
    const int64_t end = y->fade_end[ty + 1];
    const int64_t channels = j->output.c;
    const int64_t row = j->width * channels;
    const dvk_view view = {.data = j->band,
                           .dtype = DVK_F32,
                           .n = 1,
                           .h = done - j->band_row,
                           .w = j->width,
                           .c = j->work->out.channels,
                           .sn = row * (end - j->band_row),
                           .sh = row,
                           .sw = channels};
    const davy_result r = view.h > 0 ? store_rectangle(j, &view, j->band_row, 0) : DAVY_OK;
    memmove(j->band, j->band + (done - j->band_row) * row, (size_t)((end - done) * row) * sizeof(float));
    j->band_row = done;
    return r;
}

/* Rows that only this row of tiles has reached start at zero. */
static void clear_band(job *j, int64_t ty) {
    const dv_axis *y = &j->route->y;
    const int64_t row = j->width * j->output.c;
    const int64_t from = y->fade_end[ty] - j->band_row;
    const int64_t to = dv_axis_end(y, ty) - j->band_row;
    memset(j->band + from * row, 0, (size_t)((to - from) * row) * sizeof(float));
}

/* ---- the run ---- */

static davy_result run_tiles(job *j) {
    const dv_axis *y = &j->route->y;
    const dv_axis *x = &j->route->x;
    davy_result r = DAVY_OK;
    for (int64_t ty = 0; r == DAVY_OK && ty < y->count; ty++) {
        if (j->band != NULL) {
            clear_band(j, ty);
        }
        for (int64_t tx = 0; r == DAVY_OK && tx < x->count; tx++) {
            r = load_tile(j, ty, tx);
            if (r == DAVY_OK) {
                r = dv_instance_run(j->instance, &j->watch);
            }
            if (r == DAVY_OK) {
                r = j->band != NULL ? blend_tile(j, ty, tx) : store_tile(j, ty, tx);
            }
        }
        if (r == DAVY_OK && j->band != NULL) {
            r = store_band(j, ty);
        }
    }
    return r;
}

static uint64_t route_bytes(const dv_route *route) {
    return route->layout.workspace + route->layout.band;
}

/* Weights, arena, band. On an error nothing is kept. */
static davy_result acquire(job *j) {
    dv_route *route = j->route;
    const dv_services *services = &j->e->services;
    davy_result r = dv_program_load(route->program, &j->watch);
    if (r == DAVY_OK) {
        r = dv_program_take(route->program, &j->instance);
    }
    if (r == DAVY_OK && (dv_axis_fades(&route->y) || dv_axis_fades(&route->x))) {
        void *band = NULL;
        j->weights_x = dv_calloc((uint64_t)dv_instance_output(j->instance).w, sizeof *j->weights_x);
        r = j->weights_x == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory")
                                 : dv_heap_alloc(services->heap, DV_MEM_WORKSPACE, route->layout.band, "tiles", &band);
        j->band = band;
    }
    if (r != DAVY_OK) {
        dv_program_give(route->program, j->instance);
        j->instance = NULL;
        dv_free(j->weights_x);
        j->weights_x = NULL;
        return r;
    }
    j->output = dv_instance_output(j->instance);
    j->width = dv_axis_end(&route->x, route->x.count - 1);
    return DAVY_OK;
}

static void let_go(job *j) {
    dv_heap_free(j->e->services.heap, DV_MEM_WORKSPACE, j->band, j->route->layout.band);
    dv_free(j->weights_x);
    dv_program_give(j->route->program, j->instance);
    const uint64_t own = j->route->layout.workspace;
    dv_program_trim(j->route->program, own > KEEP_OWN_BYTES ? own : KEEP_OWN_BYTES);
    j->instance = NULL;
    j->band = NULL;
    j->weights_x = NULL;
}

static void count_running(dv_engine *e, const dv_route *route, int32_t change) {
    dv_mutex_lock(e->lock);
    e->running += change;
    e->running_bytes = change > 0 ? e->running_bytes + route_bytes(route) : e->running_bytes - route_bytes(route);
    dv_cond_broadcast(e->finished);
    dv_mutex_unlock(e->lock);
}

/* false: nobody else is at work. */
static bool wait_for_others(dv_engine *e) {
    dv_mutex_lock(e->lock);
    const bool others = e->running > 0;
    if (others) {
        dv_cond_wait(e->finished, e->lock, WAIT_NS);
    }
    dv_mutex_unlock(e->lock);
    return others;
}

static dv_request request_of(const dv_work *work) {
    return (dv_request){
        .stage = work->stage, .grey = work->grey, .h = work->in.h, .w = work->in.w, .tiling = work->tiling};
}

static davy_result check_work(const dv_engine *e, const dv_work *w) {
    if (w->stage < DV_STAGE_UPSCALE || w->stage > DV_STAGE_DECODE || !e->has_stage[w->stage]) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: these weights cannot %s", e->file_name, dv_stage_name(w->stage));
    }
    if (w->in.h < 1 || w->in.w < 1 || w->in.n != 1 || w->out.n != 1) {
        return dv_fail(DAVY_E_SHAPE, "%s: a picture of %lld x %lld (%lld of them)", dv_stage_name(w->stage),
                       (long long)w->in.w, (long long)w->in.h, (long long)w->in.n);
    }
    return DAVY_OK;
}

static davy_result check_route(const dv_work *w, const dv_route *route) {
    const dv_plan *plan = dv_program_plan(route->program);
    const int64_t out_h = dv_axis_end(&route->y, route->y.count - 1);
    const int64_t out_w = dv_axis_end(&route->x, route->x.count - 1);
    if (w->in.channels != plan->input.c) {
        return dv_fail(DAVY_E_SHAPE, "%s: %d channels, the network takes %lld", dv_stage_name(w->stage),
                       (int)w->in.channels, (long long)plan->input.c);
    }
    if (w->out.h != out_h || w->out.w != out_w || w->out.channels < 1 || w->out.channels > route->out_c) {
        return dv_fail(DAVY_E_SHAPE,
                       "%s: output of %lld x %lld with %d channels, expected %lld x %lld with at most %lld",
                       dv_stage_name(w->stage), (long long)w->out.w, (long long)w->out.h, (int)w->out.channels,
                       (long long)out_w, (long long)out_h, (long long)route->out_c);
    }
    return DAVY_OK;
}

static double total_cost(const job *j) {
    const dv_layout *l = &j->route->layout;
    const dvk_image *out = &j->work->out;
    const dv_plan *plan = dv_program_plan(j->route->program);
    const dvk_convert_args load = {.view = plan->input};
    const dvk_convert_args store = {.view = {.h = out->h, .w = out->w, .c = out->channels}};
    dv_store *weights = dv_engine_store(j->e);
    const uint64_t missing = dv_store_missing(weights, j->work->stage, plan);
    dv_store_release(weights);
    return l->cost + (double)l->tiles * dv_convert_cost(&load) + dv_convert_cost(&store) + dv_store_cost(missing);
}

/* One try on the route: DAVY_E_BUDGET with nothing kept where its memory is taken by somebody else. */
static davy_result run_route(job *j) {
    dv_engine *e = j->e;
    dv_watch_begin(&j->watch, &j->work->control, dv_stage_name(j->work->stage), total_cost(j));
    davy_result r = dv_watch_poll(&j->watch);
    if (r != DAVY_OK) {
        return r;
    }
    count_running(e, j->route, 1);
    dv_routes_trim(e, j->route, KEEP_OTHER_BYTES);
    r = acquire(j);
    if (r == DAVY_E_BUDGET) {
        dv_routes_trim(e, j->route, 0);
        r = acquire(j);
    }
    if (r == DAVY_OK) {
        r = run_tiles(j);
        let_go(j);
        if (r == DAVY_OK) {
            r = dv_watch_end(&j->watch);
        }
    }
    count_running(e, j->route, -1);
    return r;
}

davy_result dv_engine_run(dv_engine *e, const dv_work *work) {
    const dv_request request = request_of(work);
    davy_result r = check_work(e, work);
    for (int attempt = 0; r == DAVY_OK && attempt < ATTEMPTS;) {
        job j = {.e = e, .work = work};
        r = dv_route_get(e, &request, &j.route);
        if (r != DAVY_OK) {
            return r;
        }
        r = check_route(work, j.route);
        if (r == DAVY_OK) {
            r = run_route(&j);
        }
        if (r != DAVY_E_BUDGET) {
            dv_route_release(j.route);
            return r;
        }
        if (!wait_for_others(e)) { /* somebody beyond this engine has taken it: choose smaller tiles */
            dv_route_forget(e, j.route);
            attempt++;
        }
        dv_route_release(j.route);
        r = attempt < ATTEMPTS ? DAVY_OK : r;
    }
    return r;
}
