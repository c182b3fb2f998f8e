/* window_attention.h - definitions shared by window_attention.c, window_attention.cu and window_attention_simt.cu. */
#ifndef DVK_CUDA_WINDOW_ATTENTION_H
#define DVK_CUDA_WINDOW_ATTENTION_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_WINDOW_ROWS = 32,  /* queries of a warp */
    DVK_WINDOW_KEYS = 64,  /* of a step */
    DVK_WINDOW_STAGES = 4, /* maximum steps in shared memory */
    DVK_WINDOW_SIMT_THREADS = 128,
    DVK_WINDOW_SIMT_KEYS = 16, /* of a step */
    DVK_WINDOW_SIMT_SHARE = 32 /* channels of a thread */
};

typedef struct dvk_window_geometry {
    int32_t heads, dim, h, w;
    int32_t wh, ww, kh, kw; /* windows of queries and of keys */
    int32_t down, across;   /* windows of a picture */
    int32_t shift_y, shift_x, grid;
    int32_t cut_y, cut_x; /* for queries; `shift` is that of the keys */
    int32_t windows;      /* of all pictures */
} dvk_window_geometry;

typedef struct dvk_window_view { /* strides in elements */
    void *data;
    int64_t sn;
    int32_t sh, sw;
} dvk_window_view;

/* A block processes several small windows at a time, or a part of a large one, always of one head. Shared memory, from
 * the start: queries [32 of each warp][pitch], keys and values [stages][2][units * 64][pitch], then at `tables` the
 * bias and the places of tokens. */
typedef struct dvk_window_params {
    dvk_window_view q, k, v, y;
    const float *bias; /* or NULL: none */
    dvk_window_geometry g;
    int32_t units;          /* windows of a block at a time */
    int32_t warps, steps;   /* of a window */
    int32_t stages, tables; /* bytes */
    float scale_log2;       /* scale * log2(e) */
    float over_scale;       /* 1 / scale */
} dvk_window_params;

typedef struct dvk_window_simt_params {
    dvk_elem_view q, k, v, y;
    const float *bias;
    dvk_window_geometry g;
    float scale;
    int32_t reserved;
} dvk_window_simt_params;

#endif
