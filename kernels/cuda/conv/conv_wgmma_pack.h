/* conv_wgmma_pack.h - between conv_wgmma.c and conv_wgmma_pack.c. */
#ifndef DVK_CUDA_CONV_WGMMA_PACK_H
#define DVK_CUDA_CONV_WGMMA_PACK_H

#include "kernels/cuda/conv/conv_wgmma.h"
#include "kernels/kernel.h"

/* What the kernel needs to know but for pointers and maps. */
dvk_conv_wgmma dvk_wgmma_shape(const dvk_conv2d_args *a);

/* As in dvk_cuda_kernel; args: dvk_conv2d_args. */
size_t dvk_wgmma_packed_bytes(const void *args);
int64_t dvk_wgmma_pack_units(const void *args);
void dvk_wgmma_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last);

#endif
