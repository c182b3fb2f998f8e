/* linear_tmpl.h - "linear" with activations in f32, compiled once for each instruction set. Weights are converted to a
 * panel of f32, [k][32], which is multiplied with CONV_MR tokens at a time. For few tokens, 16-bit weights are
 * converted within the product loop. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/linear/linear_wide_tmpl.h"

/* Few tokens: each has four sets of accumulators. Consecutive FMAs are therefore independent, and a token's result does
 * not depend on the number of other tokens. */
enum {
    LIN_SETS = 4,
    /* tokens that share a weight in a register: 24 accumulators in 32 registers, or 16 in 16 */
    LIN_SIDE = CONV_VW == 16 ? 3 : 1
};

typedef struct lin_side { /* x: `pitch` floats from one token to the next */
    const float *x;
    const unsigned char *w;
    int64_t pitch, k;
    int first;                 /* first read of these weights */
    int64_t next_from, next_n; /* otherwise: prefetched bytes of the next panel per LIN_SETS k */
} lin_side;

/* Prefetches `bytes` of weights. */
CONV_INLINE void lin_fetch(const lin_side *l, const unsigned char *w, int64_t panel, int64_t bytes) {
    if (l->first) {
        lv_prefetch(w, bytes);
        return;
    }
    for (int64_t i = 0; i < l->next_n; i += 64) {
        _mm_prefetch((const char *)w + panel + l->next_from + i, _MM_HINT_T1);
    }
}

CONV_INLINE void lin_clear_sets(conv_vec sums[LIN_SIDE][LIN_SETS][LIN_VECS], int tokens) {
    for (int i = 0; i < tokens; i++) {
        for (int s = 0; s < LIN_SETS; s++) {
            for (int v = 0; v < LIN_VECS; v++) {
                sums[i][s][v] = cv_set1(0.0f);
            }
        }
    }
}

CONV_INLINE void lin_add_sets(conv_vec sums[LIN_SIDE][LIN_SETS][LIN_VECS], int tokens, float (*to)[DVK_PANEL]) {
    for (int i = 0; i < tokens; i++) {
        for (int v = 0; v < LIN_VECS; v++) {
            cv_store(to[i] + v * CONV_VW,
                     cv_add(cv_add(sums[i][0][v], sums[i][1][v]), cv_add(sums[i][2][v], sums[i][3][v])));
        }
    }
}

/* k rows of a panel of f32 or f16. */
CONV_INLINE void lin_side_rows(dvk_dtype t, const lin_side *l, int tokens, float (*to)[DVK_PANEL]) {
    conv_vec sums[LIN_SIDE][LIN_SETS][LIN_VECS];
    const int64_t size = t == DVK_F32 ? 4 : 2;
    int64_t d = 0;
    lin_clear_sets(sums, tokens);
    for (; d + LIN_SETS <= l->k; d += LIN_SETS) {
        lin_fetch(l, l->w + d * DVK_PANEL * size, l->k * DVK_PANEL * size, LIN_SETS * DVK_PANEL * size);
        for (int s = 0; s < LIN_SETS; s++) {
            for (int v = 0; v < LIN_VECS; v++) {
                const conv_vec b = cv_get(l->w, t, (d + s) * DVK_PANEL + v * CONV_VW, CONV_VW);
                for (int i = 0; i < tokens; i++) {
                    sums[i][s][v] = cv_fma(cv_set1(l->x[i * l->pitch + d + s]), b, sums[i][s][v]);
                }
            }
        }
    }
    for (; d < l->k; d++) {
        for (int v = 0; v < LIN_VECS; v++) {
            const conv_vec b = cv_get(l->w, t, d * DVK_PANEL + v * CONV_VW, CONV_VW);
            for (int i = 0; i < tokens; i++) {
                sums[i][0][v] = cv_fma(cv_set1(l->x[i * l->pitch + d]), b, sums[i][0][v]);
            }
        }
    }
    lin_add_sets(sums, tokens, to);
}

