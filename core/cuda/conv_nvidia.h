/* conv_nvidia.h - convolutions of cuDNN and cuBLASLt as kernels of davy. They are not in the registry: they run only where
 * a plan has been measured (core/exec/autotune.h), as what they need is prepared there. Not under a queue of anything but a
 * dv_gpu. */
#ifndef DV_CONV_NVIDIA_H
#define DV_CONV_NVIDIA_H

#include <stdatomic.h>

#include "core/cuda/gpu.h"
#include "core/cuda/nvidia.h"

/* The one that may compute this, and which library's it is; NULL: none. */
const dvk_cuda_kernel *dv_conv_nvidia(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, int *library);

/* What a gpu knows of one convolution's arguments; never moves, lives as long as the gpu. */
typedef struct nv_conv {
    int64_t key[64];
    nv_plan plan;
    bool offered, fused; /* fused: bias and relu are in the plan */
    /* Written by threads that measure, several at once perhaps. chunks: of statistics, as the kernel has them that this stands in for */
    _Atomic bool measured, faster;
    _Atomic int64_t chunks;
    struct nv_conv *next;
} nv_conv;

/* The entry of these arguments, made and planned where there is none and `make` is set; NULL: none, or no library. */
nv_conv *nv_conv_find(dv_gpu *g, int library, const dvk_conv2d_args *a, bool make);
/* Of the cuDNN that this process has loaded: 91900; 0: none so far. */
int32_t nv_cudnn_version(void);

#endif
