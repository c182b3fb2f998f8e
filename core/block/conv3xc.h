/* conv3xc.h - SPAN's convolution, trained as 1x1 -> 3x3 -> 1x1 plus a 1x1 skip and run as the one 3x3 convolution these add
 * up to. docs/arch/up_span.md. */
#ifndef DV_BLOCK_CONV3XC_H
#define DV_BLOCK_CONV3XC_H

#include "core/block/weights.h"

/* Folds where <module>.sk and <module>.conv are there (a stored eval_conv may be stale), else takes <module>.eval_conv. */
dv_value dv_conv3xc(dv_graph *g, dv_value x, const char *module, int64_t c_out);

/* "<module>.sk.weight|<module>.eval_conv.weight": either has the module's channels as its first two sizes. */
const char *dv_conv3xc_weight(char out[DV_NAMES_BYTES], const char *module);

#endif
