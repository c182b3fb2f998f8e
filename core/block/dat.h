/* dat.h - parameters that DAT and RGT derive: batch norms folded into the convolutions before them, and the position bias that a
 * small network makes of offsets. */
#ifndef DV_BLOCK_DAT_H
#define DV_BLOCK_DAT_H

#include "core/block/swin.h"

/* 1x1 convolution <conv> whose inputs come in padded heads (or not: dim == padded), batch norm <norm> behind it. */
dv_value dv_conv_norm(dv_graph *g, dv_value x, const char *conv, const char *norm, dv_heads in, int64_t c_out);
/* 3x3 depthwise convolution <conv> of padded heads, batch norm <norm> behind it. */
dv_value dv_depthwise_norm(dv_graph *g, dv_value x, const char *conv, const char *norm, dv_heads heads);
/* The same without a norm. */
dv_value dv_depthwise_heads(dv_graph *g, dv_value x, const char *conv, dv_heads heads);
/* The bias of a window from <name>.pos_proj, .pos1, .pos2 and .pos3: [heads, 2 h - 1, 2 w - 1]. */
dv_param dv_dynamic_bias(dv_graph *g, const char *name, int64_t heads, int64_t h, int64_t w);

#endif
