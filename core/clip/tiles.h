/* tiles.h - computes a clip with an engine. If memory allows it, frames are computed whole. Otherwise they are cut into tiles that
 * fade into each other, as those of a picture do. Each tile is computed as a clip by a stream. If all frames come in one call, each
 * tile goes through the whole clip before the next, and one state is enough. If they come in several calls, all tiles of a slice are
 * computed before the next slice, and every tile has its own state.
 * One call at a time for each object. */
#ifndef DV_CLIP_TILES_H
#define DV_CLIP_TILES_H

#include "core/clip/stream.h"

typedef struct dv_clip_tiles dv_clip_tiles;

typedef struct dv_clip_tiles_desc {
    dv_stage stage;
    int64_t h, w;
    int64_t frames; /* of every clip, if one run receives them all; 0: they come in several runs */
    bool parts;     /* the frames of a run lie in two places (tail) */
    int64_t slice;  /* as in dv_clip_stream_desc */
    dv_tiling tiling;
} dv_clip_tiles_desc;

typedef struct dv_clip_tiles_info {
    int64_t tiles_y, tiles_x, tile_h, tile_w; /* input samples, overlap included */
    int64_t slice;
    uint64_t memory_bytes;            /* all memory except weights; with a GPU, the GPU's memory */
    uint64_t flops_first, flops_step; /* as a stream's, summed over all tiles */
} dv_clip_tiles_info;

/* Plans the clip; takes no memory yet. DAVY_E_BUDGET: even the smallest tile does not fit; the message has the need and the budget. */
davy_result dv_clip_tiles_open(dv_engine *e, const dv_clip_tiles_desc *desc, dv_clip_tiles **out);
void dv_clip_tiles_release(dv_clip_tiles *t);
void dv_clip_tiles_info_get(const dv_clip_tiles *t, dv_clip_tiles_info *out);

/* Computes the next frames, as dv_clip_stream_run does. tail: frames that follow work->in in the same layout, or NULL. With a tail,
 * work->in may be empty, and work->out receives the frames of both. If memory is refused before any result of the clip was returned,
 * nothing has changed. */
davy_result dv_clip_tiles_run(dv_clip_tiles *t, const dv_work *work, const dvk_image *tail);
void dv_clip_tiles_reset(dv_clip_tiles *t); /* the next frame begins a clip */
/* Call it after memory was refused: chooses smaller tiles. False: the caller has set the tiles, or results of the clip were returned,
 * or no smaller tiles are possible. */
bool dv_clip_tiles_shrink(dv_clip_tiles *t);

#endif
