/* attention_kv_tmpl.h - "attention_kv" on vectors; included after attention_tmpl.h, whose products and softmax it uses.
 *
 * Many queries: a unit is one key head and a run of tokens. The lanes of its panels hold all query heads of that head,
 * token by token, so that they share each block of keys. Scores that a lane must not see become -inf between product
 * and softmax.
 * Few queries: a unit is some query heads of one token and key head; the lanes hold channels.
 * If in.sequence is set, each row runs as in a call of one row. Its bits do not depend on the other rows. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/linear/linear_vec.h"
#include "kernels/paging.h"
#include "kernels/ref/attention_kv.h"

enum {
    AKV_ROWS = 96, /* lanes of a unit, rounded down to whole tokens */
    AKV_FEW = 8,   /* up to this number of queries per key head, queries are processed one by one */
    AKV_PART = 256 /* keys whose scores such a query keeps at once */
};

typedef struct akv_size {
    int64_t group, tokens, blocks, panels; /* tokens of a unit, units of a key head */
    int few;
} akv_size;

typedef struct akv_lane {
    int32_t first, last; /* visible keys */
} akv_lane;

static akv_size akv_sizes(const dvk_attention_kv_args *a) {
    const int64_t together = a->in.sequence != NULL ? 1 : a->m;
    akv_size s = {.group = a->heads / a->kv_heads};
    s.few = together * s.group <= AKV_FEW;
    s.tokens = conv_min(together, conv_max(1, AKV_ROWS / s.group));
    s.blocks = conv_ceil_div(a->m, s.tokens);
    s.panels = conv_ceil_div(s.tokens * s.group, ATT_Q);
    return s;
}

/* Heads of one key head that a unit processes at once; they share each read of a key or value. */
enum { AKV_WIDE = CONV_VW == 16 ? 4 : 2 };

static int64_t akv_width(const dvk_attention_kv_args *a) {
    const int64_t group = a->heads / a->kv_heads;
    /* otherwise there are too few units for the threads */
    if (group % AKV_WIDE == 0 && a->kv_heads * a->m * group >= 4 * AKV_WIDE) {
        return AKV_WIDE;
    }
    return group > 1 ? 2 : 1;
}

static int64_t akv_runs(const dvk_attention_kv_args *a) {
    return conv_ceil_div(a->heads / a->kv_heads, akv_width(a));
}

static int64_t akv_units(const void *args) {
    const dvk_attention_kv_args *a = args;
    const akv_size s = akv_sizes(a);
    return s.few ? a->m * a->kv_heads * akv_runs(a) : a->kv_heads * s.blocks;
}

static int64_t akv_layout(const dvk_attention_kv_args *a, float *base, att_memory *m) {
    const akv_size s = akv_sizes(a);
    int64_t used = 0;
    const int64_t q = att_take(&used, s.panels * a->dim * ATT_Q);
    const int64_t sums = att_take(&used, s.panels * a->dim * ATT_Q);
    const int64_t top = att_take(&used, s.panels * ATT_Q);
    const int64_t total = att_take(&used, s.panels * ATT_Q);
    const int64_t scores = att_take(&used, ATT_KEYS * ATT_Q);
    const int64_t k = att_take(&used, ATT_KEYS * a->dim);
    const int64_t v = att_take(&used, ATT_KEYS * a->dim);
    const int64_t row = att_take(&used, a->dim);
    if (base != NULL) {
        *m = (att_memory){base + q,      base + sums, base + top, base + total,
                          base + scores, base + k,    base + v,   base + row};
    }
    return used;
}

static size_t akv_scratch_bytes(const void *args) {
    const dvk_attention_kv_args *a = args;
    return (size_t)akv_layout(a, NULL, NULL) * sizeof(float) + (size_t)(akv_sizes(a).panels * ATT_Q) * sizeof(akv_lane);
}

