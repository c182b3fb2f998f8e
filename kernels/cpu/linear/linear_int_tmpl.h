/* linear_int_tmpl.h - "linear" of integer weights with activations in q8: integer products of 32 k, then one FMA per
 * block and row with the product of both scales. The zero of a block's numbers is subtracted at the start of the sum,
 * because it only depends on the sum of the activations. Included after linear_out_tmpl.h by a file that defines
 * LIN_INT_ROWS, the number of tokens multiplied together. */
#include "kernels/costs/cpu_costs.h"

typedef struct lin_ints { /* two vectors of a panel and their tokens */
    const unsigned char *w;
    const dvk_q8 *x;
    int64_t pitch, blocks;
    int lane; /* first row of the panel */
    int32_t zero;
} lin_ints;

CONV_INLINE lin_ivec lin_dot(lin_kind kind, lin_ivec sum, lin_ivec u, lin_ivec s) {
#if !defined(__AVX512F__)
    if (kind == LIN_BYTES) {
        return lv_dot_offset(sum, u, s);
    }
#endif
    (void)kind;
    return lv_dot(sum, u, s);
}

/* Adds `four` groups of 4 k from group j on; numbers are bytes. */
CONV_INLINE void lin_dot_bytes(lin_kind kind, const unsigned char *u, const dvk_q8 *x, int64_t pitch, int64_t rows,
                               int j, int groups, lin_ivec whole[LIN_INT_ROWS][2]) {
    for (int g = j; g < j + groups; g++) {
        const lin_ivec u0 = lv_load(u + g * (4 * DVK_PANEL));
        const lin_ivec u1 = lv_load(u + g * (4 * DVK_PANEL) + CONV_VW * 4);
        for (int64_t i = 0; i < rows; i++) {
            const lin_ivec s = lv_set1(lv_four(x[i * pitch].q + 4 * g));
            whole[i][0] = lin_dot(kind, whole[i][0], u0, s);
            whole[i][1] = lin_dot(kind, whole[i][1], u1, s);
        }
    }
}

CONV_INLINE void lin_dot_nibbles(const unsigned char *u, const dvk_q8 *x, int64_t pitch, int64_t rows,
                                 lin_ivec whole[LIN_INT_ROWS][2]) {
    const lin_ivec low = lv_set1(0x0f0f0f0f);
    for (int g = 0; g < 4; g++) {
        const lin_ivec u0 = lv_load(u + g * (4 * DVK_PANEL));
        const lin_ivec u1 = lv_load(u + g * (4 * DVK_PANEL) + CONV_VW * 4);
        const lin_ivec l0 = lv_and(u0, low);
        const lin_ivec l1 = lv_and(u1, low);
        const lin_ivec h0 = lv_and(lv_shift_right(u0, 4), low);
        const lin_ivec h1 = lv_and(lv_shift_right(u1, 4), low);
        for (int64_t i = 0; i < rows; i++) {
            const lin_ivec s = lv_set1(lv_four(x[i * pitch].q + 4 * g));
            const lin_ivec t = lv_set1(lv_four(x[i * pitch].q + 16 + 4 * g));
            whole[i][0] = lv_dot(lv_dot(whole[i][0], l0, s), h0, t);
            whole[i][1] = lv_dot(lv_dot(whole[i][1], l1, s), h1, t);
        }
    }
}

CONV_INLINE void lin_start(int32_t zero, const dvk_q8 *x, int64_t pitch, int64_t rows, int half, int halves,
                           lin_ivec whole[LIN_INT_ROWS][2]) {
    for (int64_t i = 0; i < rows; i++) {
        const int32_t sum = halves == 2 ? x[i * pitch].sum[half] : x[i * pitch].sum[0] + x[i * pitch].sum[1];
        whole[i][0] = whole[i][1] = lv_set1(-zero * sum);
    }
}

/* Adds a block of 32 k to the sums. */
CONV_INLINE void lin_dot_block(lin_kind kind, const lin_ints *n, const unsigned char *b, const dvk_q8 *x, int odd,
                               int64_t rows, conv_vec sums[LIN_INT_ROWS][2]) {
    const int nibbles = kind >= LIN_NIBBLES;
    const int halves = kind == LIN_HALVES ? 2 : 1;
    const int has_min = kind != LIN_BYTES && kind != LIN_HALVES && kind != LIN_NIBBLES;
    const unsigned char *u = b + lin_pieces(kind) * LIN_HALF_ROW + n->lane * 4;
    const lin_head h0 = lin_head_of(kind, b, odd, n->lane);
    const lin_head h1 = lin_head_of(kind, b, odd, n->lane + CONV_VW);
    if (rows <= 2) {
        lv_prefetch(b, lin_block_bytes(kind));
    }
    for (int half = 0; half < halves; half++) {
        lin_ivec whole[LIN_INT_ROWS][2];
        lin_start(n->zero, x, n->pitch, rows, half, halves, whole);
        if (nibbles) {
            lin_dot_nibbles(u, x, n->pitch, rows, whole);
        } else {
            lin_dot_bytes(kind, u, x, n->pitch, rows, half * 4, 8 / halves, whole);
        }
        for (int64_t i = 0; i < rows; i++) {
            const conv_vec d = cv_set1(x[i * n->pitch].d);
            sums[i][0] = cv_fma(lv_to_f32(whole[i][0]), cv_mul(h0.d[half], d), sums[i][0]);
            sums[i][1] = cv_fma(lv_to_f32(whole[i][1]), cv_mul(h1.d[half], d), sums[i][1]);
        }
    }
    for (int64_t i = 0; has_min && i < rows; i++) {
        const conv_vec s = cv_set1(x[i * n->pitch].s);
        sums[i][0] = cv_fma(h0.min, s, sums[i][0]);
        sums[i][1] = cv_fma(h1.min, s, sums[i][1]);
    }
}

