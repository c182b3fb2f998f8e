/* window_attention.c - reference of "window_attention". Sums are in double; one unit is one window of one head. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"
#include "kernels/window.h"

typedef struct place { /* a query or a key */
    int64_t y, x;      /* in the window */
    int64_t py, px;    /* pixel; one of them -1: zeros */
    int region;
} place;

typedef struct problem {
    const dvk_window_attention_args *a;
    dvk_window_axis rows, columns;
    int64_t n, head, wy, wx, dim;
} problem;

static int region_of(const problem *p, const int64_t cut[2], int64_t y, int64_t x) {
    return 3 * dvk_window_region(&p->rows, cut[0], p->wy, y) + dvk_window_region(&p->columns, cut[1], p->wx, x);
}

static place place_of(const problem *p, const int64_t cut[2], int64_t y, int64_t x) {
    const place at = {.y = y,
                      .x = x,
                      .py = dvk_window_pixel(&p->rows, p->wy, y),
                      .px = dvk_window_pixel(&p->columns, p->wx, x),
                      .region = region_of(p, cut, y, x)};
    return at;
}

static double value(const problem *p, const dvk_view *v, const place *at, int64_t c) {
    if (at->py < 0 || at->px < 0) {
        return 0.0;
    }
    return (double)dvk_load(v->data, v->dtype, dvk_at(v, p->n, at->py, at->px) + p->head * p->dim + c);
}

static place key_place(const problem *p, int64_t key) {
    const dvk_window_attention_args *a = p->a;
    const int64_t cut[2] = {p->rows.shift, p->columns.shift};
    return place_of(p, cut, key / a->kw - (a->kh - a->wh) / 2, key % a->kw - (a->kw - a->ww) / 2);
}

static double score(const problem *p, const place *query, int64_t key) {
    const dvk_window_attention_args *a = p->a;
    const place k = key_place(p, key);
    double dot = 0.0;
    for (int64_t c = 0; c < p->dim; c++) {
        dot += value(p, &a->q, query, c) * value(p, &a->k, &k, c);
    }
    dot *= (double)a->scale;
    if (a->bias != NULL) {
        const int64_t width = a->ww + a->kw - 1;
        const int64_t dy = query->y - key / a->kw + a->kh - 1;
        const int64_t dx = query->x - key % a->kw + a->kw - 1;
        dot += (double)a->bias[(p->head * (a->wh + a->kh - 1) + dy) * width + dx];
    }
    return query->region != k.region ? dot + (double)DVK_WINDOW_MASK : dot;
}

static void attend(const problem *p, const place *query, double *scores) {
    const dvk_window_attention_args *a = p->a;
    const int64_t keys = (int64_t)a->kh * a->kw;
    double top = -INFINITY;
    double sum = 0.0;
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = score(p, query, j);
        top = scores[j] > top ? scores[j] : top;
    }
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = exp(scores[j] - top);
        sum += scores[j];
    }
    double *totals = scores + keys;
    for (int64_t c = 0; c < p->dim; c++) {
        totals[c] = 0.0;
    }
    for (int64_t j = 0; j < keys; j++) {
        const place k = key_place(p, j);
        for (int64_t c = 0; c < p->dim; c++) {
            totals[c] += scores[j] * value(p, &a->v, &k, c);
        }
    }
    const int64_t y0 = dvk_at(&a->y, p->n, query->py, query->px) + p->head * p->dim;
    for (int64_t c = 0; c < p->dim; c++) {
        dvk_store(a->y.data, a->y.dtype, y0 + c, (float)(totals[c] / sum));
    }
}

static int64_t units(const void *args) {
    const dvk_window_attention_args *a = args;
    return a->q.n * a->heads * (a->ph / a->wh) * (a->pw / a->ww);
}

static size_t scratch_bytes(const void *args) {
    const dvk_window_attention_args *a = args;
    return ((size_t)a->kh * (size_t)a->kw + (size_t)(a->q.c / a->heads)) * sizeof(double);
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_window_attention_args *a = args;
    problem p = {.a = a, .rows = dvk_window_rows(a), .columns = dvk_window_columns(a), .dim = a->q.c / a->heads};
    for (int64_t unit = first; unit < last; unit++) {
        p.wx = unit % p.columns.windows;
        p.wy = unit / p.columns.windows % p.rows.windows;
        p.head = unit / (p.columns.windows * p.rows.windows) % a->heads;
        p.n = unit / (p.columns.windows * p.rows.windows) / a->heads;
        const int64_t cut[2] = {p.rows.cut, p.columns.cut};
        for (int64_t i = 0; i < (int64_t)a->wh * a->ww; i++) {
            const place query = place_of(&p, cut, i / a->ww, i % a->ww);
            if (query.py >= 0 && query.px >= 0) {
                attend(&p, &query, scratch);
            }
        }
    }
}

const dvk_kernel dvk_window_attention_ref = {.op = "window_attention",
                                             .variant = "ref",
                                             .compute = DVK_F32,
                                             .units = units,
                                             .scratch_bytes = scratch_bytes,
                                             .run = run};
