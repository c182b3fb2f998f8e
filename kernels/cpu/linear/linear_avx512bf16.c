/* linear_avx512bf16.c - "linear" with activations in bf16: products of pairs, weights rounded to bf16, sums in f32. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/linear/linear_wide_tmpl.h"

enum { LIN_PAIR_ROWS = 12 }; /* 24 accumulators in 32 registers */

static __m512bh lin_pair(__m512i v) {
    __m512bh b;
    memcpy(&b, &v, sizeof b);
    return b;
}

/* Two consecutive k of a token, in every lane. */
CONV_INLINE __m512bh lin_two(const uint16_t *x, int64_t left) {
    uint32_t both = 0;
    memcpy(&both, x, left > 1 ? 4 : 2);
    return lin_pair(_mm512_set1_epi32((int32_t)both));
}

CONV_INLINE void lin_pairs(const uint16_t *x, int64_t pitch, const unsigned char *w, int64_t k, int64_t rows,
                           float (*to)[DVK_PANEL]) {
    conv_vec sums[LIN_PAIR_ROWS][2];
    for (int64_t i = 0; i < rows; i++) {
        sums[i][0] = sums[i][1] = cv_set1(0.0f);
    }
    int64_t d = 0;
    for (; d + 2 <= k; d += 2, w += 4 * DVK_PANEL) {
        const __m512bh w0 = lin_pair(lv_load(w));
        const __m512bh w1 = lin_pair(lv_load(w + 64));
        for (int64_t i = 0; i < rows; i++) {
            const __m512bh two = lin_two(x + i * pitch + d, 2);
            sums[i][0] = _mm512_dpbf16_ps(sums[i][0], w0, two);
            sums[i][1] = _mm512_dpbf16_ps(sums[i][1], w1, two);
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        if (d < k) {
            const __m512bh one = lin_two(x + i * pitch + d, 1);
            sums[i][0] = _mm512_dpbf16_ps(sums[i][0], lin_pair(lv_load(w)), one);
            sums[i][1] = _mm512_dpbf16_ps(sums[i][1], lin_pair(lv_load(w + 64)), one);
        }
        cv_store(to[i], sums[i][0]);
        cv_store(to[i] + CONV_VW, sums[i][1]);
    }
}

static __m512i lin_to_pair(const float *even, const float *odd) {
    const __m512i low = _mm512_cvtepu16_epi32(cv_to_bf16(cv_load(even)));
    const __m512i high = _mm512_cvtepu16_epi32(cv_to_bf16(cv_load(odd)));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* Converts any panel to one of bf16, 32 k at a time through f32. */
static void lin_narrow(dvk_wtype t, const unsigned char *w, int64_t k, unsigned char *to) {
    const lin_kind kind = lin_kind_of(t);
    for (int64_t i = 0; i < k; i += DVK_Q8_ELEMENTS) {
        float part[DVK_Q8_ELEMENTS][DVK_PANEL];
        const int64_t n = conv_min(DVK_Q8_ELEMENTS, k - i);
        const float *from = part[0];
        if (kind == LIN_F32) {
            from = (const float *)(const void *)w;
            w += n * DVK_PANEL * 4;
        } else {
            lin_wide(t, w, i / DVK_Q8_ELEMENTS, n, part[0]);
            w += kind == LIN_F16 ? n * DVK_PANEL * 2 : lin_block_bytes(kind);
        }
        static const float none[DVK_PANEL];
        for (int64_t j = 0; j < n; j += 2, from += 2 * DVK_PANEL, to += 4 * DVK_PANEL) {
            const float *odd = j + 1 < n ? from + DVK_PANEL : none;
            _mm512_storeu_si512(to, lin_to_pair(from, odd));
            _mm512_storeu_si512(to + 64, lin_to_pair(from + CONV_VW, odd + CONV_VW));
        }
    }
}

static int64_t lin_multiply_pairs(const uint16_t *x, int64_t pitch, const unsigned char *w, int64_t k, int64_t rows,
                                  float (*to)[DVK_PANEL]) {
    if (rows >= LIN_PAIR_ROWS) {
        lin_pairs(x, pitch, w, k, LIN_PAIR_ROWS, to);
        return LIN_PAIR_ROWS;
    }
    if (rows >= 4) {
        lin_pairs(x, pitch, w, k, 4, to);
        return 4;
    }
    lin_pairs(x, pitch, w, k, 1, to);
    return 1;
}

static void lin_run_bf16(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_linear_args *a = args;
    for (int64_t unit = first; unit < last; unit++) {
        const lin_unit u = lin_unit_of(a, unit);
        const uint16_t *x = (const uint16_t *)a->x.data + u.row * a->x.row;
        const unsigned char *panel = u.w;
        if (a->type != DVK_W_BF16) {
            lin_narrow(a->type, u.w, a->k, scratch);
            panel = scratch;
        }
        for (int64_t i = 0; i < u.rows;) {
            float sums[LIN_PAIR_ROWS][DVK_PANEL];
            const int64_t n = lin_multiply_pairs(x + i * a->x.row, a->x.row, panel, a->k, u.rows - i, sums);
            lin_finish(a, u.panel, u.row + i, n, (const float(*)[DVK_PANEL])sums);
            i += n;
        }
    }
}

static size_t lin_scratch_bf16(const void *args) {
    const dvk_linear_args *a = args;
    return a->type == DVK_W_BF16 ? 0 : (size_t)(dvk_panel_bytes(DVK_W_BF16, a->k));
}

static int lin_supports_bf16(const void *args) {
    const dvk_linear_args *a = args;
    return a->x.form == DVK_ROWS_BF16 && a->norm == NULL;
}

static double lin_cost_bf16(const void *args) {
    const dvk_linear_args *a = args;
    const double weights = (double)(a->n * (a->glu ? 2 : 1)) * (double)a->k;
    return weights * (CPU_COST(linear, read) + (double)a->m / CPU_COST(linear, rows));
}

const dvk_kernel dvk_linear_avx512bf16 = {
    .op = "linear",
    .variant = "cpu/avx512bf16",
    .cpu = DVK_CPU_AVX512BF16 | DVK_CPU_AVX512,
    .compute = DVK_BF16,
    .supports = lin_supports_bf16,
    .cost = lin_cost_bf16,
    .units = lin_units,
    .scratch_bytes = lin_scratch_bf16,
    .run = lin_run_bf16,
    .packed_bytes = lin_packed_bytes,
    .pack_units = lin_pack_units,
    .pack = lin_pack,
};
