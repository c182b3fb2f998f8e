/* derived.h - convolutions with weights derived from stored ones: transposed convolutions as a convolution and a
 * pixel shuffle, weights with rotated channels, small kernels summed in a large one. All are exact. */
#ifndef DV_BLOCK_DERIVED_H
#define DV_BLOCK_DERIVED_H

#include "core/block/weights.h"
#include "core/graph/graph.h"

/* Reads all of tensor `name`, which must have this shape. Derivations use it. Free *out with dv_free. */
davy_result dv_read_tensor(const dv_tensors *t, const char *name, int32_t ndim, const int64_t *shape, float **out);

typedef struct dv_transposed {
    int64_t c_out;
    int32_t k, stride;
    int32_t pad; /* pixels cropped at each side */
    dv_act act;  /* applied to the result */
} dv_transposed;

/* Transposed k x k convolution, weights <name>.weight [c_in, c_out, k, k] and <name>.bias, then the activation. It
 * computes stride * stride results per input pixel and shuffles them. */
dv_value dv_conv_transposed(dv_graph *g, dv_value x, const char *name, const dv_transposed *opts);

/* k x k convolution with as many outputs as inputs. Channel i of x is channel (i + by) % c of the picture that the
 * weights were trained on. `outputs`: the result's channels are rotated likewise. */
dv_value dv_conv_rotated(dv_graph *g, dv_value x, const char *name, int32_t k, int64_t by, bool outputs);

/* One convolution that is the sum of up to four. Each has odd sides and a dilation of 1 or more. */
typedef struct dv_laid {
    const char *name; /* <name>.weight and <name>.bias; NULL ends the list */
    int32_t kh, kw, dilation;
} dv_laid;
dv_value dv_conv_sum(dv_graph *g, dv_value x, const char *label, const dv_laid parts[4]);

/* ---- channels in another order than stored, or only some of them ---- */

/* Channel (a * count[1] + b) * count[2] + c is stored channel first + a * step[0] + b * step[1] + c * step[2]. A
 * count of 0 means 1. */
typedef struct dv_pick {
    int64_t first, count[3], step[3];
} dv_pick;

/* Tensor `name`, stored as [O, I, frames, k, k]; for one frame also [O, I, k, k]; for one pixel then [O, I].
 * Returns [o, frames * i, k, k], oldest frame first. `in` picks all of I; `out` picks all of O, or one of several
 * equal parts. */
dv_param dv_param_picked(dv_graph *g, const char *name, const dv_pick *out, const dv_pick *in, int64_t frames,
                         int64_t k);
/* stored [C]: returns [c] */
dv_param dv_param_picked_vector(dv_graph *g, const char *name, const dv_pick *pick);
/* stored [C, 1, k, k] of a depthwise convolution: returns [k * k, c] */
dv_param dv_param_picked_depthwise(dv_graph *g, const char *name, int64_t k, const dv_pick *pick);

#endif
