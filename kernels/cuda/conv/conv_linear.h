/* conv_linear.h - parameters that conv_linear.c passes to conv_linear_sm90.cu. */
#ifndef DVK_CUDA_CONV_LINEAR_H
#define DVK_CUDA_CONV_LINEAR_H

#include "kernels/cuda/conv/conv_wgmma.h"

enum {
    DVK_LINEAR1_ROWS = 64,     /* pixels of a tile */
    DVK_LINEAR1_THREADS = 384, /* two consumer warpgroups, one producer warpgroup */
    DVK_LINEAR1_SLOT = 8192,   /* bytes of 64 channels of a tile */
    DVK_LINEAR1_MAX_SLOTS = 16,
    DVK_LINEAR1_BARRIERS = 512 /* bytes */
};

/* Shared memory, from a 1 KiB boundary: weights [chunks][width][64], the ring buffer, output buffers of both
 * warpgroups, biases [width], barriers. */
typedef struct dvk_conv_linear {
    dvk_wgmma_map x, y, res;        /* of 64 channels by 64 pixels; y and res by 16 */
    dvk_wgmma_map y_last, res_last; /* of the channels of a slice behind its last whole 64 */
    void *data;                     /* of y if bulk copies do not store it; otherwise NULL */
    const void *res_data;
    int64_t pitch, res_pitch, pixels;
    const unsigned char *w;
    const float *bias;
    int32_t tiles, chunks, last_k16; /* of the last chunk */
    int32_t c_out;
    int32_t slices, slots; /* a block computes a fixed slice of `width` output channels */
    int32_t act, n_res;
    int32_t words; /* y is stored by words; otherwise by pieces of 16 bytes if `data` is set */
    int32_t reserved;
    float slope, alpha, times; /* of the residual */
} dvk_conv_linear;

#endif
