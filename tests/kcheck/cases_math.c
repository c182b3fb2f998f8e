/* cases_math.c - problems for pointwise, the two halves of a group norm, and attention. */
#include <math.h>
#include <stdio.h>

#include "tests/kcheck/cases.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

static const kc_shape shapes[] = {
    {1, 1, 1, 1},   {1, 1, 1, 3},   {2, 3, 5, 1},     {1, 2, 3, 4},    {1, 3, 7, 16}, {2, 5, 3, 17},
    {1, 4, 9, 31},  {1, 9, 2, 32},  {1, 3, 11, 48},   {1, 13, 7, 64},  {2, 9, 4, 96}, {1, 17, 5, 128},
    {1, 2, 3, 192}, {1, 3, 2, 512}, {1, 37, 100, 12}, {1, 1, 1000, 7},
};

double kc_bounded_unit(const dvk_epilogue *e, kc_fill fill) {
    const int bounded = e->act == DVK_ACT_CLAMP3 || e->act == DVK_ACT_SIGMOID || e->act == DVK_ACT_TANH;
    return fill != KC_LARGE || !bounded ? 0.0 : e->act_last ? 1e4 : 1.0;
}

enum { N_SHAPES = (int)(sizeof shapes / sizeof shapes[0]), N_ACTS = DVK_ACT_MISH + 1 };

/* --- pointwise: every activation of prologue and epilogue, before and after residuals, 0 to 2 residuals, in place,
 * gated --- */

static void residual(kc_problem *p, dvk_epilogue *e, const dvk_view *y, dvk_dtype dtype, kc_fill fill) {
    dvk_view *r = &e->res[e->n_res];
    e->beta[e->n_res++] = 0.25f + kc_uniform(&p->rng);
    kc_view(p, r, dtype, (kc_shape){y->n, y->h, y->w, y->c}, (int)(kc_next(&p->rng) % 2));
    kc_fill_view(p, r, fill);
}

static void pointwise_ends(kc_problem *p, dvk_pointwise_args *a, int ends, kc_fill fill) {
    dvk_epilogue *e = &a->epi;
    if (ends != ENDS_PLAIN) {
        e->bias = kc_floats(p, a->y.c, -1.0f, 1.0f);
        e->alpha = ends == ENDS_RES || ends == ENDS_TWO_RES ? 0.2f : 1.0f;
    }
    if (e->act == DVK_ACT_PRELU) {
        e->slopes = kc_floats(p, a->y.c, -0.5f, 0.5f);
    }
    if (ends == ENDS_IN_PLACE) { /* y aliases a residual, and also the input if the types agree */
        e->res[0] = a->y;
        e->beta[0] = -0.5f;
        e->n_res = 1;
        kc_fill_view(p, &a->y, fill);
        if (a->x.dtype == a->y.dtype) {
            a->x = a->y;
        }
    }
    if (ends == ENDS_RES || ends == ENDS_TWO_RES || ends == ENDS_LAST || ends == ENDS_GATE) {
        residual(p, e, &a->y, a->y.dtype, fill == KC_NAN ? KC_UNIFORM : fill);
    }
    if (ends == ENDS_TWO_RES) {
        residual(p, e, &a->y, dtypes[kc_below(&p->rng, 3)], KC_UNIFORM);
    }
    e->act_last = ends == ENDS_LAST;
    e->gate = ends == ENDS_GATE;
}

static void pointwise_make(kc_problem *p, const kc_shape *shape, int variety, kc_fill fill, int slab) {
    dvk_pointwise_args *a = &p->args.pointwise;
    const int ends = variety % ENDS;
    const dvk_act act = ends == ENDS_GATE ? DVK_ACT_NONE : (dvk_act)(variety / ENDS % N_ACTS);
    const dvk_act front[] = {DVK_ACT_NONE, DVK_ACT_SILU, DVK_ACT_NONE, DVK_ACT_RELU, DVK_ACT_CLAMP3};
    *a = (dvk_pointwise_args){.epi = {.alpha = 1.0f, .slope = 0.1f, .act = act}};
    a->pro.act = front[variety % 5];
    kc_view(p, &a->x, dtypes[variety / 3 % 3], *shape, slab);
    kc_fill_view(p, &a->x, fill);
    kc_view(p, &a->y, dtypes[variety / 4 % 3], *shape, slab && variety % 2);
    if (variety % 3 == 1) {
        a->pro.scale = kc_floats(p, shape->n * shape->c, 0.5f, 1.5f);
        a->pro.shift = kc_floats(p, shape->n * shape->c, -0.5f, 0.5f);
    }
    pointwise_ends(p, a, ends, fill);
    kc_output_view(p, &a->y);
    p->outputs[0].unit = kc_bounded_unit(&a->epi, fill);
    p->error_class = KC_POINTWISE;
    p->no_compare = fill == KC_INF;
    const double elements = (double)(shape->n * shape->h * shape->w * shape->c);
    p->bytes =
        elements * (double)(dvk_dtype_size(a->x.dtype) + dvk_dtype_size(a->y.dtype) * (size_t)(1 + a->epi.n_res));
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld %s->%s ends %d act %d front %d scale %d slab %d fill %d",
             (long long)shape->n, (long long)shape->h, (long long)shape->w, (long long)shape->c,
             kc_dtype_name(a->x.dtype), kc_dtype_name(a->y.dtype), ends, (int)act, (int)a->pro.act,
             a->pro.scale != NULL, slab, (int)fill);
}

