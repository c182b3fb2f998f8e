/* swin.h - parameters that swin.c passes to swin_mlp_sm90.cu, swin_window_sm90.cu and swin_window_warps.cu, and the
 * layout of packed weights. */
#ifndef DVK_CUDA_SWIN_H
#define DVK_CUDA_SWIN_H

#include <stddef.h>
#include <stdint.h>

/* Kernels exist for 64 and 192 channels, padded with zeros; for an MLP also for 256. */
enum {
    DVK_SWIN_TOKENS = 64,        /* per warpgroup: a window, or as many pixels */
    DVK_SWIN_WINDOW = 8,         /* its side */
    DVK_SWIN_DIM = 32,           /* channels of a head; half of them are zeros if it has 16 */
    DVK_SWIN_HIDDEN = 64,        /* hidden channels of a stage; of attention, three times a head's channels */
    DVK_SWIN_KEYS = 8192,        /* bytes of a warpgroup's keys and values */
    DVK_SWIN_WARPS = 12,         /* warps of a block with one window per warp */
    DVK_SWIN_WARP_BYTES = 14336, /* shared memory of each warp: pixels, and results of three heads */
    DVK_SWIN_TABLE = (2 * DVK_SWIN_WINDOW - 1) * (2 * DVK_SWIN_WINDOW - 1)
};

#define DVK_SWIN_THREADS(GROUPS) (128 * ((GROUPS) + 1))    /* one thread of the last 128 is the producer of weights */
#define DVK_SWIN_ROWS(C)         (DVK_SWIN_TOKENS * (C)*2) /* bytes of a warpgroup's pixels */
#define DVK_SWIN_IN(HIDDEN, C)   ((HIDDEN) * (C)*2)        /* bytes of a stage of HIDDEN rows */
#define DVK_SWIN_STAGE(C)        (256 * (C))               /* with the output matrix: the same for both ops */
#define DVK_SWIN_WINDOW_IN(C)    (3 * DVK_SWIN_DIM * (C)*2)

/* Shared memory, from a 1 KiB boundary: the ring buffer of weights; pixels of all warpgroups; their keys and values
 * (attention); f32 vectors gamma, beta and bias of the output; bias of the input [stages][rows of a stage]; the table
 * of positions (attention); places of tokens [warpgroups][64]; barriers. */
typedef struct dvk_swin_params {
    const void *x, *res; /* 16-bit; res may be NULL */
    void *y;
    int64_t x_pitch, res_pitch, y_pitch; /* elements of a pixel */
    const float *gamma, *beta, *b_in, *b_out, *table;
    const unsigned char *w_in, *w_out; /* [stage] */
    int32_t pixels, tiles;             /* tiles of 64 */
    int32_t c, stages, inner;          /* inner: hidden channels, or channels of all heads */
    int32_t slots;                     /* of the ring */
    int32_t dim;                       /* of a head */
    float eps;
    int32_t h, w, down, across; /* windows of a picture */
    int32_t shift_y, shift_x, grid;
    float scale_log2;
    int32_t reserved;
} dvk_swin_params;

/* Weights by stage: rows of 128 bytes, swizzled, in chunks of 64 columns. Those of the output of attention have rows of
 * 64 bytes. */
typedef enum dvk_swin_matrix {
    DVK_SWIN_MATRIX_MLP_IN,
    DVK_SWIN_MATRIX_MLP_OUT,
    DVK_SWIN_MATRIX_WINDOW_IN,
    DVK_SWIN_MATRIX_WINDOW_OUT,
    DVK_SWIN_MATRIX_WINDOW16_IN, /* heads of 16 channels */
    DVK_SWIN_MATRIX_WINDOW16_OUT,
    DVK_SWIN_MATRICES
} dvk_swin_matrix;

#endif
