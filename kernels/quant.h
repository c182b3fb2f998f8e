/* quant.h - weights as stored in model files: rows of blocks, with the numbers of GGUF's tensor types. A row of k
 * values has ceil(k / elements) blocks. The GGUF documentation has the block layouts; ref/quant.c has the exact
 * formulas. */
#ifndef DVK_QUANT_H
#define DVK_QUANT_H

#include <stdint.h>

typedef enum dvk_wtype { /* same numbers as GGUF */
                         DVK_W_F32 = 0,
                         DVK_W_F16 = 1,
                         DVK_W_Q4_0 = 2,
                         DVK_W_Q4_1 = 3,
                         DVK_W_Q5_0 = 6,
                         DVK_W_Q5_1 = 7,
                         DVK_W_Q8_0 = 8,
                         DVK_W_Q4_K = 12,
                         DVK_W_Q5_K = 13,
                         DVK_W_Q6_K = 14,
                         DVK_W_BF16 = 30
} dvk_wtype;

int32_t dvk_block_elements(dvk_wtype t); /* 0: not a type of this list */
int32_t dvk_block_bytes(dvk_wtype t);
int64_t dvk_row_bytes(dvk_wtype t, int64_t k);

/* The first `count` values of a row. */
void dvk_dequant(dvk_wtype t, const void *row, float *to, int64_t count);

/* Load-time quantisation of a row, the last block padded with zeros. INT8 is Q8_0: d = max|x| / 127 of 32 values.
 * INT4 is Q4_0: d = the value of largest magnitude / -8. d is rounded to f16. */
void dvk_quant_q8_0(const float *x, void *row, int64_t count);
void dvk_quant_q4_0(const float *x, void *row, int64_t count);

/* Activations for integer weights: value i = d * q[i]. */
enum { DVK_Q8_ELEMENTS = 32 };
typedef struct dvk_q8 {
    float d;        /* max|x| / 127 */
    float s;        /* d * (sum[0] + sum[1]) */
    int32_t sum[2]; /* of q[0..15] and of q[16..31] */
    int8_t q[DVK_Q8_ELEMENTS];
} dvk_q8;

#endif