enum { POINTWISE_VARIETIES = 72 };

static int pointwise_count(void) {
    return N_SHAPES * POINTWISE_VARIETIES;
}

static void pointwise_build(kc_problem *p, int i) {
    const int variety = i / N_SHAPES + i % N_SHAPES * 5;
    pointwise_make(p, &shapes[i % N_SHAPES], variety, (kc_fill)(i % 7 % KC_FILLS), i / 2 % 2);
}

static const kc_pointwise_spec pointwise_benches[] = {
    {.shape = {1, 128, 128, 512}, .front = DVK_ACT_SILU, .norm = 1},
    {.shape = {1, 512, 512, 64}, .act = DVK_ACT_RELU, .ends = ENDS_RES}, /* TAESD block */
    {.shape = {1, 512, 512, 64}},                                        /* a copy */
    {.shape = {1, 720, 1280, 48}, .ends = ENDS_GATE},                    /* SPAN */
    {.shape = {1, 720, 1280, 3}, .ends = ENDS_BIAS},
};

static int pointwise_bench_count(void) {
    return 2 * (int)(sizeof pointwise_benches / sizeof pointwise_benches[0]);
}

void kc_build_pointwise(kc_problem *p, const kc_pointwise_spec *of, dvk_dtype t) {
    const kc_shape *s = &of->shape;
    dvk_pointwise_args *a = &p->args.pointwise;
    *a = (dvk_pointwise_args){.pro.act = of->front, .epi = {.alpha = 1.0f, .act = of->act}};
    kc_view(p, &a->x, t, *s, 0);
    kc_fill_view(p, &a->x, KC_UNIFORM);
    kc_view(p, &a->y, t, *s, 0);
    if (of->norm) {
        a->pro.scale = kc_floats(p, s->c, 0.5f, 1.5f);
        a->pro.shift = kc_floats(p, s->c, -0.5f, 0.5f);
    }
    pointwise_ends(p, a, of->ends, KC_UNIFORM);
    kc_output_view(p, &a->y);
    p->error_class = KC_POINTWISE;
    p->bytes = (double)(s->h * s->w * s->c) * (double)(dvk_dtype_size(t) * (size_t)(2 + a->epi.n_res));
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld %s act %d front %d ends %d", (long long)s->h, (long long)s->w,
             (long long)s->c, kc_dtype_name(t), (int)a->epi.act, (int)a->pro.act, of->ends);
}

static void pointwise_bench_build(kc_problem *p, int i) {
    kc_build_pointwise(p, &pointwise_benches[i / 2], i % 2 ? DVK_BF16 : DVK_F32);
}

/* --- group norm --- */

static const kc_norm_spec norms[] = {
    {{1, 1, 1, 1}, 1, 0},      {{1, 1, 1, 32}, 32, 0},    {{1, 3, 5, 32}, 32, 0},   {{2, 8, 3, 64}, 32, 0},
    {{1, 9, 7, 96}, 32, 0},    {{1, 16, 4, 128}, 32, 0},  {{2, 17, 3, 160}, 32, 0}, {{1, 10, 6, 256}, 32, 0},
    {{1, 5, 9, 320}, 32, 0},   {{1, 24, 33, 512}, 32, 0}, {{1, 7, 11, 12}, 4, 0},   {{1, 33, 21, 10}, 2, 0},
    {{1, 100, 37, 48}, 16, 0}, {{1, 2, 2, 14}, 7, 0},     {{3, 11, 5, 72}, 8, 0},   {{1, 8, 200, 768}, 32, 0},
};

enum { N_NORMS = (int)(sizeof norms / sizeof norms[0]) };

/* Chunks of a picture; asked: 0 for those of DVK_NORM_CHUNK_ROWS. */
static int64_t chunks_of(int64_t h, int64_t asked) {
    return asked > 0 ? asked : (h + DVK_NORM_CHUNK_ROWS - 1) / DVK_NORM_CHUNK_ROWS;
}

