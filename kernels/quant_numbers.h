/* quant_numbers.h - blocks of quant.h as "linear" computes with them: 32 whole numbers and what they mean.
 * value = scale * (number - zero) + minimum. Scales and minima of K-quants are rounded to f16 when packed. */
#ifndef DVK_QUANT_NUMBERS_H
#define DVK_QUANT_NUMBERS_H

#include "kernels/quant.h"

typedef enum lin_kind {
    LIN_F32,
    LIN_F16,
    LIN_BF16,
    LIN_BYTES,
    LIN_BYTES_MIN,
    LIN_HALVES, /* bytes; a second scale for the upper 16 */
    LIN_NIBBLES,
    LIN_NIBBLES_MIN
} lin_kind;

enum { LIN_BLOCK = 32 };

lin_kind lin_kind_of(dvk_wtype t);
int32_t lin_zero(dvk_wtype t); /* what is subtracted from a number; 128 for bytes whose sign is offset */

typedef struct lin_numbers {
    float d[2], min; /* of k 0 to 15 and of 16 to 31 */
    uint8_t u[LIN_BLOCK];
} lin_numbers;

/* Block j (of 32 k) of a row of integer weights, which has all of it: the last one may hold more than k. */
void lin_read_block(dvk_wtype t, const unsigned char *row, int64_t j, lin_numbers *to);

#endif
