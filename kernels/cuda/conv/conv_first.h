/* conv_first.h - parameters that conv_first.c passes to conv_first.cu. */
#ifndef DVK_CUDA_CONV_FIRST_H
#define DVK_CUDA_CONV_FIRST_H

#include "kernels/cuda/conv/conv_common.h"

enum {
    DVK_FIRST_WIDTH = 64, /* output pixels of a tile */
    DVK_FIRST_HEIGHT = 8,
    DVK_FIRST_THREADS = 256, /* a warp computes one row of the tile */
    DVK_FIRST_PATCH_W = DVK_FIRST_WIDTH + 2,
    DVK_FIRST_PATCH_H = DVK_FIRST_HEIGHT + 2,
    DVK_FIRST_PITCH = 72 /* pixels; a multiple of 16 plus 8, so that the next row is in other banks */
};

typedef enum dvk_first_act { DVK_FIRST_NONE, DVK_FIRST_SLOPE, DVK_FIRST_SILU } dvk_first_act;

typedef struct dvk_conv_first {
    dvk_conv_view x, y;
    const void
        *w; /* [2: four taps][c_out / 8][lane][2] of two values in the order of mma.sync, then [c_out / 8][lane] */
    const float *scale, *shift;
    const float *bias, *slopes;
    float slope;
    int32_t act; /* dvk_first_act */
    int32_t c_in;
    int32_t n, in_h, in_w, out_h, out_w;
    int32_t pad_top, pad_left;
    int32_t tiles_x, tiles_y, tiles;
} dvk_conv_first;

#endif
