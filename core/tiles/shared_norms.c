/* shared_norms.c - group norms over a picture that is computed in tiles. There are too many of them for a pass from the beginning
 * for each, as means have it (shared_means.c): instead all tiles are run as far as a norm, a part of each is added up, and what
 * the rest of the network needs of a tile is kept until its turn comes again, with the picture's statistics given. So every step
 * of a tile is run once. */
#include "core/tiles/picture_run.h"
#include "core/base/error.h"

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
