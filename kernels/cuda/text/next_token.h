/* next_token.h - parameters that next_token.c passes to next_token.cu. */
#ifndef DVK_CUDA_NEXT_TOKEN_H
#define DVK_CUDA_NEXT_TOKEN_H

#include "kernels/cuda/text/argmax.h"
#include "kernels/cuda/text/embed.h"
#include "kernels/lm.h"

typedef struct dvk_next_token_params {
    dvk_argmax_params draw;
    dvk_embed_params embed;
    dvk_rope_table_args table;
    uint64_t *told;
} dvk_next_token_params;

#endif
