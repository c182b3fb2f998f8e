/* fade_band.c - see fade_band.h. */
#include "core/tiles/fade_band.h"

#include "core/base/mem.h"

#include <string.h>

#include "core/base/error.h"

davy_result dv_fade_band_create(const dv_fade_band_desc *desc, dv_fade_band *out) {
    const dv_axis *x = desc->x;
    dv_fade_band b = {.y = desc->y,
                      .x = x,
                      .frames = desc->frames,
                      .height = desc->height,
                      .channels = desc->channels,
                      .pool = desc->pool};
    int64_t widest = 0;
    for (int64_t k = 0; k < x->count; k++) {
        widest = dv_max(widest, dv_axis_end(x, k) - dv_axis_first(x, k));
    }
    b.width = dv_axis_end(x, x->count - 1);
    b.weights_x = dv_calloc((uint64_t)widest, sizeof *b.weights_x);
    *out = b;
    return b.weights_x != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
}

void dv_fade_band_free(dv_fade_band *b) {
    dv_free(b->weights_x);
    *b = (dv_fade_band){0};
}

static int64_t row_of(const dv_fade_band *b) {
    return b->width * b->channels;
}

uint64_t dv_fade_band_bytes(const dv_fade_band *b) {
    return (uint64_t)(b->frames * b->height * row_of(b)) * sizeof(float);
}

/* ---- rows that start at zero ---- */

typedef struct clearing {
    const dv_fade_band *b;
    int64_t from, rows; /* of every frame */
} clearing;

static void clear_rows(void *user, int64_t first, int64_t last, int32_t worker) {
    const clearing *c = user;
    const int64_t row = row_of(c->b);
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        const int64_t at = i / c->rows * c->b->height + c->from + i % c->rows;
        memset(c->b->rows + at * row, 0, (size_t)row * sizeof(float));
    }
}

/* Clears the rows that no earlier row of tiles has reached. The first write to memory is slow, so this is a loop that can be
 * cancelled, not one memset. */
davy_result dv_fade_band_begin_row(dv_fade_band *b, int64_t ty, dv_watch *watch) {
    b->row = ty == 0 ? 0 : b->row;
    clearing c = {.b = b, .from = b->y->fade_end[ty] - b->row, .rows = dv_axis_end(b->y, ty) - b->y->fade_end[ty]};
    const dv_loop loop = {.units = b->frames * c.rows, .run = clear_rows, .user = &c};
    return dv_watch_loop(watch, b->pool, &loop, 0.0);
}

/* ---- tiles ---- */

typedef struct adding {
    const dv_fade_band *b;
    const dvk_view *output;
    int64_t frame, ty, tx, rows;
} adding;

static void add_row(const adding *a, int64_t frame, int64_t y) {
    const dv_fade_band *b = a->b;
    const dvk_view *v = a->output;
    const int64_t x0 = dv_axis_first(b->x, a->tx);
    const int64_t x1 = dv_axis_end(b->x, a->tx);
    const float wy = dv_axis_weight(b->y, a->ty, y);
    const float *from = (const float *)v->data + frame * v->sn + dv_axis_local(b->y, a->ty, y) * v->sh +
                        dv_axis_local(b->x, a->tx, x0) * v->sw;
    float *to = b->rows + (((a->frame + frame) * b->height + y - b->row) * b->width + x0) * b->channels;
    for (int64_t x = x0; x < x1; x++, from += v->sw, to += b->channels) {
        const float w = wy * b->weights_x[x - x0];
        for (int64_t c = 0; c < b->channels; c++) {
            to[c] += w * from[c];
        }
    }
}

static void add_rows(void *user, int64_t first, int64_t last, int32_t worker) {
    const adding *a = user;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        add_row(a, i / a->rows, dv_axis_first(a->b->y, a->ty) + i % a->rows);
    }
}

davy_result dv_fade_band_add(dv_fade_band *b, const dvk_view *output, const dv_fade_place *at, dv_watch *watch) {
    const int64_t x0 = dv_axis_first(b->x, at->tx);
    for (int64_t x = x0; x < dv_axis_end(b->x, at->tx); x++) {
        b->weights_x[x - x0] = dv_axis_weight(b->x, at->tx, x);
    }
    adding a = {.b = b, .output = output, .frame = at->frame, .ty = at->ty, .tx = at->tx};
    a.rows = dv_axis_end(b->y, at->ty) - dv_axis_first(b->y, at->ty);
    const dv_loop loop = {.units = output->n * a.rows, .run = add_rows, .user = &a};
    return dv_watch_loop(watch, b->pool, &loop, 0.0);
}

/* ---- finished rows ---- */

dvk_view dv_fade_band_finished(const dv_fade_band *b, int64_t ty, int64_t channels) {
    const int64_t row = row_of(b);
    return (dvk_view){.data = b->rows,
                      .dtype = DVK_F32,
                      .n = b->frames,
                      .h = b->y->fade_first[ty + 1] - b->row,
                      .w = b->width,
                      .c = channels,
                      .sn = row * b->height,
                      .sh = row,
                      .sw = b->channels};
}

davy_result dv_fade_band_end_row(dv_fade_band *b, int64_t ty, dv_watch *watch) {
    const int64_t done = b->y->fade_first[ty + 1];
    const int64_t left = b->y->fade_end[ty + 1] - done;
    const int64_t row = row_of(b);
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < b->frames * left && done > b->row; i++) {
        float *to = b->rows + (i / left * b->height + i % left) * row;
        memcpy(to, to + (done - b->row) * row, (size_t)row * sizeof(float));
        r = dv_watch_poll(watch);
    }
    b->row = done;
    return r;
}
