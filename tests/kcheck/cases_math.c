/* cases_math.c - problems for pointwise, the two halves of a group norm, and attention. */
#include <math.h>
#include <stdio.h>

#include "tests/kcheck/kcheck.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

static const kc_shape shapes[] = {
    {1, 1, 1, 1},   {1, 1, 1, 3},   {2, 3, 5, 1},     {1, 2, 3, 4},    {1, 3, 7, 16}, {2, 5, 3, 17},
    {1, 4, 9, 31},  {1, 9, 2, 32},  {1, 3, 11, 48},   {1, 13, 7, 64},  {2, 9, 4, 96}, {1, 17, 5, 128},
    {1, 2, 3, 192}, {1, 3, 2, 512}, {1, 37, 100, 12}, {1, 1, 1000, 7},
};

enum { N_SHAPES = (int)(sizeof shapes / sizeof shapes[0]), N_ACTS = DVK_ACT_CLAMP3 + 1 };

/* --- pointwise: every activation before, after and in front, with 0 to 2 residuals, in place, gated --- */

enum { ENDS_PLAIN, ENDS_BIAS, ENDS_RES, ENDS_TWO_RES, ENDS_IN_PLACE, ENDS_LAST, ENDS_GATE, ENDS };

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
    if (ends == ENDS_IN_PLACE) { /* y is a residual's memory; and the input's where the types agree */
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

static const struct {
    kc_shape shape;
    dvk_prologue pro;
    dvk_act act;
    int ends;
} pointwise_benches[] = {
    {{1, 128, 128, 512}, {.act = DVK_ACT_SILU}, DVK_ACT_NONE, ENDS_PLAIN}, /* norm + SiLU, scale added below */
    {{1, 512, 512, 64}, {.act = DVK_ACT_NONE}, DVK_ACT_RELU, ENDS_RES},    /* TAESD block */
    {{1, 512, 512, 64}, {.act = DVK_ACT_NONE}, DVK_ACT_NONE, ENDS_PLAIN},  /* a copy */
    {{1, 720, 1280, 48}, {.act = DVK_ACT_NONE}, DVK_ACT_NONE, ENDS_GATE},  /* SPAN */
    {{1, 720, 1280, 3}, {.act = DVK_ACT_NONE}, DVK_ACT_NONE, ENDS_BIAS},
};

static int pointwise_bench_count(void) {
    return 2 * (int)(sizeof pointwise_benches / sizeof pointwise_benches[0]);
}

static void pointwise_bench_build(kc_problem *p, int i) {
    const kc_shape *s = &pointwise_benches[i / 2].shape;
    const dvk_dtype t = i % 2 ? DVK_BF16 : DVK_F32;
    dvk_pointwise_args *a = &p->args.pointwise;
    *a = (dvk_pointwise_args){.pro = pointwise_benches[i / 2].pro,
                              .epi = {.alpha = 1.0f, .act = pointwise_benches[i / 2].act}};
    kc_view(p, &a->x, t, *s, 0);
    kc_fill_view(p, &a->x, KC_UNIFORM);
    kc_view(p, &a->y, t, *s, 0);
    if (i / 2 == 0) {
        a->pro.scale = kc_floats(p, s->c, 0.5f, 1.5f);
        a->pro.shift = kc_floats(p, s->c, -0.5f, 0.5f);
    }
    pointwise_ends(p, a, pointwise_benches[i / 2].ends, KC_UNIFORM);
    kc_output_view(p, &a->y);
    p->error_class = KC_POINTWISE;
    p->bytes = (double)(s->h * s->w * s->c) * (double)(dvk_dtype_size(t) * (size_t)(2 + a->epi.n_res));
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld %s act %d front %d ends %d", (long long)s->h, (long long)s->w,
             (long long)s->c, kc_dtype_name(t), (int)a->epi.act, (int)a->pro.act, pointwise_benches[i / 2].ends);
}

/* --- group norm --- */

static const struct {
    kc_shape shape;
    int64_t groups;
} norms[] = {
    {{1, 1, 1, 1}, 1},      {{1, 1, 1, 32}, 32},    {{1, 3, 5, 32}, 32},   {{2, 8, 3, 64}, 32},
    {{1, 9, 7, 96}, 32},    {{1, 16, 4, 128}, 32},  {{2, 17, 3, 160}, 32}, {{1, 10, 6, 256}, 32},
    {{1, 5, 9, 320}, 32},   {{1, 24, 33, 512}, 32}, {{1, 7, 11, 12}, 4},   {{1, 33, 21, 10}, 2},
    {{1, 100, 37, 48}, 16}, {{1, 2, 2, 14}, 7},     {{3, 11, 5, 72}, 8},   {{1, 8, 200, 768}, 32},
};

