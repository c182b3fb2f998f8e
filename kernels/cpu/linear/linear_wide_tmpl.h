/* linear_wide_tmpl.h - converts a panel of any type to f32, [k][32], exactly. */
#include "kernels/cpu/linear/linear_out_tmpl.h"

/* The even and the odd k of a panel of bf16. */
CONV_INLINE conv_vec lin_even(lin_ivec pair) {
    return lv_as_f32(lv_shift_left(pair, 16));
}

CONV_INLINE conv_vec lin_odd(lin_ivec pair) {
    return lv_as_f32(lv_and(pair, lv_set1((int32_t)0xffff0000u)));
}

static void lin_wide_16(lin_kind kind, const unsigned char *w, int64_t k, float *to) {
    if (kind == LIN_F16) {
        for (int64_t i = 0; i < k * DVK_PANEL; i += CONV_VW) {
            cv_store(to + i, cv_get(w, DVK_F16, i, CONV_VW));
        }
        return;
    }
    for (int64_t i = 0; i < k; i += 2, to += 2 * DVK_PANEL, w += 4 * DVK_PANEL) {
        for (int v = 0; v < DVK_PANEL; v += CONV_VW) {
            const lin_ivec pair = lv_load(w + 4 * v);
            cv_store(to + v, lin_even(pair));
            if (i + 1 < k) {
                cv_store(to + DVK_PANEL + v, lin_odd(pair));
            }
        }
    }
}

/* Converts vector v (rows) of block number j, the first `count` of its 32 k. */
static void lin_wide_block(dvk_wtype t, const unsigned char *b, int64_t j, int v, int64_t count, float *to) {
    const lin_kind kind = lin_kind_of(t);
    const int nibbles = kind >= LIN_NIBBLES;
    const lin_head head = lin_head_of(kind, b, lin_in_pairs(kind) ? (int)(j % 2) : 0, v * CONV_VW);
    const lin_ivec zero = lv_set1(lin_zero(t));
    const unsigned char *u = b + lin_pieces(kind) * LIN_HALF_ROW + v * CONV_VW * 4;
    for (int i = 0; i < count; i++) {
        const int at = nibbles ? i % 16 : i;
        const lin_ivec four = lv_load(u + at / 4 * (4 * DVK_PANEL));
        const int shift = at % 4 * 8 + (nibbles && i >= 16 ? 4 : 0);
        lin_ivec number = four;
        switch (shift) { /* a shift by a constant is one instruction everywhere */
        case 4:
            number = lv_shift_right(four, 4);
            break;
        case 8:
            number = lv_shift_right(four, 8);
            break;
        case 12:
            number = lv_shift_right(four, 12);
            break;
        case 16:
            number = lv_shift_right(four, 16);
            break;
        case 20:
            number = lv_shift_right(four, 20);
            break;
        case 24:
            number = lv_shift_right(four, 24);
            break;
        case 28:
            number = lv_shift_right(four, 28);
            break;
        default:
            break;
        }
        number = lv_sub(lv_and(number, lv_set1(nibbles ? 15 : 255)), zero);
        cv_store(to + i * DVK_PANEL + v * CONV_VW, cv_fma(head.d[i / 16], lv_to_f32(number), head.min));
    }
}

/* Converts k values of every row, from block number `first` on, at address w. */
static void lin_wide(dvk_wtype t, const unsigned char *w, int64_t first, int64_t k, float *to) {
    const lin_kind kind = lin_kind_of(t);
    if (kind <= LIN_BF16) {
        lin_wide_16(kind, w, k, to);
        return;
    }
    for (int64_t i = 0; i < k; i += DVK_Q8_ELEMENTS, w += lin_block_bytes(kind)) {
        for (int v = 0; v < LIN_VECS; v++) {
            lin_wide_block(t, w, first + i / DVK_Q8_ELEMENTS, v, conv_min(DVK_Q8_ELEMENTS, k - i), to + i * DVK_PANEL);
        }
    }
}
