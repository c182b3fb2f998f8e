/* depthwise_planes.h - parameters that depthwise_planes.c passes to depthwise_planes.cu. */
#ifndef DVK_CUDA_DEPTHWISE_PLANES_H
#define DVK_CUDA_DEPTHWISE_PLANES_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_PLANES_W = 16, /* output pixels of a tile */
    DVK_PLANES_H = 8,
    DVK_PLANES_OCTETS = 8, /* groups of eight channels of a block, one per warp */
    DVK_PLANES_BLOCK = 256
};

/* Shared memory, pieces of sixteen bytes: two patches of input and two tiles of results, [octet][row][column] each,
 * then the weights. Rows and planes are an odd number of pieces apart, so that eight of them are in different banks. */
enum { DVK_PLANES_OUT_ROW = DVK_PLANES_W + 1, DVK_PLANES_OUT = DVK_PLANES_H * DVK_PLANES_OUT_ROW + 1 };

static inline int32_t dvk_planes_row(int32_t k) {
    return DVK_PLANES_W + k; /* k is odd: one more than the pieces of a row of the patch */
}

static inline int32_t dvk_planes_patch(int32_t k) {
    return (DVK_PLANES_H + k - 1) * dvk_planes_row(k) + 1;
}

static inline int32_t dvk_planes_shared(int32_t k) {
    return DVK_PLANES_OCTETS * (2 * (dvk_planes_patch(k) + DVK_PLANES_OUT) * 16 + k * k * 32);
}

typedef struct dvk_depthwise_planes {
    dvk_elem_view x, y;
    dvk_elem_ends ends; /* one residual at most */
    const float *w;
    int32_t pad_top, pad_left;
    int32_t in_h, in_w, out_h, out_w, c;
    int32_t tiles_x, tiles_y, jobs, slabs; /* a block goes through tiles of its slab of 64 channels */
    /* the elements behind the last channel of y are padding and may be overwritten */
    int32_t alone;
} dvk_depthwise_planes;

#endif
