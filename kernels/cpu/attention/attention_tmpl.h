/* attention_tmpl.h - "attention" on vectors, compiled once for each instruction set by a file that has included a
 * conv_vec_*.h.
 *
 * Queries are in the lanes: a panel is ATT_Q = two vectors of queries, and all matrices are transposed. Keys and values
 * are therefore read in their memory layout, one number at a time. The softmax over keys needs no sum across lanes.
 *     S[key][query]  = sum_c K[key][c] * Q[c][query]            (Q transposed once per unit, times the scale)
 *     P = exp(S - running maximum)
 *     O[c][query]    = O * exp(old maximum - new) + sum_key V[key][c] * P[key][query]
 * A unit is some panels of one head; they share each block of keys and values while it is in the cache. Keys and values
 * that are not f32 are converted block by block. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/conv/conv_math_tmpl.h"

enum {
    ATT_Q = 2 * CONV_VW,      /* queries of a panel */
    ATT_KEYS = 8 * CONV_MR,   /* keys of a block */
    ATT_PANELS = 96 / CONV_VW /* panels of a unit: 192 queries */
};

typedef struct att_size { /* of one head */
    int64_t queries, keys, dim, v_dim, panels, units_per_head;
} att_size;

typedef struct att_memory { /* one unit's scratch */
    float *q;               /* [panel][dim][ATT_Q] */
    float *sums;            /* O: [panel][v_dim][ATT_Q] */
    float *top;             /* [panel][ATT_Q] running maximum */
    float *total;           /* [panel][ATT_Q] running sum */
    float *scores;          /* S, then P: [ATT_KEYS][ATT_Q] */
    float *k, *v;           /* a converted block: [ATT_KEYS][dim], [ATT_KEYS][v_dim] */
    float *row;             /* one pixel: [max(dim, v_dim)] */
} att_memory;

typedef struct att_block { /* a block of keys as the products read them */
    const float *k, *v;
    int64_t k_pitch, v_pitch, keys;
} att_block;

/* C[rows][ATT_Q] = C * factor + sum over depth of A * B; A(row, i) = a[row * a_row + i * a_step], B = b[depth][ATT_Q]. */
typedef struct att_product {
    const float *a, *b;
    float *c;
    const float *factor; /* [ATT_Q], NULL: C starts at zero */
    int64_t a_row, a_step, depth;
} att_product;

static att_size att_sizes(const dvk_attention_args *a) {
    att_size s = {
        .queries = a->q.h * a->q.w, .keys = a->k.h * a->k.w, .dim = a->q.c / a->heads, .v_dim = a->v.c / a->heads};
    const int64_t panels = conv_ceil_div(s.queries, ATT_Q);
    /* With many keys a unit has fewer panels, so that it stays below about 20 ms. */
    s.panels = s.keys * (s.dim + s.v_dim) > (int64_t)8 << 20 ? ATT_PANELS / 2 : ATT_PANELS;
    s.panels = conv_max(1, conv_min(s.panels, panels));
    s.units_per_head = conv_ceil_div(panels, s.panels);
    return s;
}

static int64_t att_units(const void *args) {
    const dvk_attention_args *a = args;
    return a->q.n * a->heads * att_sizes(a).units_per_head;
}

static int64_t att_take(int64_t *used, int64_t floats) {
    const int64_t at = *used;
    *used += conv_ceil_div(floats, 16) * 16;
    return at;
}

/* Computes the layout of the scratch; base may be NULL to compute only the size. */
static int64_t att_layout(const dvk_attention_args *a, float *base, att_memory *m) {
    const att_size s = att_sizes(a);
    int64_t used = 0;
    const int64_t q = att_take(&used, s.panels * s.dim * ATT_Q);
    const int64_t sums = att_take(&used, s.panels * s.v_dim * ATT_Q);
    const int64_t top = att_take(&used, s.panels * ATT_Q);
    const int64_t total = att_take(&used, s.panels * ATT_Q);
    const int64_t scores = att_take(&used, ATT_KEYS * ATT_Q);
    const int64_t k = att_take(&used, a->k.dtype == DVK_F32 ? 0 : ATT_KEYS * s.dim);
    const int64_t v = att_take(&used, a->v.dtype == DVK_F32 ? 0 : ATT_KEYS * s.v_dim);
    const int64_t row = att_take(&used, conv_max(s.dim, s.v_dim));
    if (base != NULL) {
        *m = (att_memory){base + q,      base + sums, base + top, base + total,
                          base + scores, base + k,    base + v,   base + row};
    }
    return used;
}

static size_t att_scratch_bytes(const void *args) {
    return (size_t)att_layout(args, NULL, NULL) * sizeof(float);
}

