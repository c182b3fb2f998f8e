/* quant_numbers.h - blocks of quant.h as "linear" computes with them: 32 integers with value = scale * (number - zero)
 * + minimum. Nothing is rounded. A block keeps the head of the file, in one or two pieces of 16 bits. The scale of a
 * K-quant is the product of an f16 and a few bits, which is exact in f32. */
#ifndef DVK_QUANT_NUMBERS_H
#define DVK_QUANT_NUMBERS_H

#include "kernels/dtype.h"
#include "kernels/quant.h"

/* Numbers are bytes or nibbles. Heads:
 * - default: an f16 scale; _MIN: an f16 scale and an f16 minimum.
 * - HALVES: an f16 and two signed bytes, for k 0 to 15 (low byte) and 16 to 31. The products are the scales.
 * - _K: blocks form pairs. The even block has the f16 of the scales, the odd one the f16 of the minima (negative). Each
 *   block has a byte for its scale (low) and one for its minimum. */
typedef enum lin_kind {
    LIN_F32,
    LIN_F16,
    LIN_BF16,
    LIN_BYTES,
    LIN_BYTES_MIN,
    LIN_BYTES_K,
    LIN_HALVES,
    LIN_NIBBLES, /* nibbles from this kind on */
    LIN_NIBBLES_MIN,
    LIN_NIBBLES_K
} lin_kind;

enum { LIN_BLOCK = 32 };

lin_kind lin_kind_of(dvk_wtype t);
int32_t lin_zero(dvk_wtype t); /* the number that is subtracted; 128 for bytes with an offset sign */

typedef struct lin_numbers {
    uint16_t head[2];
    uint8_t u[LIN_BLOCK];
} lin_numbers;

/* Reads block j (of 32 values) of a row of integer weights. The row is padded to whole blocks, and to an even number of
 * them if blocks form pairs. */
void lin_read_block(dvk_wtype t, const unsigned char *row, int64_t j, lin_numbers *to);

static inline int lin_in_pairs(lin_kind kind) {
    return kind == LIN_BYTES_K || kind == LIN_NIBBLES_K;
}

typedef struct lin_scales {
    float d[2], min; /* of k 0 to 15 and of 16 to 31 */
} lin_scales;

/* Decodes a head. pair, for K-quants: heads of the even and the odd block; otherwise pair[0] is the block's head. */
static inline lin_scales lin_scales_of(lin_kind kind, const uint16_t pair[2][2], int odd) {
    const uint16_t *own = pair[lin_in_pairs(kind) ? odd : 0];
    const float d = dvk_f16_to_f32(pair[0][0]);
    const float low = (float)(own[1] & 255);
    const float high = (float)(own[1] >> 8);
    if (lin_in_pairs(kind)) {
        return (lin_scales){.d = {d * low, d * low}, .min = dvk_f16_to_f32(pair[1][0]) * high};
    }
    if (kind == LIN_HALVES) {
        return (lin_scales){.d = {d * (low < 128.0f ? low : low - 256.0f), d * (high < 128.0f ? high : high - 256.0f)}};
    }
    const int has_min = kind == LIN_BYTES_MIN || kind == LIN_NIBBLES_MIN;
    return (lin_scales){.d = {d, d}, .min = has_min ? dvk_f16_to_f32(own[1]) : 0.0f};
}

#endif
