/* dictionary.h - parameters that dictionary.c passes to dictionary.cu. */
#ifndef DVK_CUDA_DICTIONARY_H
#define DVK_CUDA_DICTIONARY_H

#include "kernels/cuda/common/elem.h"

enum {
    DVK_DICTIONARY_BLOCK = 256,
    DVK_DICTIONARY_DIM = 64,     /* maximum channels of a query */
    DVK_DICTIONARY_TILE = 64,    /* pixels or tokens, and channels, per block of a product */
    DVK_DICTIONARY_DEPTH = 16,   /* of a step of it */
    DVK_DICTIONARY_CHUNK = 1024, /* pixels of a block of "order" */
    DVK_DICTIONARY_STATS = 512,  /* and of "refine"'s statistics */
    DVK_DICTIONARY_PIECES = 128  /* maximum pieces in which "refine" sums a picture */
};

typedef struct dvk_pixels { /* a view, with the pixels of each picture counted in reading order */
    dvk_elem_view v;        /* sn: 0 if all share one picture */
    int32_t w, count;       /* count: of pixels */
} dvk_pixels;

typedef struct dvk_similarity_params {
    dvk_pixels q, k, y;
    const float *factor;
    int32_t dim, tokens;
} dvk_similarity_params;

typedef struct dvk_mix_params {
    dvk_pixels s, v, y;
    int32_t tokens, c;
} dvk_mix_params;

typedef struct dvk_order_params {
    dvk_pixels s, y;
    int32_t *kinds;  /* kind of each pixel; like all scratch below, once per picture */
    int32_t *counts; /* [chunks][tokens]; later the offset of each */
    int32_t tokens, chunks;
} dvk_order_params;

typedef struct dvk_gather_params {
    dvk_pixels x, order, y;
    const float *scale;
    int32_t c, pieces; /* pieces: groups of eight channels */
    int32_t count;     /* pixels to move */
    int32_t scatters;
} dvk_gather_params;

typedef struct dvk_refine_params {
    dvk_pixels t, s, x, y;
    const float *gamma, *sigma;
    float *stats;  /* [chunks][tokens][4]: mean, sum of squares from it, least, greatest */
    float *curve;  /* [tokens][2]: factor, maximum exponent */
    float *sums;   /* [pieces][tokens][c] */
    float *totals; /* [pieces][tokens] */
    int32_t tokens, c, chunks, pieces, per_piece;
    float eps;
} dvk_refine_params;

#endif
