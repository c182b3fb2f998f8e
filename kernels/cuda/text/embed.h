/* embed.h - parameters that embed.c passes to embed.cu. */
#ifndef DVK_CUDA_EMBED_H
#define DVK_CUDA_EMBED_H

#include "kernels/cuda/common/elem.h"

typedef struct dvk_embed_params {
    dvk_elem_view y; /* sh: row stride */
    const int32_t *ids;
    const unsigned char *w, *scales;
    int64_t w_row, scale_row; /* bytes */
    int32_t m, k;
    int32_t items; /* of eight values in a row */
    int32_t kind, zero;
} dvk_embed_params;

#endif
