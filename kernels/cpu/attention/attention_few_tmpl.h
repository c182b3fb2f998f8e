/* attention_few_tmpl.h - "attention_kv" of few queries, with channels in the lanes. It is included in the middle of
 * attention_kv_tmpl.h and uses its rows and sizes. */

/* One query, scaled, and its running maximum and sums. */
typedef struct akv_query {
    float q[DVK_HEAD_MAX + CONV_VW];
    float sums[DVK_HEAD_MAX + CONV_VW];
    float scores[AKV_PART + 4]; /* room for a last group of less than four keys */
    float top, total;
} akv_query;

/* Type, `full` (whole vectors only) and the number of heads are constants, so that a load is one instruction and sums
 * stay in registers. Four keys are processed at a time, with independent sums. */
CONV_INLINE void akv_scores_of(const dvk_attention_kv_args *a, akv_query *f, int heads, int64_t at, int64_t from,
                               int64_t count, dvk_dtype t, int full) {
    for (int64_t i = 0; i < count; i += 4, at += 4 * a->k.row) {
        const int64_t keys = conv_min(4, count - i);
        conv_vec sums[AKV_WIDE][4];
        for (int h = 0; h < heads; h++) {
            for (int j = 0; j < 4; j++) {
                sums[h][j] = cv_set1(0.0f);
            }
        }
        for (int64_t c = 0; c < a->dim; c += CONV_VW) {
            const int64_t n = full ? CONV_VW : conv_min(CONV_VW, a->dim - c);
            for (int64_t j = 0; j < 4; j++) { /* beyond the last key: repeats the last */
                const conv_vec k = cv_get(a->k.data, t, at + conv_min(j, keys - 1) * a->k.row + c, n);
                for (int h = 0; h < heads; h++) {
                    sums[h][j] = cv_fma(k, cv_load(f[h].q + c), sums[h][j]);
                }
            }
        }
        for (int h = 0; h < heads; h++) {
            lv_sum4(sums[h], f[h].scores + from + i);
        }
    }
}

/* Scores of `count` keys from element `at` on; they are stored from scores[from] on. */
CONV_INLINE void akv_scores(const dvk_attention_kv_args *a, akv_query *f, int heads, int64_t at, int64_t from,
                            int64_t count) {
    if (a->dim % CONV_VW != 0) {
        akv_scores_of(a, f, heads, at, from, count, (dvk_dtype)a->k.form, 0);
    } else if (a->k.form == DVK_ROWS_F16) {
        akv_scores_of(a, f, heads, at, from, count, DVK_F16, 1);
    } else if (a->k.form == DVK_ROWS_BF16) {
        akv_scores_of(a, f, heads, at, from, count, DVK_BF16, 1);
    } else {
        akv_scores_of(a, f, heads, at, from, count, DVK_F32, 1);
    }
}

/* Converts scores to weights and scales the earlier sums to the new maximum. */
static void akv_weigh(const dvk_attention_kv_args *a, akv_query *f, int64_t count) {
    conv_vec most = cv_set1(f->top);
    for (int64_t i = count; i % CONV_VW != 0; i++) {
        f->scores[i] = -INFINITY;
    }
    for (int64_t i = 0; i < count; i += CONV_VW) {
        most = cv_max(most, cv_load(f->scores + i));
    }
    const float top = lv_max(most);
    conv_vec sum = cv_set1(0.0f);
    for (int64_t i = 0; i < count; i += CONV_VW) {
        const conv_vec e = conv_exp(cv_sub(cv_load(f->scores + i), cv_set1(top)));
        cv_store(f->scores + i, e);
        sum = cv_add(sum, e);
    }
    const float change = expf(f->top - top);
    f->total = f->total * change + lv_sum(sum);
    f->top = top;
    for (int64_t c = 0; c < a->dim; c += CONV_VW) {
        cv_store(f->sums + c, cv_mul(cv_load(f->sums + c), cv_set1(change)));
    }
}

