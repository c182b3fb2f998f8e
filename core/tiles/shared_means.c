/* shared_means.c - means over a picture that is computed in tiles (squeeze and excitation). A pass over all tiles for each of
 * them, in their order, runs as far as what it is of, with the means before it given; then all are known, and the last pass
 * makes the picture that no tiles would make. */
#include "core/tiles/picture_run.h"
#include "core/base/error.h"

davy_result dv_mean_begin(dv_mean_sum *s, int64_t c) {
    *s = (dv_mean_sum){.sums = dv_calloc((uint64_t)c, sizeof *s->sums), .c = c};
    s->mean = dv_calloc((uint64_t)c, sizeof *s->mean);
    return s->sums != NULL && s->mean != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
}

void dv_mean_add(dv_mean_sum *s, const float *mean, const dvk_view *part) {
    const int64_t pixels = part->h * part->w;
    for (int64_t c = 0; c < s->c; c++) {
        s->sums[c] += (double)mean[c] * (double)pixels;
    }
    s->pixels += pixels;
}

const float *dv_mean_end(dv_mean_sum *s) {
    for (int64_t c = 0; c < s->c; c++) {
        s->mean[c] = (float)(s->sums[c] / (double)s->pixels);
    }
    return s->mean;
}

void dv_mean_free(dv_mean_sum *s) {
    dv_free(s->sums);
    dv_free(s->mean);
    *s = (dv_mean_sum){0};
}

typedef struct range {
    int64_t first, end;
} range;

/* Of a value's pixels along an axis, of which a tile has `size`: from one cut to the next, and all of the margins that the
 * network adds around the picture. */
static range range_of(const dv_axis *a, int64_t tile, dv_grid grid, int64_t size) {
    const int64_t first = (a->cut[tile] - a->origin[tile]) * grid.num / grid.den;
    const int64_t end = (a->cut[tile + 1] - a->origin[tile]) * grid.num / grid.den;
    return (range){tile == 0 ? 0 : first, tile == a->count - 1 ? size : end};
}

dvk_view dv_tile_part(const dv_picture_run *j, dv_grid grid, const dvk_view *x, int64_t ty, int64_t tx) {
    const range y = range_of(&j->route->y, ty, grid, x->h);
    const range across = range_of(&j->route->x, tx, grid, x->w);
    return dv_view_part(x, y.first, across.first, y.end - y.first, across.end - across.first, x->c);
}
