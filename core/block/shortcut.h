/* shortcut.h - shortcuts past a change of size that have no weights: Wan 2.2's. */
#ifndef DV_BLOCK_SHORTCUT_H
#define DV_BLOCK_SHORTCUT_H

#include "core/graph/graph.h"

/* Cells of `times` (1 or 2) frames and space x space pixels become one, with the means of consecutive ones of their values
 * as channels (in the order channel, frame, row, column); a frame of zeros completes a clip's first cell. */
dv_value dv_mean_shortcut(dv_graph *g, dv_value x, int64_t c_out, int64_t times, int64_t space);

/* A frame of zeros, as large as x's. */
dv_value dv_blank_frame(dv_graph *g, dv_value x);

/* The inverse: every channel as often as it takes to fill such a cell of c_out channels. A clip's first frame becomes one. */
dv_value dv_copy_shortcut(dv_graph *g, dv_value x, int64_t c_out, int64_t times, int64_t space);

#endif
