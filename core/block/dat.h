/* dat.h - parameters that DAT and RGT derive: batch norms folded into the convolutions before them, and the position bias that a
 * small network makes of offsets. */
#ifndef DV_BLOCK_DAT_H
#define DV_BLOCK_DAT_H

#include "core/block/swin.h"
#include "core/graph/network.h"

/* 1x1 convolution <conv> whose inputs come in padded heads (or not: dim == padded), batch norm <norm> behind it. */
dv_value dv_conv_norm(dv_graph *g, dv_value x, const char *conv, const char *norm, dv_heads in, int64_t c_out);
/* 3x3 depthwise convolution <conv> of padded heads, batch norm <norm> behind it. */
dv_value dv_depthwise_norm(dv_graph *g, dv_value x, const char *conv, const char *norm, dv_heads heads);
/* The same without a norm. */
dv_value dv_depthwise_heads(dv_graph *g, dv_value x, const char *conv, dv_heads heads);
/* The bias of a window from <name>.pos_proj, .pos1, .pos2 and .pos3: [heads, 2 h - 1, 2 w - 1]. */
dv_param dv_dynamic_bias(dv_graph *g, const char *name, int64_t heads, int64_t h, int64_t w);

/* ---- oblong windows, h x w for the first half of the heads and w x h for the others, and the gated MLP behind them ---- */

typedef struct dv_window_split {
    int64_t side[2]; /* height and width of the first half's windows; the second half's are turned */
    bool assumed;    /* nothing said what the split is */
} dv_window_split;

/* From the caller, the file, or neither. `family` is the network's name in messages: "DAT". */
davy_result dv_window_split_find(const dv_probe *probe, const char *family, dv_window_split *out);

/* Whether windows of a block are shifted: every fourth one's, counted through groups of odd and even number. */
bool dv_window_split_shifts(int64_t group, int64_t block);

/* <name>.attns.0 and .1 */
dv_value dv_window_split_attention(dv_graph *g, const dv_value qkv[3], const char *name, const dv_window_split *split,
                                   dv_heads heads, bool shifted);

/* fc2(u1 * depthwise(norm u2)), [u1, u2] = gelu(fc1 x), with <name>.fc1, .sg.norm, .sg.conv and .fc2 */
dv_value dv_gated_mlp(dv_graph *g, dv_value x, const char *name);

#endif
