/* derived.h - convolutions whose weights are made of stored ones: transposed convolutions as convolutions and a pixel
 * shuffle, weights with their channels rotated, small kernels laid into a large one. All exact. */
#ifndef DV_BLOCK_DERIVED_H
#define DV_BLOCK_DERIVED_H

#include "core/block/weights.h"

/* Reads all of tensor `name`, which must have this shape; *out is dv_free's. Needed by derivations. */
davy_result dv_read_tensor(const dv_tensors *t, const char *name, int32_t ndim, const int64_t *shape, float **out);

/* The numbers that a derivation's key begins with, each with a ':' behind it; returns what follows. */
const char *dv_key_numbers(const char *key, int64_t *out, int count);

/* Transposed k x k convolution, weights <name>.weight [c_in, c_out, k, k] and <name>.bias, then the activation: of s * s
 * results at a time, shuffled, without `pad` pixels at each side. */
dv_value dv_conv_transposed(dv_graph *g, dv_value x, const char *name, int64_t c_out, int32_t k, int32_t stride,
                            int32_t pad, dv_act act);

/* k x k convolution to as many channels, of a picture whose channel i is channel (i + by) % c of what the weights were
 * trained on; `outputs`: those of the result are rotated alike. */
dv_value dv_conv_rotated(dv_graph *g, dv_value x, const char *name, int32_t k, int64_t by, bool outputs);

/* A convolution that is the sum of up to four, each of them of an odd size and dilation 1 or more. */
typedef struct dv_laid {
    const char *name; /* <name>.weight and <name>.bias; NULL ends the list */
    int32_t kh, kw, dilation;
} dv_laid;
dv_value dv_conv_sum(dv_graph *g, dv_value x, const char *label, const dv_laid parts[4]);

#endif
