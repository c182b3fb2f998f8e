/* linear_tmpl.h - "linear" with activations in f32, compiled once for each instruction set. Weights become a panel of
 * f32, [k][32], which is then multiplied with CONV_MR tokens at a time; a single token is multiplied with 16-bit
 * weights as they are converted. */
#include "kernels/cpu/linear_wide_tmpl.h"

/* One token: four sets of sums, so that a multiply-add need not wait for the one before. */
enum { LIN_SETS = 4 };

CONV_INLINE void lin_add_sets(conv_vec sums[LIN_SETS][LIN_VECS], float *to) {
    for (int v = 0; v < LIN_VECS; v++) {
        cv_store(to + v * CONV_VW, cv_add(cv_add(sums[0][v], sums[1][v]), cv_add(sums[2][v], sums[3][v])));
    }
}

/* k rows of a panel of f32 or f16. */
CONV_INLINE void lin_single_rows(dvk_dtype t, const float *x, const unsigned char *w, int64_t k, float *to) {
    conv_vec sums[LIN_SETS][LIN_VECS];
    for (int s = 0; s < LIN_SETS; s++) {
        for (int v = 0; v < LIN_VECS; v++) {
            sums[s][v] = cv_set1(0.0f);
        }
    }
    int64_t i = 0;
    const int64_t size = t == DVK_F32 ? 4 : 2;
    for (; i + LIN_SETS <= k; i += LIN_SETS) {
        lv_prefetch(w + i * DVK_PANEL * size, LIN_SETS * DVK_PANEL * size);
        for (int s = 0; s < LIN_SETS; s++) {
            const conv_vec one = cv_set1(x[i + s]);
            for (int v = 0; v < LIN_VECS; v++) {
                const conv_vec b = cv_get(w, t, (i + s) * DVK_PANEL + v * CONV_VW, CONV_VW);
                sums[s][v] = cv_fma(one, b, sums[s][v]);
            }
        }
    }
    for (; i < k; i++) {
        const conv_vec one = cv_set1(x[i]);
        for (int v = 0; v < LIN_VECS; v++) {
            sums[0][v] = cv_fma(one, cv_get(w, t, i * DVK_PANEL + v * CONV_VW, CONV_VW), sums[0][v]);
        }
    }
    lin_add_sets(sums, to);
}

/* Two k of a panel of bf16. */
CONV_INLINE void lin_single_pair(const float x[2], const unsigned char *w, conv_vec first[LIN_VECS],
                                 conv_vec second[LIN_VECS]) {
    const conv_vec even = cv_set1(x[0]);
    const conv_vec odd = cv_set1(x[1]);
    for (int v = 0; v < LIN_VECS; v++) {
        const lin_ivec pair = lv_load(w + v * CONV_VW * 4);
        first[v] = cv_fma(even, lin_even(pair), first[v]);
        second[v] = cv_fma(odd, lin_odd(pair), second[v]);
    }
}

static void lin_single_bf16(const float *x, const unsigned char *w, int64_t k, float *to) {
    conv_vec sums[LIN_SETS][LIN_VECS];
    for (int s = 0; s < LIN_SETS; s++) {
        for (int v = 0; v < LIN_VECS; v++) {
            sums[s][v] = cv_set1(0.0f);
        }
    }
    int64_t i = 0;
    for (; i + LIN_SETS <= k; i += LIN_SETS, w += LIN_SETS * DVK_PANEL * 2) {
        lv_prefetch(w, LIN_SETS * DVK_PANEL * 2);
        lin_single_pair(x + i, w, sums[0], sums[1]);
        lin_single_pair(x + i + 2, w + 4 * DVK_PANEL, sums[2], sums[3]);
    }
    for (; i < k; i += 2, w += 4 * DVK_PANEL) {
        const float last[2] = {x[i], i + 1 < k ? x[i + 1] : 0.0f};
        lin_single_pair(last, w, sums[0], sums[1]);
    }
    lin_add_sets(sums, to);
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

static void lin_single(const dvk_linear_args *a, const unsigned char *w, const float *x, float *to) {
    const lin_kind kind = lin_kind_of(a->type);
    if (kind == LIN_F32) {
        lin_single_rows(DVK_F32, x, w, a->k, to);
    } else if (kind == LIN_F16) {
        lin_single_rows(DVK_F16, x, w, a->k, to);
    } else {
        lin_single_bf16(x, w, a->k, to);
    }
}

static void lin_run_f32(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_linear_args *a = args;
    const lin_kind kind = lin_kind_of(a->type);
    for (int64_t unit = first; unit < last; unit++) {
        const lin_unit u = lin_unit_of(a, unit);
        const float *x = (const float *)a->x.data + u.row * a->x.row;
        float sums[CONV_MR][DVK_PANEL];
        if (u.rows == 1 && kind <= LIN_BF16) {
            lin_single(a, u.w, x, sums[0]);
            lin_finish(a, u.panel, u.row, 1, (const float(*)[DVK_PANEL])sums);
            continue;
        }
        const float *panel = (const float *)(const void *)u.w;
        if (kind != LIN_F32) {
            lin_wide(a->type, u.w, a->k, scratch);
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
    return a->x.form == DVK_ROWS_F32;
}

/* ns: one token reads the weights, many multiply */
static double lin_cost_f32(const void *args) {
    const dvk_linear_args *a = args;
    const double weights = (double)(a->n * (a->glu ? 2 : 1)) * (double)a->k;
    return weights * (0.2 + (double)a->m / (6.0 * CONV_VW));
}
