/* statistics.h - means and norms over a picture that is computed in tiles. The parts of its tiles have no pixel in common and leave
 * none out; they are added up in the order of the tiles, in double, so that the bits do not depend on who computed them.
 *
 * Means (squeeze and excitation): a pass over all tiles for each of them runs as far as what it is of, with the means before it
 * given; the last pass makes the picture that no tiles would make.
 * Norms: there are too many of them for a pass from the beginning for each. All tiles are run as far as a norm, a part of each is
 * added up, and what the rest of the network needs of a tile is kept until its turn comes again, with the statistics of the
 * picture given. So every step of a tile is run once. */
#ifndef DV_TILE_STATISTICS_H
#define DV_TILE_STATISTICS_H

#include "core/tiles/tile.h"
#include "core/plan/plan.h"

/* The part of a tile's value on that grid that is this tile's alone. y, x: the axes of the tiles. */
dvk_view dv_tile_part(const dv_axis *y, const dv_axis *x, dv_grid grid, const dvk_view *value, int64_t ty, int64_t tx);

typedef struct dv_mean_sum {
    double *sums; /* [c] */
    float *mean;  /* [c] of a part; at last, of the whole */
    int64_t c, pixels;
} dv_mean_sum;

davy_result dv_mean_begin(dv_mean_sum *s, int64_t c);
void dv_mean_add(dv_mean_sum *s, const float *mean, const dvk_view *part);
const float *dv_mean_end(dv_mean_sum *s);
void dv_mean_free(dv_mean_sum *s);

typedef struct dv_norm_sum {
    double *sums; /* [groups]{count, mean, M2} */
    float *given; /* [groups]{1, mean, variance}, at last */
    int64_t groups;
} dv_norm_sum;

davy_result dv_norm_begin(dv_norm_sum *s, int64_t groups);
/* partial: "group_norm_stats" of a tile's part, dv_norm_floats at most */
void dv_norm_add(dv_norm_sum *s, const float *partial, const dvk_view *part);
const float *dv_norm_end(dv_norm_sum *s);
void dv_norm_free(dv_norm_sum *s);
int64_t dv_norm_floats(const dv_plan *plan);

#endif
