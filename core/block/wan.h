/* wan.h - the pieces that Wan's video autoencoders are made of, under the original and the diffusers names. */
#ifndef DV_BLOCK_WAN_H
#define DV_BLOCK_WAN_H

#include "core/graph/graph.h"

extern const dv_conv3d_opts dv_wan_usual; /* 3 x 3 x 3, zeros before a clip */
extern const dv_conv3d_opts dv_wan_point; /* 1 x 1 x 1 */

/* silu(norm x); names: of gamma */
dv_value dv_wan_norm_silu(dv_graph *g, dv_value x, const char *names);

/* x + conv(silu(norm(conv(silu(norm x))))), with a 1x1x1 convolution on x where the channel count changes. */
dv_value dv_wan_resnet(dv_graph *g, dv_value x, const char *names, int64_t c_out);

/* x + proj(attention(q, k, v of norm x)), one head over a frame's pixels. */
dv_value dv_wan_attention(dv_graph *g, dv_value x, const char *names);

/* The first frame of a clip passes. Two frames and the one before them become one. */
dv_value dv_wan_half_time(dv_graph *g, dv_value x, const char *names);

/* The first frame of a clip passes, and the others do not see it. Each of them becomes two. */
dv_value dv_wan_double_time(dv_graph *g, dv_value x, const char *names);

#endif