/* Adds `vectors` vectors of channels from c on, with n channels in the last. */
CONV_INLINE void akv_values_at(const dvk_attention_kv_args *a, akv_query *f, int heads, int64_t at, int64_t from,
                               int64_t count, dvk_dtype t, int64_t c, int vectors, int64_t n) {
    conv_vec sums[AKV_WIDE][4];
    for (int h = 0; h < heads; h++) {
        for (int j = 0; j < vectors; j++) {
            sums[h][j] = cv_load(f[h].sums + c + j * CONV_VW);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        for (int j = 0; j < vectors; j++) {
            const conv_vec v = cv_get(a->v.data, t, at + i * a->v.row + c + j * CONV_VW, n);
            for (int h = 0; h < heads; h++) {
                sums[h][j] = cv_fma(cv_set1(f[h].scores[from + i]), v, sums[h][j]);
            }
        }
    }
    for (int h = 0; h < heads; h++) {
        for (int j = 0; j < vectors; j++) {
            cv_store(f[h].sums + c + j * CONV_VW, sums[h][j]);
        }
    }
}

CONV_INLINE void akv_values_of(const dvk_attention_kv_args *a, akv_query *f, int heads, int64_t at, int64_t from,
                               int64_t count, dvk_dtype t) {
    int64_t c = 0;
    for (; c + 4 * CONV_VW <= a->dim; c += 4 * CONV_VW) {
        akv_values_at(a, f, heads, at, from, count, t, c, 4, CONV_VW);
    }
    for (; c < a->dim; c += CONV_VW) {
        akv_values_at(a, f, heads, at, from, count, t, c, 1, conv_min(CONV_VW, a->dim - c));
    }
}

CONV_INLINE void akv_values(const dvk_attention_kv_args *a, akv_query *f, int heads, int64_t at, int64_t from,
                            int64_t count) {
    if (a->v.form == DVK_ROWS_F16) {
        akv_values_of(a, f, heads, at, from, count, DVK_F16);
    } else if (a->v.form == DVK_ROWS_BF16) {
        akv_values_of(a, f, heads, at, from, count, DVK_BF16);
    } else {
        akv_values_of(a, f, heads, at, from, count, DVK_F32);
    }
}

static void akv_begin(const dvk_attention_kv_args *a, akv_query *f, int64_t token, int64_t head) {
    f->top = -3.0e38f;
    f->total = 0.0f;
    memset(f->q + a->dim, 0, CONV_VW * sizeof(float)); /* zeros behind the last channel */
    memset(f->sums, 0, (size_t)(a->dim + CONV_VW) * sizeof(float));
    akv_read(&a->q, token * a->q.row + head * a->q.head, a->dim, f->q);
    for (int64_t c = 0; c < a->dim; c++) {
        f->q[c] *= a->scale;
    }
}

/* Processes heads [head, head + heads) of one key head. */
CONV_INLINE void akv_together(const dvk_attention_kv_args *a, int64_t token, int64_t head, int heads) {
    akv_query f[AKV_WIDE];
    int64_t first = 0;
    int64_t last = 0;
    const int64_t kv = head / (a->heads / a->kv_heads);
    dvk_visible(a, token, &first, &last);
    for (int h = 0; h < heads; h++) {
        akv_begin(a, &f[h], token, head + h);
    }
    for (int64_t key = first; key < last; key += AKV_PART) {
        const int64_t count = conv_min(AKV_PART, last - key);
        int64_t run = 0;
        for (int64_t i = 0; i < count; i += run) {
            run = count - i;
            const int64_t row = akv_row(a, token, key + i, &run);
            akv_scores(a, f, heads, row * a->k.row + kv * a->k.head, i, run);
        }
        for (int h = 0; h < heads; h++) {
            akv_weigh(a, &f[h], count);
        }
        for (int64_t i = 0; i < count; i += run) {
            run = count - i;
            const int64_t row = akv_row(a, token, key + i, &run);
            akv_values(a, f, heads, row * a->v.row + kv * a->v.head, i, run);
        }
    }
    for (int h = 0; h < heads; h++) {
        const float inverse = 1.0f / f[h].total;
        for (int64_t c = 0; c < a->dim; c++) {
            f[h].sums[c] *= inverse;
        }
        akv_write(&a->y, token * a->y.row + (head + h) * a->y.head, a->dim, f[h].sums);
    }
}

/* Processes one run of heads of one token. */
static void akv_alone(const dvk_attention_kv_args *a, int64_t unit) {
    const int64_t group = a->heads / a->kv_heads;
    const int64_t width = akv_width(a);
    const int64_t runs = akv_runs(a);
    const int64_t run = unit % runs;
    const int64_t head = unit / runs % a->kv_heads * group + run * width;
    const int64_t token = unit / runs / a->kv_heads;
    const int64_t heads = conv_min(width, group - run * width);
    if (heads == AKV_WIDE) {
        akv_together(a, token, head, AKV_WIDE);
    } else if (heads == 2) {
        akv_together(a, token, head, 2);
    } else {
        akv_together(a, token, head, 1);
    }
}
