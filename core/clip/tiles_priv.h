/* tiles_priv.h - what tiles.c (which tiles) and tiles_run.c (their runs) share. */
#ifndef DV_CLIP_TILES_PRIV_H
#define DV_CLIP_TILES_PRIV_H

#include "core/tiles/fade_band.h"
#include "core/clip/tiles.h"
#include "core/tiles/engine_priv.h"

enum { DV_CLIP_ROWS = 16 << 20 }; /* bytes that go up to a GPU at once */

struct dv_clip_tiles {
    dv_engine *e;
    dv_clip_tiles_desc desc;
    dv_clip_rule rule;
    uint64_t limit;           /* memory there really is, once some within the budget was refused; 0: unknown */
    dv_tile_schedule layout;  /* tiles 1: the frame is whole */
    bool each;                /* every tile has a stream of its own */
    dv_axis y, x;             /* of tiles */
    dv_clip_stream **streams; /* row by row; or one for all; NULL: not opened yet */
    int64_t n_streams;
    dv_clip_stream_info info; /* of each */
    dv_fade_band band;        /* of all frames of a run, or of a slice's */
    uint64_t band_bytes;
    float *results; /* of a tile's slice */
    int64_t taken;  /* frames of the clip so far */
    bool lost;
};

static inline bool dv_clip_tiles_whole(const dv_clip_tiles *t) {
    return t->layout.tiles == 1;
}

/* Output samples of a tile's side. */
static inline int64_t dv_clip_tiles_out(const dv_axis *a) {
    return a->tile * a->num / a->den;
}

/* Results of the longest slice; bytes of a tile's. */
int64_t dv_clip_tiles_made(const dv_clip_rule *rule, int64_t slice);
uint64_t dv_clip_tiles_results(const dv_clip_tiles *t);
davy_result dv_clip_tiles_streams(dv_clip_tiles *t);              /* chooses, where nothing is chosen */
davy_result dv_clip_tiles_stream(dv_clip_tiles *t, int64_t tile); /* opens that of a tile, where it is not */
void dv_clip_tiles_give_memory(dv_clip_tiles *t);

/* tiles_cuda.c: finished rows, in the host's memory, into an image in a GPU's. */
davy_result dv_clip_tiles_store_cuda(const dv_clip_tiles *t, const dv_work *work, const dvk_image *image,
                                     const dvk_view *rows);

#endif
