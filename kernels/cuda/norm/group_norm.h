/* group_norm.h - parameters that group_norm.c passes to group_norm.cu. */
#ifndef DVK_CUDA_GROUP_NORM_H
#define DVK_CUDA_GROUP_NORM_H

#include "kernels/cuda/common/elem.h"

enum { DVK_NORM_BLOCK = 512 };

/* One block: the rows of one chunk and the channels of one part, which holds whole groups and whole vectors. */
typedef struct dvk_norm_stats_params {
    dvk_elem_view x;
    float *partial;
    int64_t h, w;
    int64_t chunk_rows, chunks;
    int32_t part;   /* channels */
    int32_t groups; /* of a picture */
    int32_t width;  /* channels of a group */
    int32_t even;   /* pixels are evenly spaced, also from row to row */
    int32_t values; /* values of a partial: 3 {count, mean, M2} or 2 {mean, M2} */
} dvk_norm_stats_params;

typedef struct dvk_norm_finish_params {
    const float *partial, *gamma, *beta;
    float *scale, *shift;
    int64_t h, w, chunks;
    int32_t groups, width, values;
    float eps;
} dvk_norm_finish_params;

#endif
