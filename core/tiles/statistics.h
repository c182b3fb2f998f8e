/* statistics.h - means and norms over a picture that is computed in tiles. Each tile contributes its part; the parts cover every
 * pixel exactly once. They are added in the order of the tiles, in double, so the bits do not depend on the device that computed
 * them.
 *
 * Means (squeeze and excitation): for each mean there is a pass over all tiles. It runs up to the value that the mean is computed
 * from; the earlier means are given. The last pass computes the same picture as without tiles.
 * Norms: there are too many for a pass from the beginning for each. All tiles are run up to a norm, and a part of each is added up.
 * The values that the rest of the network needs of a tile are kept. When the picture's statistics are complete, the tile continues
 * from there. So every step of a tile is run once. */
#ifndef DV_TILE_STATISTICS_H
#define DV_TILE_STATISTICS_H

#include "core/tiles/tile.h"
#include "core/plan/plan.h"

/* The part of a tile's value, on that grid, that only this tile contributes. y, x: the axes of the tiles. */
dvk_view dv_tile_part(const dv_axis *y, const dv_axis *x, dv_grid grid, const dvk_view *value, int64_t ty, int64_t tx);

typedef struct dv_mean_sum {
    double *sums; /* [c] */
    float *mean;  /* [c]: of a part; after dv_mean_end, of the whole picture */
    int64_t c, pixels;
} dv_mean_sum;

davy_result dv_mean_begin(dv_mean_sum *s, int64_t c);
void dv_mean_add(dv_mean_sum *s, const float *mean, const dvk_view *part);
const float *dv_mean_end(dv_mean_sum *s);
void dv_mean_free(dv_mean_sum *s);

typedef struct dv_norm_sum {
    double *sums; /* [groups]{count, mean, M2} */
    float *given; /* [groups]{1, mean, variance}, set by dv_norm_end */
    int64_t groups;
} dv_norm_sum;

davy_result dv_norm_begin(dv_norm_sum *s, int64_t groups);
/* partial: the "group_norm_stats" of a tile's part, at most dv_norm_floats values. */
void dv_norm_add(dv_norm_sum *s, const float *partial, const dvk_view *part);
const float *dv_norm_end(dv_norm_sum *s);
void dv_norm_free(dv_norm_sum *s);
int64_t dv_norm_floats(const dv_plan *plan);

#endif
