/* linear.c - references of "linear" and "embed": one row of weights at a time, on unpacked rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/lm.h"
#include "kernels/ref/rows.h"

enum {
    PIECE = 256,   /* weights that are dequantised together: a multiple of every block size */
    TOGETHER = 64, /* outputs that share one preparation of x */
    ABREAST = 8    /* tokens that share one dequantisation of weights */
};

/* Tokens [first, first + count), and the factor on the x of each. */
typedef struct tokens {
    int64_t first, count;
    double scale[ABREAST];
} tokens;

static double value(const dvk_rows *x, int64_t row, int64_t i) {
    if (x->form == DVK_ROWS_Q8) {
        const dvk_q8 *b = (const dvk_q8 *)x->data + row * x->row + i / DVK_Q8_ELEMENTS;
        return (double)b->d * b->q[i % DVK_Q8_ELEMENTS];
    }
    return (double)dvk_load(x->data, (dvk_dtype)x->form, row * x->row + i);
}

/* Value i of a token's x, with the sum over `more`. */
static double x_value(const dvk_linear_args *a, int64_t token, int64_t i) {
    double x = value(&a->x, token, i);
    for (int64_t k = 0; a->more != NULL && k < a->n_more; k++) {
        x += (double)a->more[k * a->k + i];
    }
    return x;
}

/* The norm's factor of a token's x, without the norm's parameters. */
static double scale_of(const dvk_linear_args *a, int64_t token) {
    double squares = 0.0;
    for (int64_t i = 0; i < a->k && a->norm != NULL; i++) {
        squares += x_value(a, token, i) * x_value(a, token, i);
    }
    return a->norm != NULL ? 1.0 / sqrt(squares / (double)a->k + (double)a->norm_eps) : 1.0;
}

/* Prepares n values of x from a multiple of PIECE on for the products. */
static void take(const dvk_linear_args *a, int64_t token, double scale, int64_t first, int64_t n, double *x) {
    for (int64_t j = 0; j < n; j++) {
        x[j] = x_value(a, token, first + j);
        x[j] *= a->norm != NULL ? scale * (double)a->norm[first + j] : 1.0;
    }
    for (int64_t j = 0; j < n && a->rounded; j += DVK_Q8_ELEMENTS) {
        const int64_t count = n - j < DVK_Q8_ELEMENTS ? n - j : DVK_Q8_ELEMENTS;
        float v[DVK_Q8_ELEMENTS];
        dvk_q8 block;
        for (int64_t l = 0; l < count; l++) {
            v[l] = (float)x[j + l];
        }
        dvk_q8_block(v, count, &block);
        for (int64_t l = 0; l < count; l++) {
            x[j + l] = (double)block.d * block.q[l];
        }
    }
}

/* Rows [first, first + n) of W times some tokens. */
static void dots(const dvk_linear_args *a, const tokens *of, int64_t first, int64_t n, double (*sums)[TOGETHER]) {
    const int64_t row_bytes = dvk_row_bytes(a->type, a->k);
    for (int64_t i = 0; i < of->count * n; i++) {
        sums[i / n][i % n] = a->bias != NULL ? (double)a->bias[first + i % n] : 0.0;
    }
    for (int64_t i = 0; i < a->k; i += PIECE) {
        const int64_t count = a->k - i < PIECE ? a->k - i : PIECE;
        double x[ABREAST][PIECE];
        for (int64_t t = 0; t < of->count; t++) {
            take(a, of->first + t, of->scale[t], i, count, x[t]);
        }
        for (int64_t o = 0; o < n; o++) {
            float w[PIECE];
            dvk_dequant(a->type,
                        (const unsigned char *)a->w + (first + o) * row_bytes +
                            i / PIECE * dvk_row_bytes(a->type, PIECE),
                        w, count);
            for (int64_t t = 0; t < of->count; t++) {
                double sum = sums[t][o];
                for (int64_t j = 0; j < count; j++) {
                    sum += (double)w[j] * x[t][j];
                }
                sums[t][o] = sum;
            }
        }
    }
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
        return x > 0.0 ? x * x : x - x; /* keeps a NaN */
    default:
        return x;
    }
}

static int64_t linear_units(const void *args) {
    const dvk_linear_args *a = args;
    return a->n;
}

static void some_outputs(const dvk_linear_args *a, const tokens *of, int64_t first, int64_t n) {
    double t[ABREAST][TOGETHER];
    double others[ABREAST][TOGETHER];
    dots(a, of, first, n, t);
    if (a->glu) {
        dots(a, of, a->n + first, n, others);
    }
    for (int64_t i = 0; i < of->count * n; i++) {
        const int64_t token = of->first + i / n, o = i % n;
        double y = activate(a->act, t[i / n][o]) * (a->glu ? others[i / n][o] : 1.0);
        if (a->res.data != NULL) {
            y += value(&a->res, token, first + o);
        }
        dvk_store(a->y.data, (dvk_dtype)a->y.form, token * a->y.row + first + o, (float)y);
    }
}

static void linear_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_linear_args *a = args;
    (void)scratch;
    for (int64_t i = 0; a->more != NULL && first == 0 && i < a->k; i++) {
        a->sum[i] = (float)x_value(a, 0, i);
    }
    for (int64_t i = 0; i < a->m; i += ABREAST) {
        tokens of = {.first = i, .count = a->m - i < ABREAST ? a->m - i : ABREAST};
        for (int64_t t = 0; t < of.count; t++) {
            of.scale[t] = scale_of(a, i + t);
        }
        for (int64_t o = first; o < last; o += TOGETHER) {
            some_outputs(a, &of, o, last - o < TOGETHER ? last - o : TOGETHER);
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
