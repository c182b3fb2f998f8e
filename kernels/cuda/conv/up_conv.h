/* up_conv.h - parameters that up_conv.c passes to up_conv_sm90.cu. */
#ifndef DVK_CUDA_UP_CONV_H
#define DVK_CUDA_UP_CONV_H

#include "kernels/cuda/conv/conv_wgmma.h"

enum {
    DVK_UP_CHANNELS = 64,
    DVK_UP_THREADS = 512,                /* two warpgroups multiply; two compute the sum m */
    DVK_UP_WIDTH = DVK_WGMMA_TILE_W + 2, /* width of the sum m that a tile reads */
    DVK_UP_HEIGHT = DVK_WGMMA_TILE_H + 2,
    DVK_UP_COPY = DVK_UP_WIDTH * DVK_UP_HEIGHT * 128, /* bytes */
    DVK_UP_SLOT = (DVK_UP_COPY + 1023) / 1024 * 1024,
    DVK_UP_WEIGHTS = 4 * DVK_UP_CHANNELS * DVK_UP_CHANNELS * 2, /* bytes, of the four parities */
    DVK_UP_ENTRIES = 2,
    DVK_UP_TABLE = 4 * DVK_UP_CHANNELS * 4, /* bytes: bias of every channel and parity */
    DVK_UP_SHARED =
        2 * DVK_UP_SLOT + 9 * DVK_WGMMA_TAP + DVK_UP_WEIGHTS + 2 * DVK_UP_ENTRIES * DVK_WGMMA_PIECE + DVK_UP_TABLE + 128
};

typedef struct dvk_up_conv {
    dvk_conv_wgmma of; /* the 3 x 3: the fields that tile code and stores read; res[0]: the addend */
    const float *scale, *w_up, *b_up, *w;
    float slope_up;
} dvk_up_conv;

#endif
