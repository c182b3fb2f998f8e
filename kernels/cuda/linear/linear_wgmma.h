/* linear_wgmma.h - definitions shared by linear_wgmma.c and linear_wgmma_sm90.cu. */
#ifndef DVK_CUDA_LINEAR_WGMMA_H
#define DVK_CUDA_LINEAR_WGMMA_H

#include "kernels/cuda/linear/linear_many.h"

#ifdef __cplusplus
#define DVK_LINEAR_MAP_ALIGN alignas(64)
#else
#define DVK_LINEAR_MAP_ALIGN _Alignas(64)
#endif

enum {
    DVK_LINEAR_THREADS = 384, /* two consumer warpgroups and a producer warpgroup */
    DVK_LINEAR_K = 64,        /* per step: rows of 128 bytes */
    DVK_LINEAR_SHARED = 232448,
    DVK_LINEAR_BARRIERS = 1024,
    DVK_LINEAR_OUT = 16384, /* output buffer of a warpgroup: two halves */
    DVK_LINEAR_CHUNK = 32,  /* columns that are stored together */
    DVK_LINEAR_SPLITS = 8   /* maximum blocks that share the k of a tile */
};

typedef struct dvk_linear_map { /* CUtensorMap */
    DVK_LINEAR_MAP_ALIGN unsigned char opaque[128];
} dvk_linear_map;

typedef struct dvk_linear_wgmma {
    dvk_linear_map x, w, y;
    dvk_linear_out out;
    int32_t steps;    /* of k */
    int32_t second;   /* from the first row of a tile's W to that of its other half */
    int32_t blocks;   /* blocks of a cluster: splits of k */
    int32_t m_places; /* tiles along m */
    int32_t n_places;
    int32_t together; /* tiles along m that share one n before the next n */
    int32_t ragged;   /* rows of y do not end at multiples of 16 bytes */
    int32_t w_early;  /* the preceding launch does not write W */
} dvk_linear_wgmma;

#endif
