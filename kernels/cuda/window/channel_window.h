/* channel_window.h - what channel_window.c passes to channel_window.cu. */
#ifndef DVK_CUDA_CHANNEL_WINDOW_H
#define DVK_CUDA_CHANNEL_WINDOW_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_CHANNEL_WINDOW_TOKENS = 64, /* at most */
    DVK_CHANNEL_WINDOW_DIM = 16,    /* channels of a head, with those that only pad it */
    DVK_CHANNEL_WINDOW_HEADS = 8    /* at most: a warp of a block has one */
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
