/* linear_pack.h - the packed layout of "linear". A panel is 32 rows (DVK_PANEL), with its elements in the order in
 * which a kernel reads them. Each weight is read once, in one stream, by whole vectors.
 *     F32   [k][32]                       F16   [k][32]
 *     BF16  [k / 2][32][2]                an odd k gets a zero
 *     else  per block of 32 k: one or two pieces of heads, [32] each, then the numbers: bytes [8][32][4], or nibbles
 *           [4][32][4], with k 0 to 15 in the low ones. If blocks form pairs, their number is even.
 * quant_numbers.h defines kinds, heads and numbers. */
#ifndef DVK_LINEAR_PACK_H
#define DVK_LINEAR_PACK_H

#include "kernels/lm.h"
#include "kernels/quant_numbers.h"

enum { LIN_HALF_ROW = 2 * DVK_PANEL }; /* bytes of one piece of the heads of a panel */

static inline int lin_pieces(lin_kind kind) { /* of a head */
    return kind == LIN_BYTES || kind == LIN_NIBBLES ? 1 : 2;
}

static inline int64_t lin_block_bytes(lin_kind kind) { /* of 32 rows and 32 k */
    return lin_pieces(kind) * LIN_HALF_ROW + (kind >= LIN_NIBBLES ? 16 : 32) * DVK_PANEL;
}

#endif
