/* linear_layout.h - the layout of W of "linear" and "embed" on a device, shared by all their kernels. Rows are in the
 * op's order (glu: n of the gate, then n of the other factor) and contiguous, from a 256-byte aligned base:
 *     F32       [rows][k up to a multiple of 4], zeros behind k
 *     F16, BF16 [rows][k up to a multiple of 8], zeros behind k
 *     else      numbers [rows][blocks of 32 k][32 bytes, or 16 of nibbles: value i low in byte i, i + 16 high in it],
 *               then from `scales` on [rows][blocks, an even number if they form pairs] heads of one or two
 *               pieces of 16 bits (quant_numbers.h). Values behind k in the last block are undefined.
 * value = scale * (number - lin_zero) + minimum. */
#ifndef DVK_CUDA_LINEAR_LAYOUT_H
#define DVK_CUDA_LINEAR_LAYOUT_H

#include <stddef.h>

#include "kernels/lm.h"
#include "kernels/quant_numbers.h"

#ifdef __CUDACC__
#define DVK_BOTH static inline __host__ __device__
#else
#define DVK_BOTH static inline
#endif

enum { DVK_LAYOUT_ALIGN = 256 };

typedef struct dvk_linear_layout {
    lin_kind kind;
    int32_t halves;    /* pieces of a head, 0: no second plane */
    int64_t row;       /* bytes of a row of the first plane, a multiple of 16 */
    int64_t scales;    /* offset of the second plane */
    int64_t scale_row; /* bytes of a row of it; a multiple of 8 if blocks form pairs */
    int64_t bytes;     /* of both */
} dvk_linear_layout;

DVK_BOTH int dvk_lin_nibbles(lin_kind kind) {
    return kind >= LIN_NIBBLES;
}

DVK_BOTH int dvk_lin_halves(lin_kind kind) {
    return kind <= LIN_BF16 ? 0 : kind == LIN_BYTES || kind == LIN_NIBBLES ? 1 : 2;
}

DVK_BOTH int64_t dvk_lin_blocks(int64_t k) {
    return (k + LIN_BLOCK - 1) / LIN_BLOCK;
}

DVK_BOTH int64_t dvk_lin_scale_row(lin_kind kind, int64_t k) {
    const int64_t in_pairs = kind == LIN_BYTES_K || kind == LIN_NIBBLES_K;
    return (dvk_lin_blocks(k) + in_pairs) / (1 + in_pairs) * (1 + in_pairs) * dvk_lin_halves(kind) * 2;
}

DVK_BOTH int64_t dvk_lin_row(lin_kind kind, int64_t k) {
    return kind == LIN_F32         ? (k + 3) / 4 * 16
           : kind <= LIN_BF16      ? (k + 7) / 8 * 16
           : dvk_lin_nibbles(kind) ? dvk_lin_blocks(k) * 16
                                   : dvk_lin_blocks(k) * 32;
}

/* rows: with glu those of both factors. */
DVK_BOTH dvk_linear_layout dvk_linear_layout_of(lin_kind kind, int64_t rows, int64_t k) {
    dvk_linear_layout l;
    l.kind = kind;
    l.halves = dvk_lin_halves(kind);
    l.row = dvk_lin_row(kind, k);
    l.scales = (rows * l.row + DVK_LAYOUT_ALIGN - 1) / DVK_LAYOUT_ALIGN * DVK_LAYOUT_ALIGN;
    l.scale_row = dvk_lin_scale_row(kind, k);
    l.bytes = l.scales + rows * l.scale_row;
    return l;
}

/* Host only, linear_pack.c. Packs row number `number`, in the format of a file (quant.h). */
void dvk_linear_layout_put(const dvk_linear_layout *l, dvk_wtype type, int64_t k, const void *row, int64_t number,
                           void *base);
/* packed_bytes, pack_units and pack of every CUDA kernel of "linear"; a unit is DVK_LAYOUT_UNIT rows. */
enum { DVK_LAYOUT_UNIT = 64 };
size_t dvk_linear_packed_bytes(const void *args);
int64_t dvk_linear_pack_units(const void *args);
void dvk_linear_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last);

#endif
