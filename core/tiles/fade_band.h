/* fade_band.h - adds up faded tiles in host memory. A band holds f32 rows of the result: as wide as the result, as high as a tile,
 * for one picture or for several frames that are cut alike. Rows of tiles are added one after the other, weighted as their axes
 * say. Output rows that no later tile touches are finished and leave the band, so memory does not grow with the picture. */
#ifndef DV_FADE_BAND_H
#define DV_FADE_BAND_H

#include "core/tiles/tile.h"
#include "core/base/watch.h"
#include "kernels/op.h"

typedef struct dv_fade_band {
    const dv_axis *y, *x;
    int64_t frames, height, width, channels;
    int64_t row;      /* the band's first row, as a row of the result */
    float *rows;      /* [frames][height][width][channels]; the caller owns it */
    float *weights_x; /* fade weights of one tile along x */
    dv_pool *pool;
} dv_fade_band;

typedef struct dv_fade_band_desc {
    const dv_axis *y, *x;             /* must outlive the band, as must its rows */
    int64_t frames, height, channels; /* height: of a tile's output */
    dv_pool *pool;
} dv_fade_band_desc;

davy_result dv_fade_band_create(const dv_fade_band_desc *desc, dv_fade_band *out);
uint64_t dv_fade_band_bytes(const dv_fade_band *b);
void dv_fade_band_free(dv_fade_band *b);

/* Call it before row ty of tiles. ty = 0 begins a picture. */
davy_result dv_fade_band_begin_row(dv_fade_band *b, int64_t ty, dv_watch *watch);
typedef struct dv_fade_place { /* of a tile's output */
    int64_t frame;             /* of its first picture */
    int64_t ty, tx;
} dv_fade_place;

/* Adds the output of a tile. output: f32, the whole tile with all channels. */
davy_result dv_fade_band_add(dv_fade_band *b, const dvk_view *output, const dv_fade_place *at, dv_watch *watch);
/* Returns the rows that row ty of tiles has finished, from b->row on: all frames, the first `channels` channels. */
dvk_view dv_fade_band_finished(const dv_fade_band *b, int64_t ty, int64_t channels);
/* Call it after those rows have been stored. Moves the other rows to the front. */
davy_result dv_fade_band_end_row(dv_fade_band *b, int64_t ty, dv_watch *watch);

#endif
