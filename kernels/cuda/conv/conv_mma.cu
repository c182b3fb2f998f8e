/* conv_mma.cu - "cuda/mma": convolutions of 16-bit values on tensor cores. See conv_mma.cuh; blocks as in conv_mma.h.
 * _pro_: x is converted or has a prologue. */
#include "kernels/cuda/conv/conv_dense.cuh"
#include "kernels/cuda/conv/conv_few.cuh"
#include "kernels/cuda/conv/conv_mma.h"

#define CONV_F16(M, N, ...)          CONV_MMA_KERNEL(conv_mma_f16_##M##x##N, true, conv_half, __VA_ARGS__)
#define CONV_F16_PRO(M, N, ...)      CONV_MMA_KERNEL(conv_mma_f16_pro_##M##x##N, false, conv_half, __VA_ARGS__)
#define CONV_F16_DENSE(M, N, ...)    CONV_DENSE_KERNEL(conv_mma_f16_dense_##M##x##N, conv_half, __VA_ARGS__)
#define CONV_F16_FEW(M, N, ...)      CONV_FEW_KERNEL(conv_mma_f16_few_##M##x##N, true, conv_half, __VA_ARGS__)
#define CONV_F16_FEW_PRO(M, N, ...)  CONV_FEW_KERNEL(conv_mma_f16_few_pro_##M##x##N, false, conv_half, __VA_ARGS__)
#define CONV_BF16(M, N, ...)         CONV_MMA_KERNEL(conv_mma_bf16_##M##x##N, true, conv_bfloat, __VA_ARGS__)
#define CONV_BF16_PRO(M, N, ...)     CONV_MMA_KERNEL(conv_mma_bf16_pro_##M##x##N, false, conv_bfloat, __VA_ARGS__)
#define CONV_BF16_DENSE(M, N, ...)   CONV_DENSE_KERNEL(conv_mma_bf16_dense_##M##x##N, conv_bfloat, __VA_ARGS__)
#define CONV_BF16_FEW(M, N, ...)     CONV_FEW_KERNEL(conv_mma_bf16_few_##M##x##N, true, conv_bfloat, __VA_ARGS__)
#define CONV_BF16_FEW_PRO(M, N, ...) CONV_FEW_KERNEL(conv_mma_bf16_few_pro_##M##x##N, false, conv_bfloat, __VA_ARGS__)

CONV_MMA_DIRECT(CONV_F16)
CONV_MMA_COMMON(CONV_F16)
CONV_MMA_COMMON(CONV_F16_PRO)
CONV_MMA_DENSE(CONV_F16_DENSE)
CONV_MMA_FEW(CONV_F16_FEW)
CONV_MMA_FEW(CONV_F16_FEW_PRO)
#if __CUDA_ARCH__ >= 800
CONV_MMA_DIRECT(CONV_BF16)
CONV_MMA_COMMON(CONV_BF16)
CONV_MMA_COMMON(CONV_BF16_PRO)
CONV_MMA_DENSE(CONV_BF16_DENSE)
CONV_MMA_FEW(CONV_BF16_FEW)
CONV_MMA_FEW(CONV_BF16_FEW_PRO)
#endif