static double akv_cost(const void *args) {
    const dvk_attention_kv_args *a = args;
    return (double)(a->heads * a->m * a->keys) * ((double)a->dim * 4.0 + CPU_COST(attention_kv, score)) /
           CPU_COST(attention_kv, products);
}

static void akv_read(const dvk_rows *x, int64_t at, int64_t count, float *to) {
    int64_t i = 0;
    for (; i + CONV_VW <= count; i += CONV_VW) {
        cv_store(to + i, cv_get(x->data, (dvk_dtype)x->form, at + i, CONV_VW));
    }
    for (; i < count; i++) {
        to[i] = dvk_load(x->data, (dvk_dtype)x->form, at + i);
    }
}

static void akv_write(const dvk_rows *y, int64_t at, int64_t count, const float *from) {
    for (int64_t i = 0; i < count; i += CONV_VW) {
        const int64_t n = conv_min(CONV_VW, count - i);
        cv_put(y->data, (dvk_dtype)y->form, at + i, n, cv_get(from, DVK_F32, i, n));
    }
}

/* The cache row of a key of this token's sequence. *count becomes the number of contiguous keys from it on. */
CONV_INLINE int64_t akv_row(const dvk_attention_kv_args *a, int64_t token, int64_t key, int64_t *count) {
    if (a->in.table == NULL) {
        return key;
    }
    *count = conv_min(*count, a->in.page - key % a->in.page);
    return dvk_paged_row(&a->in, token, key);
}

#include "kernels/cpu/attention/attention_few_tmpl.h"

/* --- many queries --- */

/* The lanes of a unit's panels: lanes [0, count), token = token0 + lane / group. */
typedef struct akv_unit {
    int64_t kv, token0, count, group, first, last;
    akv_lane *lanes;
    att_memory m;
} akv_unit;

static void akv_load(const dvk_attention_kv_args *a, akv_unit *u, int64_t panels) {
    memset(u->m.q, 0, (size_t)(panels * a->dim * ATT_Q) * sizeof(float));
    memset(u->m.sums, 0, (size_t)(panels * a->dim * ATT_Q) * sizeof(float));
    u->first = a->keys;
    u->last = 0;
    for (int64_t j = 0; j < panels * ATT_Q; j++) {
        u->m.top[j] = -3.0e38f;
        u->m.total[j] = 0.0f;
        u->lanes[j] = (akv_lane){0, INT32_MAX};
        if (j < u->count) {
            const int64_t token = u->token0 + j / u->group;
            int64_t first = 0;
            int64_t last = 0;
            dvk_visible(a, token, &first, &last);
            u->lanes[j] = (akv_lane){(int32_t)first, (int32_t)last};
            u->first = conv_min(u->first, first);
            u->last = conv_max(u->last, last);
            akv_read(&a->q, token * a->q.row + (u->kv * u->group + j % u->group) * a->q.head, a->dim, u->m.row);
            float *q = u->m.q + j / ATT_Q * a->dim * ATT_Q + j % ATT_Q;
            for (int64_t c = 0; c < a->dim; c++) {
                q[c * ATT_Q] = u->m.row[c] * a->scale;
            }
        }
    }
}

/* Masks the scores of keys from `key` on that a lane does not see. */
static void akv_mask(const akv_unit *u, int64_t panel, int64_t key, int64_t keys) {
    for (int64_t j = 0; j < ATT_Q; j++) {
        const akv_lane *lane = &u->lanes[panel * ATT_Q + j];
        float *score = u->m.scores + j;
        const int64_t from = conv_min(keys, conv_max(0, lane->first - key));
        const int64_t to = conv_min(keys, conv_max(0, lane->last - key));
        for (int64_t i = 0; i < from; i++) {
            score[i * ATT_Q] = -INFINITY;
        }
        for (int64_t i = to; i < keys; i++) {
            score[i * ATT_Q] = -INFINITY;
        }
    }
}

