/* swin_pack.h - what packs the weights of "norm_mlp" and "norm_window". */
#ifndef DVK_CUDA_SWIN_PACK_H
#define DVK_CUDA_SWIN_PACK_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/window/swin.h"

/* By dvk_swin_matrix, in no list of kernels: told a convolution's x.c, y.c and compute. */
extern const dvk_cuda_kernel dvk_swin_packers[DVK_SWIN_MATRICES];

#endif
