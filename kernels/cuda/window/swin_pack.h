/* swin_pack.h - packing of the weights of "norm_mlp" and "norm_window". */
#ifndef DVK_CUDA_SWIN_PACK_H
#define DVK_CUDA_SWIN_PACK_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/window/swin.h"

/* Indexed by dvk_swin_matrix; not in the list of kernels. They take the x.c, y.c and compute of a convolution. */
extern const dvk_cuda_kernel dvk_swin_packers[DVK_SWIN_MATRICES];

#endif
