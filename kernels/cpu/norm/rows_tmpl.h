/* rows_tmpl.h - "row_norm", "row_convert" and "rope" on vectors, compiled once for each instruction set. A row of a
 * head is read as f32, processed, and stored in its form. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/linear/linear_vec.h"
#include "kernels/paging.h"

CONV_INLINE conv_vec row_get(const dvk_rows *x, int64_t at, int64_t n) {
    return cv_get(x->data, (dvk_dtype)x->form, at, n);
}

/* dvk_q8_block for a whole block. */
static void row_quantise(const float x[DVK_Q8_ELEMENTS], dvk_q8 *to) {
    conv_vec most = cv_set1(0.0f);
    for (int i = 0; i < DVK_Q8_ELEMENTS; i += CONV_VW) {
        most = cv_max(most, lv_abs(cv_load(x + i)));
    }
    const float top = lv_max(most);
    const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
    to->d = top / 127.0f;
    to->sum[0] = lv_to_bytes(x, inverse, to->q);
    to->sum[1] = lv_to_bytes(x + 16, inverse, to->q + 16);
    to->s = to->d * (float)(to->sum[0] + to->sum[1]);
}

typedef struct row_affine { /* y = (x - mean) * scale * w + b */
    float mean, scale;
    const float *w, *b;
} row_affine;

CONV_INLINE conv_vec row_value(const dvk_rows *x, const row_affine *f, int64_t at, int64_t i, int64_t n) {
    conv_vec t = cv_mul(cv_sub(row_get(x, at + i, n), cv_set1(f->mean)), cv_set1(f->scale));
    if (f->w != NULL) {
        t = cv_mul(t, cv_get(f->w, DVK_F32, i, n));
    }
    return f->b != NULL ? cv_add(t, cv_get(f->b, DVK_F32, i, n)) : t;
}

static void row_write_q8(const dvk_rows *x, int64_t at, const row_affine *f, int64_t dim, dvk_q8 *to) {
    for (int64_t i = 0; i < dim; i += DVK_Q8_ELEMENTS, to++) {
        float v[DVK_Q8_ELEMENTS];
        if (dim - i >= DVK_Q8_ELEMENTS) {
            for (int j = 0; j < DVK_Q8_ELEMENTS; j += CONV_VW) {
                cv_store(v + j, row_value(x, f, at, i + j, CONV_VW));
            }
            row_quantise(v, to);
            continue;
        }
        for (int64_t j = 0; j < DVK_Q8_ELEMENTS; j += CONV_VW) {
            const int64_t n = conv_min(CONV_VW, dim - i - j);
            cv_store(v + j, n > 0 ? row_value(x, f, at, i + j, n) : cv_set1(0.0f));
            for (int64_t l = conv_max(0, n); l < CONV_VW; l++) { /* these lanes would otherwise hold -mean */
                v[j + l] = 0.0f;
            }
        }
        row_quantise(v, to);
    }
}

static void row_write(const dvk_rows *x, const dvk_rows *y, int64_t row, int64_t head, const row_affine *f,
                      int64_t dim) {
    const int64_t from = row * x->row + head * x->head;
    if (y->form == DVK_ROWS_Q8) {
        row_write_q8(x, from, f, dim, (dvk_q8 *)y->data + row * y->row);
        return;
    }
    const int64_t to = row * y->row + head * y->head;
    for (int64_t i = 0; i < dim; i += CONV_VW) {
        const int64_t n = conv_min(CONV_VW, dim - i);
        cv_put(y->data, (dvk_dtype)y->form, to + i, n, row_value(x, f, from, i, n));
    }
}