enum { N_NORMS = (int)(sizeof norms / sizeof norms[0]) };

static int64_t chunks_of(int64_t h) {
    return (h + DVK_NORM_CHUNK_ROWS - 1) / DVK_NORM_CHUNK_ROWS;
}

static void stats_make(kc_problem *p, const kc_shape *s, int64_t groups, dvk_dtype t, kc_fill fill, int slab) {
    dvk_group_norm_stats_args *a = &p->args.stats;
    *a = (dvk_group_norm_stats_args){.groups = groups};
    kc_view(p, &a->x, t, *s, slab);
    kc_fill_view(p, &a->x, fill);
    const int64_t count = s->n * chunks_of(s->h) * groups;
    a->partial = kc_floats(p, count * 2, -9.0f, 9.0f);
    /* A mean near zero is known to a share of the values' size, not of its own. */
    kc_output_floats(p, a->partial, count, 2)->unit = fill == KC_LARGE      ? (t == DVK_F16 ? 50.0 : 1e4)
                                                      : fill == KC_DENORMAL ? (t == DVK_F16 ? 6e-5 : 1e-38)
                                                                            : 1.0;
    kc_output_floats(p, a->partial + 1, count, 2);
    p->error_class = KC_SMALL_SUMS;
    p->no_compare = fill == KC_INF;
    p->bytes = (double)(s->n * s->h * s->w * s->c) * (double)dvk_dtype_size(t);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld groups %lld %s slab %d fill %d", (long long)s->n,
             (long long)s->h, (long long)s->w, (long long)s->c, (long long)groups, kc_dtype_name(t), slab, (int)fill);
}

static int stats_count(void) {
    return N_NORMS * 3 * KC_FILLS;
}

static void stats_build(kc_problem *p, int i) {
    stats_make(p, &norms[i % N_NORMS].shape, norms[i % N_NORMS].groups, dtypes[i / N_NORMS % 3],
               (kc_fill)(i / N_NORMS / 3), i % 2);
}

static int stats_bench_count(void) {
    return 4;
}

static void stats_bench_build(kc_problem *p, int i) {
    static const kc_shape of[] = {{1, 64, 64, 512}, {1, 512, 512, 128}};
    stats_make(p, &of[i / 2], 32, i % 2 ? DVK_BF16 : DVK_F32, KC_UNIFORM, 0);
}

static int finish_count(void) {
    return N_NORMS;
}

static void finish_build(kc_problem *p, int i) {
    const kc_shape *s = &norms[i].shape;
    dvk_group_norm_finish_args *a = &p->args.finish;
    *a = (dvk_group_norm_finish_args){
        .n = s->n, .h = s->h, .w = s->w, .c = s->c, .groups = norms[i].groups, .eps = 1e-6f};
    a->partial = kc_floats(p, s->n * chunks_of(s->h) * a->groups * 2, 0.1f, 3.0f);
    a->gamma = kc_floats(p, s->c, 0.5f, 1.5f);
    a->beta = kc_floats(p, s->c, -0.5f, 0.5f);
    a->scale = kc_floats(p, s->n * s->c, 0.0f, 1.0f);
    a->shift = kc_floats(p, s->n * s->c, 0.0f, 1.0f);
    kc_output_floats(p, a->scale, s->n * s->c, 1);
    kc_output_floats(p, a->shift, s->n * s->c, 1);
    p->error_class = KC_SMALL_SUMS;
    p->bytes = (double)(s->n * s->c) * 16.0;
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld groups %lld", (long long)s->n, (long long)s->h,
             (long long)s->w, (long long)s->c, (long long)a->groups);
}

/* --- attention --- */

static const struct {
    kc_shape shape; /* of q; c of one head times heads */
    int64_t kh, kw, heads, v_dim;
} attentions[] = {
    {{1, 1, 1, 1}, 1, 1, 1, 1},         {{1, 1, 3, 4}, 1, 5, 1, 4},       {{1, 4, 5, 16}, 4, 5, 1, 16},
    {{2, 3, 7, 32}, 3, 7, 2, 32},       {{1, 5, 9, 40}, 6, 11, 4, 40},    {{1, 8, 8, 64}, 8, 8, 1, 64},
    {{1, 7, 13, 128}, 7, 13, 2, 128},   {{1, 9, 15, 512}, 9, 15, 1, 512}, {{1, 16, 17, 96}, 3, 3, 3, 96},
    {{1, 2, 2, 72}, 31, 17, 1, 72},     {{1, 11, 6, 17}, 13, 5, 1, 17},   {{1, 6, 11, 48}, 6, 11, 16, 48},
    {{1, 17, 19, 512}, 17, 19, 1, 512}, {{1, 1, 70, 30}, 1, 300, 1, 60},
};

