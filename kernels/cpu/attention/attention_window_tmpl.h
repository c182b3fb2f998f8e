/* attention_window_tmpl.h - "window_attention" on vectors; included after attention_tmpl.h.
 *
 * As there, queries are in the lanes, and the keys of a window are read one number at a time. All scores of a panel fit
 * in the scratch, so the softmax needs one maximum. Queries are stored row by row. The bias of a key for a vector of
 * scores is therefore a run of the bias table, or two runs if a row is half a vector. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/window.h"

typedef enum win_run { WIN_ONE, WIN_TWO, WIN_NONE } win_run;

typedef struct win_lanes { /* of one vector of queries */
    win_run run;           /* consecutive in the bias table, as a whole or per half */
    int32_t at[CONV_VW];   /* from the bias of a window's first query */
    int32_t region[CONV_VW];
} win_lanes;

typedef struct win_memory { /* one thread's scratch */
    int64_t *q_at, *y_at;   /* [panels][ATT_Q]: element index of each query; -1: no pixel */
    int64_t *k_at, *v_at;   /* [keys] */
    win_lanes *lanes;       /* [panels][2] */
    float *k, *v;           /* [keys][dim] */
    float *q;               /* [dim][ATT_Q] */
    float *scores;          /* [keys][ATT_Q] */
    float *sums;            /* [dim][ATT_Q] */
    float *rows;            /* [ATT_Q][dim] */
} win_memory;

typedef struct win_place { /* a window */
    const dvk_window_attention_args *a;
    dvk_window_axis y, x;
    int64_t n, wy, wx;
    int64_t dim, keys, queries;
    int mixed; /* contains pixels of several regions */
} win_place;

static int64_t win_windows(const dvk_window_attention_args *a) {
    return a->ph / a->wh * (a->pw / a->ww);
}

/* Windows per unit: a few ms. */
static int64_t win_chunk(const dvk_window_attention_args *a) {
    const int64_t work = (int64_t)a->wh * a->ww * a->kh * a->kw * a->q.c;
    return conv_max(1, conv_min(win_windows(a), 25000000 / work));
}

static int64_t win_units(const void *args) {
    const dvk_window_attention_args *a = args;
    return a->q.n * conv_ceil_div(win_windows(a), win_chunk(a));
}

/* Computes the layout of the scratch; base may be NULL to compute only the size. */
static int64_t win_layout(const dvk_window_attention_args *a, float *base, win_memory *m) {
    const int64_t dim = a->q.c / a->heads;
    const int64_t keys = (int64_t)a->kh * a->kw;
    const int64_t panels = conv_ceil_div((int64_t)a->wh * a->ww, ATT_Q);
    int64_t used = 0;
    const int64_t q_at = att_take(&used, 2 * panels * ATT_Q);
    const int64_t y_at = att_take(&used, 2 * panels * ATT_Q);
    const int64_t k_at = att_take(&used, 2 * keys);
    const int64_t v_at = att_take(&used, 2 * keys);
    const int64_t lanes = att_take(&used, 2 * panels * (int64_t)(sizeof(win_lanes) / sizeof(float)));
    const int64_t k = att_take(&used, keys * dim);
    const int64_t v = att_take(&used, keys * dim);
    const int64_t q = att_take(&used, dim * ATT_Q);
    const int64_t scores = att_take(&used, keys * ATT_Q);
    const int64_t sums = att_take(&used, dim * ATT_Q);
    const int64_t rows = att_take(&used, dim * ATT_Q);
    if (base != NULL) {
        *m = (win_memory){(int64_t *)(void *)(base + q_at),
                          (int64_t *)(void *)(base + y_at),
                          (int64_t *)(void *)(base + k_at),
                          (int64_t *)(void *)(base + v_at),
                          (win_lanes *)(void *)(base + lanes),
                          base + k,
                          base + v,
                          base + q,
                          base + scores,
                          base + sums,
                          base + rows};
    }
    return used;
}

static size_t win_scratch_bytes(const void *args) {
    return (size_t)win_layout(args, NULL, NULL) * sizeof(float);
}

