/* memory.h - assigns every value of a graph to a buffer of its own, to a slice of a concat's buffer, or to the place
 * of an operand that no later step reads. Buffers get their offsets later (arena.c). */
#ifndef DV_PLAN_MEMORY_H
#define DV_PLAN_MEMORY_H

#include "core/graph/graph.h"
#include "core/plan/arena.h"
#include "core/plan/cuda_node.h"

typedef struct dv_place {
    int32_t buffer; /* -1: not placed yet */
    int32_t channel;
    int32_t y, x;   /* of its first pixel */
    int64_t frame;  /* index of its first picture among the buffer's frames */
    int64_t stride; /* distance between its pictures, in frames of the buffer */
} dv_place;

typedef struct dv_plan_buffer {
    dvk_dtype dtype; /* DVK_F32 for small vectors, too */
    dv_shape shape;
    int64_t pixel; /* elements between pixels, >= shape.c */
    int64_t frame; /* elements between pictures; less than `pixel` if a clip's frames are side by side */
    bool ring;     /* holds frames side by side, each a value of its own */
} dv_plan_buffer;

typedef struct dv_frame_ring { /* frames that a clip's slice gets from the previous slice and leaves to the next */
    int32_t number;            /* dv_time.ring */
    int32_t buffer;
    /* nodes: its first PAST and its last window. For FRAMES both are the same node; with bands `ends` is the
     * convolution */
    int64_t begins, ends;
    dv_shape frame; /* shape of one of the `keep` frames */
    int64_t keep;
    uint64_t kept, bytes; /* offset and size in the resident or the offloaded state */
    bool offloaded;       /* the members below are for offloaded rings: */
    int64_t from, by;     /* nodes: the fetch may begin before `from`; the write-back is complete before `by` */
    /* buffers to which it is fetched, from which it is written back: its own, or plain frames of a transformed one */
    int32_t in, out;
} dv_frame_ring;

/* Buffers that belong to a node:
 *   live group norm    partial statistics; scale and shift
 *   "excite" mean      rows of sums; the weights that it scales (fuse_se.c)
 *   given mean, norm   the mean or statistics (given_statistics.c) */
typedef struct dv_norm_place {
    int32_t partial, coefficients;
    int32_t conv;   /* node whose kernel writes the statistics along with its result; -1: a separate step */
    int64_t chunks; /* CUDA: chunks per picture */
    int32_t writes; /* convolution: number of nodes whose statistics its kernel writes */
} dv_norm_place;

typedef struct dv_storage { /* how values between convolutions are stored */
    dvk_dtype dtype;
    int64_t channels;                    /* pixels of 16-bit values are padded to a multiple of this */
    uint64_t align;                      /* alignment of buffers in bytes, a power of two */
    const struct dv_exec_policy *policy; /* plan.h; owned by the caller: offload_state and related members */
    double tflops, gbs;                  /* device speed, for estimates of step times */
} dv_storage;

typedef struct dv_memory_plan {
    const dv_graph *graph;
    const dv_cuda_node *cuda; /* per node */
    dv_storage storage;
    dv_place *places;     /* per value */
    dvk_dtype *dtypes;    /* per value */
    int32_t *producer;    /* per value: live node; -1: none */
    int64_t *last_use;    /* per value: node; n_nodes for the output; -1: never used */
    bool *by_rows;        /* per value: its producer or a reader needs contiguous pixels */
    dv_norm_place *norms; /* per node */
    dv_plan_buffer *buffers;
    int64_t n_buffers, cap_buffers;
    dv_block *blocks; /* per buffer; lifetimes in nodes */
    int64_t cap_blocks;
    dv_frame_ring *rings; /* by number */
    int64_t n_rings, cap_rings;
    uint64_t state_bytes, offloaded_bytes; /* sizes of the rings' state */
} dv_memory_plan;

/* The graph's input, its output and everything behind the last convolution stay f32, which prevents banding. */
davy_result dv_memory_plan_create(const dv_graph *g, const dv_cuda_node *cuda, const dv_storage *storage,
                                  dv_memory_plan *out);
/* Call it after `conv` and `chunks` of the norms are set: adds buffers for the group norms. */
davy_result dv_memory_plan_norms(dv_memory_plan *p);
typedef struct dv_buffer_spec {
    dvk_dtype dtype;
    dv_shape shape;
    int64_t room;        /* channels per pixel; 0: as the shape */
    int64_t first, last; /* nodes: its lifetime, inclusive */
} dv_buffer_spec;
/* Adds a buffer of pixels; -1: out of memory. */
int32_t dv_memory_plan_add(dv_memory_plan *p, const dv_buffer_spec *spec);
void dv_memory_plan_free(dv_memory_plan *p);

static inline const dv_cuda_node *dv_cuda_of(const dv_memory_plan *p, const dv_node *node) {
    return &p->cuda[node - p->graph->nodes];
}

/* For a convolution that transforms its frames in bands: the node of frames. NULL: no bands. */
static inline const dv_node *dv_frames_of_bands(const dv_memory_plan *p, const dv_node *node) {
    const bool bands = node->op == DV_OP_CONV2D && dv_cuda_of(p, node)->band > 0;
    return bands ? &p->graph->nodes[p->producer[node->in[0]]] : NULL;
}

/* The group norm node whose coefficients live node k applies; -1: none. */
int32_t dv_norm_used(const dv_graph *g, int64_t k);

/* For a PAST or a window: the slot of its oldest frame in the ring, counted from the first pixel's first slot. */
static inline int64_t dv_frame_ring_base(const dv_node *node) {
    return node->first;
}

/* Floats from scale to shift in a coefficients buffer. */
static inline int64_t dv_norm_stride(const dv_graph *g, int32_t norm) {
    const dv_shape s = dv_shape_of(g, g->nodes[norm].in[0]);
    return dv_div_up(s.n * s.c, 16) * 16; /* gives shift the same alignment as scale */
}

#endif
