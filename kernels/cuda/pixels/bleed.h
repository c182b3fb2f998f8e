/* bleed.h - fills invisible pixels with the colour of near visible ones (core/calls/call.h), in device memory. */
#ifndef DVK_CUDA_BLEED_H
#define DVK_CUDA_BLEED_H

#include <stdint.h>

struct dvk_queue; /* cuda.h */

enum { DVK_BLEED_REACH = 8 }; /* pixels; in practice, networks do not read further */

typedef struct dvk_bleed_params {
    const unsigned char *image;
    int64_t sh, sw, sc; /* bytes */
    int32_t dtype;
    int32_t map[3], alpha; /* channels of the image */
    int32_t h, w, colours; /* 1 or 3 */
    float mul, add;        /* alpha * mul + add is above 0 for visible pixels */
    float *out;            /* [h][w][colours], numbers as stored */
} dvk_bleed_params;

/* 0 or the driver's CUresult. */
int dvk_cuda_bleed(const dvk_bleed_params *p, struct dvk_queue *q);

#endif