static double win_cost(const void *args) {
    const dvk_window_attention_args *a = args;
    const double pairs = (double)(a->q.n * a->ph * a->pw * a->heads) * (double)(a->kh * a->kw);
    return pairs * ((double)(a->q.c / a->heads) * 4.0 + CPU_COST(window_attention, score)) /
           CPU_COST(window_attention, products);
}

/* Transposes 8 x 8 values. */
CONV_INLINE void win_transpose8(const float *from, int64_t from_pitch, float *to, int64_t to_pitch) {
    __m256 r[8];
    __m256 s[8];
    for (int i = 0; i < 8; i++) {
        r[i] = _mm256_loadu_ps(from + i * from_pitch);
    }
    for (int i = 0; i < 8; i += 4) {
        const __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]);
        const __m256 b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        const __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
        const __m256 d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        s[i] = _mm256_shuffle_ps(a, c, 0x44);
        s[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        s[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        s[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * to_pitch, _mm256_permute2f128_ps(s[i], s[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * to_pitch, _mm256_permute2f128_ps(s[i], s[i + 4], 0x31));
    }
}

static void win_transpose(const float *from, int64_t rows, int64_t columns, float *to) {
    const int64_t whole_rows = rows / 8 * 8;
    const int64_t whole_columns = columns / 8 * 8;
    for (int64_t i = 0; i < whole_rows; i += 8) {
        for (int64_t j = 0; j < whole_columns; j += 8) {
            win_transpose8(from + i * columns + j, columns, to + j * rows + i, rows);
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; j++) {
            to[j * rows + i] = from[i * columns + j];
        }
    }
}

/* Element of channel 0 of an element of the window; -1: no pixel. */
static int64_t win_element(const win_place *w, const dvk_view *v, int64_t i, int64_t j) {
    const int64_t y = dvk_window_pixel(&w->y, w->wy, i);
    const int64_t x = dvk_window_pixel(&w->x, w->wx, j);
    return y >= 0 && x >= 0 ? w->n * v->sn + y * v->sh + x * v->sw : -1;
}

static int32_t win_key_region(const win_place *w, int64_t y, int64_t x) {
    return 3 * dvk_window_region(&w->y, w->y.shift, w->wy, y) + dvk_window_region(&w->x, w->x.shift, w->wx, x);
}

static int32_t win_query_region(const win_place *w, int64_t y, int64_t x) {
    return 3 * dvk_window_region(&w->y, w->y.cut, w->wy, y) + dvk_window_region(&w->x, w->x.cut, w->wx, x);
}

/* Computes the element indices of the queries and keys of a window, for all heads. */
static void win_enter(win_place *w, int64_t wy, int64_t wx, const win_memory *m) {
    const dvk_window_attention_args *a = w->a;
    w->wy = wy;
    w->wx = wx;
    w->mixed = win_key_region(w, 0, 0) != win_key_region(w, a->wh - 1, a->ww - 1);
    for (int64_t i = 0, n = 0; i < a->wh; i++) {
        for (int64_t j = 0; j < a->ww; j++, n++) {
            m->q_at[n] = win_element(w, &a->q, i, j);
            m->y_at[n] = win_element(w, &a->y, i, j);
            m->lanes[n / CONV_VW].region[n % CONV_VW] = w->mixed ? win_query_region(w, i, j) : 0;
        }
    }
    for (int64_t i = 0, n = 0; i < a->kh; i++) {
        for (int64_t j = 0; j < a->kw; j++, n++) {
            m->k_at[n] = win_element(w, &a->k, i - (a->kh - a->wh) / 2, j - (a->kw - a->ww) / 2);
            m->v_at[n] = win_element(w, &a->v, i - (a->kh - a->wh) / 2, j - (a->kw - a->ww) / 2);
        }
    }
}

/* Reads the rows of a head, with zeros for missing pixels. */
static void win_read(const dvk_view *v, const int64_t *at, int64_t count, int64_t channel, int64_t dim, float *to) {
    for (int64_t i = 0; i < count; i++, to += dim) {
        if (at[i] < 0) {
            memset(to, 0, (size_t)dim * sizeof(float));
        } else {
            att_read(v, at[i] + channel, dim, to);
        }
    }
}

static void win_read_queries(const win_place *w, int64_t first, int64_t channel, const win_memory *m) {
    const conv_vec scale = cv_set1(w->a->scale);
    win_read(&w->a->q, m->q_at + first, ATT_Q, channel, w->dim, m->rows);
    win_transpose(m->rows, ATT_Q, w->dim, m->q);
    for (int64_t i = 0; i < w->dim * ATT_Q; i += CONV_VW) {
        cv_store(m->q + i, cv_mul(cv_load(m->q + i), scale));
    }
}

static void win_write_queries(const win_place *w, int64_t first, int64_t channel, const win_memory *m) {
    const dvk_view *y = &w->a->y;
    win_transpose(m->sums, w->dim, ATT_Q, m->rows);
    for (int64_t i = 0; i < ATT_Q; i++) {
        const int64_t at = m->y_at[first + i];
        for (int64_t c = 0; at >= 0 && c < w->dim; c += CONV_VW) {
            const int64_t n = conv_min(CONV_VW, w->dim - c);
            cv_put(y->data, y->dtype, at + channel + c, n, cv_get(m->rows, DVK_F32, i * w->dim + c, n));
        }
    }
}

/* Prepares tables that all windows share. Lanes without a query repeat the last one and have no pixel. */
static void win_describe(const win_place *w, const win_memory *m) {
    const dvk_window_attention_args *a = w->a;
    const int64_t all = conv_ceil_div(w->queries, ATT_Q) * ATT_Q;
    for (int64_t i = 0; i < all; i++) {
        const int64_t query = conv_min(i, w->queries - 1);
        m->lanes[i / CONV_VW].at[i % CONV_VW] = (int32_t)(query / a->ww * (a->ww + a->kw - 1) + query % a->ww);
        m->lanes[i / CONV_VW].region[i % CONV_VW] = 0;
        m->q_at[i] = -1;
        m->y_at[i] = -1;
    }
    for (int64_t j = 0; j < all / CONV_VW; j++) {
        win_lanes *l = &m->lanes[j];
        l->run = WIN_ONE;
        for (int i = 1; i < CONV_VW; i++) {
            if (l->at[i] != l->at[i - 1] + 1) {
                l->run = i == 8 && l->run == WIN_ONE && CONV_VW == 16 ? WIN_TWO : WIN_NONE;
            }
        }
    }
}

#ifdef __AVX512F__
CONV_INLINE conv_vec win_bias(const float *bias, const win_lanes *l) {
    if (l->run == WIN_ONE) {
        return cv_load(bias + l->at[0]);
    }
    if (l->run == WIN_TWO) {
        return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(bias + l->at[0])),
                                  _mm256_loadu_ps(bias + l->at[8]), 1);
    }
    return _mm512_i32gather_ps(_mm512_loadu_si512(l->at), bias, 4);
}
#else
CONV_INLINE conv_vec win_bias(const float *bias, const win_lanes *l) {
    return l->run == WIN_ONE ? cv_load(bias + l->at[0])
                             : _mm256_i32gather_ps(bias, _mm256_loadu_si256((const __m256i *)(const void *)l->at), 4);
}
#endif

