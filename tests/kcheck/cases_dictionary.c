/* cases_dictionary.c - problems for the ops of kernels/dictionary.h: the shapes of ATD and ATD-light, and odd ones.
 * Sorting, gathering and scattering must be exact. */
#include <stdio.h>

#include "kernels/dtype.h"
#include "tests/kcheck/cases.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

typedef struct dictionary_spec {
    int64_t h, w, tokens, dim, c; /* dim: of queries */
    int64_t rows, width;          /* of the ordered rows */
    int64_t n;                    /* pictures */
} dictionary_spec;

static const dictionary_spec specs[] = {
    {32, 32, 128, 20, 210, 64, 16, 1}, {24, 40, 64, 8, 48, 64, 16, 1}, {21, 37, 20, 6, 40, 80, 16, 1},
    {1, 1, 2, 1, 1, 1, 1, 1},          {3, 5, 7, 3, 9, 2, 8, 1},       {33, 32, 130, 33, 65, 66, 16, 1},
    {16, 80, 31, 64, 24, 80, 16, 1},   {40, 27, 1, 5, 17, 70, 16, 1},  {21, 37, 20, 6, 40, 80, 16, 3},
    {32, 35, 130, 20, 52, 80, 16, 2},
};

enum { N_SPECS = (int)(sizeof specs / sizeof specs[0]) };

static double flops_of(const dictionary_spec *s, int64_t each) {
    return 2.0 * (double)(s->n * s->h * s->w) * (double)(s->tokens * each);
}

static int64_t pixel_at(const dvk_view *v, int64_t n, int64_t y, int64_t x) {
    return n * v->sn + y * v->sh + x * v->sw;
}

static void filled(kc_problem *p, dvk_view *v, dvk_dtype t, kc_shape s, int slab) {
    kc_view(p, v, t, s, slab);
    kc_fill_view(p, v, KC_NORMAL);
}

/* Tokens of each picture, or of all of them. */
static int64_t tokens_of(const dictionary_spec *s, int variety) {
    return variety % 3 == 1 ? 1 : s->n;
}

/* Shares of tokens: between 0 and 1, adding up to about 1. */
static void shares(kc_problem *p, dvk_view *v, const dictionary_spec *s, int slab) {
    kc_view(p, v, DVK_F32, (kc_shape){s->n, s->h, s->w, s->tokens}, slab);
    for (int64_t i = 0; i < v->n * s->h * s->w && !p->unfilled; i++) {
        for (int64_t c = 0; c < s->tokens; c++) {
            const float x = (kc_uniform(&p->rng) + 1.0f) / (float)s->tokens;
            dvk_store(v->data, DVK_F32, pixel_at(v, i / s->w / s->h, i / s->w % s->h, i % s->w) + c, x);
        }
    }
}

/* A permutation of the picture's pixels, then the last ones backwards. */
static void places(kc_problem *p, dvk_view *v, const dictionary_spec *s) {
    const int64_t count = s->h * s->w;
    kc_view(p, v, DVK_F32, (kc_shape){s->n, s->rows, s->width, 1}, 0);
    for (int64_t k = 0; k < v->n * s->rows * s->width && !p->unfilled; k++) {
        const int64_t n = k / (s->rows * s->width), i = k % (s->rows * s->width);
        const int64_t t = i < count ? i : 2 * count - 1 - i;
        dvk_store(v->data, DVK_F32, pixel_at(v, n, i / s->width, i % s->width), (float)((t * 31 + 7 + n) % count));
    }
}

static void describe(kc_problem *p, const dictionary_spec *s, dvk_dtype t, const char *more) {
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld tokens %lld dim %lld c %lld %s%s", (long long)s->n,
             (long long)s->h, (long long)s->w, (long long)s->tokens, (long long)s->dim, (long long)s->c,
             kc_dtype_name(t), more);
}

static void similarity(kc_problem *p, const dictionary_spec *s, dvk_dtype t, int variety) {
    dvk_similarity_args *a = &p->args.similarity;
    filled(p, &a->q, DVK_F32, (kc_shape){s->n, s->h, s->w, s->dim}, variety % 2);
    filled(p, &a->k, DVK_F32, (kc_shape){tokens_of(s, variety), 1, s->tokens, s->dim}, variety / 2 % 2);
    kc_view(p, &a->y, DVK_F32, (kc_shape){s->n, s->h, s->w, s->tokens}, variety % 2);
    a->factor = kc_floats(p, s->tokens, 1.0f, 6.0f);
    kc_output_view(p, &a->y);
    p->error_class = KC_SOFTMAX;
    p->bytes = kc_view_bytes(&a->q) + kc_view_bytes(&a->y);
    p->flops = flops_of(s, s->dim);
    describe(p, s, t, "");
}