/* Two k of a panel of bf16, into the sets `set` and `set` + 1. */
CONV_INLINE void lin_side_pair(const float *x, int64_t pitch, const unsigned char *w, int tokens, int set, int64_t left,
                               conv_vec sums[LIN_SIDE][LIN_SETS][LIN_VECS]) {
    for (int v = 0; v < LIN_VECS; v++) {
        const lin_ivec pair = lv_load(w + v * CONV_VW * 4);
        const conv_vec even = lin_even(pair);
        const conv_vec odd = lin_odd(pair);
        for (int i = 0; i < tokens; i++) {
            const float second = left > 1 ? x[i * pitch + 1] : 0.0f;
            sums[i][set][v] = cv_fma(cv_set1(x[i * pitch]), even, sums[i][set][v]);
            sums[i][set + 1][v] = cv_fma(cv_set1(second), odd, sums[i][set + 1][v]);
        }
    }
}

CONV_INLINE void lin_side_bf16(const lin_side *l, int tokens, float (*to)[DVK_PANEL]) {
    conv_vec sums[LIN_SIDE][LIN_SETS][LIN_VECS];
    const unsigned char *w = l->w;
    int64_t d = 0;
    lin_clear_sets(sums, tokens);
    for (; d + LIN_SETS <= l->k; d += LIN_SETS, w += LIN_SETS * DVK_PANEL * 2) {
        lin_fetch(l, w, l->k * DVK_PANEL * 2, LIN_SETS * DVK_PANEL * 2);
        lin_side_pair(l->x + d, l->pitch, w, tokens, 0, 2, sums);
        lin_side_pair(l->x + d + 2, l->pitch, w + 4 * DVK_PANEL, tokens, 2, 2, sums);
    }
    for (; d < l->k; d += 2, w += 4 * DVK_PANEL) {
        lin_side_pair(l->x + d, l->pitch, w, tokens, 0, l->k - d, sums);
    }
    lin_add_sets(sums, tokens, to);
}

CONV_INLINE void lin_side_kind(lin_kind kind, const lin_side *l, int tokens, float (*to)[DVK_PANEL]) {
    if (kind == LIN_F32) {
        lin_side_rows(DVK_F32, l, tokens, to);
    } else if (kind == LIN_F16) {
        lin_side_rows(DVK_F16, l, tokens, to);
    } else {
        lin_side_bf16(l, tokens, to);
    }
}

/* --- products --- */

