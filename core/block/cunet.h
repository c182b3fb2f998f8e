/* cunet.h - the two U-shaped networks of waifu2x's CUNet and of Real-CUGAN. Neither pads, so both return a smaller
 * picture than their input. docs/arch/up_cugan.md. */
#ifndef DV_BLOCK_CUNET_H
#define DV_BLOCK_CUNET_H

#include "core/block/weights.h"

enum { DV_CUNET_CUT = 20 }; /* pixels that the second network crops at each side */
#define DV_CUNET_SLOPE 0.1f /* slope of all its leaky ReLUs */

/* The last layer of the first network distinguishes the variants: a 3 x 3 or a transposed convolution. */
typedef struct dv_cunet_bottom {
    int32_t k, stride, pad; /* stride 1: a plain convolution */
    int64_t channels;
} dv_cunet_bottom;

dv_value dv_cunet_first(dv_graph *g, dv_value x, const dv_cunet_bottom *bottom);
dv_value dv_cunet_second(dv_graph *g, dv_value x, int64_t channels);

/* Whether the weights are such a pair of networks, with either last layer. */
bool dv_cunet_matches(const dv_tensors *t);

#endif
