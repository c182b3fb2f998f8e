/* conv_fp8_mma.h - what conv_fp8_mma.c passes to conv_fp8_mma.cu, and the blocks that it is compiled for. */
#ifndef DVK_CUDA_CONV_FP8_MMA_H
#define DVK_CUDA_CONV_FP8_MMA_H

#include "kernels/cuda/conv_common.h"

/* X(pixels, output channels, warps along pixels, warps along channels, 16-pixel and 8-channel pieces of a warp) */
#define CONV_FP8_BLOCKS(X)                                                                                             \
    X(128, 128, 2, 2, 4, 8)                                                                                            \
    X(256, 64, 4, 1, 4, 8)                                                                                             \
    X(256, 32, 4, 1, 4, 4)                                                                                             \
    X(64, 64, 2, 2, 2, 4)

enum {
    CONV_FP8_CHANNELS = 16, /* of a piece of 16 bytes */
    CONV_FP8_ROOM = 4,      /* the largest value looked at becomes 2^4 up to 2^5; E4M3 ends at 448 */
    CONV_FP8_ROW_STEP = 4,  /* every how manieth row is looked at */
    CONV_FP8_RANGE_THREADS = 256
};

typedef struct dvk_conv_fp8_mma {
    dvk_conv_params c;
    const float *unit;     /* [phase][output channel, to a multiple of 8]: what a sum counts for */
    const uint32_t *range; /* the largest value of x, as bits of f16; NULL: x is not scaled */
    int32_t unit_phase, reserved;
} dvk_conv_fp8_mma;

typedef struct dvk_conv_fp8_range {
    dvk_conv_view x;
    uint32_t *range;
    int32_t rows, w, octets; /* rows looked at of a picture, pixels of a row, eights of channels */
    int32_t reserved;
} dvk_conv_fp8_range;

#endif
