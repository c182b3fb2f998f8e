/* conv_common.h - definitions shared by the host and device sides of the universal convolutions (conv_mma, conv_f32).
 *
 * Both are an implicit GEMM over blocks of output pixels times output channels. The patch is the input of a block of
 * pixels, halo included. It is loaded to shared memory once per chunk of input channels and used by all taps. A pixel
 * of the patch is `cpp` pieces of 16 bytes. The pieces are swizzled, so that 8 neighbouring pixels have no bank
 * conflicts. */
#ifndef DVK_CUDA_CONV_COMMON_H
#define DVK_CUDA_CONV_COMMON_H

#include <stdint.h>

typedef struct dvk_conv_view { /* a view for kernels; strides in elements */
    void *data;
    int64_t sn, sh, sw;
    int32_t dtype;
    int32_t vec; /* every aligned group of 8 channels is 16-byte aligned */
} dvk_conv_view;

typedef struct dvk_conv_div { /* a divisor, and 2^32 over it, rounded up; 0 for 1 */
    uint32_t by, inverse;
} dvk_conv_div;

typedef struct dvk_conv_epi {
    dvk_conv_view y, res[2];
    const float *bias, *slopes;
    float *stats;
    float beta[2];
    float alpha, slope;
    int32_t act, n_res, act_last, gate;
    int32_t shuffle; /* 1: none */
    int32_t groups, group_channels;
    int32_t c_out;
    /* y and all residuals have the kernel's type, are aligned and have whole groups of eight channels; no shuffle */
    int32_t fast;
    /* shuffle by 2 or 4 to pixels of up to 4 channels of the kernel's type, with padding to eight that may be written */
    int32_t whole;
    int32_t step; /* of output pixels: 2 if a launch computes four phases of an upsampled picture */
} dvk_conv_epi;

typedef struct dvk_conv_params {
    dvk_conv_view x;
    const void *w;
    const float *scale, *shift;
    dvk_conv_epi epi;
    int64_t w_phase; /* bytes of one phase's weights */
    int32_t pro_act;
    int32_t vectors_aligned; /* scale and shift can be read four at a time */
    int32_t direct;          /* x is copied without conversion: right type, aligned, no prologue */
    int32_t c_in;
    int32_t in_h, in_w, up_shift; /* size of the upsampled picture, and log2 of the factor */
    int32_t out_h, out_w;         /* of one phase */
    int32_t kw, taps, stride;     /* stride within the patch */
    int32_t pad_top, pad_left;
    int32_t pixel_step;          /* of patch pixels, in pixels of the upsampled picture */
    int32_t tile_w_log2, tile_h; /* pixels of a block */
    dvk_conv_div tiles_x, tiles; /* blocks across, and of a picture */
    dvk_conv_div n_tiles;        /* blocks of output channels */
    int32_t phases;
    dvk_conv_div patch_w;
    int32_t patch_pixels;
    int32_t plane; /* stride 2: odd columns of a row are this many pixels behind the even ones; otherwise 0 */
    int32_t chunks, cpp_log2;
    int32_t stages, patches;      /* depth of the rings of weights and of patches */
    int32_t window, portion;      /* steps of a chunk in which a later patch is loaded, pieces per step */
    int32_t w_rows;               /* rows (mma: output channels) or row length (f32) of one tap's weights */
    int32_t pixel_words, k_words; /* conv_dense.cuh: 32-bit words of a pixel, of all taps */
    int32_t few_taps, few_kw;     /* conv_few.cuh: the actual taps and kw; for the product both are 1 */
} dvk_conv_params;

#endif
