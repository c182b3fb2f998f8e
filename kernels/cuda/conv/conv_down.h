/* conv_down.h - parameters that conv_down.c passes to conv_down_sm90.cu. */
#ifndef DVK_CUDA_CONV_DOWN_H
#define DVK_CUDA_CONV_DOWN_H

#include "kernels/cuda/conv/conv_wgmma.h"

enum {
    DVK_DOWN_IN = 32, /* channels of x */
    DVK_DOWN_CHANNELS = 64,
    DVK_DOWN_WIDTH = DVK_WGMMA_TILE_W + 2, /* width of the input of a tile */
    DVK_DOWN_HEIGHT = DVK_WGMMA_TILE_H + 2,
    DVK_DOWN_COPY = DVK_DOWN_WIDTH * DVK_DOWN_HEIGHT * DVK_DOWN_IN * 2, /* bytes */
    DVK_DOWN_SLOT = (DVK_DOWN_COPY + 511) / 512 * 512,
    DVK_DOWN_SLOTS = 4,                                                    /* two per warpgroup */
    DVK_DOWN_TAP = 64 * DVK_DOWN_IN * 2,                                   /* bytes of its weights */
    DVK_DOWN_PARITY = DVK_WGMMA_TILE_W / 2 * (DVK_WGMMA_TILE_H / 2) * 128, /* bytes of a tile's pixels of one parity */
    DVK_DOWN_WEIGHTS = 4 * DVK_WGMMA_TAP,                                  /* bytes, of the 2 x 2 */
    DVK_DOWN_SHARED =
        2 * 4 * DVK_DOWN_PARITY + DVK_DOWN_WEIGHTS + 9 * DVK_DOWN_TAP + DVK_DOWN_SLOTS * DVK_DOWN_SLOT + 128
};

typedef struct dvk_conv_down {
    dvk_conv_wgmma of; /* the 3 x 3: the fields that tile code reads; y: one map for each parity of rows and columns */
    dvk_wgmma_map z;
    dvk_conv_epi epi; /* of z */
    const float *w, *w_down;
} dvk_conv_down;

#endif