void kc_build_stats(kc_problem *p, const kc_norm_spec *of, dvk_dtype t, kc_fill fill, int slab) {
    dvk_group_norm_stats_args *a = &p->args.stats;
    const kc_shape *s = &of->shape;
    *a = (dvk_group_norm_stats_args){.groups = of->groups, .chunks = of->chunks};
    kc_view(p, &a->x, t, *s, slab);
    kc_fill_view(p, &a->x, fill);
    const int64_t count = s->n * chunks_of(s->h, of->chunks) * of->groups;
    const int64_t values = of->chunks > 0 ? 3 : 2;
    a->partial = kc_floats(p, count * values, -9.0f, 9.0f);
    if (values == 3) {
        kc_output_floats(p, a->partial, count, 3);
    }
    /* A mean near zero is accurate relative to the values' size, not to its size. */
    kc_output_floats(p, a->partial + values - 2, count, values)->unit = fill == KC_LARGE ? (t == DVK_F16 ? 50.0 : 1e4)
                                                                        : fill == KC_DENORMAL
                                                                            ? (t == DVK_F16 ? 6e-5 : 1e-38)
                                                                            : 1.0;
    kc_output_floats(p, a->partial + values - 1, count, values);
    p->error_class = KC_SMALL_SUMS;
    p->no_compare = fill == KC_INF;
    p->bytes = (double)(s->n * s->h * s->w * s->c) * (double)dvk_dtype_size(t);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld groups %lld chunks %lld %s slab %d fill %d", (long long)s->n,
             (long long)s->h, (long long)s->w, (long long)s->c, (long long)of->groups, (long long)of->chunks,
             kc_dtype_name(t), slab, (int)fill);
}

static int stats_count(void) {
    return N_NORMS * 3 * KC_FILLS;
}

static void stats_build(kc_problem *p, int i) {
    kc_build_stats(p, &norms[i % N_NORMS], dtypes[i / N_NORMS % 3], (kc_fill)(i / N_NORMS / 3), i % 2);
}

static int stats_bench_count(void) {
    return 4;
}

static void stats_bench_build(kc_problem *p, int i) {
    static const kc_norm_spec of[] = {{{1, 64, 64, 512}, 32, 0}, {{1, 512, 512, 128}, 32, 0}};
    kc_build_stats(p, &of[i / 2], i % 2 ? DVK_BF16 : DVK_F32, KC_UNIFORM, 0);
}

static int finish_count(void) {
    return N_NORMS;
}

void kc_build_finish(kc_problem *p, const kc_norm_spec *of) {
    dvk_group_norm_finish_args *a = &p->args.finish;
    const kc_shape *s = &of->shape;
    *a = (dvk_group_norm_finish_args){
        .n = s->n, .h = s->h, .w = s->w, .c = s->c, .groups = of->groups, .eps = 1e-6f, .chunks = of->chunks};
    const int64_t count = s->n * chunks_of(s->h, of->chunks) * a->groups;
    float *partial = kc_floats(p, count * (of->chunks > 0 ? 3 : 2), 0.1f, 3.0f);
    for (int64_t i = 0; of->chunks > 0 && i < count; i++) { /* some are empty, but never all of a group */
        const int last = i / a->groups % of->chunks == of->chunks - 1;
        partial[3 * i] = (float)(last ? 7 : kc_below(&p->rng, 3) * kc_below(&p->rng, 200));
        partial[3 * i + 2] *= partial[3 * i];
    }
    a->partial = partial;
    a->gamma = kc_floats(p, s->c, 0.5f, 1.5f);
    a->beta = kc_floats(p, s->c, -0.5f, 0.5f);
    a->scale = kc_floats(p, s->n * s->c, 0.0f, 1.0f);
    a->shift = kc_floats(p, s->n * s->c, 0.0f, 1.0f);
    kc_output_floats(p, a->scale, s->n * s->c, 1);
    kc_output_floats(p, a->shift, s->n * s->c, 1);
    p->error_class = KC_SMALL_SUMS;
    p->bytes = (double)(s->n * s->c) * 16.0 + (double)count * 8.0;
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld groups %lld chunks %lld", (long long)s->n, (long long)s->h,
             (long long)s->w, (long long)s->c, (long long)a->groups, (long long)a->chunks);
}

static void finish_build(kc_problem *p, int i) {
    kc_build_finish(p, &norms[i]);
}

/* --- attention --- */

