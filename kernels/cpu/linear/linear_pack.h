/* linear_pack.h - how "linear" keeps weights. A panel is 32 rows (DVK_PANEL), its elements in the order in which a
 * kernel meets them, so that each weight is read once, in one stream, by whole vectors.
 *     F32   [k][32]                       F16   [k][32]
 *     BF16  [k / 2][32][2]                an odd k gets a zero
 *     else  per block of 32 k: the one or two pieces of heads, [32] each, then the numbers: bytes [8][32][4], or nibbles
 *           [4][32][4], the low ones being k 0 to 15. Where blocks are in pairs there is an even number of them.
 * Kinds and what heads and numbers mean: quant_numbers.h. */
#ifndef DVK_LINEAR_PACK_H
#define DVK_LINEAR_PACK_H

#include "kernels/lm.h"
#include "kernels/quant_numbers.h"

enum { LIN_HALF_ROW = 2 * DVK_PANEL }; /* bytes of a piece of a panel's heads */

static inline int lin_pieces(lin_kind kind) { /* of a head */
    return kind == LIN_BYTES || kind == LIN_NIBBLES ? 1 : 2;
}

static inline int64_t lin_block_bytes(lin_kind kind) { /* of 32 rows and 32 k */
    return lin_pieces(kind) * LIN_HALF_ROW + (kind >= LIN_NIBBLES ? 16 : 32) * DVK_PANEL;
}

#endif
