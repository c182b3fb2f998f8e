/* conv_nvidia.h - convolutions of cuDNN and cuBLASLt as kernels of davy. They are not in the registry: they run only where
 * a plan has been measured (core/exec/autotune.h), as what they need is prepared there. Not under a queue of anything but a
 * dv_gpu. */
#ifndef DV_CONV_NVIDIA_H
#define DV_CONV_NVIDIA_H

#include "core/cuda/nvidia.h"

extern const dvk_cuda_kernel dv_conv_cublaslt, dv_conv_cudnn;

/* The one that may compute this, and which library's it is; NULL: none. */
const dvk_cuda_kernel *dv_conv_nvidia(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, int *library);

#endif
