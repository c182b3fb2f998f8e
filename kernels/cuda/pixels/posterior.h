/* posterior.h - draws a sample of an encoder's posterior on the device, without a wait of the host for the moments. */
#ifndef DVK_CUDA_POSTERIOR_H
#define DVK_CUDA_POSTERIOR_H

#include <stdint.h>

struct dvk_queue; /* cuda.h */

typedef struct dvk_posterior_params {
    float *moments;        /* [pixels][2z], mean and log-variance; the means become the sample */
    int64_t pixels;        /* of the picture */
    uint64_t seed, stream; /* of dvk_normal; the index is the position, channel by channel */
    int32_t z;
    float lo, hi;   /* clamp of log-variances */
    float mul, add; /* the output is sample * mul + add */
} dvk_posterior_params;

/* 0 or the driver's CUresult. */
int dvk_cuda_posterior_draw(const dvk_posterior_params *p, struct dvk_queue *q);

#endif
