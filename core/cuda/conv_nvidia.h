/* conv_nvidia.h - convolutions of cuDNN and cuBLASLt, offered as kernels of davy. They are not in the kernel registry. A plan
 * uses them only after measuring it (core/exec/autotune.h), which also prepares their library plans. The queue must be one of
 * a dv_gpu. */
#ifndef DV_CONV_NVIDIA_H
#define DV_CONV_NVIDIA_H

#include <stdatomic.h>

#include "core/cuda/gpu.h"
#include "core/cuda/nvidia.h"

/* The library kernel that can compute this convolution, or NULL. *library: NV_CUBLASLT or NV_CUDNN. */
const dvk_cuda_kernel *dv_conv_nvidia(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, int *library);

/* One convolution that a gpu has planned with a library. Its address never changes; it lives as long as the gpu. */
typedef struct nv_conv {
    int64_t key[64];
    nv_plan plan;
    bool offered, fused; /* offered: the library has a plan; fused: the plan includes bias and relu */
    /* Several measuring threads may write these at once. chunks: of the statistics, as in the replaced kernel of davy. */
    _Atomic bool measured, faster;
    _Atomic int64_t chunks;
    struct nv_conv *next;
} nv_conv;

/* The entry for these arguments. If there is none and `make` is set, it is planned and added. NULL: no entry, no library, or
 * the library has no plan. */
nv_conv *nv_conv_find(dv_gpu *g, int library, const dvk_conv2d_args *a, bool make);
/* The version of the loaded cuDNN, such as 91900; 0: this process has loaded none so far. */
int32_t nv_cudnn_version(void);

#endif
