/* attention_out.h - parameters that attention_out.c passes to attention_out.cu. */
#ifndef DVK_CUDA_ATTENTION_OUT_H
#define DVK_CUDA_ATTENTION_OUT_H

#include "kernels/cuda/attention/attention_new.h"

enum {
    DVK_OUT_CLUSTER = 8,
    DVK_OUT_DIM = 64,
    DVK_OUT_PIECES = 12 /* maximum number of 16-byte pieces of W per thread */
};

typedef struct dvk_attention_out_params {
    dvk_attention_new_params of; /* splits: DVK_OUT_CLUSTER */
    const unsigned char *w;
    float *parts;
    int64_t w_row; /* bytes */
    int32_t n;
    int32_t rows; /* rows of W per block */
} dvk_attention_out_params;

#endif