static int akv_sees(const akv_unit *u, int64_t panel, int64_t key, int64_t keys) {
    for (int64_t j = panel * ATT_Q; j < conv_min(u->count, (panel + 1) * ATT_Q); j++) {
        if (u->lanes[j].first < key + keys && u->lanes[j].last > key) {
            return 1;
        }
    }
    return 0;
}

static const float *akv_keys(const dvk_attention_kv_args *a, const akv_unit *u, const dvk_rows *x, int64_t key,
                             int64_t keys, float *to, int64_t *pitch) {
    int64_t run = keys;
    int64_t row = akv_row(a, u->token0, key, &run);
    if (x->form == DVK_ROWS_F32 && run == keys) {
        *pitch = x->row;
        return (const float *)x->data + row * x->row + u->kv * x->head;
    }
    *pitch = a->dim;
    for (int64_t i = 0; i < keys; i += run) {
        run = keys - i;
        row = akv_row(a, u->token0, key + i, &run);
        for (int64_t j = 0; j < run; j++) {
            akv_read(x, (row + j) * x->row + u->kv * x->head, a->dim, to + (i + j) * a->dim);
        }
    }
    return to;
}

static void akv_block(const dvk_attention_kv_args *a, akv_unit *u, int64_t key, int64_t keys, int64_t panels) {
    att_block b = {.keys = keys};
    b.k = akv_keys(a, u, &a->k, key, keys, u->m.k, &b.k_pitch);
    b.v = akv_keys(a, u, &a->v, key, keys, u->m.v, &b.v_pitch);
    for (int64_t p = 0; p < panels; p++) {
        if (!akv_sees(u, p, key, keys)) {
            continue;
        }
        float factor[ATT_Q];
        const att_product scores = {.a = b.k,
                                    .b = u->m.q + p * a->dim * ATT_Q,
                                    .c = u->m.scores,
                                    .a_row = b.k_pitch,
                                    .a_step = 1,
                                    .depth = a->dim};
        att_multiply(&scores, keys);
        akv_mask(u, p, key, keys);
        att_softmax(u->m.scores, keys, u->m.top + p * ATT_Q, u->m.total + p * ATT_Q, factor);
        const att_product sums = {.a = b.v,
                                  .b = u->m.scores,
                                  .c = u->m.sums + p * a->dim * ATT_Q,
                                  .factor = factor,
                                  .a_row = 1,
                                  .a_step = b.v_pitch,
                                  .depth = keys};
        att_multiply(&sums, a->dim);
    }
}

static void akv_store(const dvk_attention_kv_args *a, const akv_unit *u) {
    for (int64_t j = 0; j < u->count; j++) {
        const float inverse = 1.0f / u->m.total[j];
        const float *sums = u->m.sums + j / ATT_Q * a->dim * ATT_Q + j % ATT_Q;
        for (int64_t c = 0; c < a->dim; c++) {
            u->m.row[c] = sums[c * ATT_Q] * inverse;
        }
        const int64_t token = u->token0 + j / u->group;
        const int64_t head = u->kv * u->group + j % u->group;
        akv_write(&a->y, token * a->y.row + head * a->y.head, a->dim, u->m.row);
    }
}

static void akv_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_attention_kv_args *a = args;
    const akv_size s = akv_sizes(a);
    for (int64_t unit = first; unit < last; unit++) {
        if (s.few) {
            akv_alone(a, unit);
            continue;
        }
        akv_unit u = {.kv = unit % a->kv_heads, .token0 = unit / a->kv_heads * s.tokens, .group = s.group};
        const int64_t used = akv_layout(a, scratch, &u.m);
        u.lanes = (akv_lane *)(void *)((float *)scratch + used);
        u.count = conv_min(s.tokens, a->m - u.token0) * s.group;
        const int64_t panels = conv_ceil_div(u.count, ATT_Q);
        akv_load(a, &u, panels);
        for (int64_t key = u.first; key < u.last; key += ATT_KEYS) {
            akv_block(a, &u, key, conv_min(ATT_KEYS, u.last - key), panels);
        }
        akv_store(a, &u);
    }
}
