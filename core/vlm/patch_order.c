/* patch_order.c - the order of patches in Qwen's vision towers: blocks, frames, windows, and the table of positions. */
#include <math.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/positions.h"

/* Row and column of patch i of a frame. */
static void place_of(const dv_vlm_grid *g, int64_t i, int64_t *row, int64_t *col) {
    const int64_t m = g->merge;
    const int64_t block = i / (m * m);
    *row = block / (g->w / m) * m + i % (m * m) / m;
    *col = block % (g->w / m) * m + i % m;
}

void dv_vlm_patch_positions(const dv_vlm_grid *g, int32_t *pos) {
    const int64_t frame = g->h * g->w;
    for (int64_t i = 0; i < g->t * frame; i++) {
        int64_t row = 0;
        int64_t col = 0;
        place_of(g, i % frame, &row, &col);
        pos[2 * i] = (int32_t)row;
        pos[2 * i + 1] = (int32_t)col;
    }
}

void dv_vlm_frame_bounds(const dv_vlm_grid *g, int32_t *bounds) {
    for (int64_t t = 0; t <= g->t; t++) {
        bounds[t] = (int32_t)(t * g->h * g->w);
    }
}

davy_result dv_vlm_windows_make(const dv_vlm_vision *v, const dv_vlm_grid *g, dv_vlm_windows *out) {
    const int64_t side = v->window / (v->patch * v->merge); /* of a window, in units */
    const int64_t h = g->h / g->merge;
    const int64_t w = g->w / g->merge;
    const int64_t across = dv_div_up(w, side);
    const int64_t windows = g->t * dv_div_up(h, side) * across;
    *out = (dv_vlm_windows){.units = g->t * h * w, .n_bounds = windows + 1};
    out->order = dv_calloc((uint64_t)out->units, sizeof *out->order);
    out->bounds = dv_calloc((uint64_t)out->n_bounds, sizeof *out->bounds);
    if (out->order == NULL || out->bounds == NULL) {
        dv_vlm_windows_free(out);
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for the windows of a picture");
    }
    int64_t at = 0;
    for (int64_t k = 0; k < windows; k++) {
        const int64_t t = k / (windows / g->t);
        const int64_t y0 = k % (windows / g->t) / across * side;
        const int64_t x0 = k % across * side;
        for (int64_t y = y0; y < dv_min(y0 + side, h); y++) {
            for (int64_t x = x0; x < dv_min(x0 + side, w); x++) {
                out->order[at++] = (int32_t)((t * h + y) * w + x);
            }
        }
        out->bounds[k + 1] = (int32_t)(at * g->merge * g->merge);
    }
    return DAVY_OK;
}

void dv_vlm_windows_free(dv_vlm_windows *w) {
    dv_free(w->order);
    dv_free(w->bounds);
    *w = (dv_vlm_windows){0};
}

/* Coordinate i of n on a table of `side` rows, first on first and last on last: two rows and their weights. */
static void taps_of(int64_t i, int64_t n, int64_t side, int64_t row[2], float weight[2]) {
    const float at = (float)i * (float)(side - 1) / (float)dv_max(n - 1, 1);
    const float lower = floorf(at);
    row[0] = dv_min((int64_t)lower, side - 1);
    row[1] = dv_min((int64_t)lower + 1, side - 1);
    weight[0] = 1.0f - (at - lower);
    weight[1] = 1.0f - fabsf(at - lower - 1.0f);
}

void dv_vlm_table_taps(int64_t side, const dv_vlm_grid *g, int32_t *row, float *weight) {
    const int64_t frame = g->h * g->w;
    for (int64_t i = 0; i < g->t * frame; i++) {
        int64_t y = 0;
        int64_t x = 0;
        int64_t rows[2];
        int64_t cols[2];
        float wy[2];
        float wx[2];
        place_of(g, i % frame, &y, &x);
        taps_of(y, g->h, side, rows, wy);
        taps_of(x, g->w, side, cols, wx);
        for (int k = 0; k < 4; k++) {
            row[4 * i + k] = (int32_t)(rows[k / 2] * side + cols[k % 2]);
            weight[4 * i + k] = wy[k / 2] * wx[k % 2];
        }
    }
}
