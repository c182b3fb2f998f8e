/* conv_8bit_mma.h - what conv_8bit_mma.c passes to conv_8bit_mma.cuh, and the blocks that it is compiled for. Values are
 * f16, products are of E4M3 or of 8-bit integers, the latter of bf16, too. A block multiplies its patch by one factor, that of kernels/int8.h,
 * from the largest value of cells: those are found first, by a launch of its own. */
#ifndef DVK_CUDA_CONV_8BIT_MMA_H
#define DVK_CUDA_CONV_8BIT_MMA_H

#include "kernels/cuda/conv/conv_common.h"

/* X(pixels, output channels, warps along pixels, warps along channels, 16-pixel and 8-channel pieces of a warp) */
#define CONV_8BIT_BLOCKS(X)                                                                                            \
    X(128, 128, 2, 2, 4, 8)                                                                                            \
    X(256, 64, 4, 1, 4, 8)                                                                                             \
    X(256, 32, 4, 1, 4, 4)                                                                                             \
    X(64, 64, 2, 2, 2, 4)

enum {
    CONV_8BIT_CHANNELS = 16, /* of a piece of 16 bytes */
    CONV_8BIT_CELL_W = 8,    /* pixels of a cell */
    CONV_8BIT_CELL_H = 4,
    CONV_8BIT_CELL_THREADS = 256 /* a warp a cell */
};

typedef struct dvk_conv_8bit_mma {
    dvk_conv_params c;
    const float *unit; /* [phase][output channel, to a multiple of 8]: what a sum counts for */
    const uint32_t
        *cells; /* [picture][row][column]: the largest value, as bits of what is stored; NULL: x is not scaled */
    int32_t unit_phase;
    int32_t cells_w, cells_h;
    int32_t block_w, block_h; /* pixels with one factor, powers of two: those of a kernel's block are within */
    int32_t reach_w, reach_h; /* what all of these read */
    int32_t reserved;
} dvk_conv_8bit_mma;

typedef struct dvk_conv_8bit_cells {
    dvk_conv_view x;
    const float *scale, *shift;
    uint32_t *cells;
    int64_t count;
    int32_t cells_w, cells_h; /* of a picture */
    int32_t h, w, channels, pro_act;
} dvk_conv_8bit_cells;

#endif
