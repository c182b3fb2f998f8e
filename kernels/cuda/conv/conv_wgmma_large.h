/* conv_wgmma_large.h - parameters that conv_wgmma_large.c passes to conv_wgmma_large_sm90.cu. */
#ifndef DVK_CUDA_CONV_WGMMA_LARGE_H
#define DVK_CUDA_CONV_WGMMA_LARGE_H

#include "kernels/cuda/conv/conv_wgmma.h"

enum {
    DVK_LARGE_WIDTH = 128, /* output pixels of a tile */
    DVK_LARGE_LINES = 8,
    DVK_LARGE_MAX_SLOTS = 16, /* per warpgroup; a slot is a row of input */
    DVK_LARGE_STAGING = 2048, /* bytes of a warpgroup */
    DVK_LARGE_BARRIERS = 1024 /* bytes for them */
};

typedef struct dvk_conv_large {
    dvk_wgmma_map x;
    dvk_conv_epi epi;
    const unsigned char *w;
    int32_t side; /* of the window */
    int32_t out_h, out_w, pad_top, pad_left;
    int32_t tiles_x, tiles_y, jobs;
    int32_t slots, slot_bytes, w_bytes;
    int32_t simple; /* only a bias and a slope, into whole groups of eight channels of the kernel's type */
} dvk_conv_large;

#endif
