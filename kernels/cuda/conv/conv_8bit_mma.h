/* conv_8bit_mma.h - parameters that conv_8bit_mma.c passes to conv_8bit_mma.cuh, and the compiled block sizes. Values
 * are f16; for INT8 also bf16. Products are of E4M3 or of 8-bit integers. A block multiplies its patch by one factor,
 * that of kernels/int8.h, from the maxima of cells. A separate first launch computes the maxima. */
#ifndef DVK_CUDA_CONV_8BIT_MMA_H
#define DVK_CUDA_CONV_8BIT_MMA_H

#include "kernels/cuda/conv/conv_common.h"

/* X(pixels, output channels, warps along pixels, warps along channels, 16-pixel and 8-channel pieces per warp) */
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
    const float *unit;     /* [phase][output channel, to a multiple of 8]: value of one unit of a sum */
    const uint32_t *cells; /* [picture][row][column]: the maximum, as bits of the storage type; NULL: x is not scaled */
    int32_t unit_phase;
    int32_t cells_w, cells_h;
    int32_t block_w, block_h; /* pixels with one factor, powers of two; a kernel's block is within them */
    int32_t reach_w, reach_h; /* pixels that all of these read */
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