static void win_add_bias(const win_place *w, const float *bias, const win_lanes *l, float *scores) {
    const dvk_window_attention_args *a = w->a;
    for (int64_t i = 0; i < a->kh; i++) {
        const float *row = bias + (a->kh - 1 - i) * (a->ww + a->kw - 1);
        for (int64_t j = 0; j < a->kw; j++, scores += ATT_Q) {
            cv_store(scores, cv_add(cv_load(scores), win_bias(row + (a->kw - 1 - j), l)));
        }
    }
}

static void win_add_mask(const win_place *w, const win_lanes *l, float *scores) {
    const dvk_window_attention_args *a = w->a;
    float mask[9][CONV_VW];
    for (int32_t r = 0; r < 9; r++) {
        for (int i = 0; i < CONV_VW; i++) {
            mask[r][i] = l->region[i] == r ? 0.0f : DVK_WINDOW_MASK;
        }
    }
    for (int64_t i = 0; i < a->kh; i++) { /* as many as queries if there are regions */
        for (int64_t j = 0; j < a->kw; j++, scores += ATT_Q) {
            cv_store(scores, cv_add(cv_load(scores), cv_load(mask[win_key_region(w, i, j)])));
        }
    }
}

/* Scores become exponentials; returns 1 / their sum. */
static conv_vec win_softmax(float *scores, int64_t keys) {
    conv_vec most = cv_load(scores);
    for (int64_t i = 1; i < keys; i++) {
        most = cv_max(most, cv_load(scores + i * ATT_Q));
    }
    conv_vec sum = cv_set1(0.0f);
    for (int64_t i = 0; i < keys; i++) {
        const conv_vec e = conv_exp(cv_sub(cv_load(scores + i * ATT_Q), most));
        cv_store(scores + i * ATT_Q, e);
        sum = cv_add(sum, e);
    }
    return cv_div(cv_set1(1.0f), sum);
}