static void mix(kc_problem *p, const dictionary_spec *s, dvk_dtype t, int variety) {
    dvk_mix_args *a = &p->args.mix;
    shares(p, &a->s, s, variety % 2);
    filled(p, &a->v, DVK_F32, (kc_shape){tokens_of(s, variety), 1, s->tokens, s->c}, 0);
    kc_view(p, &a->y, t, (kc_shape){s->n, s->h, s->w, s->c}, variety / 2 % 2);
    kc_output_view(p, &a->y);
    p->error_class = KC_SUMS;
    p->bytes = kc_view_bytes(&a->s) + kc_view_bytes(&a->y);
    p->flops = flops_of(s, s->c);
    describe(p, s, t, "");
}

static void order(kc_problem *p, const dictionary_spec *s, dvk_dtype t, int variety) {
    dvk_order_args *a = &p->args.order;
    shares(p, &a->s, s, variety % 2);
    kc_view(p, &a->y, DVK_F32, (kc_shape){s->n, s->rows, s->width, 1}, variety / 2 % 2);
    kc_output_view(p, &a->y);
    p->error_class = KC_EXACT;
    p->bytes = kc_view_bytes(&a->s);
    describe(p, s, t, "");
}

static void moved(kc_problem *p, const dictionary_spec *s, dvk_dtype t, int variety, int scatters) {
    dvk_gather_args *a = &p->args.gather;
    const kc_shape picture = {s->n, s->h, s->w, s->c};
    const kc_shape sorted = {s->n, s->rows, s->width, s->c};
    filled(p, &a->x, t, scatters ? sorted : picture, variety % 2);
    places(p, &a->order, s);
    a->scale = variety % 3 == 0 ? kc_floats(p, s->c, 0.5f, 2.0f) : NULL;
    kc_view(p, &a->y, variety % 5 == 4 ? DVK_F32 : t, scatters ? picture : sorted, variety / 2 % 2);
    kc_output_view(p, &a->y);
    p->error_class = KC_EXACT;
    p->bytes = kc_view_bytes(&a->x) + kc_view_bytes(&a->y);
    describe(p, s, t, a->scale != NULL ? " scaled" : "");
}

static void gather(kc_problem *p, const dictionary_spec *s, dvk_dtype t, int variety) {
    moved(p, s, t, variety, 0);
}

static void scatter(kc_problem *p, const dictionary_spec *s, dvk_dtype t, int variety) {
    moved(p, s, t, variety, 1);
}

static void refine(kc_problem *p, const dictionary_spec *s, dvk_dtype t, int variety) {
    dvk_refine_args *a = &p->args.refine;
    filled(p, &a->t, DVK_F32, (kc_shape){tokens_of(s, variety), 1, s->tokens, s->c}, variety % 2);
    shares(p, &a->s, s, 0);
    filled(p, &a->x, t, (kc_shape){s->n, s->h, s->w, s->c}, variety / 2 % 2);
    kc_view(p, &a->y, DVK_F32, (kc_shape){s->n, 1, s->tokens, s->c}, 0);
    a->gamma = kc_floats(p, s->tokens, -1.0f, 1.5f);
    a->sigma = kc_floats(p, s->tokens, -2.0f, 2.0f);
    a->eps = 1e-5f;
    kc_output_view(p, &a->y);
    p->error_class = KC_SOFTMAX;
    p->bytes = kc_view_bytes(&a->s) + kc_view_bytes(&a->x);
    p->flops = flops_of(s, s->c);
    describe(p, s, t, "");
}

static int count(void) {
    return N_SPECS * 3 * 2;
}

static int bench_count(void) {
    return 2;
}

#define SUITE(NAME, NUMBER)                                                                                            \
    static void NAME##_build(kc_problem *p, int i) {                                                                   \
        NAME(p, &specs[i % N_SPECS], dtypes[i / N_SPECS % 3], i);                                                      \
    }                                                                                                                  \
    static void NAME##_bench(kc_problem *p, int i) {                                                                   \
        static const dictionary_spec of = {256, 256, 128, 20, 210, 4096, 16, 1};                                       \
        NAME(p, &of, dtypes[i % 3], 1);                                                                                \
    }                                                                                                                  \
    const kc_suite kc_suite_##NAME = {#NAME, count, NAME##_build, bench_count, NAME##_bench, 0, NUMBER}

SUITE(similarity, 48);
SUITE(mix, 49);
SUITE(order, 50);
SUITE(gather, 51);
SUITE(scatter, 52);
SUITE(refine, 53);
