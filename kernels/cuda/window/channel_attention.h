/* channel_attention.h - definitions shared by channel_attention.c and channel_attention.cu. */
#ifndef DVK_CUDA_CHANNEL_ATTENTION_H
#define DVK_CUDA_CHANNEL_ATTENTION_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_CHANNEL_PIXELS = 2048, /* of a chunk */
    DVK_CHANNEL_WARPS = 4,     /* on tensor cores */
    DVK_CHANNEL_TILE = 32,     /* pixels of a warp's step on tensor cores; of a block's step in f32 */
    DVK_CHANNEL_SIMT_THREADS = 256,
    DVK_CHANNEL_SIMT_ENTRIES = 1024, /* of a block */
    DVK_CHANNEL_HEADS = 8,           /* maximum heads of a block that has all of them */
    DVK_CHANNEL_HEADS_PIXELS = 512   /* pixels of the chunk of such a block */
};

/* Three launches: the first sums products over chunks of a group's pixels, the second computes weights from the sums,
 * the third applies them. A head has `width` channels in scratch and `pitch` in the views; width >= pitch. */
typedef struct dvk_channel_params {
    dvk_elem_view q, k, v, y;
    const float *temperature;
    float *partial; /* [unit][chunk][width * width of q k^T, width of q q, width of k k]; a unit is a head of a group */
    float *weights; /* [unit][e][d] */
    int32_t heads, dim, pitch, width;
    int32_t groups, across;   /* of a picture; windows per row */
    int32_t h, w;             /* pixels of a group */
    int32_t first_y, first_x; /* distance to the group below, and to the right */
    int32_t step_y, step_x;   /* distance to the pixel below, and to the right */
    int32_t chunks;
    float eps;
} dvk_channel_params;

#endif
