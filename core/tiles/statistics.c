/* statistics.c - see statistics.h. */
#include "core/tiles/statistics.h"

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/tiles/picture_view.h"

/* ---- means ---- */

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

/* A tile's own pixels of a value along an axis; the tile has `size` of them. They lie between two cuts; the outer tiles include the
 * margins that the network adds around the picture. */
static range range_of(const dv_axis *a, int64_t tile, dv_grid grid, int64_t size) {
    const int64_t first = (a->cut[tile] - a->origin[tile]) * grid.num / grid.den;
    const int64_t end = (a->cut[tile + 1] - a->origin[tile]) * grid.num / grid.den;
    return (range){tile == 0 ? 0 : first, tile == a->count - 1 ? size : end};
}

dvk_view dv_tile_part(const dv_axis *y, const dv_axis *x, dv_grid grid, const dvk_view *value, int64_t ty, int64_t tx) {
    const range down = range_of(y, ty, grid, value->h);
    const range across = range_of(x, tx, grid, value->w);
    return dv_view_part(value, down.first, across.first, down.end - down.first, across.end - across.first, value->c);
}

/* ---- norms ---- */

int64_t dv_norm_floats(const dv_plan *plan) {
    int64_t most = 0;
    for (int64_t k = 0; k < plan->n_norms; k++) {
        const dv_plan_norm *m = &plan->norms[k];
        most = dv_max(most, 2 * m->groups * dv_div_up(m->x.h, DVK_NORM_CHUNK_ROWS));
    }
    return most;
}

davy_result dv_norm_begin(dv_norm_sum *s, int64_t groups) {
    *s = (dv_norm_sum){.groups = groups};
    s->sums = dv_calloc((uint64_t)groups * 3, sizeof *s->sums);
    s->given = dv_calloc((uint64_t)groups * 3, sizeof *s->given);
    return s->sums != NULL && s->given != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
}

void dv_norm_free(dv_norm_sum *s) {
    dv_free(s->sums);
    dv_free(s->given);
    *s = (dv_norm_sum){0};
}

static void merge(double *sum, double count, double mean, double m2) {
    const double delta = mean - sum[1];
    const double all = sum[0] + count;
    sum[1] += delta * count / all;
    sum[2] += m2 + delta * delta * sum[0] * count / all;
    sum[0] = all;
}

void dv_norm_add(dv_norm_sum *s, const float *partial, const dvk_view *part) {
    for (int64_t y = 0; y < part->h; y += DVK_NORM_CHUNK_ROWS) {
        const double count = (double)(dv_min(DVK_NORM_CHUNK_ROWS, part->h - y) * part->w * (part->c / s->groups));
        for (int64_t g = 0; g < s->groups && count > 0.0; g++, partial += 2) {
            merge(s->sums + 3 * g, count, (double)partial[0], (double)partial[1]);
        }
    }
}

const float *dv_norm_end(dv_norm_sum *s) {
    for (int64_t g = 0; g < s->groups; g++) {
        const double *sum = s->sums + 3 * g;
        s->given[3 * g] = 1.0f;
        s->given[3 * g + 1] = (float)sum[1];
        s->given[3 * g + 2] = (float)(sum[2] / sum[0]);
    }
    return s->given;
}
