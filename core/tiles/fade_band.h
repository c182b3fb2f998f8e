/* fade_band.h - where tiles are put together in the host's memory: f32 rows of the result, as wide as it is and as high as a tile,
 * of one picture or of several frames that are cut alike. Row after row of tiles is added, each weighted as its axes say;
 * rows that no later tile touches are finished, so that memory does not grow with the picture. */
#ifndef DV_BAND_H
#define DV_BAND_H

#include "core/tiles/tile.h"
#include "core/base/watch.h"
#include "kernels/op.h"

typedef struct dv_fade_band {
    const dv_axis *y, *x;
    int64_t frames, height, width, channels;
    int64_t row;      /* of the result: the first one here */
    float *rows;      /* [frames][height][width][channels]; the caller's */
    float *weights_x; /* of a tile */
    dv_pool *pool;
} dv_fade_band;

typedef struct dv_fade_band_desc {
    const dv_axis *y, *x;             /* these and the rows outlive it */
    int64_t frames, height, channels; /* height: of a tile's output */
    dv_pool *pool;
} dv_fade_band_desc;

davy_result dv_fade_band_create(const dv_fade_band_desc *desc, dv_fade_band *out);
uint64_t dv_fade_band_bytes(const dv_fade_band *b);
void dv_fade_band_free(dv_fade_band *b);

/* Before row ty of tiles; 0 begins a picture. */
davy_result dv_fade_band_begin_row(dv_fade_band *b, int64_t ty, dv_watch *watch);
typedef struct dv_fade_place { /* of a tile's output */
    int64_t frame;             /* of its first picture */
    int64_t ty, tx;
} dv_fade_place;

/* What came of a tile: a view of its whole output, f32, all its channels. */
davy_result dv_fade_band_add(dv_fade_band *b, const dvk_view *output, const dv_fade_place *at, dv_watch *watch);
/* The rows that row ty of tiles has finished, of all frames, the first `channels` channels; from b->row on. */
dvk_view dv_fade_band_finished(const dv_fade_band *b, int64_t ty, int64_t channels);
/* They are stored: the others become the first. */
davy_result dv_fade_band_end_row(dv_fade_band *b, int64_t ty, dv_watch *watch);

#endif
