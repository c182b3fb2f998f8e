/* conv_f32.h - the block sizes of the device functions of conv_f32.cu. */
#ifndef DVK_CUDA_CONV_F32_H
#define DVK_CUDA_CONV_F32_H

enum { CONV_F32_PIXELS = 128, CONV_F32_THREADS = 128 };

/* X(output channels per block, per thread) */
#define CONV_F32_BLOCKS(X)                                                                                             \
    X(64, 8)                                                                                                           \
    X(32, 4)                                                                                                           \
    X(8, 1)

#endif