enum { N_ATTENTIONS = (int)(sizeof attentions / sizeof attentions[0]) };

static void attention_make(kc_problem *p, const kc_shape *s, const kc_shape *keys, int64_t heads, int64_t v_channels) {
    dvk_attention_args *a = &p->args.attention;
    const double dim = (double)(s->c / heads);
    a->heads = heads;
    a->scale = (float)(1.0 / sqrt(dim));
    p->flops = 2.0 * (double)(s->n * s->h * s->w) * (double)(keys->h * keys->w) * (double)(s->c + v_channels);
    p->error_class = KC_SOFTMAX;
    kc_output_view(p, &a->y);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld keys %lldx%lld heads %lld q %s y %s", (long long)s->n,
             (long long)s->h, (long long)s->w, (long long)s->c, (long long)keys->h, (long long)keys->w,
             (long long)heads, kc_dtype_name(a->q.dtype), kc_dtype_name(a->y.dtype));
}

static int attention_count(void) {
    return N_ATTENTIONS * 3 * 4;
}

static void attention_build(kc_problem *p, int i) {
    static const kc_fill fills[] = {KC_UNIFORM, KC_NORMAL, KC_NAN, KC_INF};
    dvk_attention_args *a = &p->args.attention;
    const int j = i % N_ATTENTIONS;
    const kc_fill fill = fills[i / N_ATTENTIONS / 3];
    const kc_shape s = attentions[j].shape;
    const kc_shape keys = {s.n, attentions[j].kh, attentions[j].kw, s.c};
    const kc_shape values = {s.n, keys.h, keys.w, attentions[j].v_dim};
    const dvk_dtype t = dtypes[i / N_ATTENTIONS % 3];
    *a = (dvk_attention_args){0};
    kc_view(p, &a->q, t, s, i % 2);
    kc_view(p, &a->k, i % 5 == 4 ? DVK_F32 : t, keys, i % 3 % 2);
    kc_view(p, &a->v, i % 7 == 6 ? DVK_BF16 : t, values, i % 2);
    kc_view(p, &a->y, i % 11 == 10 ? DVK_F16 : t, (kc_shape){s.n, s.h, s.w, values.c}, i % 2);
    kc_fill_view(p, &a->q, fill); /* a NaN or an infinity in one query is that query's alone */
    kc_fill_view(p, &a->k, fill == KC_NORMAL || fill == KC_INF ? fill : KC_UNIFORM);
    kc_fill_view(p, &a->v, fill == KC_INF ? fill : KC_NORMAL);
    attention_make(p, &s, &keys, attentions[j].heads, values.c);
    p->no_compare = fill == KC_INF;
}

static int attention_bench_count(void) {
    return 4;
}

static void attention_bench_build(kc_problem *p, int i) {
    static const kc_shape of[] = {{1, 32, 32, 512}, {1, 64, 64, 512}};
    const kc_shape s = of[i / 2];
    const dvk_dtype t = i % 2 ? DVK_BF16 : DVK_F32;
    dvk_attention_args *a = &p->args.attention;
    *a = (dvk_attention_args){0};
    dvk_view *views[4] = {&a->q, &a->k, &a->v, &a->y};
    for (int v = 0; v < 4; v++) {
        kc_view(p, views[v], t, s, 0);
        kc_fill_view(p, views[v], KC_NORMAL);
    }
    attention_make(p, &s, &s, 1, s.c);
}

const kc_suite kc_suite_pointwise = {"pointwise", pointwise_count, pointwise_build, pointwise_bench_count,
                                     pointwise_bench_build};
const kc_suite kc_suite_group_norm_stats = {"group_norm_stats", stats_count, stats_build, stats_bench_count,
                                            stats_bench_build};
const kc_suite kc_suite_group_norm_finish = {"group_norm_finish", finish_count, finish_build, finish_count,
                                             finish_build};
const kc_suite kc_suite_attention = {"attention", attention_count, attention_build, attention_bench_count,
                                     attention_bench_build};
