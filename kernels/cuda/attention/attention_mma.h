/* attention_mma.h - parameters that attention_mma.c passes to attention_mma.cu and attention_mma_wide.cu. */
#ifndef DVK_CUDA_ATTENTION_MMA_H
#define DVK_CUDA_ATTENTION_MMA_H

#include <stdint.h>

typedef struct dvk_attention_mma_view { /* a token is a pixel in reading order */
    void *data;
    int64_t sn; /* elements */
    int32_t sw; /* rows are evenly spaced */
    int32_t reserved;
} dvk_attention_mma_view;

typedef struct dvk_attention_mma_params {
    dvk_attention_mma_view q, k, v, y;
    int32_t queries, keys; /* tokens of a picture */
    int32_t dim;           /* channels of a head */
    float scale_log2;      /* scale * log2(e) */
} dvk_attention_mma_params;

#endif
