/* conv_mma_tf32.cu - "cuda/mma-tf32": convolutions of f32 values with products of TF32 on tensor cores. The values are
 * rounded on their way to shared memory, so all functions are _pro_ ones. */
#include "kernels/cuda/conv/conv_dense.cuh"
#include "kernels/cuda/conv/conv_few.cuh"
#include "kernels/cuda/conv/conv_mma.h"

#define CONV_TF32(M, N, ...)         CONV_MMA_KERNEL(conv_mma_tf32_pro_##M##x##N, false, conv_tfloat, __VA_ARGS__)
#define CONV_TF32_DENSE(M, N, ...)   CONV_DENSE_KERNEL(conv_mma_tf32_dense_##M##x##N, conv_tfloat, __VA_ARGS__)
#define CONV_TF32_FEW_PRO(M, N, ...) CONV_FEW_KERNEL(conv_mma_tf32_few_pro_##M##x##N, false, conv_tfloat, __VA_ARGS__)

#if __CUDA_ARCH__ >= 800
CONV_MMA_COMMON(CONV_TF32)
CONV_MMA_DENSE(CONV_TF32_DENSE)
CONV_MMA_FEW(CONV_TF32_FEW_PRO)
#endif
