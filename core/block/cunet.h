/* cunet.h - the two U-shaped networks that waifu2x's CUNet and Real-CUGAN consist of. Nothing in them pads: both give a
 * smaller picture than they take. docs/arch/up_cugan.md. */
#ifndef DV_BLOCK_CUNET_H
#define DV_BLOCK_CUNET_H

#include "core/block/weights.h"

enum { DV_CUNET_CUT = 20 }; /* pixels at each side that the second takes away */
#define DV_CUNET_SLOPE 0.1f /* of all its leaky ReLUs */

/* The first's last layer is what tells the networks apart: a 3 x 3 convolution, or a transposed one. */
typedef struct dv_cunet_bottom {
    int32_t k, stride, pad; /* stride 1: a convolution */
    int64_t channels;
} dv_cunet_bottom;

dv_value dv_cunet_first(dv_graph *g, dv_value x, const dv_cunet_bottom *bottom);
dv_value dv_cunet_second(dv_graph *g, dv_value x, int64_t channels);

/* Whether these are weights of such a pair; any bottom. */
bool dv_cunet_matches(const dv_tensors *t);

#endif
