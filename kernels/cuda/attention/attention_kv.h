/* attention_kv.h - the parameters of the device code of "attention_kv". */
#ifndef DVK_CUDA_ATTENTION_KV_H
#define DVK_CUDA_ATTENTION_KV_H

#include "kernels/cuda/norm/rows.h"

typedef struct dvk_attention_kv_params {
    dvk_rows_view q, k, v, y;
    dvk_paging in;
    const int32_t *bounds;
    int32_t n_bounds, m, keys, heads, kv_heads, dim;
    int32_t past, causal, window;
    float scale_log2; /* scale * log2(e) */
    /* few, token: the positions of a query are cut into at most `splits` pieces. `parts` and its totals hold their
     * results for the second launch, or are NULL without one */
    int32_t splits;
    float *tops, *sums; /* [m][heads][splits] */
    float *parts;       /* [m][heads][splits][dim] */
} dvk_attention_kv_params;

enum {
    DVK_ATTENTION_KV_PIECE = 32, /* few, token: the number of positions of a piece is a multiple of this */
    DVK_ATTENTION_KV_SIMT_ROWS = 64,
    DVK_ATTENTION_KV_SIMT_THREADS = 256
};

#endif