static double att_cost(const void *args) {
    const dvk_attention_args *a = args;
    const att_size s = att_sizes(a);
    return (double)(a->q.n * a->heads * s.queries * s.keys) *
           ((double)(s.dim + s.v_dim) * 2.0 + CPU_COST(attention, score)) / CPU_COST(attention, products);
}

static int64_t att_token(const dvk_view *v, int64_t n, int64_t token) {
    return n * v->sn + token / v->w * v->sh + token % v->w * v->sw;
}

static void att_read(const dvk_view *v, int64_t at, int64_t count, float *to) {
    int64_t i = 0;
    for (; i + CONV_VW <= count; i += CONV_VW) {
        cv_store(to + i, cv_get(v->data, v->dtype, at + i, CONV_VW));
    }
    for (; i < count; i++) {
        to[i] = dvk_load(v->data, v->dtype, at + i);
    }
}

CONV_INLINE void att_tile(const att_product *p, int64_t row, int64_t rows) {
    conv_vec sums[CONV_MR][2];
    float *c = p->c + row * ATT_Q;
    for (int64_t i = 0; i < rows; i++) {
        for (int j = 0; j < 2; j++) {
            sums[i][j] = p->factor != NULL
                             ? cv_mul(cv_load(c + i * ATT_Q + j * CONV_VW), cv_load(p->factor + j * CONV_VW))
                             : cv_set1(0.0f);
        }
    }
    const float *a = p->a + row * p->a_row;
    const float *b = p->b;
    const int64_t a_row = p->a_row;
    for (int64_t d = 0; d < p->depth; d++, a += p->a_step, b += ATT_Q) {
        const conv_vec b0 = cv_load(b);
        const conv_vec b1 = cv_load(b + CONV_VW);
        for (int64_t i = 0; i < rows; i++) {
            const conv_vec one = cv_set1(a[i * a_row]);
            sums[i][0] = cv_fma(one, b0, sums[i][0]);
            sums[i][1] = cv_fma(one, b1, sums[i][1]);
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        cv_store(c + i * ATT_Q, sums[i][0]);
        cv_store(c + i * ATT_Q + CONV_VW, sums[i][1]);
    }
}

static void att_multiply(const att_product *p, int64_t rows) {
    int64_t row = 0;
    for (; row + CONV_MR <= rows; row += CONV_MR) {
        att_tile(p, row, CONV_MR);
    }
    if (rows - row >= 8 && CONV_MR > 8) {
        att_tile(p, row, CONV_MR > 8 ? 8 : 1);
        row += 8;
    }
    if (rows - row >= 4) {
        att_tile(p, row, 4);
        row += 4;
    }
    if (rows - row >= 2) {
        att_tile(p, row, 2);
        row += 2;
    }
    if (rows - row == 1) {
        att_tile(p, row, 1);
    }
}

/* Converts scores to exp(scores - maximum). factor: the factor for earlier sums. */
static void att_softmax(float *scores, int64_t keys, float *top, float *total, float *factor) {
    for (int j = 0; j < ATT_Q; j += CONV_VW) {
        const conv_vec before = cv_load(top + j);
        conv_vec most = before;
        for (int64_t i = 0; i < keys; i++) {
            most = cv_max(most, cv_load(scores + i * ATT_Q + j));
        }
        const conv_vec change = conv_exp(cv_sub(before, most));
        conv_vec sum = cv_set1(0.0f);
        for (int64_t i = 0; i < keys; i++) {
            const conv_vec e = conv_exp(cv_sub(cv_load(scores + i * ATT_Q + j), most));
            cv_store(scores + i * ATT_Q + j, e);
            sum = cv_add(sum, e);
        }
        cv_store(top + j, most);
        cv_store(total + j, cv_fma(cv_load(total + j), change, sum));
        cv_store(factor + j, change);
    }
}

/* Loads queries [first, first + count) into a panel, transposed and scaled, with zeros in lanes without a query. */
static void att_load_panel(const dvk_attention_args *a, int64_t n, int64_t head, int64_t first, int64_t panel,
                           const att_memory *m) {
    const att_size s = att_sizes(a);
    const int64_t count = conv_min(ATT_Q, s.queries - first);
    float *q = m->q + panel * s.dim * ATT_Q;
    memset(q, 0, (size_t)(s.dim * ATT_Q) * sizeof(float));
    for (int64_t j = 0; j < count; j++) {
        att_read(&a->q, att_token(&a->q, n, first + j) + head * s.dim, s.dim, m->row);
        for (int64_t c = 0; c < s.dim; c++) {
            q[c * ATT_Q + j] = m->row[c] * a->scale;
        }
    }
    memset(m->sums + panel * s.v_dim * ATT_Q, 0, (size_t)(s.v_dim * ATT_Q) * sizeof(float));
    for (int64_t j = 0; j < ATT_Q; j++) {
        m->top[panel * ATT_Q + j] = -3.0e38f;
        m->total[panel * ATT_Q + j] = 0.0f;
    }
}

static void att_store_panel(const dvk_attention_args *a, int64_t n, int64_t head, int64_t first, int64_t panel,
                            const att_memory *m) {
    const att_size s = att_sizes(a);
    const int64_t count = conv_min(ATT_Q, s.queries - first);
    const float *sums = m->sums + panel * s.v_dim * ATT_Q;
    for (int64_t j = 0; j < count; j++) {
        const float inverse = 1.0f / m->total[panel * ATT_Q + j];
        for (int64_t c = 0; c < s.v_dim; c++) {
            m->row[c] = sums[c * ATT_Q + j] * inverse;
        }
        const int64_t at = att_token(&a->y, n, first + j) + head * s.v_dim;
        int64_t c = 0;
        for (; c + CONV_VW <= s.v_dim; c += CONV_VW) {
            cv_put(a->y.data, a->y.dtype, at + c, CONV_VW, cv_load(m->row + c));
        }
        for (; c < s.v_dim; c++) {
            dvk_store(a->y.data, a->y.dtype, at + c, m->row[c]);
        }
    }
}

/* Returns `keys` tokens from `first` on as f32, and the distance between two. Other types are converted into `to`. A
 * block crosses a row of the picture only if rows are contiguous. */
static const float *att_tokens(const dvk_view *v, int64_t n, int64_t head_channel, int64_t first, int64_t keys,
                               int64_t dim, float *to, int64_t *pitch) {
    const int64_t at = att_token(v, n, first) + head_channel;
    if (v->dtype == DVK_F32) {
        *pitch = v->sw;
        return (const float *)v->data + at;
    }
    *pitch = dim;
    for (int64_t i = 0; i < keys; i++) {
        att_read(v, att_token(v, n, first + i) + head_channel, dim, to + i * dim);
    }
    return to;
}

/* Number of keys from `first` on that form a block. If the rows of k or v have gaps, a block ends with the row. */
static int64_t att_block_keys(const dvk_attention_args *a, int64_t first, int64_t keys) {
    int64_t count = conv_min(ATT_KEYS, keys - first);
    const dvk_view *views[2] = {&a->k, &a->v};
    for (int i = 0; i < 2; i++) {
        if (views[i]->dtype == DVK_F32 && views[i]->sh != views[i]->w * views[i]->sw) {
            count = conv_min(count, views[i]->w - first % views[i]->w);
        }
    }
    return count;
}

static void att_panel_block(const att_size *s, const att_block *b, int64_t panel, const att_memory *m) {
    float factor[ATT_Q];
    const att_product scores = {.a = b->k,
                                .b = m->q + panel * s->dim * ATT_Q,
                                .c = m->scores,
                                .a_row = b->k_pitch,
                                .a_step = 1,
                                .depth = s->dim};
    att_multiply(&scores, b->keys);
    att_softmax(m->scores, b->keys, m->top + panel * ATT_Q, m->total + panel * ATT_Q, factor);
    const att_product sums = {.a = b->v,
                              .b = m->scores,
                              .c = m->sums + panel * s->v_dim * ATT_Q,
                              .factor = factor,
                              .a_row = 1,
                              .a_step = b->v_pitch,
                              .depth = b->keys};
    att_multiply(&sums, s->v_dim);
}

static void att_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_attention_args *a = args;
    const att_size s = att_sizes(a);
    att_memory m = {0};
    att_layout(a, scratch, &m);
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t head = unit / s.units_per_head % a->heads;
        const int64_t n = unit / s.units_per_head / a->heads;
        const int64_t query0 = unit % s.units_per_head * s.panels * ATT_Q;
        const int64_t panels = conv_min(s.panels, conv_ceil_div(s.queries - query0, ATT_Q));
        for (int64_t p = 0; p < panels; p++) {
            att_load_panel(a, n, head, query0 + p * ATT_Q, p, &m);
        }
        for (int64_t key = 0; key < s.keys;) {
            att_block b = {.keys = att_block_keys(a, key, s.keys)};
            b.k = att_tokens(&a->k, n, head * s.dim, key, b.keys, s.dim, m.k, &b.k_pitch);
            b.v = att_tokens(&a->v, n, head * s.v_dim, key, b.keys, s.v_dim, m.v, &b.v_pitch);
            for (int64_t p = 0; p < panels; p++) {
                att_panel_block(&s, &b, p, &m);
            }
            key += b.keys;
        }
        for (int64_t p = 0; p < panels; p++) {
            att_store_panel(a, n, head, query0 + p * ATT_Q, p, &m);
        }
    }
}
