/* tile.h - cutting a picture into tiles of one size and putting the results together, one axis at a time.
 *
 * All tiles of an axis have the same size, so that one plan serves them; the last is shifted back to end with the
 * picture. Between two tiles lies a fade, a range of output samples that both give: over it the weight goes from the
 * one to the other as sin^2, and the two weights add up to 1. Next to a tile's edge a network has seen least: where it sees
 * a finite neighbourhood, a fade leaves a margin to the edges; where its numbers differ from tile to tile as a whole, the
 * widest fade is the best. Fades never overlap. An exact cut is a fade of no width, at least `halo` samples away from the
 * edge of both tiles: there a network that sees no further than that has computed what it computes for the whole picture
 * (to the last bit where its kernels do not depend on the position; Winograd's do, in the rounding). */
#ifndef DV_TILE_H
#define DV_TILE_H

#include "core/base/common.h"

typedef struct dv_axis_desc {
    int64_t size;     /* of the picture, input samples */
    int64_t tile;     /* >= size: one tile */
    int64_t overlap;  /* least number of input samples two neighbours share */
    int64_t align;    /* tile origins are multiples of it; tile must be congruent to size modulo align */
    int64_t margin;   /* input samples of the overlap, at either end, that a fade keeps out of */
    int64_t num, den; /* output = input * num / den */
    bool exact;       /* cut in the middle of the overlap, no fade */
} dv_axis_desc;

typedef struct dv_axis {
    int64_t tile, count;
    int64_t *origin; /* [count], input */
    int64_t *fade_first,
        *fade_end; /* [count + 1], output: fade k lies between tiles k - 1 and k; the outermost are empty */
    int64_t *cut;  /* [count + 1], input: what is summed over all tiles is of tile k from cut k to cut k + 1; aligned */
    int64_t num, den;
} dv_axis;

/* The largest tile of at most `tile` samples that the alignment allows. */
int64_t dv_tile_fit(int64_t size, int64_t tile, int64_t align);
int64_t dv_tile_count(const dv_axis_desc *d);
davy_result dv_axis_create(const dv_axis_desc *d, dv_axis *out);
void dv_axis_free(dv_axis *a);

/* Output samples that tile k has a part in: [first, end). */
static inline int64_t dv_axis_first(const dv_axis *a, int64_t k) {
    return a->fade_first[k];
}

static inline int64_t dv_axis_end(const dv_axis *a, int64_t k) {
    return a->fade_end[k + 1];
}

/* Where in the tile's own output a sample of the picture's output is. */
static inline int64_t dv_axis_local(const dv_axis *a, int64_t k, int64_t sample) {
    return sample - a->origin[k] * a->num / a->den;
}

/* Weight of tile k at an output sample in that range. */
float dv_axis_weight(const dv_axis *a, int64_t k, int64_t sample);
bool dv_axis_fades(const dv_axis *a);

#endif
