/* conv_winograd.h - parameters that conv_winograd.c passes to conv_winograd_sm90.cu. */
#ifndef DVK_CUDA_CONV_WINOGRAD_H
#define DVK_CUDA_CONV_WINOGRAD_H

#include "kernels/cuda/conv/conv_wgmma.h"

enum {
    DVK_WINOGRAD_TILE_W = 8, /* quads of pixels */
    DVK_WINOGRAD_TILE_H = 12,
    DVK_WINOGRAD_PATCH = DVK_WINOGRAD_TILE_W * (DVK_WINOGRAD_TILE_H + 2) * 128, /* bytes */
    DVK_WINOGRAD_TAP = 2 * DVK_WGMMA_TAP,                                       /* of 128 x 64 weights */
    DVK_WINOGRAD_PIECE_H = 4,                                                   /* 8 x 4 pixels of 64 channels */
    DVK_WINOGRAD_PIECE = DVK_WINOGRAD_TILE_W * DVK_WINOGRAD_PIECE_H * 128,
    DVK_WINOGRAD_STAGING = 2 * DVK_WINOGRAD_TILE_H / DVK_WINOGRAD_PIECE_H *
                           DVK_WINOGRAD_PIECE, /* bytes: a set of each warpgroup, or its residuals */
    DVK_WINOGRAD_PAIR = 2                      /* blocks that share two tiles and 128 output channels */
};

typedef struct dvk_conv_winograd {
    dvk_conv_wgmma c; /* y: the pixels of every fourth column from the first, second .. on; out_w counts quads */
    dvk_wgmma_map line[DVK_WINOGRAD_LINES]; /* of the transformed picture */
    dvk_wgmma_map res[DVK_WINOGRAD_PIXELS]; /* as c.y */
    int32_t width;                          /* of the picture */
    int32_t first, tiles;                   /* rows of tiles of each picture */
    int32_t from;                           /* the picture's first row that is available transformed */
} dvk_conv_winograd;

#endif
