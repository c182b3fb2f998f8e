/* rows.h - parameters of the device code of the ops over rows (kernels/lm.h). */
#ifndef DVK_CUDA_ROWS_H
#define DVK_CUDA_ROWS_H

#include <stdint.h>

#include "kernels/lm.h"

typedef struct dvk_rows_view {
    void *data;
    int64_t row, head; /* elements; q8: blocks */
    int32_t form;
    int32_t vector; /* every aligned group of four elements is aligned to its size */
} dvk_rows_view;

typedef struct dvk_row_norm_params {
    dvk_rows_view x, y;
    const float *w, *b;
    int64_t groups; /* rows times heads */
    int32_t heads, dim;
    float eps;
    int32_t center;
    int32_t vector; /* w and b too */
} dvk_row_norm_params;

typedef struct dvk_row_convert_params {
    dvk_rows_view x, y;
    int64_t items; /* items of four values; their number in a head is rounded up to whole blocks of q8 */
    int32_t heads, dim, per_head;
} dvk_row_convert_params;

typedef struct dvk_rope_part { /* q, k or v */
    dvk_rows_view x, y;
    int32_t heads, pairs;
    int32_t paged; /* y */
    int32_t reserved;
} dvk_rope_part;

typedef struct dvk_rope_params {
    dvk_rope_part part[3];
    const float *cs;
    dvk_paging to;
    int64_t items;
    int32_t heads, dim; /* of all parts */
    int32_t per_head;   /* items of four pairs or of four values that are only copied */
    int32_t pairs;      /* of a row of cs */
    int32_t interleaved, inverse;
    int32_t vector; /* cs, two pairs at a time */
    int32_t reserved;
} dvk_rope_params;

typedef struct dvk_move_rows_params { /* gather and add */
    const float *x;
    float *y;
    const int32_t *row;
    const float *weight;
    int32_t m, dim, taps;
    int32_t vector; /* four values at a time */
} dvk_move_rows_params;

#endif
