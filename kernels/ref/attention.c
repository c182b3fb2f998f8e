/* attention.c - reference of "attention": for each query all scores, their softmax, and the weighted sum of the values.
 * Sums are in double. One unit is one query of one head. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

/* Element index of channel 0 of the token (a pixel in reading order). */
static int64_t token_at(const dvk_view *v, int64_t n, int64_t token) {
    return dvk_at(v, n, token / v->w, token % v->w);
}

/* scores[t] = softmax over all keys t of scale * q . k_t; rows: room for two of them */
static void softmax_scores(const dvk_attention_args *a, int64_t n, int64_t query, int64_t c0, double *scores,
                           float *rows) {
    const int64_t keys = a->k.h * a->k.w;
    const int64_t dim = a->q.c / a->heads;
    double top = -INFINITY;
    const float *q = dvk_floats(a->q.data, a->q.dtype, token_at(&a->q, n, query) + c0, dim, rows);
    for (int64_t t = 0; t < keys; t++) {
        const float *k = dvk_floats(a->k.data, a->k.dtype, token_at(&a->k, n, t) + c0, dim, rows + dim);
        double dot = 0.0;
        for (int64_t c = 0; c < dim; c++) {
            dot += (double)q[c] * (double)k[c];
        }
        scores[t] = dot * (double)a->scale;
        top = scores[t] > top ? scores[t] : top;
    }
    double sum = 0.0;
    for (int64_t t = 0; t < keys; t++) {
        scores[t] = exp(scores[t] - top);
        sum += scores[t];
    }
    for (int64_t t = 0; t < keys; t++) {
        scores[t] /= sum;
    }
}

static int64_t units(const void *args) {
    const dvk_attention_args *a = args;
    return a->q.n * a->heads * a->q.h * a->q.w;
}

static size_t scratch_bytes(const void *args) {
    const dvk_attention_args *a = args;
    const int64_t rows = 2 * a->q.c + a->v.c; /* of all heads */
    return (size_t)(a->k.h * a->k.w + a->v.c / a->heads) * sizeof(double) + (size_t)(rows / a->heads) * sizeof(float);
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_attention_args *a = args;
    const int64_t queries = a->q.h * a->q.w;
    const int64_t keys = a->k.h * a->k.w;
    const int64_t dim = a->v.c / a->heads;
    double *scores = scratch;
    double *sums = scores + keys;
    float *rows = (float *)(sums + dim);
    float *room = rows + 2 * (a->q.c / a->heads);
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t query = unit % queries;
        const int64_t head = unit / queries % a->heads;
        const int64_t n = unit / queries / a->heads;
        softmax_scores(a, n, query, head * (a->q.c / a->heads), scores, rows);
        for (int64_t c = 0; c < dim; c++) {
            sums[c] = 0.0;
        }
        for (int64_t t = 0; t < keys; t++) {
            const float *v = dvk_floats(a->v.data, a->v.dtype, token_at(&a->v, n, t) + head * dim, dim, room);
            for (int64_t c = 0; c < dim; c++) {
                sums[c] += scores[t] * (double)v[c];
            }
        }
        const int64_t y0 = token_at(&a->y, n, query) + head * dim;
        for (int64_t c = 0; c < dim; c++) {
            dvk_store(a->y.data, a->y.dtype, y0 + c, (float)sums[c]);
        }
    }
}

const dvk_kernel dvk_attention_ref = {.op = "attention",
                                      .variant = "ref",
                                      .compute = DVK_F32,
                                      .units = units,
                                      .scratch_bytes = scratch_bytes,
                                      .run = run};
