/* window_attention.c - reference of "window_attention". Sums are in double. One unit is one window of one head, whose
 * keys and values are gathered once. */
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

/* Keys and values that all queries of a window and head share, and scratch for one query. */
typedef struct window {
    int64_t keys;
    double *k, *v, *query, *scores, *totals;
    place *places;
} window;

static window window_at(const problem *p, void *scratch) {
    window w = {.keys = (int64_t)p->a->kh * p->a->kw, .k = scratch};
    w.v = w.k + w.keys * p->dim;
    w.query = w.v + w.keys * p->dim;
    w.totals = w.query + p->dim;
    w.scores = w.totals + p->dim;
    w.places = (place *)(w.scores + w.keys);
    return w;
}

static void gather(const problem *p, const dvk_view *v, const place *at, double *to) {
    for (int64_t c = 0; c < p->dim; c++) {
        to[c] = value(p, v, at, c);
    }
}

static void gather_keys(const problem *p, const window *w) {
    for (int64_t j = 0; j < w->keys; j++) {
        w->places[j] = key_place(p, j);
        gather(p, &p->a->k, &w->places[j], w->k + j * p->dim);
        gather(p, &p->a->v, &w->places[j], w->v + j * p->dim);
    }
}

static double score(const problem *p, const place *query, const place *key, double dot) {
    const dvk_window_attention_args *a = p->a;
    dot *= (double)a->scale;
    if (a->bias != NULL) {
        const int64_t width = a->ww + a->kw - 1;
        const int64_t dy = query->y - key->y - (a->kh - a->wh) / 2 + a->kh - 1;
        const int64_t dx = query->x - key->x - (a->kw - a->ww) / 2 + a->kw - 1;
        dot += (double)a->bias[(p->head * (a->wh + a->kh - 1) + dy) * width + dx];
    }
    return query->region != key->region ? dot + (double)DVK_WINDOW_MASK : dot;
}

/* Four sums side by side, each in the order of the channels. */
static void dots(const window *w, int64_t dim) {
    for (int64_t j = 0; j < w->keys; j += 4) {
        const double *row[4];
        double sum[4] = {0};
        for (int64_t i = 0; i < 4; i++) {
            row[i] = w->k + (j + i < w->keys ? j + i : j) * dim;
        }
        for (int64_t c = 0; c < dim; c++) {
            sum[0] += w->query[c] * row[0][c];
            sum[1] += w->query[c] * row[1][c];
            sum[2] += w->query[c] * row[2][c];
            sum[3] += w->query[c] * row[3][c];
        }
        for (int64_t i = 0; i < 4 && j + i < w->keys; i++) {
            w->scores[j + i] = sum[i];
        }
    }
}

static void attend(const problem *p, const place *query, const window *w) {
    const dvk_window_attention_args *a = p->a;
    double top = -INFINITY;
    double sum = 0.0;
    gather(p, &a->q, query, w->query);
    dots(w, p->dim);
    for (int64_t j = 0; j < w->keys; j++) {
        w->scores[j] = score(p, query, &w->places[j], w->scores[j]);
        top = w->scores[j] > top ? w->scores[j] : top;
    }
    for (int64_t j = 0; j < w->keys; j++) {
        w->scores[j] = exp(w->scores[j] - top);
        sum += w->scores[j];
    }
    for (int64_t c = 0; c < p->dim; c++) {
        w->totals[c] = 0.0;
    }
    for (int64_t j = 0; j < w->keys; j++) {
        const double *v = w->v + j * p->dim;
        for (int64_t c = 0; c < p->dim; c++) {
            w->totals[c] += w->scores[j] * v[c];
        }
    }
    const int64_t y0 = dvk_at(&a->y, p->n, query->py, query->px) + p->head * p->dim;
    for (int64_t c = 0; c < p->dim; c++) {
        dvk_store(a->y.data, a->y.dtype, y0 + c, (float)(w->totals[c] / sum));
    }
}

static int64_t units(const void *args) {
    const dvk_window_attention_args *a = args;
    return a->q.n * a->heads * (a->ph / a->wh) * (a->pw / a->ww);
}

static size_t scratch_bytes(const void *args) {
    const dvk_window_attention_args *a = args;
    const size_t keys = (size_t)a->kh * (size_t)a->kw, dim = (size_t)(a->q.c / a->heads);
    return (keys * (2 * dim + 1) + 2 * dim) * sizeof(double) + keys * sizeof(place);
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_window_attention_args *a = args;
    problem p = {.a = a, .rows = dvk_window_rows(a), .columns = dvk_window_columns(a), .dim = a->q.c / a->heads};
    const window w = window_at(&p, scratch);
    for (int64_t unit = first; unit < last; unit++) {
        p.wx = unit % p.columns.windows;
        p.wy = unit / p.columns.windows % p.rows.windows;
        p.head = unit / (p.columns.windows * p.rows.windows) % a->heads;
        p.n = unit / (p.columns.windows * p.rows.windows) / a->heads;
        const int64_t cut[2] = {p.rows.cut, p.columns.cut};
        gather_keys(&p, &w);
        for (int64_t i = 0; i < (int64_t)a->wh * a->ww; i++) {
            const place query = place_of(&p, cut, i / a->ww, i % a->ww);
            if (query.py >= 0 && query.px >= 0) {
                attend(&p, &query, &w);
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
