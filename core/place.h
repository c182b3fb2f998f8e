/* place.h - where every value of a graph is stored: in a buffer of its own, in a slice of a concat's buffer, in the
 * place of an operand that is not needed any more. Buffers get their offsets later (liveness.c). */
#ifndef DV_PLACE_H
#define DV_PLACE_H

#include "core/graph.h"
#include "core/liveness.h"

typedef struct dv_place {
    int32_t buffer; /* -1: none yet */
    int32_t channel;
} dv_place;

typedef struct dv_buffer {
    dvk_dtype dtype; /* DVK_F32 for small vectors too */
    dv_shape shape;
} dv_buffer;

typedef struct dv_norm_place { /* buffers of a live group norm's partial statistics and of its scale and shift */
    int32_t partial, coefficients;
} dv_norm_place;

typedef struct dv_placement {
    const dv_graph *graph;
    dv_place *places;     /* of values */
    dvk_dtype *dtypes;    /* of values */
    int32_t *producer;    /* of values: live node; -1: none */
    int64_t *last_use;    /* of values: node; n_nodes for the output; -1: never used */
    dv_norm_place *norms; /* of nodes */
    dv_buffer *buffers;
    int64_t n_buffers, cap_buffers;
    dv_block *blocks; /* of buffers, in nodes */
    int64_t cap_blocks;
} dv_placement;

/* store: how values between the convolutions are kept; the graph's input, its output and what follows the last
 * convolution stay f32, so that pictures do not band. */
davy_result dv_place_values(const dv_graph *g, dvk_dtype store, dv_placement *out);
void dv_placement_free(dv_placement *p);

/* Group norm node whose coefficients live node k applies; -1: none. */
int32_t dv_norm_used(const dv_graph *g, int64_t k);
int64_t dv_norm_chunks(const dv_graph *g, int32_t norm);
/* Floats from scale to shift in a coefficients buffer. */
int64_t dv_norm_stride(const dv_graph *g, int32_t norm);

#endif
