/* linear_stream.h - what linear_stream.c passes to linear_stream_sm90.cu. */
#ifndef DVK_CUDA_LINEAR_STREAM_H
#define DVK_CUDA_LINEAR_STREAM_H

#include "kernels/cuda/linear/linear_few.h"

enum {
    STREAM_WARPS = 8, /* of a block that multiply; one more asks for W */
    STREAM_STAGES = 8 /* of a warp at most */
};

/* A group is the rows that a warp multiplies at a time, a unit a piece of a group. */
typedef struct dvk_linear_stream_params {
    dvk_linear_few_params
        few; /* its split is not used; phase: all chunks, so that x lies in shared memory as a whole */
    int32_t groups;
    int32_t slab;        /* chunks of a row in a unit */
    int32_t slabs;       /* units of a group */
    int32_t whole, rest; /* STREAM_WARPS units are so many groups and slabs */
    int32_t round; /* groups whose sums are kept until they are finished together; round * slabs: a multiple of 8 */
    int32_t stages;
    int32_t stage_bytes;
    int32_t ring_at, sums_at; /* in shared memory, behind x */
    int32_t sums_bytes;
    int32_t ahead; /* groups behind those in the rings whose W is brought into the cache before the launch waits */
} dvk_linear_stream_params;

#endif
