/* swin.c - references of "norm_mlp" and "norm_window", in double. One unit is one row, or one window. */
#include "kernels/swin.h"

#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

static void normalise(const dvk_view *x, const dvk_swin_norm *norm, int64_t at, double *u) {
    double mean = 0.0, var = 0.0;
    for (int64_t c = 0; c < x->c; c++) {
        u[c] = (double)dvk_load(x->data, x->dtype, at + c);
        mean += u[c] / (double)x->c;
    }
    for (int64_t c = 0; c < x->c; c++) {
        var += (u[c] - mean) * (u[c] - mean) / (double)x->c;
    }
    for (int64_t c = 0; c < x->c; c++) {
        u[c] = (u[c] - mean) / sqrt(var + (double)norm->eps);
        u[c] = u[c] * (norm->gamma != NULL ? (double)norm->gamma[c] : 1.0) +
               (norm->beta != NULL ? (double)norm->beta[c] : 0.0);
    }
}

static double dot(const dvk_swin_linear *l, int64_t row, const double *v, int64_t count) {
    double sum = l->bias != NULL ? (double)l->bias[row] : 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)l->w[row * count + i] * v[i];
    }
    return sum;
}

static void store(const dvk_view *y, const dvk_view *res, int64_t at, int64_t res_at, int64_t c, double v) {
    v += res->data != NULL ? (double)dvk_load(res->data, res->dtype, res_at + c) : 0.0;
    dvk_store(y->data, y->dtype, at + c, (float)v);
}

/* ---- norm_mlp ---- */

static int64_t mlp_units(const void *args) {
    const dvk_norm_mlp_args *a = args;
    return a->y.n * a->y.h;
}

static size_t mlp_scratch(const void *args) {
    const dvk_norm_mlp_args *a = args;
    return (size_t)(a->x.c + a->hidden) * sizeof(double);
}

static void mlp_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_norm_mlp_args *a = args;
    double *u = scratch, *hidden = u + a->x.c;
    for (int64_t i = first * a->y.w; i < last * a->y.w; i++) {
        const int64_t n = i / (a->y.h * a->y.w), y = i / a->y.w % a->y.h, x = i % a->y.w;
        normalise(&a->x, &a->norm, dvk_at(&a->x, n, y, x), u);
        for (int64_t k = 0; k < a->hidden; k++) {
            hidden[k] = (double)dvk_activate(DVK_ACT_GELU, (float)dot(&a->in, k, u, a->x.c), 0.0f);
        }
        for (int64_t c = 0; c < a->y.c; c++) {
            store(&a->y, &a->res, dvk_at(&a->y, n, y, x), a->res.data != NULL ? dvk_at(&a->res, n, y, x) : 0, c,
                  dot(&a->out, c, hidden, a->hidden));
        }
    }
}

const dvk_kernel dvk_norm_mlp_ref = {.op = "norm_mlp",
                                     .variant = "ref",
                                     .compute = DVK_F32,
                                     .units = mlp_units,
                                     .scratch_bytes = mlp_scratch,
                                     .run = mlp_run};

/* ---- norm_window ---- */

static int64_t window_units(const void *args) {
    const dvk_norm_window_args *a = args;
    return a->x.n * (a->x.h / a->window) * (a->x.w / a->window);
}

/* Scratch of one window: queries, keys and values and sums of all heads; one pixel's norm and one query's weights. */
static size_t window_scratch(const void *args) {
    const dvk_norm_window_args *a = args;
    const int64_t tokens = (int64_t)a->window * a->window;
    return (size_t)(tokens * 4 * a->heads * a->dim + a->x.c + tokens) * sizeof(double);
}

typedef struct token {
    int64_t n, y, x;
    int regions; /* the row and column regions of a frame, which the mask separates */
} token;

static int region(int64_t at, int64_t length, int64_t window, int64_t shift) {
    return shift == 0 || at < length - window ? 0 : at < length - shift ? 1 : 2;
}

