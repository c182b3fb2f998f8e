/* conv_common.h - what the host and the device side of the universal convolutions (conv_mma, conv_f32) agree on.
 *
 * Both are an implicit GEMM over blocks of output pixels times output channels. The input a block of pixels reads (its
 * patch, halo included) is brought to shared memory once per chunk of input channels and used by all taps. A pixel of
 * the patch is `cpp` pieces of 16 bytes, exchanged with each other so that 8 neighbouring pixels meet no bank twice. */
#ifndef DVK_CUDA_CONV_COMMON_H
#define DVK_CUDA_CONV_COMMON_H

#include <stdint.h>

typedef struct dvk_conv_view { /* a view as a kernel sees it; strides in elements */
    void *data;
    int64_t sn, sh, sw;
    int32_t dtype;
    int32_t vec; /* 8 channels from a multiple of 8 on lie 16-byte aligned */
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
    int32_t fast; /* y and all residuals are of the kernel's own type, aligned, whole eights of channels; no shuffle */
    int32_t
        whole; /* shuffle by 2 or 4 to pixels of up to 4 channels that may be written as eight, of the kernel's type */
    int32_t step; /* of output pixels: 2 where a launch makes four phases of an enlarged picture */
} dvk_conv_epi;

typedef struct dvk_conv_params {
    dvk_conv_view x;
    const void *w;
    const float *scale, *shift;
    dvk_conv_epi epi;
    int64_t w_phase; /* bytes of one phase's weights */
    int32_t pro_act;
    int32_t vectors_aligned; /* scale and shift can be read four at a time */
    int32_t direct;          /* x is copied as it is: right type, aligned, no prologue */
    int32_t c_in;
    int32_t in_h, in_w, up_shift; /* the enlarged picture, and log2 of by how much */
    int32_t out_h, out_w;         /* of one phase */
    int32_t kw, taps, stride;     /* stride within the patch */
    int32_t pad_top, pad_left;
    int32_t pixel_step;          /* of patch pixels, in pixels of the enlarged picture */
    int32_t tile_w_log2, tile_h; /* pixels of a block */
    dvk_conv_div tiles_x, tiles; /* blocks across, and of a picture */
    dvk_conv_div n_tiles;        /* blocks of output channels */
    int32_t phases;
    dvk_conv_div patch_w;
    int32_t patch_pixels;
    int32_t plane; /* stride 2: odd columns of a row lie this many pixels behind the even ones; else 0 */
    int32_t chunks, cpp_log2;
    int32_t stages, patches;      /* depth of the rings of weights and of patches */
    int32_t window, portion;      /* steps of a chunk in which a later patch is brought, pieces in each */
    int32_t w_rows;               /* rows (mma: output channels) or row length (f32) of one tap's weights */
    int32_t pixel_words, k_words; /* conv_dense.cuh: 32-bit words of a pixel, of all taps */
    int32_t few_taps, few_kw;     /* conv_few.cuh: what taps and kw were, which are 1 for the product */
} dvk_conv_params;

#endif
