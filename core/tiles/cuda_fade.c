/* cuda_fade.c - tiles that fade into each other, added up in a band of f32 rows in device memory, one tile high, as
 * cpu.c does it in the host's. All in the order of the tiles, so that the sums are always the same. */
#include "core/tiles/cuda.h"
#include "core/base/error.h"

static void fill_weights(const dv_axis *a, int64_t k, float *w) {
    for (int64_t at = dv_axis_first(a, k); at < dv_axis_end(a, k); at++) {
        *w++ = dv_axis_weight(a, k, at);
    }
}

davy_result dv_cuda_prepare_fades(dv_cuda_run *r) {
    const dv_axis *y = &r->j->route->y;
    const dv_axis *x = &r->j->route->x;
    const int64_t tiles = y->count + x->count;
    r->fade_at = dv_calloc((uint64_t)tiles + 1, sizeof *r->fade_at);
    if (r->fade_at == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
    }
    for (int64_t k = 0; k < tiles; k++) {
        const dv_axis *a = k < y->count ? y : x;
        const int64_t of = k < y->count ? k : k - y->count;
        r->fade_at[k + 1] = r->fade_at[k] + dv_axis_end(a, of) - dv_axis_first(a, of);
    }
    const uint64_t bytes = (uint64_t)r->fade_at[tiles] * sizeof(float);
    float *weights = dv_calloc((uint64_t)r->fade_at[tiles], sizeof *weights);
    if (weights == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
    }
    for (int64_t k = 0; k < tiles; k++) {
        fill_weights(k < y->count ? y : x, k < y->count ? k : k - y->count, weights + r->fade_at[k]);
    }
    void *device = NULL;
    davy_result result = dv_instance_memory(r->lanes[0].instance, DV_SLOT_FADE, bytes, &device);
    if (result == DAVY_OK) {
        result = dv_gpu_upload(r->lanes[0].main, device, weights, bytes);
    }
    r->fade = device;
    dv_free(weights);
    return result;
}

static int64_t channels_of(const dv_cuda_run *r) {
    return dv_program_plan(r->lanes[0].program)->output.c;
}

static dvk_view band_view(const dv_cuda_run *r, int64_t y0, int64_t x0, int64_t h, int64_t w, int64_t c) {
    const int64_t pixel = channels_of(r);
    const int64_t row = r->width * pixel;
    return (dvk_view){.data = r->band + (y0 - r->band_row) * row + x0 * pixel,
                      .dtype = DVK_F32,
                      .n = 1,
                      .h = h,
                      .w = w,
                      .c = c,
                      .sn = row * h,
                      .sh = row,
                      .sw = pixel};
}

/* Rows that only this row of tiles has reached start at zero. */
static davy_result clear_band(dv_cuda_run *r, int64_t ty) {
    const dv_axis *y = &r->j->route->y;
    const int64_t row = r->width * channels_of(r);
    const int64_t from = y->fade_end[ty] - r->band_row;
    const int64_t rows = dv_axis_end(y, ty) - r->band_row - from;
    dvk_queue *q = &r->home->base;
    return dv_gpu_check(r->home->gpu, q->clear(q, r->band + from * row, (size_t)(rows * row) * sizeof(float)), "tiles");
}

static davy_result blend(dv_cuda_run *r, const dvk_view *output, dv_tile_place at) {
    const dv_axis *y = &r->j->route->y;
    const dv_axis *x = &r->j->route->x;
    const dvk_view part = dv_cuda_used(r, output, at, channels_of(r));
    const dvk_blend_args args = {
        .x = part,
        .y = band_view(r, dv_axis_first(y, at.ty), dv_axis_first(x, at.tx), part.h, part.w, part.c),
        .wy = r->fade + r->fade_at[at.ty],
        .wx = r->fade + r->fade_at[y->count + at.tx]};
    return dv_instance_enqueue_op(r->lanes[0].instance, r->home, "blend", &args, "blend",
                                  (uint64_t)(part.h * part.w * part.c) * 3 * sizeof(float));
}

/* Stores the rows that are finished after row ty of tiles and moves the rest to the top of the band, in pieces that do
 * not overlap. */
static davy_result store_band(dv_cuda_run *r, const dv_group *g, dv_tile_place at) {
    const dv_axis *y = &r->j->route->y;
    const int64_t done = y->fade_first[at.ty + 1];
    const int64_t left = y->fade_end[at.ty + 1] - done;
    const int64_t up = done - r->band_row;
    const int64_t row = r->width * channels_of(r);
    const dvk_view view = band_view(r, r->band_row, 0, up, r->width, r->j->work->out.channels);
    davy_result result =
        up > 0 ? dv_cuda_store(r, &r->lanes[0], r->home, &view, g, at.picture, r->band_row, 0) : DAVY_OK;
    for (int64_t k = 0; result == DAVY_OK && k < left && up > 0; k += up) {
        result = dv_gpu_copy(r->home, r->band + k * row, r->home->gpu, r->band + (k + up) * row,
                             (uint64_t)(dv_min(up, left - k) * row) * sizeof(float));
    }
    r->band_row = at.ty + 1 < y->count ? done : 0;
    return result;
}

davy_result dv_cuda_fade(dv_cuda_run *r, const dvk_view *output, const dv_group *g, dv_tile_place at) {
    davy_result result = at.tx == 0 ? clear_band(r, at.ty) : DAVY_OK;
    if (result == DAVY_OK) {
        result = blend(r, output, at);
    }
    return result == DAVY_OK && at.tx + 1 == r->j->route->x.count ? store_band(r, g, at) : result;
}