CONV_INLINE void lin_dot_rows(lin_kind kind, const lin_ints *n, int64_t rows, float (*to)[DVK_PANEL]) {
    const int64_t step = lin_block_bytes(kind);
    const int64_t together = lin_in_pairs(kind) ? 2 : 1;
    conv_vec sums[LIN_INT_ROWS][2];
    for (int64_t i = 0; i < rows; i++) {
        sums[i][0] = sums[i][1] = cv_set1(0.0f);
    }
    const unsigned char *b = n->w;
    for (int64_t block = 0; block < n->blocks; block += together, b += together * step) {
        lin_dot_block(kind, n, b, n->x + block, 0, rows, sums);
        if (together == 2 && block + 1 < n->blocks) {
            lin_dot_block(kind, n, b + step, n->x + block + 1, 1, rows, sums);
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        cv_store(to[i], sums[i][0]);
        cv_store(to[i] + CONV_VW, sums[i][1]);
    }
}

CONV_INLINE void lin_dot_kind(lin_kind kind, const lin_ints *n, int64_t rows, float (*to)[DVK_PANEL]) {
    if (rows == LIN_INT_ROWS) {
        lin_dot_rows(kind, n, LIN_INT_ROWS, to);
    } else if (rows == 2) {
        lin_dot_rows(kind, n, 2, to);
    } else {
        lin_dot_rows(kind, n, 1, to);
    }
}

static void lin_dot_any(lin_kind kind, const lin_ints *n, int64_t rows, float (*to)[DVK_PANEL]) {
    switch (kind) {
    case LIN_BYTES:
        lin_dot_kind(LIN_BYTES, n, rows, to);
        break;
    case LIN_BYTES_MIN:
        lin_dot_kind(LIN_BYTES_MIN, n, rows, to);
        break;
    case LIN_BYTES_K:
        lin_dot_kind(LIN_BYTES_K, n, rows, to);
        break;
    case LIN_HALVES:
        lin_dot_kind(LIN_HALVES, n, rows, to);
        break;
    case LIN_NIBBLES:
        lin_dot_kind(LIN_NIBBLES, n, rows, to);
        break;
    case LIN_NIBBLES_MIN:
        lin_dot_kind(LIN_NIBBLES_MIN, n, rows, to);
        break;
    default:
        lin_dot_kind(LIN_NIBBLES_K, n, rows, to);
        break;
    }
}

static void lin_run_q8(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_linear_args *a = args;
    const lin_kind kind = lin_kind_of(a->type);
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const lin_unit u = lin_unit_of(a, unit);
        lin_ints n = {.w = u.w, .pitch = a->x.row, .blocks = conv_ceil_div(a->k, DVK_Q8_ELEMENTS)};
        n.zero = LV_SIGNED && kind == LIN_BYTES ? 0 : lin_zero(a->type);
        for (int64_t i = 0; i < u.rows;) {
            const int64_t left = u.rows - i;
            const int64_t take = left >= LIN_INT_ROWS ? LIN_INT_ROWS : left >= 2 ? 2 : 1;
            float sums[LIN_INT_ROWS][DVK_PANEL];
            n.x = (const dvk_q8 *)a->x.data + (u.row + i) * a->x.row;
            for (n.lane = 0; n.lane < DVK_PANEL; n.lane += 2 * CONV_VW) {
                lin_dot_any(kind, &n, take, (float(*)[DVK_PANEL])(sums[0] + n.lane));
            }
            lin_finish(a, u.panel, u.row + i, take, (const float(*)[DVK_PANEL])sums);
            i += take;
        }
    }
}

static int lin_supports_q8(const void *args) {
    const dvk_linear_args *a = args;
    return a->x.form == DVK_ROWS_Q8 && lin_kind_of(a->type) > LIN_BF16 && a->norm == NULL;
}

static double lin_cost_q8(const void *args) {
    const dvk_linear_args *a = args;
    const double weights = (double)(a->n * (a->glu ? 2 : 1)) * (double)a->k;
    return weights * (CPU_COST(linear_q8, read) + (double)a->m / CPU_COST(linear_q8, rows));
}
