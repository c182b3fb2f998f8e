/* conv_wgmma.h - parameters that conv_wgmma.c passes to conv_wgmma_sm90.cu. */
#ifndef DVK_CUDA_CONV_WGMMA_H
#define DVK_CUDA_CONV_WGMMA_H

#include "kernels/cuda/conv/conv_common.h"
#include "kernels/cuda/pixels/convert.h"

#ifdef __cplusplus
#define DVK_WGMMA_MAP_ALIGN alignas(64)
#else
#define DVK_WGMMA_MAP_ALIGN _Alignas(64)
#endif

enum {
    DVK_WGMMA_TILE_W = 8,
    DVK_WGMMA_TILE_H = 32,
    DVK_WGMMA_CHUNK = 64,      /* input channels at a time: 128 bytes per pixel */
    DVK_WGMMA_THREADS = 384,   /* two consumer warpgroups; the third loads and prepares */
    DVK_WGMMA_HELPERS = 96,    /* threads that apply a prologue */
    DVK_WGMMA_GATHERERS = 128, /* threads that write the operand of few input channels */
    DVK_WGMMA_PIECE_H = 8,     /* a piece: 8 x 8 output pixels of 64 channels */
    DVK_WGMMA_PIECE = 8192,    /* bytes */
    DVK_WGMMA_PIECES = 4,      /* of a tile */
    DVK_WGMMA_MAX_ENTRIES = 8,
    DVK_WGMMA_MAX_X = 8, /* slots */
    DVK_WGMMA_MAX_W = 16,
    DVK_WGMMA_TAP = 8192,      /* bytes of 64 x 64 weights */
    DVK_WGMMA_BARRIERS = 1024, /* bytes for them */
    DVK_WGMMA_FEW_PITCH = DVK_WGMMA_TILE_W + 2,
    DVK_WGMMA_FEW_PIXELS = DVK_WGMMA_FEW_PITCH * (DVK_WGMMA_TILE_H + 2),
    DVK_WGMMA_FEW_OPERAND =
        DVK_WGMMA_TILE_W * DVK_WGMMA_TILE_H * 128, /* bytes of a slot, behind which the pixels lie */
    DVK_WGMMA_FEW_SLOT = DVK_WGMMA_FEW_OPERAND + 3072
};

typedef enum dvk_wgmma_epilogue { /* store of a tile; all but ANY use tensor maps */
                                  DVK_WGMMA_LINEAR,
                                  DVK_WGMMA_STATISTICS, /* linear, and group norm statistics of the stored values */
                                  DVK_WGMMA_SLOPE,      /* ReLU, leaky ReLU, PReLU */
                                  DVK_WGMMA_SLOPE_LAST, /* after the residuals */
                                  DVK_WGMMA_SILU,
                                  DVK_WGMMA_GATE,
                                  DVK_WGMMA_CURVE,  /* GELU, SIGMOID, TANH, MISH, without residuals */
                                  DVK_WGMMA_TIMES,  /* gate 2 of SIGMOID or TANH */
                                  DVK_WGMMA_PIXELS, /* shuffled by two to whole pixels of few channels */
                                  DVK_WGMMA_ANY     /* all that op.h allows, element by element */
} dvk_wgmma_epilogue;

typedef struct dvk_wgmma_map { /* CUtensorMap */
    DVK_WGMMA_MAP_ALIGN unsigned char opaque[128];
} dvk_wgmma_map;

/* Stride 2 reads each of the four parities of rows and columns as a separate picture. */
typedef struct dvk_wgmma_part {
    int32_t taps, kw, pitch, bytes; /* of its patch */
    int32_t y, x;                   /* of the patch's first pixel, from the tile's */
} dvk_wgmma_part;

