/* gpus.c - see gpus.h. */
#include "tests/lib/gpus.h"

const dvk_cuda_caps turing = {.sm = 75,
                              .processors = 40,
                              .shared_bytes = 64 << 10,
                              .l2_bytes = 4 << 20,
                              .memory_gbs = 320,
                              .tensor_tflops = 65,
                              .simt_tflops = 8};
const dvk_cuda_caps ampere = {.sm = 80,
                              .processors = 108,
                              .shared_bytes = 163 << 10,
                              .l2_bytes = 40 << 20,
                              .memory_gbs = 1500,
                              .tensor_tflops = 250,
                              .simt_tflops = 19};
const dvk_cuda_caps hopper = {.sm = 90,
                              .processors = 132,
                              .shared_bytes = 227 << 10,
                              .l2_bytes = 50 << 20,
                              .memory_gbs = 4000,
                              .tensor_tflops = 750,
                              .simt_tflops = 60};
