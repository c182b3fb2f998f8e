/* derived.h - convolutions whose weights are made of stored ones: transposed convolutions as convolutions and a pixel
 * shuffle, weights with their channels rotated, small kernels laid into a large one. All exact. */
#ifndef DV_BLOCK_DERIVED_H
#define DV_BLOCK_DERIVED_H

#include "core/block/weights.h"
#include "core/graph/graph.h"

/* Reads all of tensor `name`, which must have this shape; *out is dv_free's. Needed by derivations. */
davy_result dv_read_tensor(const dv_tensors *t, const char *name, int32_t ndim, const int64_t *shape, float **out);

typedef struct dv_transposed {
    int64_t c_out;
    int32_t k, stride;
    int32_t pad; /* pixels that are cut off at each side */
    dv_act act;  /* of the result */
} dv_transposed;

/* Transposed k x k convolution, weights <name>.weight [c_in, c_out, k, k] and <name>.bias, then the activation: of
 * stride * stride results at a time, shuffled. */
dv_value dv_conv_transposed(dv_graph *g, dv_value x, const char *name, const dv_transposed *opts);

/* k x k convolution to as many channels, of a picture whose channel i is channel (i + by) % c of what the weights were
 * trained on; `outputs`: those of the result are rotated alike. */
dv_value dv_conv_rotated(dv_graph *g, dv_value x, const char *name, int32_t k, int64_t by, bool outputs);

/* A convolution that is the sum of up to four, each of them of an odd size and dilation 1 or more. */
typedef struct dv_laid {
    const char *name; /* <name>.weight and <name>.bias; NULL ends the list */
    int32_t kh, kw, dilation;
} dv_laid;
dv_value dv_conv_sum(dv_graph *g, dv_value x, const char *label, const dv_laid parts[4]);

/* ---- channels in another order than they are stored in, or only some of them ---- */

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