typedef struct dvk_conv_wgmma {
    dvk_wgmma_map x, y[4], res[2]; /* y: one per phase */
    dvk_wgmma_map x_odd[3];        /* x of the parts behind the first */
    dvk_conv_epi epi;
    const unsigned char *w;
    const float *scale, *shift;
    int32_t pro, pro_act; /* pro: there is a prologue */
    int32_t epilogue;
    int32_t c_in, chunks, last_k16; /* of the last chunk */
    int32_t taps, kw, phases;
    int32_t n, in_h, in_w, out_h, out_w; /* out: of one phase */
    int32_t pad_top, pad_left;
    int32_t tiles_x, tiles_y, blocks, jobs; /* blocks of output channels */
    /* the two warpgroups have two tiles; otherwise two halves of 128 channels */
    int32_t split;
    int32_t pitch, patch_pixels; /* of the patch of pixels that a tile reads */
    int32_t x_slots, x_bytes;
    int32_t lead, alternate;            /* lead of the first warpgroup in taps; both wait for each other */
    int32_t w_slots, w_bytes, resident; /* resident: a slot for every tap, loaded once */
    int32_t entries, entry_bytes;       /* ring of output pieces of a warpgroup */
    int32_t parts;                      /* per chunk: patches that are loaded one by one */
    int32_t own; /* the first residual is the middle of chunk 0's patch, which is loaded last and kept for it */
    dvk_wgmma_part part[4];
    /* sums of every channel over the pixels, a row for each block or for each of its warpgroups; or NULL */
    float *sums;
    int32_t fresh;      /* the preceding launch writes the weights */
    int32_t few;        /* channels per tap in k for few input channels (conv_wgmma_few.cuh); otherwise 0 */
    dvk_conv_view from; /* x, for threads that read it directly */
} dvk_conv_wgmma;

/* ---- convolutions of 3 x 3 with at most 64 output channels: conv_wgmma_rows ---- */

enum {
    DVK_ROWS_WIDTH = 64,       /* adjacent output pixels of a warpgroup */
    DVK_ROWS_SLOT_PIXELS = 66, /* input pixels of a slot */
    DVK_ROWS_SLOT = 8448,      /* bytes */
    DVK_ROWS_MAX_SLOTS = 16,   /* of a warpgroup */
    DVK_ROWS_MAX_GROUPS = 5,   /* consumer warpgroups */
    DVK_ROWS_BARRIERS = 2048,  /* bytes for them */
    DVK_ROWS_TABLE = 512,      /* bytes: bias and slope of every channel, or bias of its gate */
    DVK_ROWS_GATE = 8192       /* bytes: the weights of a gate of 64 channels */
};

/* For a shuffle by r to c channels of f32 (conv_wgmma_shuffle.cuh): floats per store, and pieces of them from one
 * enlarged row to the next, including unused ones. */
#define DVK_ROWS_PIECE(r, c) ((r) * (c) % 4 == 0 ? 4 : (r) * (c) % 2 == 0 ? 2 : 1)
#define DVK_ROWS_PIECE_PITCH(r, c, outputs)                                                                            \
    ((r) * (c) / DVK_ROWS_PIECE(r, c) < 4 && 4 * (r)*DVK_ROWS_PIECE(r, c) <= (outputs)                                 \
         ? 4                                                                                                           \
         : (r) * (c) / DVK_ROWS_PIECE(r, c))

typedef struct dvk_conv_rows {
    dvk_wgmma_map x, y, res; /* res: with a gate */
    dvk_conv_epi epi;
    const unsigned char *w;
    const float *scale, *shift;
    int32_t pro, pro_act;
    int32_t epilogue;
    int32_t c_in, chunks, last_k16;
    int32_t n, in_h, in_w, out_h, out_w;
    int32_t pad_top, pad_left;
    /* a job: a segment of a strip; the heights of segments differ by at most one row */
    int32_t strips, segments, jobs;
    int32_t slots, w_bytes, staging; /* bytes of a warpgroup's output buffer for a row */
    int32_t shuffled;
    const float *gate_w, *gate_bias; /* gate 3; epi.beta[0] and [1] are the factors of the result and the residual */
    int32_t gate_bytes;              /* of shared memory */
    int32_t stores;                  /* the result goes to `picture`, not to epi.y */
    dvk_convert_params picture;
    int32_t upward;    /* strips run from their last row to their first (conv_wgmma_edges) */
    uint8_t order[64]; /* the channel of each column of the products; 255: none */
} dvk_conv_rows;

#endif