/* Two vectors of a panel times `rows` tokens, `pitch` floats apart. */
CONV_INLINE void lin_tile(const float *x, int64_t pitch, const float *b, int64_t k, int64_t rows,
                          float (*to)[DVK_PANEL]) {
    conv_vec sums[CONV_MR][2];
    for (int64_t i = 0; i < rows; i++) {
        sums[i][0] = sums[i][1] = cv_set1(0.0f);
    }
    for (int64_t d = 0; d < k; d++, b += DVK_PANEL) {
        const conv_vec b0 = cv_load(b);
        const conv_vec b1 = cv_load(b + CONV_VW);
        for (int64_t i = 0; i < rows; i++) {
            const conv_vec one = cv_set1(x[i * pitch + d]);
            sums[i][0] = cv_fma(one, b0, sums[i][0]);
            sums[i][1] = cv_fma(one, b1, sums[i][1]);
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        cv_store(to[i], sums[i][0]);
        cv_store(to[i] + CONV_VW, sums[i][1]);
    }
}

static int64_t lin_multiply(const float *x, int64_t pitch, const float *b, int64_t k, int64_t rows,
                            float (*to)[DVK_PANEL]) {
    const int64_t take = rows >= CONV_MR ? CONV_MR : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    for (int v = 0; v < DVK_PANEL; v += 2 * CONV_VW) {
        float(*at)[DVK_PANEL] = (float(*)[DVK_PANEL])(to[0] + v);
        if (take == CONV_MR) {
            lin_tile(x, pitch, b + v, k, CONV_MR, at);
        } else if (take == 4) {
            lin_tile(x, pitch, b + v, k, 4, at);
        } else if (take == 2) {
            lin_tile(x, pitch, b + v, k, 2, at);
        } else {
            lin_tile(x, pitch, b + v, k, 1, at);
        }
    }
    return take;
}

/* A panel of 16-bit or f32 weights times at most DVK_FEW tokens, LIN_SIDE at a time. The first tokens read the panel
 * from memory. The others read it again, and each prefetches a share of the next panel. */
static void lin_few(const dvk_linear_args *a, const lin_unit *u) {
    const lin_kind kind = lin_kind_of(a->type);
    const int64_t groups = conv_ceil_div(u->rows, LIN_SIDE);
    const int64_t lines = LIN_SETS * DVK_PANEL * (kind == LIN_F32 ? 4 : 2) / 64;
    const int64_t share = conv_ceil_div(lines, conv_max(1, groups - 1));
    int64_t i = 0;
    for (int64_t g = 0; g < groups; g++) {
        float sums[LIN_SIDE][DVK_PANEL];
        const int64_t n = conv_ceil_div(u->rows - i, groups - g);
        const int64_t from = conv_min(lines, (g - 1) * share);
        const lin_side l = {.x = (const float *)a->x.data + (u->row + i) * a->x.row,
                            .w = u->w,
                            .pitch = a->x.row,
                            .k = a->k,
                            .first = g == 0,
                            .next_from = from * 64,
                            .next_n = conv_min(share, lines - from) * 64};
        if (n == LIN_SIDE) {
            lin_side_kind(kind, &l, LIN_SIDE, sums);
        } else if (n == 2) {
            lin_side_kind(kind, &l, LIN_SIDE > 1 ? 2 : 1, sums);
        } else {
            lin_side_kind(kind, &l, 1, sums);
        }
        lin_finish(a, u->panel, u->row + i, n, (const float(*)[DVK_PANEL])sums);
        i += n;
    }
}

static void lin_run_f32(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_linear_args *a = args;
    const lin_kind kind = lin_kind_of(a->type);
    for (int64_t unit = first; unit < last; unit++) {
        const lin_unit u = lin_unit_of(a, unit);
        if (u.rows <= DVK_FEW && kind <= LIN_BF16) {
            lin_few(a, &u);
            continue;
        }
        const float *x = (const float *)a->x.data + u.row * a->x.row;
        float sums[CONV_MR][DVK_PANEL];
        const float *panel = (const float *)(const void *)u.w;
        if (kind != LIN_F32) {
            lin_wide(a->type, u.w, 0, a->k, scratch);
            panel = scratch;
        }
        for (int64_t i = 0; i < u.rows;) {
            const int64_t n = lin_multiply(x + i * a->x.row, a->x.row, panel, a->k, u.rows - i, sums);
            lin_finish(a, u.panel, u.row + i, n, (const float(*)[DVK_PANEL])sums);
            i += n;
        }
    }
}

static size_t lin_scratch_f32(const void *args) {
    const dvk_linear_args *a = args;
    return (size_t)a->k * DVK_PANEL * sizeof(float);
}

static int lin_supports_f32(const void *args) {
    const dvk_linear_args *a = args;
    return a->x.form == DVK_ROWS_F32 && a->norm == NULL && !a->rounded;
}

/* Estimated ns: few tokens are limited by reads of weights, many by products. */
static double lin_cost_f32(const void *args) {
    const dvk_linear_args *a = args;
    const double weights = (double)(a->n * (a->glu ? 2 : 1)) * (double)a->k;
    return weights * (CPU_COST(linear, read) + (double)a->m / CPU_COST(linear, rows));
}
