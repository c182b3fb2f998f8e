/* conv_fp8.h - what conv_fp8.c passes to conv_fp8_sm90.cu.
 *
 * Values are f16, products are of E4M3, sums f32. Weights are divided by a power of two per output channel when they are
 * packed. Behind a group norm x is converted as it is. Anything else is multiplied by a power of two that follows from the
 * largest value of the pixels a tile reads: of the first 64 channels, and where later ones need it, a smaller one, with
 * the sums so far multiplied accordingly. E4M3 has floating point: a power of two changes nothing but what is out of
 * range, so there is nothing to calibrate, and tiles do not show. */
#ifndef DVK_CUDA_CONV_FP8_H
#define DVK_CUDA_CONV_FP8_H

#include "kernels/cuda/conv/conv_wgmma.h"

enum {
    DVK_FP8_TAP = 4096,      /* bytes of 64 x 64 weights */
    DVK_FP8_ROOM_ALONE = 7,  /* largest values of a tile of one chunk: 2^7 up to 2^8; E4M3 ends at 448 */
    DVK_FP8_ROOM = 5,        /* of the first chunk of several, */
    DVK_FP8_ROOM_GROWTH = 2, /* and by which power of two later chunks may be larger */
    DVK_FP8_SCALES = 864     /* bytes behind the first barrier: {factor, unit} of every slot, then the helpers' own */
};

typedef struct dvk_conv_fp8 {
    dvk_conv_wgmma c;  /* c.w_bytes: of one tap, 4096 or 8192 */
    const float *unit; /* [phase][output channel, to whole blocks]: what a sum counts for */
    int32_t measured;  /* x is scaled by its largest value */
    int32_t reserved;
} dvk_conv_fp8;

#endif
