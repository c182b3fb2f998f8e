/* pick.h - weights whose channels are wanted in another order than they are stored in, or only some of them. */
#ifndef DV_BLOCK_PICK_H
#define DV_BLOCK_PICK_H

#include "core/graph/graph.h"

/* Channel (a * count[1] + b) * count[2] + c is the stored channel first + a * step[0] + b * step[1] + c * step[2]; a count
 * of 0 is 1. */
typedef struct dv_pick {
    int64_t first, count[3], step[3];
} dv_pick;

/* Tensor `name`, stored as [O, I, frames, k, k], of one frame also [O, I, k, k], of one pixel then [O, I]:
 * [o, frames * i, k, k], oldest frame first. All of I, all of O or one of equal parts of it. */
dv_param dv_param_picked(dv_graph *g, const char *name, const dv_pick *out, const dv_pick *in, int64_t frames,
                         int64_t k);
/* [C]: [c] */
dv_param dv_param_picked_vector(dv_graph *g, const char *name, const dv_pick *pick);
/* [C, 1, k, k], of a convolution of each channel with itself: [k * k, c] */
dv_param dv_param_picked_depthwise(dv_graph *g, const char *name, int64_t k, const dv_pick *pick);

#endif
