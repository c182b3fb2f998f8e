/* cases_rows.c - problems for row_norm, row_convert, rope, rope_table and attention_kv. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kcheck/cases_lm.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

static const kc_rows_shape shapes[] = {{1, 1, 1},     {1, 1, 576},  {3, 1, 33},   {2, 3, 64},     {5, 2, 80},
                                       {4, 9, 64},    {7, 1, 96},   {2, 16, 128}, {33, 1, 17},    {3, 4, 20},
                                       {300, 1, 700}, {2, 1, 2304}, {3, 1, 9000}, {1100, 1, 180}, {77, 1, 308},
                                       {70, 1, 37},   {65, 1, 8}};
enum { N_SHAPES = (int)(sizeof shapes / sizeof shapes[0]) };

/* Blocks of q8 as an output: compared byte by byte. */
static void q8_output(kc_problem *p, dvk_rows *y, int64_t m, int64_t k) {
    kc_rows_q8(p, y, m, k);
    const dvk_view v = {.data = y->data,
                        .dtype = DVK_U8,
                        .n = 1,
                        .h = 1,
                        .w = m,
                        .c = y->row * (int64_t)sizeof(dvk_q8),
                        .sw = y->row * (int64_t)sizeof(dvk_q8)};
    kc_output_view(p, &v);
    p->error_class = KC_EXACT;
}

static int norm_count(void) {
    return N_SHAPES * 12;
}

static void norm_build(kc_problem *p, int i) {
    dvk_row_norm_args *a = &p->args.row_norm;
    const kc_rows_shape *s = &shapes[i % N_SHAPES];
    const int variety = i / N_SHAPES + i % N_SHAPES;
    const kc_fill fills[] = {KC_UNIFORM, KC_NORMAL, KC_LARGE, KC_NAN};
    *a = (dvk_row_norm_args){
        .m = s->m, .heads = s->heads, .dim = s->dim, .eps = 1e-5f, .center = (int32_t)(variety % 3 == 1)};
    a->w = variety % 4 != 3 ? kc_floats(p, s->dim, 0.5f, 1.5f) : NULL;
    a->b = variety % 3 == 1 && variety % 2 ? kc_floats(p, s->dim, -1.0f, 1.0f) : NULL;
    const dvk_view x = kc_rows(p, &a->x, dtypes[variety % 3], *s, variety % 2, fills[variety % 4]);
    dvk_view y = x;
    a->y = a->x;
    if (variety % 5 != 4) {
        y = kc_rows(p, &a->y, dtypes[variety / 3 % 3], *s, variety / 2 % 2, KC_UNIFORM);
    }
    kc_output_view(p, &y);
    if (p->aligned && y.dtype != DVK_F32 && s->heads == 1 && y.sw == (y.c + 7) / 8 * 8) {
        p->spoiled = y; /* cuda.h: the elements behind the last channel are padding */
        p->spoiled.c = y.sw;
    }
    p->error_class = KC_SMALL_SUMS;
    p->bytes = (double)(s->m * s->heads * s->dim) * 6.0;
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld %s->%s center %d w %d b %d in place %d", (long long)s->m,
             (long long)s->heads, (long long)s->dim, kc_dtype_name((dvk_dtype)a->x.form),
             kc_dtype_name((dvk_dtype)a->y.form), a->center, a->w != NULL, a->b != NULL, a->x.data == a->y.data);
}

static int norm_bench_count(void) {
    return 2;
}

static void norm_bench_build(kc_problem *p, int i) {
    dvk_row_norm_args *a = &p->args.row_norm;
    const kc_rows_shape s = {i ? 512 : 1, 1, 576};
    *a = (dvk_row_norm_args){.m = s.m, .heads = 1, .dim = s.dim, .eps = 1e-5f, .w = kc_floats(p, s.dim, 0.5f, 1.5f)};
    kc_rows(p, &a->x, DVK_F32, s, 0, KC_NORMAL);
    q8_output(p, &a->y, s.m, s.dim);
    p->bytes = (double)(s.m * s.dim) * 5.5;
    snprintf(p->text, sizeof p->text, "%lldx%lld f32->q8", (long long)s.m, (long long)s.dim);
}

static int convert_count(void) {
    return N_SHAPES * 6;
}

static void convert_build(kc_problem *p, int i) {
    dvk_row_convert_args *a = &p->args.row_convert;
    const kc_rows_shape *s = &shapes[i % N_SHAPES];
    const int variety = i / N_SHAPES;
    *a = (dvk_row_convert_args){.m = s->m, .heads = s->heads, .dim = s->dim};
    kc_rows(p, &a->x, dtypes[variety % 3], *s, i % 2, KC_NORMAL);
    if (s->heads == 1 && variety < 3) {
        q8_output(p, &a->y, s->m, s->dim);
    } else {
        const dvk_view y = kc_rows(p, &a->y, dtypes[(variety + i) % 3], *s, i / 2 % 2, KC_UNIFORM);
        kc_output_view(p, &y);
    }
    p->bytes = (double)(s->m * s->heads * s->dim) * 6.0;
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld %s->%d", (long long)s->m, (long long)s->heads, (long long)s->dim,
             kc_dtype_name((dvk_dtype)a->x.form), (int)a->y.form);
}

