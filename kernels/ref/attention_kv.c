/* attention_kv.c - reference of "attention_kv": for each query and head the scores, their softmax, and the weighted
 * values. */
#include "kernels/ref/attention_kv.h"

#include <math.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/paging.h"
#include "kernels/ref/scalar.h"

void dvk_visible(const dvk_attention_kv_args *a, int64_t query, int64_t *first, int64_t *last) {
    const int64_t position = a->in.position != NULL ? a->in.position[query] : a->past + query;
    *first = 0;
    *last = a->keys;
    if (a->bounds != NULL) {
        for (int64_t s = 0; s + 1 < a->n_bounds; s++) {
            if (position >= a->bounds[s] && position < a->bounds[s + 1]) {
                *first = a->bounds[s];
                *last = a->bounds[s + 1];
            }
        }
    } else if (a->causal || a->in.position != NULL) {
        *last = position + 1;
        *first = a->window > 0 && *last > a->window ? *last - a->window : 0;
    }
}

/* A head of a row; converted into `room` if the rows are not f32. */
static const float *head_of(const dvk_rows *x, int64_t row, int64_t head, int64_t dim, float *room) {
    return dvk_floats(x->data, (dvk_dtype)x->form, row * x->row + head * x->head, dim, room);
}

static double score(const dvk_attention_kv_args *a, const float *q, int64_t query, int64_t head, int64_t key) {
    float room[DVK_HEAD_MAX];
    const int64_t row = dvk_paged_row(&a->in, query, key);
    const float *k = head_of(&a->k, row, head / (a->heads / a->kv_heads), a->dim, room);
    double sum = 0.0;
    for (int64_t c = 0; c < a->dim; c++) {
        sum += (double)q[c] * (double)k[c];
    }
    return sum * (double)a->scale;
}

static int64_t units(const void *args) {
    const dvk_attention_kv_args *a = args;
    return a->m * a->heads;
}

static void run(const void *args, int64_t first_unit, int64_t last_unit, void *scratch) {
    const dvk_attention_kv_args *a = args;
    (void)scratch;
    for (int64_t unit = first_unit; unit < last_unit; unit++) {
        const int64_t query = unit / a->heads;
        const int64_t head = unit % a->heads;
        int64_t first = 0;
        int64_t last = 0;
        dvk_visible(a, query, &first, &last);
        double top = -INFINITY;
        double total = 0.0;
        double sums[DVK_HEAD_MAX] = {0.0};
        float rooms[2][DVK_HEAD_MAX];
        const float *q = head_of(&a->q, query, head, a->dim, rooms[0]);
        for (int64_t key = first; key < last; key++) {
            top = fmax(top, score(a, q, query, head, key));
        }
        for (int64_t key = first; key < last; key++) {
            const double weight = exp(score(a, q, query, head, key) - top);
            const int64_t row = dvk_paged_row(&a->in, query, key);
            const float *v = head_of(&a->v, row, head / (a->heads / a->kv_heads), a->dim, rooms[1]);
            total += weight;
            for (int64_t c = 0; c < a->dim; c++) {
                sums[c] += weight * (double)v[c];
            }
        }
        for (int64_t c = 0; c < a->dim; c++) {
            dvk_store(a->y.data, (dvk_dtype)a->y.form, query * a->y.row + head * a->y.head + c,
                      (float)(sums[c] / total));
        }
    }
}

const dvk_kernel dvk_attention_kv_ref = {
    .op = "attention_kv", .variant = "ref", .compute = DVK_F32, .units = units, .run = run};
