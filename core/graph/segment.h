/* segment.h - where a clip's graph can be computed frame by frame: stretches of its nodes with one value alone alive
 * between them. For by_frame.c. */
#ifndef DV_GRAPH_SEGMENT_H
#define DV_GRAPH_SEGMENT_H

#include "core/graph/graph_priv.h"

typedef struct dv_segments {
    const dv_graph *graph;
    int64_t *last_use; /* of values: node */
} dv_segments;

void dv_segments_find_uses(dv_segments *s); /* sets last_use, which has room for all */
/* The last node of the segment that begins at `first`: behind it only its result is alive. */
int64_t dv_segment_end(const dv_segments *s, int64_t first);
/* Whether it is worth it, and possible. */
bool dv_segment_suits(const dv_segments *s, int64_t first, int64_t last);
/* Of a whole clip: elements that are alive at once somewhere, whether it is computed frame by frame or not. */
davy_result dv_segments_least(const dv_graph *g, uint64_t *elements);

#endif
