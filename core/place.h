/* place.h - where every value of a graph is stored: in a buffer of its own, in a slice of a concat's buffer, in the
 * place of an operand that is not needed any more. Buffers get their offsets later (liveness.c). */
#ifndef DV_PLACE_H
#define DV_PLACE_H

#include "core/graph.h"
#include "core/liveness.h"

typedef struct dv_place {
    int32_t buffer; /* -1: none yet */
    int32_t channel;
    int32_t y, x;   /* of its first pixel */
    int64_t frame;  /* its first picture, among the buffer's frames */
    int64_t stride; /* of these, from one picture to the next */
} dv_place;

typedef struct dv_buffer {
    dvk_dtype dtype; /* DVK_F32 for small vectors too */
    dv_shape shape;
    int64_t pixel; /* elements from one pixel to the next, >= shape.c */
    int64_t frame; /* from one picture to the next; of a clip less than a pixel, where its frames lie side by side */
} dv_buffer;

typedef struct dv_norm_place { /* buffers of a live group norm's partial statistics and of its scale and shift */
    int32_t partial, coefficients;
    int32_t conv;   /* node whose kernel writes the statistics along with the result; -1: a step of their own */
    int64_t chunks; /* CUDA: of a picture */
} dv_norm_place;

typedef struct dv_storage { /* how values between the convolutions are kept */
    dvk_dtype dtype;
    int64_t channels; /* a pixel of 16-bit values takes a multiple of so many */
    uint64_t align;   /* of buffers: a power of two */
} dv_storage;

typedef struct dv_placement {
    const dv_graph *graph;
    dv_storage storage;
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

/* The graph's input, its output and what follows the last convolution stay f32, so that pictures do not band. */
davy_result dv_place_values(const dv_graph *g, const dv_storage *storage, dv_placement *out);
/* Then, with `conv` and `chunks` of the norms as they shall be: buffers for the group norms. */
davy_result dv_place_norms(dv_placement *p);
void dv_placement_free(dv_placement *p);

/* Group norm node whose coefficients live node k applies; -1: none. */
int32_t dv_norm_used(const dv_graph *g, int64_t k);
/* Floats from scale to shift in a coefficients buffer. */
int64_t dv_norm_stride(const dv_graph *g, int32_t norm);

#endif
