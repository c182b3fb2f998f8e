/* pool.h - parameters that pool.c passes to pool.cu. */
#ifndef DVK_CUDA_POOL_H
#define DVK_CUDA_POOL_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_MEAN_PIXELS = 512,  /* minimum pixels of a chunk */
    DVK_MEAN_CHUNKS = 1024, /* maximum chunks of a picture */
    DVK_MEAN_BLOCK = 256,
    DVK_MEAN_FINISH_C = 32 /* channels of a block that adds up chunks */
};

typedef struct dvk_mean_params {
    dvk_elem_view x, y;
    float *partial; /* [n][chunks][c] */
    int64_t pixels, per_chunk;
    int32_t chunks;
    int32_t w; /* 0: pixels are evenly spaced, also from row to row */
    int32_t c, octets;
} dvk_mean_params;

typedef struct dvk_pool_params {
    dvk_elem_view x, y;
    int32_t rows, h, w; /* of y; rows: of all pictures */
    int32_t xh, xw;
    int32_t c, chunks;
    int32_t k, stride;
} dvk_pool_params;

#endif
