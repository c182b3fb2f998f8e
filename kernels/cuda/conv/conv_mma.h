/* conv_mma.h - the block sizes of the device functions of conv_mma.cu and conv_mma_tf32.cu. */
#ifndef DVK_CUDA_CONV_MMA_H
#define DVK_CUDA_CONV_MMA_H

/* X(pixels, output channels, warps along pixels, warps along channels, 16-pixel and 8-channel pieces per warp) */
#define CONV_MMA_DIRECT(X)                                                                                             \
    X(256, 128, 4, 2, 4, 8)                                                                                            \
    X(256, 48, 4, 1, 4, 6)                                                                                             \
    X(256, 16, 4, 1, 4, 2)
#define CONV_MMA_COMMON(X)                                                                                             \
    X(128, 256, 2, 4, 4, 8)                                                                                            \
    X(128, 128, 2, 2, 4, 8)                                                                                            \
    X(256, 64, 4, 1, 4, 8)                                                                                             \
    X(256, 32, 4, 1, 4, 4)                                                                                             \
    X(256, 8, 4, 1, 4, 1)                                                                                              \
    X(64, 64, 2, 2, 2, 4)

/* Few input channels, conv_dense.cuh */
#define CONV_MMA_DENSE(X)                                                                                              \
    X(128, 64, 8, 1, 1, 8)                                                                                             \
    X(128, 32, 8, 1, 1, 4)
/* Few output channels, conv_few.cuh: pixels of the patch, columns */
#define CONV_MMA_FEW(X)                                                                                                \
    X(384, 32, 8, 1, 3, 4)                                                                                             \
    X(384, 40, 8, 1, 3, 5)

#endif
