/* rows.c - references of "row_norm", "row_convert", "rope_table", "rope" and "rope_qkv". */
#include <math.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/paging.h"
#include "kernels/ref/rows.h"

static float at(const dvk_rows *x, int64_t row, int64_t head, int64_t i) {
    return dvk_load(x->data, (dvk_dtype)x->form, row * x->row + head * x->head + i);
}

static void put(const dvk_rows *y, int64_t row, int64_t head, int64_t i, float v) {
    dvk_store(y->data, (dvk_dtype)y->form, row * y->row + head * y->head + i, v);
}

void dvk_q8_block(const float *x, int64_t n, dvk_q8 *to) {
    float top = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        top = fmaxf(top, fabsf(x[i]));
    }
    const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
    to->d = top / 127.0f;
    to->sum[0] = to->sum[1] = 0;
    for (int i = 0; i < DVK_Q8_ELEMENTS; i++) {
        to->q[i] = i < n ? (int8_t)nearbyintf(x[i] * inverse) : 0;
        to->sum[i / 16] += to->q[i];
    }
    to->s = to->d * (float)(to->sum[0] + to->sum[1]);
}

/* y = x * scale + shift, in any form: scale and shift are the norm's, w and b the parameters. */
typedef struct row_affine {
    double mean, scale;
    const float *w, *b;
} row_affine;

static float affine(const row_affine *f, float x, int64_t i) {
    const double t = ((double)x - f->mean) * f->scale * (f->w != NULL ? (double)f->w[i] : 1.0);
    return (float)(t + (f->b != NULL ? (double)f->b[i] : 0.0));
}

static void write_head(const dvk_row_norm_args *a, const row_affine *f, int64_t i, int64_t h) {
    if (a->y.form != DVK_ROWS_Q8) {
        for (int64_t j = 0; j < a->dim; j++) {
            put(&a->y, i, h, j, affine(f, at(&a->x, i, h, j), j));
        }
        return;
    }
    dvk_q8 *to = (dvk_q8 *)a->y.data + i * a->y.row;
    for (int64_t j = 0; j < a->dim; j += DVK_Q8_ELEMENTS, to++) {
        const int64_t n = a->dim - j < DVK_Q8_ELEMENTS ? a->dim - j : DVK_Q8_ELEMENTS;
        float v[DVK_Q8_ELEMENTS];
        for (int64_t l = 0; l < n; l++) {
            v[l] = affine(f, at(&a->x, i, h, j + l), j + l);
        }
        dvk_q8_block(v, n, to);
    }
}

static int64_t norm_units(const void *args) {
    const dvk_row_norm_args *a = args;
    return a->m;
}

static void norm_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_row_norm_args *a = args;
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        for (int64_t h = 0; h < a->heads; h++) {
            double sum = 0.0;
            double squares = 0.0;
            for (int64_t j = 0; j < a->dim && a->center; j++) {
                sum += (double)at(&a->x, i, h, j);
            }
            const double mean = sum / (double)a->dim;
            for (int64_t j = 0; j < a->dim; j++) {
                const double t = (double)at(&a->x, i, h, j) - mean;
                squares += t * t;
            }
            const row_affine f = {
                .mean = mean, .scale = 1.0 / sqrt(squares / (double)a->dim + (double)a->eps), .w = a->w, .b = a->b};
            write_head(a, &f, i, h);
        }
    }
}

static int64_t convert_units(const void *args) {
    const dvk_row_convert_args *a = args;
    return a->m;
}

static void convert_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_row_convert_args *a = args;
    const row_affine same = {.scale = 1.0};
    const dvk_row_norm_args as_norm = {.x = a->x, .y = a->y, .dim = a->dim};
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        for (int64_t h = 0; h < a->heads; h++) {
            write_head(&as_norm, &same, i, h);
        }
    }
}

static int64_t table_units(const void *args) {
    const dvk_rope_table_args *a = args;
    return a->m;
}

static void table_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_rope_table_args *a = args;
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        for (int64_t j = 0; j < a->pairs; j++) {
            const float angle = (float)a->pos[i * a->axes + (a->axis != NULL ? a->axis[j] : 0)] * a->freq[j];
            a->cs[(i * a->pairs + j) * 2] = (float)cos((double)angle);
            a->cs[(i * a->pairs + j) * 2 + 1] = (float)sin((double)angle);
        }
    }
}

static int64_t rope_units(const void *args) {
    const dvk_rope_args *a = args;
    return a->m;
}

static void rope_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_rope_args *a = args;
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        const int64_t row = dvk_rope_row(a, i);
        for (int64_t h = 0; h < a->heads; h++) {
            for (int64_t j = 0; j < a->pairs; j++) {
                const int64_t ia = a->interleaved ? 2 * j : j;
                const int64_t ib = a->interleaved ? 2 * j + 1 : j + a->pairs;
                const float c = a->cs[(i * a->pairs + j) * 2];
                const float s = a->cs[(i * a->pairs + j) * 2 + 1] * (a->inverse ? -1.0f : 1.0f);
                const float u = at(&a->x, i, h, ia);
                const float v = at(&a->x, i, h, ib);
                put(&a->y, row, h, ia, (float)((double)u * (double)c - (double)v * (double)s));
                put(&a->y, row, h, ib, (float)((double)v * (double)c + (double)u * (double)s));
            }
            for (int64_t j = 2 * a->pairs; j < a->dim; j++) {
                put(&a->y, row, h, j, at(&a->x, i, h, j));
            }
        }
    }
}

static int64_t rope_qkv_units(const void *args) {
    const dvk_rope_qkv_args *a = args;
    return a->m;
}

static void rope_qkv_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_rope_qkv_args *a = args;
    dvk_rope_args part = {.x = a->q,
                          .y = a->q_to,
                          .cs = a->cs,
                          .m = a->m,
                          .heads = a->heads,
                          .dim = a->dim,
                          .pairs = a->pairs,
                          .interleaved = a->interleaved,
                          .inverse = a->inverse};
    rope_run(&part, first, last, scratch);
    part.x = a->k;
    part.y = a->k_to;
    part.heads = a->kv_heads;
    part.to = a->to;
    rope_run(&part, first, last, scratch);
    part.x = a->v;
    part.y = a->v_to;
    part.pairs = 0;
    rope_run(&part, first, last, scratch);
}

const dvk_kernel dvk_row_norm_ref = {
    .op = "row_norm", .variant = "ref", .compute = DVK_F32, .units = norm_units, .run = norm_run};

const dvk_kernel dvk_row_convert_ref = {
    .op = "row_convert", .variant = "ref", .compute = DVK_F32, .units = convert_units, .run = convert_run};

const dvk_kernel dvk_rope_table_ref = {
    .op = "rope_table", .variant = "ref", .compute = DVK_F32, .units = table_units, .run = table_run};

const dvk_kernel dvk_rope_ref = {
    .op = "rope", .variant = "ref", .compute = DVK_F32, .units = rope_units, .run = rope_run};

const dvk_kernel dvk_rope_qkv_ref = {
    .op = "rope_qkv", .variant = "ref", .compute = DVK_F32, .units = rope_qkv_units, .run = rope_qkv_run};