static void win_panel(const win_place *w, const float *bias, int64_t first, const win_memory *m) {
    const att_product scores = {.a = m->k, .b = m->q, .c = m->scores, .a_row = w->dim, .a_step = 1, .depth = w->dim};
    const att_product sums = {.a = m->v, .b = m->scores, .c = m->sums, .a_row = 1, .a_step = w->dim, .depth = w->keys};
    const win_lanes *lanes = m->lanes + first / CONV_VW;
    conv_vec inverse[2];
    att_multiply(&scores, w->keys);
    for (int j = 0; j < 2; j++) {
        float *s = m->scores + j * CONV_VW;
        if (bias != NULL) {
            win_add_bias(w, bias, &lanes[j], s);
        }
        if (w->mixed) {
            win_add_mask(w, &lanes[j], s);
        }
        inverse[j] = win_softmax(s, w->keys);
    }
    att_multiply(&sums, w->dim);
    for (int64_t c = 0; c < w->dim * ATT_Q; c += CONV_VW) {
        cv_store(m->sums + c, cv_mul(cv_load(m->sums + c), inverse[c / CONV_VW % 2]));
    }
}

static void win_window(const win_place *w, const win_memory *m) {
    const dvk_window_attention_args *a = w->a;
    const int64_t table = (int64_t)(a->wh + a->kh - 1) * (a->ww + a->kw - 1);
    for (int64_t head = 0; head < a->heads; head++) {
        const float *bias = a->bias != NULL ? a->bias + head * table : NULL;
        win_read(&a->k, m->k_at, w->keys, head * w->dim, w->dim, m->k);
        win_read(&a->v, m->v_at, w->keys, head * w->dim, w->dim, m->v);
        for (int64_t first = 0; first < w->queries; first += ATT_Q) {
            win_read_queries(w, first, head * w->dim, m);
            win_panel(w, bias, first, m);
            win_write_queries(w, first, head * w->dim, m);
        }
    }
}

static void win_run_units(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_window_attention_args *a = args;
    const int64_t chunk = win_chunk(a);
    const int64_t windows = win_windows(a);
    const int64_t per_picture = conv_ceil_div(windows, chunk);
    win_memory m = {0};
    win_layout(a, scratch, &m);
    win_place w = {.a = a,
                   .y = dvk_window_rows(a),
                   .x = dvk_window_columns(a),
                   .dim = a->q.c / a->heads,
                   .keys = (int64_t)a->kh * a->kw,
                   .queries = (int64_t)a->wh * a->ww};
    win_describe(&w, &m);
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t from = unit % per_picture * chunk;
        w.n = unit / per_picture;
        for (int64_t i = from; i < conv_min(from + chunk, windows); i++) {
            win_enter(&w, i / w.x.windows, i % w.x.windows, &m);
            win_window(&w, &m);
        }
    }
}
