/* depthwise.h - parameters that depthwise.c passes to depthwise.cu. */
#ifndef DVK_CUDA_DEPTHWISE_H
#define DVK_CUDA_DEPTHWISE_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_DEPTHWISE_W = 16, /* output pixels of a block */
    DVK_DEPTHWISE_H = 8,
    DVK_DEPTHWISE_OCTETS = 8, /* groups of eight channels per block */
    DVK_DEPTHWISE_BLOCK = 256
};

typedef struct dvk_depthwise_params {
    dvk_elem_view x, y;
    dvk_elem_ends ends;
    const float *w;
    int32_t kh, kw, pad_top, pad_left;
    int32_t in_h, in_w, out_h, out_w, c;
    int32_t tiles_x;
    int32_t patch_w, patch_pixels;
} dvk_depthwise_params;

typedef struct dvk_depthwise_plain_params {
    dvk_elem_view x, y;
    dvk_elem_ends ends;
    const float *w;
    int32_t kh, kw, pad_top, pad_left, stride;
    int32_t in_h, in_w;
    int32_t rows, out_h, out_w; /* rows: of all pictures */
    int32_t c, chunks;          /* chunks: groups of eight channels */
} dvk_depthwise_plain_params;

#endif
