/* cuda_node.h - a table beside a plan's graph, with one entry per node. It lists the work of other nodes that a CUDA
 * kernel computes together with the node's own op. The passes of fuse_cuda.h fill it in; placement and lowering read
 * it. A plan for the CPU leaves it at its defaults. */
#ifndef DV_PLAN_CUDA_NODE_H
#define DV_PLAN_CUDA_NODE_H

#include "core/graph/graph.h"

struct dv_lowering;

typedef struct dv_cuda_node {
    int64_t shuffle; /* convolution: its result is pixel-shuffled by this factor; 0: no shuffle */
    /* depthwise convolution: its result is the product of the two halves of its channels, one half activated */
    bool paired;
    /* Emits the step of this node and of the dead nodes `parts` that it has absorbed; in[0] is the first part's
     * operand. Each such function defines the indices of its parts. NULL: only the node's own op. */
    void (*lower)(struct dv_lowering *l);
    int32_t parts[3];
    dv_value also; /* a second result, computed for one of the parts; else DV_NO_VALUE */
    /* Convolutions: factors that an "excite" node (a mean) computes. `scale` multiplies in[0]'s channels, by scaling
     * the weights; `res_scale` multiplies res[0]. DV_NO_VALUE: none. */
    dv_value scale, res_scale;
    /* gate 3 (kernels/op.h): parameters of the 1x1 convolution that gates the result */
    dv_param gate_weight, gate_bias;
    /* Width of the pictures before Winograd's input transform; 0: no transform. A node of frames transforms in[0]
     * after its prologue. A PAST passes transformed frames on. A convolution reads them. */
    int64_t winograd;
    int64_t band; /* in addition: the convolution transforms this many rows at a time; 0: all rows at once */
} dv_cuda_node;

#endif