/* Sum over a head of x - mean, or of its square. */
CONV_INLINE float row_sum(const dvk_rows *x, int64_t at, int64_t dim, float mean, int square) {
    conv_vec sums[2] = {cv_set1(0.0f), cv_set1(0.0f)};
    for (int64_t i = 0; i < dim; i += 2 * CONV_VW) {
        for (int64_t j = 0; j < 2 && i + j * CONV_VW < dim; j++) {
            const int64_t n = conv_min(CONV_VW, dim - i - j * CONV_VW);
            conv_vec t = row_get(x, at + i + j * CONV_VW, n);
            if (n == CONV_VW) {
                t = cv_sub(t, cv_set1(mean));
            } else { /* lanes behind the last element must contribute zero */
                float v[CONV_VW];
                cv_store(v, t);
                for (int64_t l = 0; l < n; l++) {
                    v[l] -= mean;
                }
                t = cv_load(v);
            }
            sums[j] = square ? cv_fma(t, t, sums[j]) : cv_add(t, sums[j]);
        }
    }
    return lv_sum(cv_add(sums[0], sums[1]));
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
            const int64_t at = i * a->x.row + h * a->x.head;
            row_affine f = {.w = a->w, .b = a->b};
            f.mean = a->center ? row_sum(&a->x, at, a->dim, 0.0f, 0) / (float)a->dim : 0.0f;
            f.scale = 1.0f / sqrtf(row_sum(&a->x, at, a->dim, f.mean, 1) / (float)a->dim + a->eps);
            row_write(&a->x, &a->y, i, h, &f, a->dim);
        }
    }
}

static double norm_cost(const void *args) {
    const dvk_row_norm_args *a = args;
    return (double)(a->m * a->heads * a->dim) * CPU_COST(rows, element);
}

static int64_t convert_units(const void *args) {
    const dvk_row_convert_args *a = args;
    return a->m;
}

static void convert_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_row_convert_args *a = args;
    const row_affine same = {.scale = 1.0f};
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        for (int64_t h = 0; h < a->heads; h++) {
            row_write(&a->x, &a->y, i, h, &same, a->dim);
        }
    }
}

static double convert_cost(const void *args) {
    const dvk_row_convert_args *a = args;
    return (double)(a->m * a->heads * a->dim) * CPU_COST(rows, element);
}

static int64_t rope_units(const void *args) {
    const dvk_rope_args *a = args;
    return a->m;
}

static void rope_turn(const dvk_rope_args *a, const float *restrict cs, const float *restrict x, float *restrict y) {
    const float sign = a->inverse ? -1.0f : 1.0f;
    const int64_t pairs = a->pairs;
    if (a->interleaved) {
        for (int64_t j = 0; j < pairs; j++) {
            const float s = sign * cs[2 * j + 1];
            y[2 * j] = x[2 * j] * cs[2 * j] - x[2 * j + 1] * s;
            y[2 * j + 1] = x[2 * j + 1] * cs[2 * j] + x[2 * j] * s;
        }
        return;
    }
    for (int64_t j = 0; j < pairs; j++) {
        const float s = sign * cs[2 * j + 1];
        y[j] = x[j] * cs[2 * j] - x[j + pairs] * s;
        y[j + pairs] = x[j + pairs] * cs[2 * j] + x[j] * s;
    }
}

static void rope_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_rope_args *a = args;
    float x[DVK_HEAD_MAX + CONV_VW];
    float y[DVK_HEAD_MAX + CONV_VW];
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        const int64_t row = dvk_rope_row(a, i);
        for (int64_t h = 0; h < a->heads; h++) {
            const int64_t from = i * a->x.row + h * a->x.head;
            const int64_t to = row * a->y.row + h * a->y.head;
            for (int64_t j = 0; j < a->dim; j += CONV_VW) {
                cv_store(x + j, row_get(&a->x, from + j, conv_min(CONV_VW, a->dim - j)));
            }
            rope_turn(a, a->cs + i * a->pairs * 2, x, y);
            for (int64_t j = 2 * a->pairs; j < a->dim; j++) {
                y[j] = x[j];
            }
            for (int64_t j = 0; j < a->dim; j += CONV_VW) {
                cv_put(a->y.data, (dvk_dtype)a->y.form, to + j, conv_min(CONV_VW, a->dim - j), cv_load(y + j));
            }
        }
    }
}

static double rope_cost(const void *args) {
    const dvk_rope_args *a = args;
    return (double)(a->m * a->heads * a->dim) * CPU_COST(rows, element);
}
