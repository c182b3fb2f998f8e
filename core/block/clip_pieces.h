/* clip_pieces.h - clips that are encoded in pieces, each as if it were a clip by itself, with blank frames ahead that
 * make its first frame the last one of a latent. Of a clip's last piece only the first latents count, so that a clip
 * begins with as much and goes on with whole pieces. Graphs are of a slice: one that continues a clip begins behind what
 * counts of a last piece. */
#ifndef DV_BLOCK_CLIP_PIECES_H
#define DV_BLOCK_CLIP_PIECES_H

#include "core/graph/network.h"

typedef struct dv_clip_pieces {
    int64_t frames; /* of a piece; 0: clips are not cut */
    int64_t times;  /* frames of a latent */
    int64_t last;   /* latents that count of a clip's last piece */
} dv_clip_pieces;

/* dv_arch.clip */
void dv_clip_pieces_clip(const dv_clip_pieces *p, dv_stage stage, dv_clip_rule *out);
/* Whether a slice's frames, or latents, are as many as the rule has; a picture by itself always is. */
davy_result dv_clip_pieces_check(const dv_clip_pieces *p, dv_stage stage, const dv_graph *g);

/* A slice's frames with the blank ones. */
dv_value dv_clip_pieces_begin(const dv_clip_pieces *p, dv_graph *g, dv_value x);
/* Around what remembers the frame before, of `each` frames for every latent: a frame of zeros goes in front of every
 * piece that begins inside the slice, and what comes of it is left out again. frames: without them. */
dv_value dv_clip_pieces_forget(const dv_clip_pieces *p, dv_graph *g, dv_value x, int64_t each);
dv_value dv_clip_pieces_recollect(const dv_clip_pieces *p, dv_graph *g, dv_value x, int64_t frames, int64_t each);
/* What is decoded, without the frames that come of blank ones. */
dv_value dv_clip_pieces_shown(const dv_clip_pieces *p, dv_graph *g, dv_value x);

#endif
