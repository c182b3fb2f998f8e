/* linear_out_tmpl.h - the units of the linear templates, and their epilogue: bias, activation, the other factor of a
 * GLU, residual. Included after a conv_vec_*.h.
 *
 * A unit is one panel of weights times at most LIN_TOKENS tokens. Units of the same tokens are consecutive: the tokens
 * stay in the cache while the weights stream. */
#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/conv/conv_math_tmpl.h"
#include "kernels/cpu/linear/linear_pack.h"
#include "kernels/cpu/linear/linear_vec.h"

enum { LIN_TOKENS = 256, LIN_VECS = DVK_PANEL / CONV_VW };

typedef struct lin_unit {
    const unsigned char *w;
    int64_t panel, row, rows;
} lin_unit;

static int64_t lin_units(const void *args) {
    const dvk_linear_args *a = args;
    return dvk_panel_count(a->n, a->glu) * conv_ceil_div(a->m, LIN_TOKENS);
}

static lin_unit lin_unit_of(const dvk_linear_args *a, int64_t unit) {
    const int64_t panels = dvk_panel_count(a->n, a->glu);
    lin_unit u = {.panel = unit % panels, .row = unit / panels * LIN_TOKENS};
    u.rows = conv_min(LIN_TOKENS, a->m - u.row);
    u.w = (const unsigned char *)a->w + u.panel * dvk_panel_bytes(a->type, a->k);
    return u;
}

/* Decodes the heads of CONV_VW rows, like lin_scales_of; odd: the second block of a pair. */
typedef struct lin_head {
    conv_vec d[2], min;
} lin_head;

CONV_INLINE lin_head lin_head_of(lin_kind kind, const unsigned char *b, int odd, int64_t lane) {
    lin_head h;
    const conv_vec factor = cv_get(b - odd * lin_block_bytes(kind), DVK_F16, lane, CONV_VW);
    h.min = cv_set1(0.0f);
    h.d[0] = h.d[1] = factor;
    if (lin_in_pairs(kind)) {
        const lin_ivec bytes = lv_load_16(b + LIN_HALF_ROW + 2 * lane);
        const conv_vec least = cv_get(b + (1 - odd) * lin_block_bytes(kind), DVK_F16, lane, CONV_VW);
        h.d[0] = h.d[1] = cv_mul(factor, lv_to_f32(lv_and(bytes, lv_set1(255))));
        h.min = cv_mul(least, lv_to_f32(lv_shift_right(bytes, 8)));
    } else if (kind == LIN_HALVES) {
        const lin_ivec bytes = lv_load_16(b + LIN_HALF_ROW + 2 * lane);
        h.d[0] = cv_mul(factor, lv_to_f32(lv_shift_signed(lv_shift_left(bytes, 24), 24)));
        h.d[1] = cv_mul(factor, lv_to_f32(lv_shift_signed(bytes, 8)));
    } else if (kind == LIN_BYTES_MIN || kind == LIN_NIBBLES_MIN) {
        h.min = cv_get(b + LIN_HALF_ROW, DVK_F16, lane, CONV_VW);
    }
    return h;
}

CONV_INLINE conv_vec lin_act(dvk_gate act, conv_vec x) {
    switch (act) {
    case DVK_GATE_SILU:
        return conv_silu(x);
    case DVK_GATE_GELU:
        return conv_gelu(x);
    case DVK_GATE_GELU_TANH: { /* x / 2 (1 + tanh u) = x sigmoid(2 u) */
        const conv_vec cubic = cv_fma(cv_mul(cv_set1(0.044715f), cv_mul(x, x)), x, x);
        return cv_mul(x, conv_sigmoid(cv_mul(cv_set1(1.5957691f), cubic)));
    }
    case DVK_GATE_GELU_QUICK:
        return cv_mul(x, conv_sigmoid(cv_mul(cv_set1(1.702f), x)));
    case DVK_GATE_RELU2: {
        const conv_vec r = cv_max(cv_set1(0.0f), x);
        return cv_mul(r, r);
    }
    default:
        return x;
    }
}

/* Sums of `rows` tokens from `row` on, [DVK_PANEL] each. */
static void lin_finish(const dvk_linear_args *a, int64_t panel, int64_t row, int64_t rows,
                       const float (*sums)[DVK_PANEL]) {
    const int64_t width = a->glu ? DVK_PANEL / 2 : DVK_PANEL;
    const int64_t column = panel * width;
    const int64_t count = conv_min(width, a->n - column);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t v = 0; v < count; v += CONV_VW) {
            const int64_t n = conv_min(CONV_VW, count - v);
            const int64_t at = column + v;
            conv_vec t = cv_load(sums[i] + v);
            if (a->bias != NULL) {
                t = cv_add(t, cv_get(a->bias, DVK_F32, at, n));
            }
            t = lin_act(a->act, t);
            if (a->glu) {
                conv_vec other = cv_load(sums[i] + DVK_PANEL / 2 + v);
                if (a->bias != NULL) {
                    other = cv_add(other, cv_get(a->bias, DVK_F32, a->n + at, n));
                }
                t = cv_mul(t, other);
            }
            if (a->res.data != NULL) {
                t = cv_add(t, cv_get(a->res.data, (dvk_dtype)a->res.form, (row + i) * a->res.row + at, n));
            }
            cv_put(a->y.data, (dvk_dtype)a->y.form, (row + i) * a->y.row + at, n, t);
        }
    }
}

/* All variants share one packing. */
static size_t lin_packed_bytes(const void *args) {
    const dvk_linear_args *a = args;
    return (size_t)(dvk_panel_count(a->n, a->glu) * dvk_panel_bytes(a->type, a->k));
}

static int64_t lin_pack_units(const void *args) {
    const dvk_linear_args *a = args;
    return dvk_panel_count(a->n, a->glu);
}

static void lin_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_linear_args *a = args;
    for (int64_t p = first; p < last; p++) {
        dvk_panel_pack_from(a->type, a->k, a->n, a->glu, w, p,
                            (unsigned char *)dst + p * dvk_panel_bytes(a->type, a->k));
    }
}
