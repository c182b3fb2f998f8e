/* tiles.h - a clip on its way through an engine, its frames whole where memory allows it, else in tiles that fade into
 * each other as those of a picture do. A tile is a clip of its own, through a stream: where all frames of a clip are there
 * at once, tile after tile goes through the whole clip, and only one has a state; where they come one after the other, all
 * tiles of a slice are computed before the next, and each has its own.
 * One call at a time for each. */
#ifndef DV_CLIP_TILES_H
#define DV_CLIP_TILES_H

#include "core/clip/stream.h"

typedef struct dv_clip_tiles dv_clip_tiles;

typedef struct dv_clip_tiles_desc {
    dv_stage stage;
    int64_t h, w;
    int64_t frames; /* of every clip, which one run is given; 0: they come in several runs */
    bool parts;     /* whose frames lie in two places */
    int64_t slice;  /* as for dv_clip_stream_open */
    dv_tiling tiling;
} dv_clip_tiles_desc;

typedef struct dv_clip_tiles_info {
    int64_t tiles_y, tiles_x, tile_h, tile_w; /* input samples, overlap included */
    int64_t slice;
    uint64_t memory_bytes;            /* all but weights; with a GPU, in its memory */
    uint64_t flops_first, flops_step; /* as a stream's, of all tiles */
} dv_clip_tiles_info;

/* Plans only, no memory is taken. DAVY_E_BUDGET, naming need and budget, where even the smallest tile does not fit. */
davy_result dv_clip_tiles_open(dv_engine *e, const dv_clip_tiles_desc *desc, dv_clip_tiles **out);
void dv_clip_tiles_release(dv_clip_tiles *t);
void dv_clip_tiles_info_get(const dv_clip_tiles *t, dv_clip_tiles_info *out);

/* The next frames, as for dv_clip_stream_run. `tail`, NULL: none: those behind work->in, packed alike; work->out is what
 * comes of both, and work->in may hold none then. Refused memory changes nothing as long as nothing of the clip has been
 * given out. */
davy_result dv_clip_tiles_run(dv_clip_tiles *t, const dv_work *work, const dvk_image *tail);
void dv_clip_tiles_reset(dv_clip_tiles *t); /* the next frame begins a clip */
/* After refused memory: smaller tiles, where the caller has asked for none and none of the clip's results is out. */
bool dv_clip_tiles_shrink(dv_clip_tiles *t);

#endif
