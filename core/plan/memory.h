/* memory.h - where every value of a graph is stored: in a buffer of its own, in a slice of a concat's buffer, in the
 * place of an operand that no later step reads. Buffers get their offsets later (arena.c). */
#ifndef DV_PLAN_MEMORY_H
#define DV_PLAN_MEMORY_H

#include "core/graph/graph.h"
#include "core/plan/arena.h"
#include "core/plan/cuda_node.h"

typedef struct dv_place {
    int32_t buffer; /* -1: none yet */
    int32_t channel;
    int32_t y, x;   /* of its first pixel */
    int64_t frame;  /* its first picture, among the buffer's frames */
    int64_t stride; /* of these, from one picture to the next */
} dv_place;

typedef struct dv_plan_buffer {
    dvk_dtype dtype; /* DVK_F32 for small vectors too */
    dv_shape shape;
    int64_t pixel; /* elements from one pixel to the next, >= shape.c */
    int64_t frame; /* from one picture to the next; of a clip less than a pixel, where its frames lie side by side */
    bool ring;     /* of frames side by side, each a value of its own */
} dv_plan_buffer;

typedef struct dv_frame_ring { /* of a clip's slice: frames that it is given by the one before and leaves to the next */
    int32_t number;            /* dv_time.ring */
    int32_t buffer;
    int64_t begins, ends; /* nodes: its first past, its last window; where all windows are made at once the same, or, in
                             bands, the convolution */
    dv_shape frame;       /* of one; `keep` of them */
    int64_t keep;
    uint64_t kept, bytes; /* in the resident state, or in the offloaded */
    bool offloaded;       /* then these are of use: */
    int64_t from, by;     /* nodes: it may be fetched from this one on, and has been written back before that one */
    int32_t in, out; /* buffers it is fetched to and written back from: its own; plain frames, of transformed ones */
} dv_frame_ring;

/* Buffers of a live group norm's partial statistics and of its scale and shift; of a mean that is "excite" (fuse_se.c),
 * of its rows of sums and of the weights that it scales; of a mean or norm that is given (given_statistics.c), the mean or statistics instead. */
typedef struct dv_norm_place {
    int32_t partial, coefficients;
    int32_t conv;   /* node whose kernel writes the statistics along with the result; -1: a step of their own */
    int64_t chunks; /* CUDA: of a picture */
    int32_t writes; /* of a convolution: nodes whose statistics its kernel writes */
} dv_norm_place;

typedef struct dv_storage { /* how values between the convolutions are kept */
    dvk_dtype dtype;
    int64_t channels; /* a pixel of 16-bit values takes a multiple of so many */
    uint64_t align;   /* of buffers: a power of two */
    const struct dv_exec_policy *policy; /* plan.h; the caller's: offload_state and what belongs to it */
    double tflops, gbs;                  /* what steps are guessed to take */
} dv_storage;

typedef struct dv_memory_plan {
    const dv_graph *graph;
    const dv_cuda_node *cuda; /* of nodes */
    dv_storage storage;
    dv_place *places;     /* of values */
    dvk_dtype *dtypes;    /* of values */
    int32_t *producer;    /* of values: live node; -1: none */
    int64_t *last_use;    /* of values: node; n_nodes for the output; -1: never used */
    bool *by_rows;        /* of values: a node that makes or reads it needs its pixels one behind the other */
    dv_norm_place *norms; /* of nodes */
    dv_plan_buffer *buffers;
    int64_t n_buffers, cap_buffers;
    dv_block *blocks; /* of buffers, in nodes */
    int64_t cap_blocks;
    dv_frame_ring *rings; /* in the order of their numbers */
    int64_t n_rings, cap_rings;
    uint64_t state_bytes, offloaded_bytes; /* of the rings */
} dv_memory_plan;

/* The graph's input, its output and what follows the last convolution stay f32, so that pictures do not band. */
davy_result dv_memory_plan_create(const dv_graph *g, const dv_cuda_node *cuda, const dv_storage *storage,
                                  dv_memory_plan *out);
/* Then, once `conv` and `chunks` of the norms are set: buffers for the group norms. */
davy_result dv_memory_plan_norms(dv_memory_plan *p);
typedef struct dv_buffer_spec {
    dvk_dtype dtype;
    dv_shape shape;
    int64_t room;        /* channels that a pixel has room for; 0: the shape's */
    int64_t first, last; /* nodes: it is alive from one to the other */
} dv_buffer_spec;
/* Another buffer of pixels; -1: out of memory. */
int32_t dv_memory_plan_add(dv_memory_plan *p, const dv_buffer_spec *spec);
void dv_memory_plan_free(dv_memory_plan *p);

static inline const dv_cuda_node *dv_cuda_of(const dv_memory_plan *p, const dv_node *node) {
    return &p->cuda[node - p->graph->nodes];
}

/* Of a convolution whose frames are transformed in bands as it goes on, the node of frames; NULL: of none. */
static inline const dv_node *dv_frames_of_bands(const dv_memory_plan *p, const dv_node *node) {
    const bool bands = node->op == DV_OP_CONV2D && dv_cuda_of(p, node)->band > 0;
    return bands ? &p->graph->nodes[p->producer[node->in[0]]] : NULL;
}

/* Group norm node whose coefficients live node k applies; -1: none. */
int32_t dv_norm_used(const dv_graph *g, int64_t k);

/* Of a past or a window: where in its ring, in frames from the first pixel's first on, the oldest frame lies. */
static inline int64_t dv_frame_ring_base(const dv_node *node) {
    return node->first;
}

/* Floats from scale to shift in a coefficients buffer. */
static inline int64_t dv_norm_stride(const dv_graph *g, int32_t norm) {
    const dv_shape s = dv_shape_of(g, g->nodes[norm].in[0]);
    return dv_div_up(s.n * s.c, 16) * 16; /* keeps shift as aligned as scale */
}

#endif
