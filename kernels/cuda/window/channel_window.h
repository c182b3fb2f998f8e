/* channel_window.h - parameters that channel_window.c passes to channel_window.cu. */
#ifndef DVK_CUDA_CHANNEL_WINDOW_H
#define DVK_CUDA_CHANNEL_WINDOW_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_CHANNEL_WINDOW_TOKENS = 64, /* at most */
    DVK_CHANNEL_WINDOW_DIM = 16,    /* channels of a head, with padding */
    DVK_CHANNEL_WINDOW_HEADS = 8    /* maximum: one warp each */
};

/* Shared memory: queries, keys and values, [64][channels + 8] each. */
typedef struct dvk_channel_window {
    dvk_elem_view q, k, v, y;
    const float *temperature;
    int32_t heads, dim;
    int32_t wh, ww, down, across; /* windows of a picture */
    float eps;
    int32_t reserved;
} dvk_channel_window;

#endif
