/* channel_attention.h - what channel_attention.c and channel_attention.cu agree on. */
#ifndef DVK_CUDA_CHANNEL_ATTENTION_H
#define DVK_CUDA_CHANNEL_ATTENTION_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_CHANNEL_PIXELS = 2048, /* of a chunk */
    DVK_CHANNEL_WARPS = 4,     /* on tensor cores */
    DVK_CHANNEL_TILE = 32,     /* pixels of a warp's step, there; of a block's, in f32 */
    DVK_CHANNEL_SIMT_THREADS = 256,
    DVK_CHANNEL_SIMT_ENTRIES = 1024, /* of a block */
    DVK_CHANNEL_HEADS = 8,           /* of a block, at most, where it has all of them */
    DVK_CHANNEL_HEADS_PIXELS = 512   /* of its chunk */
};

/* One launch sums products over chunks of a group's pixels, one makes weights of the sums, one applies them. `width` is
 * that of a head in scratch, at least `pitch`, that in the views. */
typedef struct dvk_channel_params {
    dvk_elem_view q, k, v, y;
    const float *temperature;
    float *
        partial; /* [unit][chunk][width * width of q k^T, width of q q, width of k k], a unit being a head of a group */
    float *weights; /* [unit][e][d] */
    int32_t heads, dim, pitch, width;
    int32_t groups, across;   /* of a picture; windows side by side */
    int32_t h, w;             /* pixels of a group */
    int32_t first_y, first_x; /* from a group to the one below, beside it */
    int32_t step_y, step_x;   /* from a pixel to the one below, beside it */
    int32_t chunks;
    float eps;
} dvk_channel_params;

#endif
