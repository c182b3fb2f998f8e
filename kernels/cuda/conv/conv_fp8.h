/* conv_fp8.h - parameters that conv_fp8.c passes to conv_fp8_sm90.cu.
 *
 * Values are f16, products are of E4M3, sums f32. Packing divides the weights of each output channel by a power of two.
 * Behind a group norm, x is converted without a scale. Any other x is multiplied by a power of two that follows from
 * the maximum of the tile's input. It is first taken from the first 64 channels. If later channels need a smaller one,
 * the earlier sums are rescaled.
 * E4M3 is a floating point format: a power of two changes only overflow and underflow. There is nothing to calibrate,
 * and tile borders are invisible. */
#ifndef DVK_CUDA_CONV_FP8_H
#define DVK_CUDA_CONV_FP8_H

#include "kernels/cuda/conv/conv_wgmma.h"

enum {
    DVK_FP8_TAP = 4096,      /* bytes of 64 x 64 weights */
    DVK_FP8_ROOM_ALONE = 7,  /* the maximum of a tile of one chunk becomes 2^7 up to 2^8; the maximum of E4M3 is 448 */
    DVK_FP8_ROOM = 5,        /* of the first chunk of several, */
    DVK_FP8_ROOM_GROWTH = 2, /* power of two by which later chunks may exceed it */
    /* bytes behind the first barrier: {factor, unit} of every slot, then scratch of the helpers */
    DVK_FP8_SCALES = 864
};

typedef struct dvk_conv_fp8 {
    dvk_conv_wgmma c;  /* c.w_bytes: of one tap, 4096 or 8192 */
    const float *unit; /* [phase][output channel, to whole blocks]: value of one unit of a sum */
    int32_t measured;  /* x is scaled by its maximum */
    int32_t reserved;
} dvk_conv_fp8;

#endif