static token token_of(const dvk_norm_window_args *a, int64_t window, int64_t i) {
    const int64_t down = a->x.h / a->window, across = a->x.w / a->window;
    const int64_t row = window / across % down, column = window % across, n = window / across / down;
    const int64_t ty = i / a->window, tx = i % a->window;
    if (a->grid) {
        return (token){n, ty * down + row, tx * across + column, 0};
    }
    const int64_t y = row * a->window + ty, x = column * a->window + tx;
    return (token){n, (y + a->shift_y) % a->x.h, (x + a->shift_x) % a->x.w,
                   3 * region(y, a->x.h, a->window, a->shift_y) + region(x, a->x.w, a->window, a->shift_x)};
}

/* softmax over the keys of one query's scores of a head */
static void weigh(const dvk_norm_window_args *a, int64_t window, const double *qkv, int64_t head, int64_t i,
                  double *w) {
    const int64_t tokens = (int64_t)a->window * a->window, width = a->heads * a->dim, side = 2 * a->window - 1;
    double top = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < tokens; j++) {
        w[j] = 0.0;
        for (int64_t d = 0; d < a->dim; d++) {
            w[j] += qkv[i * 3 * width + head * a->dim + d] * qkv[j * 3 * width + width + head * a->dim + d];
        }
        const int64_t u = i / a->window - j / a->window + a->window - 1,
                      v = i % a->window - j % a->window + a->window - 1;
        w[j] = w[j] * (double)a->scale + (a->table != NULL ? (double)a->table[(head * side + u) * side + v] : 0.0);
        w[j] -= token_of(a, window, i).regions != token_of(a, window, j).regions ? 100.0 : 0.0;
        top = w[j] > top ? w[j] : top;
    }
    for (int64_t j = 0; j < tokens; j++) {
        w[j] = exp(w[j] - top);
        sum += w[j];
    }
    for (int64_t j = 0; j < tokens; j++) {
        w[j] /= sum;
    }
}

static void attend(const dvk_norm_window_args *a, int64_t window, const double *qkv, double *w, double *sums) {
    const int64_t tokens = (int64_t)a->window * a->window, width = a->heads * a->dim;
    for (int64_t k = 0; k < tokens * a->heads; k++) {
        const int64_t i = k / a->heads, head = k % a->heads;
        weigh(a, window, qkv, head, i, w);
        for (int64_t d = head * a->dim; d < (head + 1) * a->dim; d++) {
            double sum = 0.0;
            for (int64_t j = 0; j < tokens; j++) {
                sum += w[j] * qkv[(j * 3 + 2) * width + d];
            }
            sums[i * width + d] = sum;
        }
    }
}

static void window_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_norm_window_args *a = args;
    const int64_t tokens = (int64_t)a->window * a->window, width = a->heads * a->dim;
    double *qkv = scratch, *sums = qkv + tokens * 3 * width, *u = sums + tokens * width, *w = u + a->x.c;
    for (int64_t window = first; window < last; window++) {
        for (int64_t i = 0; i < tokens; i++) {
            const token t = token_of(a, window, i);
            normalise(&a->x, &a->norm, dvk_at(&a->x, t.n, t.y, t.x), u);
            for (int64_t k = 0; k < 3 * width; k++) {
                qkv[i * 3 * width + k] = dot(&a->in, k, u, a->x.c);
            }
        }
        attend(a, window, qkv, w, sums);
        for (int64_t i = 0; i < tokens; i++) {
            const token t = token_of(a, window, i);
            for (int64_t c = 0; c < a->y.c; c++) {
                store(&a->y, &a->res, dvk_at(&a->y, t.n, t.y, t.x),
                      a->res.data != NULL ? dvk_at(&a->res, t.n, t.y, t.x) : 0, c,
                      dot(&a->out, c, sums + i * width, width));
            }
        }
    }
}

const dvk_kernel dvk_norm_window_ref = {.op = "norm_window",
                                        .variant = "ref",
                                        .compute = DVK_F32,
                                        .units = window_units,
                                        .scratch_bytes = window_scratch,
                                        .run = window_run};
