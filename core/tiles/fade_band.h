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

/* height: of a tile's output. The axes and the rows outlive it. */
davy_result dv_fade_band_create(const dv_axis *y, const dv_axis *x, int64_t frames, int64_t height, int64_t channels,
                                dv_pool *pool, dv_fade_band *out);
uint64_t dv_fade_band_bytes(const dv_fade_band *b);
void dv_fade_band_free(dv_fade_band *b);

/* Before row ty of tiles; 0 begins a picture. */
davy_result dv_fade_band_begin_row(dv_fade_band *b, int64_t ty, dv_watch *watch);
/* What came of a tile: a view of its whole output, f32, all its channels; its pictures are frames from `frame` on. */
davy_result dv_fade_band_add(dv_fade_band *b, const dvk_view *output, int64_t frame, int64_t ty, int64_t tx,
                             dv_watch *watch);
/* The rows that row ty of tiles has finished, of all frames, the first `channels` channels; from b->row on. */
dvk_view dv_fade_band_finished(const dv_fade_band *b, int64_t ty, int64_t channels);
/* They are stored: the others become the first. */
davy_result dv_fade_band_end_row(dv_fade_band *b, int64_t ty, dv_watch *watch);

#endif
