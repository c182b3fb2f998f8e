/* dat.h - parameters that DAT and RGT derive. They fold batch norms into the convolutions before them, and compute
 * the position bias from offsets with a small network. */
#ifndef DV_BLOCK_DAT_H
#define DV_BLOCK_DAT_H

#include "core/block/swin.h"
#include "core/graph/network.h"

/* 1x1 convolution <conv> with batch norm <norm> behind it. Its input channels are padded heads (dim == padded: not
 * padded). */
dv_value dv_conv_norm(dv_graph *g, dv_value x, const char *conv, const char *norm, dv_heads in, int64_t c_out);
/* 3x3 depthwise convolution <conv> of padded heads, with batch norm <norm> behind it. */
dv_value dv_depthwise_norm(dv_graph *g, dv_value x, const char *conv, const char *norm, dv_heads heads);
/* The same without a norm. */
dv_value dv_depthwise_heads(dv_graph *g, dv_value x, const char *conv, dv_heads heads);
/* The bias of a window from <name>.pos_proj, .pos1, .pos2 and .pos3: [heads, 2 h - 1, 2 w - 1]. */
dv_param dv_dynamic_bias(dv_graph *g, const char *name, int64_t heads, int64_t h, int64_t w);

/* ---- oblong windows and the gated MLP ----
 * Windows are h x w for the first half of the heads and w x h for the others. */

typedef struct dv_window_split {
    int64_t side[2]; /* height and width of the first half's windows; swapped for the second half */
    bool assumed;    /* neither the caller nor the file gives the split */
} dv_window_split;

/* Takes the split from the caller, else from the file, else the default. `family` is the network's name in
 * messages: "DAT". */
davy_result dv_window_split_find(const dv_probe *probe, const char *family, dv_window_split *out);

/* Whether a block's windows are shifted. Every fourth block's are; the first of them depends on the parity of the
 * group. */
bool dv_window_split_shifts(int64_t group, int64_t block);

/* <name>.attns.0 and .1 */
dv_value dv_window_split_attention(dv_graph *g, const dv_value qkv[3], const char *name, const dv_window_split *split,
                                   dv_heads heads, bool shifted);

/* fc2(u1 * depthwise(norm u2)), [u1, u2] = gelu(fc1 x), with <name>.fc1, .sg.norm, .sg.conv and .fc2 */
dv_value dv_gated_mlp(dv_graph *g, dv_value x, const char *name);

#endif
