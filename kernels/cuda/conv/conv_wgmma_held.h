/* conv_wgmma_held.h - parameters that conv_wgmma_held.c passes to conv_wgmma_held_sm90.cu. */
#ifndef DVK_CUDA_CONV_WGMMA_HELD_H
#define DVK_CUDA_CONV_WGMMA_HELD_H

#include "kernels/cuda/conv/conv_wgmma.h"

enum {
    DVK_HELD_TAPS = 9,
    DVK_HELD_STEPS = DVK_HELD_TAPS * 4, /* products of a tile: 16 input channels of a tap each */
    DVK_HELD_HALF_H = 16,               /* rows of a tile per warpgroup */
    DVK_HELD_PIECES = 2,                /* of a warpgroup's half */
    DVK_HELD_MAX_X = 8                  /* slots */
};

typedef struct dvk_conv_held {
    dvk_conv_wgmma c;
    int32_t backwards; /* from the last tile to the first */
} dvk_conv_held;

#endif
