/* quant_numbers.h - blocks of quant.h as "linear" computes with them: 32 whole numbers and what they mean.
 * value = scale * (number - zero) + minimum. Nothing is rounded: a block keeps what its file says, in a head of one or two
 * pieces of 16 bits, and a scale, of a K-quant the product of an f16 and a few bits, is exact in f32. */
#ifndef DVK_QUANT_NUMBERS_H
#define DVK_QUANT_NUMBERS_H

#include "kernels/dtype.h"
#include "kernels/quant.h"

/* Numbers are bytes or nibbles. Heads: an f16 scale; _MIN: and an f16 minimum; HALVES: an f16 and a signed byte each for k
 * 0 to 15, low, and 16 to 31, whose products are the scales; _K, which are in pairs: an f16, of the scales in the even block
 * and of the minima, negative, in the odd one, and a byte each for this block's scale, low, and minimum. */
typedef enum lin_kind {
    LIN_F32,
    LIN_F16,
    LIN_BF16,
    LIN_BYTES,
    LIN_BYTES_MIN,
    LIN_BYTES_K,
    LIN_HALVES,
    LIN_NIBBLES, /* from here on */
    LIN_NIBBLES_MIN,
    LIN_NIBBLES_K
} lin_kind;

enum { LIN_BLOCK = 32 };

lin_kind lin_kind_of(dvk_wtype t);
int32_t lin_zero(dvk_wtype t); /* what is subtracted from a number; 128 for bytes whose sign is offset */

typedef struct lin_numbers {
    uint16_t head[2];
    uint8_t u[LIN_BLOCK];
} lin_numbers;

/* Block j (of 32 k) of a row of integer weights, which has all of it: the last one may hold more than k, and where blocks
 * are in pairs there is an even number of them. */
void lin_read_block(dvk_wtype t, const unsigned char *row, int64_t j, lin_numbers *to);

static inline int lin_in_pairs(lin_kind kind) {
    return kind == LIN_BYTES_K || kind == LIN_NIBBLES_K;
}

typedef struct lin_scales {
    float d[2], min; /* of k 0 to 15 and of 16 to 31 */
} lin_scales;

/* What a head means. pair: that of the even block, then that of the odd one; else the block's own, first. */
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
