/* conv3xc.h - SPAN's convolution. It is trained as 1x1 -> 3x3 -> 1x1 plus a 1x1 skip. It runs as the single 3x3
 * convolution that these add up to. docs/arch/up_span.md. */
#ifndef DV_BLOCK_CONV3XC_H
#define DV_BLOCK_CONV3XC_H

#include "core/block/weights.h"

/* Folds <module>.sk and <module>.conv if the file has them, since a stored eval_conv may be stale. Otherwise uses
 * <module>.eval_conv. */
dv_value dv_conv3xc(dv_graph *g, dv_value x, const char *module, int64_t c_out);

/* "<module>.sk.weight|<module>.eval_conv.weight": the first two sizes of either are the module's channels. */
const char *dv_conv3xc_weight(char out[DV_NAMES_BYTES], const char *module);

#endif
