/* conv_winograd.h - what conv_winograd.c passes to conv_winograd_sm90.cu: a dvk_conv_wgmma, whose x and x_odd are the four
 * rows of a line of the transformed picture, y and res the pixels of even and of odd columns; out_w counts the even ones. */
#ifndef DVK_CUDA_CONV_WINOGRAD_H
#define DVK_CUDA_CONV_WINOGRAD_H

#include "kernels/cuda/conv_wgmma.h"

enum {
    DVK_WINOGRAD_TILE_W = 8, /* pairs of pixels */
    DVK_WINOGRAD_TILE_H = 24,
    DVK_WINOGRAD_PATCH = DVK_WINOGRAD_TILE_W * (DVK_WINOGRAD_TILE_H + 2) * 128, /* bytes */
    DVK_WINOGRAD_TAP = 2 * DVK_WGMMA_TAP,                                       /* of 128 x 64 weights */
    DVK_WINOGRAD_STAGING =
        2 * DVK_WINOGRAD_TILE_H / DVK_WGMMA_PIECE_H * DVK_WGMMA_PIECE, /* bytes: a set of each warpgroup */
    DVK_WINOGRAD_CLUSTER = 2 /* blocks with a tile each, which share the weights they bring */
};

typedef struct dvk_conv_winograd {
    dvk_conv_wgmma c;
    int32_t odd_w;
} dvk_conv_winograd;

#endif
