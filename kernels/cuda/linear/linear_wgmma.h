/* linear_wgmma.h - what linear_wgmma.c and linear_wgmma_sm90.cu agree on. */
#ifndef DVK_CUDA_LINEAR_WGMMA_H
#define DVK_CUDA_LINEAR_WGMMA_H

#include "kernels/cuda/linear/linear_many.h"

#ifdef __cplusplus
#define DVK_LINEAR_MAP_ALIGN alignas(64)
#else
#define DVK_LINEAR_MAP_ALIGN _Alignas(64)
#endif

enum {
    DVK_LINEAR_THREADS = 384, /* two warpgroups that multiply, one that brings */
    DVK_LINEAR_K = 64,        /* of a step: rows of 128 bytes */
    DVK_LINEAR_SHARED = 232448,
    DVK_LINEAR_BARRIERS = 1024,
    DVK_LINEAR_OUT = 16384, /* a warpgroup's results on their way out: two halves */
    DVK_LINEAR_CHUNK = 32,  /* columns that leave together */
    DVK_LINEAR_SPLITS = 8   /* blocks that share the k of a tile, at most */
};

typedef struct dvk_linear_map { /* CUtensorMap */
    DVK_LINEAR_MAP_ALIGN unsigned char opaque[128];
} dvk_linear_map;

typedef struct dvk_linear_wgmma {
    dvk_linear_map x, w, y;
    dvk_linear_out out;
    int32_t steps;    /* of k */
    int32_t second;   /* from the first row of a tile's W to that of its other half */
    int32_t blocks;   /* of a cluster: shares of k */
    int32_t m_places; /* tiles along m */
    int32_t n_places;
    int32_t together; /* places along m that are done for one n after the other before those beyond them */
    int32_t ragged;   /* rows of y end within 16 bytes */
    int32_t w_early;  /* W does not come from the launch before */
} dvk_linear_wgmma;

#endif
