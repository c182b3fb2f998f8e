/* gpus.h - capabilities of GPUs for plans without a GPU: similar to a T4, an A100 and an H100. */
#ifndef DV_TESTS_GPUS_H
#define DV_TESTS_GPUS_H

#include "kernels/cuda/cuda.h"

extern const dvk_cuda_caps turing;
extern const dvk_cuda_caps ampere;
extern const dvk_cuda_caps hopper;

#endif
