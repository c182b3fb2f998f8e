/* attention_simt.h - parameters that attention_simt.c passes to attention_simt.cu. */
#ifndef DVK_CUDA_ATTENTION_SIMT_H
#define DVK_CUDA_ATTENTION_SIMT_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_ATTENTION_SIMT_ROWS = 64, /* queries of a block */
    DVK_ATTENTION_SIMT_KEYS = 96, /* of a step */
    DVK_ATTENTION_SIMT_THREADS = 256,
    DVK_ATTENTION_SIMT_PART = 4096, /* floats */
    DVK_ATTENTION_SIMT_P_PITCH = DVK_ATTENTION_SIMT_ROWS + 4,
    DVK_ATTENTION_SIMT_SHARED =
        (2 * DVK_ATTENTION_SIMT_PART + DVK_ATTENTION_SIMT_KEYS * DVK_ATTENTION_SIMT_P_PITCH + DVK_ATTENTION_SIMT_ROWS) *
        4
};

typedef struct dvk_attention_simt_params {
    dvk_elem_view q, k, v, y; /* vector: every aligned group of four channels of a head is 16-byte aligned */
    int32_t w[4];             /* of q, k, v, y: tokens per row; 0: rows are evenly spaced */
    int32_t queries, keys;
    int32_t dim_qk, dim_v; /* channels of a head */
    int32_t slabs;         /* pieces of dim_v, one block each */
    float scale_log2;      /* scale * log2(e) */
} dvk_attention_simt_params;

#endif