const float *kc_turns(kc_problem *p, int64_t m, int64_t pairs) {
    float *cs = kc_floats(p, m * pairs * 2 + 1, -1.0f, 1.0f);
    for (int64_t j = 0; j < m * pairs; j++) {
        const float angle = 100.0f * cs[2 * j];
        cs[2 * j] = cosf(angle);
        cs[2 * j + 1] = sinf(angle);
    }
    return cs;
}

static int rope_count(void) {
    return N_SHAPES * 8;
}

static void rope_build(kc_problem *p, int i) {
    dvk_rope_args *a = &p->args.rope;
    kc_rows_shape shape = shapes[i % N_SHAPES];
    shape.dim = shape.dim > DVK_HEAD_MAX ? DVK_HEAD_MAX : shape.dim;
    const kc_rows_shape *s = &shape;
    const int variety = i / N_SHAPES;
    const int64_t all = s->dim / 2;
    *a = (dvk_rope_args){.m = s->m, .heads = s->heads, .dim = s->dim, .pairs = variety % 4 == 3 ? all / 2 : all};
    a->pairs = variety == 6 ? 0 : a->pairs;
    a->interleaved = variety % 2;
    a->inverse = variety == 5;
    const dvk_view x = kc_rows(p, &a->x, dtypes[variety % 3], *s, variety % 2, KC_NORMAL);
    dvk_view y = x;
    a->y = a->x;
    if (variety % 4 != 2) {
        y = kc_rows(p, &a->y, dtypes[i % 3], *s, variety / 2 % 2, KC_UNIFORM);
    }
    a->cs = kc_turns(p, s->m, a->pairs);
    kc_output_view(p, &y);
    p->error_class = KC_POINTWISE;
    p->bytes = (double)(s->m * s->heads * s->dim) * 8.0;
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld pairs %lld %s->%s interleaved %d inverse %d", (long long)s->m,
             (long long)s->heads, (long long)s->dim, (long long)a->pairs, kc_dtype_name((dvk_dtype)a->x.form),
             kc_dtype_name((dvk_dtype)a->y.form), a->interleaved, a->inverse);
}

static int table_count(void) {
    return 8;
}

static void table_build(kc_problem *p, int i) {
    dvk_rope_table_args *a = &p->args.rope_table;
    *a = (dvk_rope_table_args){.m = 1 + 13 * i, .pairs = i % 3 == 0 ? 32 : 20 + i, .axes = i % 2 ? 3 : 1};
    float *freq = kc_floats(p, a->pairs, 0.0f, 1.0f);
    for (int64_t j = 0; j < a->pairs; j++) {
        freq[j] = expf(-14.0f * (float)j / (float)a->pairs);
    }
    a->freq = freq;
    unsigned char *data = NULL;
    kc_alloc(p, (size_t)(a->m * a->axes) * sizeof(int32_t), &data);
    for (int64_t j = 0; j < a->m * a->axes; j++) {
        const int32_t at = (int32_t)kc_below(&p->rng, 30000);
        memcpy(data + 4 * j, &at, sizeof at);
    }
    a->pos = (const int32_t *)(void *)data;
    if (a->axes > 1) {
        kc_alloc(p, (size_t)a->pairs, &data);
        for (int64_t j = 0; j < a->pairs; j++) {
            data[j] = (unsigned char)(j * a->axes / a->pairs);
        }
        a->axis = data;
    }
    a->cs = kc_floats(p, a->m * a->pairs * 2, -1.0f, 1.0f);
    kc_output_floats(p, a->cs, a->m * a->pairs * 2, 1);
    p->error_class = KC_POINTWISE;
    p->bytes = (double)(a->m * a->pairs) * 8.0;
    snprintf(p->text, sizeof p->text, "%lld positions of %lld axes, %lld pairs", (long long)a->m, (long long)a->axes,
             (long long)a->pairs);
}

/* --- attention_kv --- */

