/* winograd_input.h - parameters that winograd_input.c passes to winograd_input_sm90.cu. */
#ifndef DVK_CUDA_WINOGRAD_INPUT_H
#define DVK_CUDA_WINOGRAD_INPUT_H

#include "kernels/cuda/common/elem.h"

enum { DVK_WINOGRAD_STEP = 2 }; /* quads in a thread's registers at a time */

typedef struct dvk_winograd_input_params {
    dvk_elem_view x, y, kept;
    const float *scale, *shift; /* [n][c] or NULL */
    int64_t repeats, repeat_step;
    uint32_t n, h, w;
    uint32_t kept_from; /* the first picture that is kept; n: none */
    uint32_t kept_rows; /* of each */
    uint32_t chunks;    /* of eight channels */
    uint32_t strips;    /* strips per row; a thread processes one */
    uint32_t quads;     /* quads per strip, a multiple of DVK_WINOGRAD_STEP; the last may be shorter */
    int32_t act;
} dvk_winograd_input_params;

#endif
