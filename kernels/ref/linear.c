/* linear.c - "linear" and "embed", plainly: a row of weights at a time, on plain rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/lm.h"

enum { PIECE = 256 }; /* weights that are dequantised together: a multiple of every block */

static double value(const dvk_rows *x, int64_t row, int64_t i) {
    if (x->form == DVK_ROWS_Q8) {
        const dvk_q8 *b = (const dvk_q8 *)x->data + row * x->row + i / DVK_Q8_ELEMENTS;
        return (double)b->d * b->q[i % DVK_Q8_ELEMENTS];
    }
    return (double)dvk_load(x->data, (dvk_dtype)x->form, row * x->row + i);
}

static double dot(const dvk_linear_args *a, int64_t token, int64_t out) {
    const unsigned char *row = (const unsigned char *)a->w + out * dvk_row_bytes(a->type, a->k);
    double sum = a->bias != NULL ? (double)a->bias[out] : 0.0;
    float w[PIECE];
    for (int64_t i = 0; i < a->k; i += PIECE, row += dvk_row_bytes(a->type, PIECE)) {
        const int64_t n = a->k - i < PIECE ? a->k - i : PIECE;
        dvk_dequant(a->type, row, w, n);
        for (int64_t j = 0; j < n; j++) {
            sum += (double)w[j] * value(&a->x, token, i + j);
        }
    }
    return sum;
}

static double activate(dvk_gate act, double x) {
    switch (act) {
    case DVK_GATE_SILU:
        return x / (1.0 + exp(-x));
    case DVK_GATE_GELU:
        return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
    case DVK_GATE_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case DVK_GATE_GELU_QUICK:
        return x / (1.0 + exp(-1.702 * x));
    case DVK_GATE_RELU2:
        return x > 0.0 ? x * x : x - x; /* a NaN stays one */
    default:
        return x;
    }
}

static int64_t linear_units(const void *args) {
    const dvk_linear_args *a = args;
    return a->n;
}

static void linear_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_linear_args *a = args;
    (void)scratch;
    for (int64_t o = first; o < last; o++) {
        for (int64_t i = 0; i < a->m; i++) {
            double t = activate(a->act, dot(a, i, o));
            if (a->glu) {
                t *= dot(a, i, a->n + o);
            }
            if (a->res.data != NULL) {
                t += value(&a->res, i, o);
            }
            dvk_store(a->y.data, (dvk_dtype)a->y.form, i * a->y.row + o, (float)t);
        }
    }
}

static int64_t embed_units(const void *args) {
    const dvk_embed_args *a = args;
    return a->m;
}

static void embed_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_embed_args *a = args;
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        const unsigned char *row = (const unsigned char *)a->w + a->ids[i] * dvk_row_bytes(a->type, a->k);
        float w[PIECE];
        for (int64_t at = 0; at < a->k; at += PIECE, row += dvk_row_bytes(a->type, PIECE)) {
            const int64_t n = a->k - at < PIECE ? a->k - at : PIECE;
            dvk_dequant(a->type, row, w, n);
            for (int64_t j = 0; j < n; j++) {
                dvk_store(a->y.data, (dvk_dtype)a->y.form, i * a->y.row + at + j, w[j]);
            }
        }
    }
}

const dvk_kernel dvk_linear_ref = {
    .op = "linear", .variant = "ref", .compute = DVK_F32, .units = linear_units, .run = linear_run};

const dvk_kernel dvk_embed_ref = {
    .op = "embed", .variant = "ref", .compute = DVK_F32, .units = embed_units, .run = embed_run};