static const kc_kv_spec kvs[] = {
    {1, 0, 1, 1, 1, 0, 1, 0},     {1, 6, 9, 3, 64, 0, 1, 0},      {1, 130, 8, 2, 128, 0, 1, 0},
    {5, 0, 4, 4, 32, 0, 1, 0},    {37, 0, 9, 3, 64, 0, 1, 0},     {40, 70, 6, 2, 80, 0, 1, 0},
    {70, 0, 2, 1, 96, 0, 0, 0},   {90, 0, 3, 3, 72, 0, 0, 4},     {33, 100, 4, 2, 64, 50, 1, 0},
    {1, 300, 4, 2, 64, 33, 1, 0}, {3, 65, 12, 2, 128, 0, 1, 0},   {150, 3, 3, 1, 40, 0, 1, 0},
    {17, 0, 2, 2, 256, 0, 1, 0},  {200, 0, 2, 2, 17, 0, 0, 7},    {200, 30, 2, 1, 128, 0, 1, 0},
    {270, 0, 1, 1, 80, 0, 0, 5},  {180, 150, 2, 1, 64, 70, 1, 0},
};
enum { N_KVS = (int)(sizeof kvs / sizeof kvs[0]) };

void kc_build_kv(kc_problem *p, const kc_kv_spec *s, dvk_dtype t, dvk_dtype cache, int slab) {
    dvk_attention_kv_args *a = &p->args.attention_kv;
    *a = (dvk_attention_kv_args){.m = s->m, .past = s->past, .keys = s->past + s->m, .heads = s->heads};
    a->kv_heads = s->kv_heads;
    a->dim = s->dim;
    a->window = s->window;
    a->causal = s->causal;
    a->scale = 1.0f / sqrtf((float)s->dim);
    kc_rows(p, &a->q, t, (kc_rows_shape){s->m, s->heads, s->dim}, slab, KC_NORMAL);
    /* Heads first, as in a cache: a row of the view is a head. */
    dvk_rows k;
    dvk_rows v;
    kc_rows(p, &k, cache, (kc_rows_shape){s->kv_heads, a->keys + 3, s->dim}, slab, KC_NORMAL);
    kc_rows(p, &v, cache, (kc_rows_shape){s->kv_heads, a->keys, s->dim}, slab, KC_NORMAL);
    a->k = (dvk_rows){.data = k.data, .form = k.form, .row = k.head, .head = k.row};
    a->v = (dvk_rows){.data = v.data, .form = v.form, .row = v.head, .head = v.row};
    if (s->segments > 0) {
        unsigned char *data = NULL;
        kc_alloc(p, (size_t)(s->segments + 1) * sizeof(int32_t), &data);
        for (int64_t i = 0; i <= s->segments; i++) {
            const int32_t at = (int32_t)(i * i * a->keys / (s->segments * s->segments));
            memcpy(data + 4 * i, &at, sizeof at);
        }
        a->bounds = (const int32_t *)(void *)data;
        a->n_bounds = s->segments + 1;
    }
    const dvk_view y = kc_rows(p, &a->y, t, (kc_rows_shape){s->m, s->heads, s->dim}, slab, KC_UNIFORM);
    kc_output_view(p, &y);
    p->error_class = KC_SOFTMAX;
    p->flops =
        4.0 * (double)(s->heads * s->dim) * (double)s->m * ((double)s->past + (double)s->m * (s->causal ? 0.5 : 1.0));
    snprintf(p->text, sizeof p->text,
             "%lld at %lld heads %lld/%lld dim %lld %s cache %s window %lld segments %d slab %d", (long long)s->m,
             (long long)s->past, (long long)s->heads, (long long)s->kv_heads, (long long)s->dim, kc_dtype_name(t),
             kc_dtype_name(cache), (long long)s->window, s->segments, slab);
}

static int kv_count(void) {
    return N_KVS * 6;
}

static void kv_build(kc_problem *p, int i) {
    const int variety = i / N_KVS;
    kc_build_kv(p, &kvs[i % N_KVS], dtypes[variety / 3 * (1 + i % 2)], dtypes[variety % 3], i % 2);
}

static int kv_bench_count(void) {
    return 4;
}

static void kv_bench_build(kc_problem *p, int i) {
    static const kc_kv_spec of[] = {{1, 63, 9, 3, 64, 0, 1, 0},
                                    {1, 1023, 9, 3, 64, 0, 1, 0},
                                    {512, 0, 9, 3, 64, 0, 1, 0},
                                    {1024, 0, 12, 12, 64, 0, 0, 0}};
    kc_build_kv(p, &of[i], DVK_F32, i == 3 ? DVK_F32 : DVK_F16, 0);
}

const kc_suite kc_suite_row_norm = {"row_norm", norm_count, norm_build, norm_bench_count, norm_bench_build, 0, 24};
const kc_suite kc_suite_row_convert = {
    "row_convert", convert_count, convert_build, convert_count, convert_build, 0, 25};
const kc_suite kc_suite_rope = {"rope", rope_count, rope_build, rope_count, rope_build, 0, 31};
const kc_suite kc_suite_rope_table = {"rope_table", table_count, table_build, table_count, table_build, 0, 32};
const kc_suite kc_suite_attention_kv = {"attention_kv", kv_count, kv_build, kv_bench_count, kv_bench_build, 0, 34};