static const kc_attention_spec attentions[] = {
    {{1, 1, 1, 1}, 1, 1, 1, 1},         {{1, 1, 3, 4}, 1, 5, 1, 4},       {{1, 4, 5, 16}, 4, 5, 1, 16},
    {{2, 3, 7, 32}, 3, 7, 2, 32},       {{1, 5, 9, 40}, 6, 11, 4, 40},    {{1, 8, 8, 64}, 8, 8, 1, 64},
    {{1, 7, 13, 128}, 7, 13, 2, 128},   {{1, 9, 15, 512}, 9, 15, 1, 512}, {{1, 16, 17, 96}, 3, 3, 3, 96},
    {{1, 2, 2, 72}, 31, 17, 1, 72},     {{1, 11, 6, 17}, 13, 5, 1, 17},   {{1, 6, 11, 48}, 6, 11, 16, 48},
    {{1, 17, 19, 512}, 17, 19, 1, 512}, {{1, 1, 70, 30}, 1, 300, 1, 60},
};

enum { N_ATTENTIONS = (int)(sizeof attentions / sizeof attentions[0]) };

void kc_build_attention(kc_problem *p, const kc_attention_spec *of, const dvk_dtype types[4], kc_fill fill, int slabs) {
    dvk_attention_args *a = &p->args.attention;
    const kc_shape *s = &of->shape;
    const kc_shape keys = {s->n, of->kh, of->kw, s->c};
    const kc_shape values = {s->n, of->kh, of->kw, of->v_dim};
    *a = (dvk_attention_args){.heads = of->heads, .scale = (float)(1.0 / sqrt((double)(s->c / of->heads)))};
    kc_view(p, &a->q, types[0], *s, slabs & 1);
    kc_view(p, &a->k, types[1], keys, slabs >> 1 & 1);
    kc_view(p, &a->v, types[2], values, slabs & 1);
    kc_view(p, &a->y, types[3], (kc_shape){s->n, s->h, s->w, of->v_dim}, slabs & 1);
    kc_fill_view(p, &a->q, fill); /* a NaN or an infinity in one query affects only that query */
    kc_fill_view(p, &a->k, fill == KC_NORMAL || fill == KC_INF ? fill : KC_UNIFORM);
    kc_fill_view(p, &a->v, fill == KC_INF ? fill : KC_NORMAL);
    kc_output_view(p, &a->y);
    p->error_class = KC_SOFTMAX;
    p->no_compare = fill == KC_INF;
    p->flops = 2.0 * (double)(s->n * s->h * s->w) * (double)(of->kh * of->kw) * (double)(s->c + of->v_dim);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld keys %lldx%lld heads %lld v %lld %s%s%s%s fill %d",
             (long long)s->n, (long long)s->h, (long long)s->w, (long long)s->c, (long long)of->kh, (long long)of->kw,
             (long long)of->heads, (long long)of->v_dim, kc_dtype_name(types[0]), kc_dtype_name(types[1]),
             kc_dtype_name(types[2]), kc_dtype_name(types[3]), (int)fill);
}

static int attention_count(void) {
    return N_ATTENTIONS * 3 * 4;
}

static void attention_build(kc_problem *p, int i) {
    static const kc_fill fills[] = {KC_UNIFORM, KC_NORMAL, KC_NAN, KC_INF};
    const dvk_dtype t = dtypes[i / N_ATTENTIONS % 3];
    const dvk_dtype types[4] = {t, i % 5 == 4 ? DVK_F32 : t, i % 7 == 6 ? DVK_BF16 : t, i % 11 == 10 ? DVK_F16 : t};
    kc_build_attention(p, &attentions[i % N_ATTENTIONS], types, fills[i / N_ATTENTIONS / 3], i % 2 + (i % 3 % 2) * 2);
}

static int attention_bench_count(void) {
    return 4;
}

static void attention_bench_build(kc_problem *p, int i) {
    static const kc_attention_spec of[] = {{{1, 32, 32, 512}, 32, 32, 1, 512}, {{1, 64, 64, 512}, 64, 64, 1, 512}};
    const dvk_dtype t = i % 2 ? DVK_BF16 : DVK_F32;
    kc_build_attention(p, &of[i / 2], (dvk_dtype[4]){t, t, t, t}, KC_NORMAL, 0);
}

const kc_suite kc_suite_pointwise = {
    "pointwise", pointwise_count, pointwise_build, pointwise_bench_count, pointwise_bench_build, 0, 1};
const kc_suite kc_suite_group_norm_stats = {
    "group_norm_stats", stats_count, stats_build, stats_bench_count, stats_bench_build, 0, 2};
const kc_suite kc_suite_group_norm_finish = {
    "group_norm_finish", finish_count, finish_build, finish_count, finish_build, 0, 3};
const kc_suite kc_suite_attention = {
    "attention", attention_count, attention_build, attention_bench_count, attention_bench_build, 0, 4};
