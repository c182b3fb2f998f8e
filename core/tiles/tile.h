/* tile.h - cuts a picture into tiles of one size and places the fades between them, one axis at a time.
 *
 * All tiles of an axis have the same size, so one plan serves them. The last tile is shifted back to end with the picture. Between
 * two tiles lies a fade, a range of output samples that both compute. Over it the weight changes from one tile to the other as
 * sin^2; the two weights add up to 1. Near a tile's edge the network has the least context. If the network sees a finite
 * neighbourhood, a fade keeps a margin to the edges. If its numbers differ between tiles as a whole, the widest fade is best. Fades
 * never overlap.
 * An exact cut is a fade of zero width, at least `halo` samples away from the edges of both tiles. There a network with that halo
 * computes the same as for the whole picture. The results agree to the last bit if the kernels do not depend on the position;
 * Winograd kernels do, in their rounding. */
#ifndef DV_TILE_H
#define DV_TILE_H

#include "core/base/common.h"

typedef struct dv_axis_desc {
    int64_t size;     /* of the picture, input samples */
    int64_t tile;     /* of a tile, input samples; >= size: one tile */
    int64_t overlap;  /* least number of input samples that two neighbours share */
    int64_t align;    /* tile origins are multiples of it; tile must be congruent to size modulo align */
    int64_t margin;   /* input samples at both ends of the overlap that the fade leaves out */
    int64_t num, den; /* output = input * num / den */
    bool exact;       /* cut in the middle of the overlap, no fade */
} dv_axis_desc;

typedef struct dv_axis {
    int64_t tile, count;
    int64_t *origin; /* [count], input */
    int64_t *fade_first,
        *fade_end; /* [count + 1], output: fade k lies between tiles k - 1 and k; the outermost are empty */
    int64_t *cut;  /* [count + 1], input, aligned: sums over all tiles take samples [cut[k], cut[k + 1]) from tile k */
    int64_t num, den;
} dv_axis;

/* The largest tile of at most `tile` samples that the alignment allows. */
int64_t dv_tile_fit(int64_t size, int64_t tile, int64_t align);
int64_t dv_tile_count(const dv_axis_desc *d);
davy_result dv_axis_create(const dv_axis_desc *d, dv_axis *out);
void dv_axis_free(dv_axis *a);

/* Output samples to which tile k contributes: [first, end). */
static inline int64_t dv_axis_first(const dv_axis *a, int64_t k) {
    return a->fade_first[k];
}

static inline int64_t dv_axis_end(const dv_axis *a, int64_t k) {
    return a->fade_end[k + 1];
}

/* Converts a sample of the picture's output to the index in the tile's own output. */
static inline int64_t dv_axis_local(const dv_axis *a, int64_t k, int64_t sample) {
    return sample - a->origin[k] * a->num / a->den;
}

/* Weight of tile k at an output sample in that range. */
float dv_axis_weight(const dv_axis *a, int64_t k, int64_t sample);
bool dv_axis_fades(const dv_axis *a);

#endif
