/* cuda_node.h - what a CUDA kernel computes along with a node's own op: a table beside a plan's graph, an entry for each of its
 * nodes. The passes of fuse_cuda.h fill it in, placing values and lowering read it; a plan for the CPU has none of this. */
#ifndef DV_PLAN_CUDA_NODE_H
#define DV_PLAN_CUDA_NODE_H

#include "core/graph/graph.h"

struct dv_lowering;

typedef struct dv_cuda_node {
    int64_t shuffle; /* of a convolution: its result is the pixel shuffle by this; 0: none */
    bool paired; /* of a depthwise convolution: its result is the product of the channels' two halves, one activated */
    /* Makes the step of the node and of what it has taken over, the nodes `parts`, which are dead: in[0] is what they begin
     * with. Each of such steps numbers its parts. NULL: the node's own op. */
    void (*lower)(struct dv_lowering *l);
    int32_t parts[3];
    dv_value also; /* a second result, which a part made; else DV_NO_VALUE */
    /* Of convolutions: the factors, made by a mean that is "excite", by which in[0]'s channels are scaled (by way of the
     * weights), or those of res[0]; DV_NO_VALUE: none. */
    dv_value scale, res_scale;
    dv_param gate_weight, gate_bias; /* gate 3 (kernels/op.h): of the 1x1 convolution that gates the result */
    /* The width of the pictures whose transform the node makes of in[0] after a prologue, passes on, or, a convolution, reads;
     * 0: plain ones. */
    int64_t winograd;
    int64_t band; /* also: rows of the pictures that are transformed at a time, as the convolution goes on; 0: all */
} dv_cuda_node;

#endif
