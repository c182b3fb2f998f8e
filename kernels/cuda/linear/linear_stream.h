/* linear_stream.h - parameters that linear_stream.c passes to linear_stream_sm90.cu. */
#ifndef DVK_CUDA_LINEAR_STREAM_H
#define DVK_CUDA_LINEAR_STREAM_H

#include "kernels/cuda/linear/linear_few.h"

enum {
    STREAM_WARPS = 8, /* consumer warps of a block; one more warp is the producer of W */
    STREAM_STAGES = 8 /* maximum per warp */
};

/* A group is the rows that a warp multiplies at a time; a unit is a piece of a group. */
typedef struct dvk_linear_stream_params {
    dvk_linear_few_params few; /* split is unused; phase: all chunks, because all of x is in shared memory */
    int32_t groups;
    int32_t slab;        /* chunks of a row in a unit */
    int32_t slabs;       /* units of a group */
    int32_t whole, rest; /* STREAM_WARPS units as a number of groups and slabs */
    int32_t round;       /* groups whose sums are buffered and finished together; round * slabs is a multiple of 8 */
    int32_t stages;
    int32_t stage_bytes;
    int32_t ring_at, sums_at; /* in shared memory, behind x */
    int32_t sums_bytes;
    int32_t ahead; /* groups behind those in the rings whose W is prefetched into L2 before the launch waits */
} dvk_linear_stream_params;

#endif
