/* cases_fold.c - problems for fold and unfold: SRFormer's queries, keys and values. Their results must be exact. */
#include <stdio.h>

#include "tests/kcheck/kcheck.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

typedef struct fold_spec {
    kc_shape small; /* spatial size of the folded picture, channels of the other */
    int64_t r, heads, padded;
    int32_t top, left;
} fold_spec;

static const fold_spec specs[] = {
    {.small = {1, 11, 22, 45}, .r = 2, .heads = 6, .padded = 32, .top = 1, .left = 1},
    {.small = {1, 8, 16, 15}, .r = 2, .heads = 6, .padded = 16},
    {.small = {1, 11, 11, 192}, .r = 2, .heads = 1, .padded = 768, .top = 1, .left = 1},
    {.small = {2, 3, 5, 48}, .r = 2, .heads = 1, .padded = 192, .left = 1},
    {.small = {1, 4, 7, 16}, .r = 2, .heads = 4, .padded = 24, .top = 1},
    {.small = {2, 3, 2, 4}, .r = 3, .heads = 2, .padded = 19, .top = 2, .left = 1},
    {.small = {1, 1, 1, 3}, .r = 2, .heads = 1, .padded = 12, .top = 1, .left = 1},
    {.small = {1, 2, 3, 1}, .r = 1, .heads = 1, .padded = 1},
    {.small = {1, 2, 9, 8}, .r = 4, .heads = 1, .padded = 128, .top = 3, .left = 2},
};

enum { N_SPECS = (int)(sizeof specs / sizeof specs[0]) };

static void make(kc_problem *p, const fold_spec *s, int folds, dvk_dtype xt, dvk_dtype yt, int variety) {
    dvk_fold_args *a = &p->args.fold;
    const kc_shape *m = &s->small;
    const kc_shape large = {m->n, m->h * s->r, m->w * s->r, m->c};
    const kc_shape small = {m->n, m->h, m->w, folds ? s->heads * s->padded : m->c * s->r * s->r};
    *a = (dvk_fold_args){.r = s->r, .heads = folds ? s->heads : 1, .top = s->top, .left = s->left};
    kc_view(p, &a->x, xt, folds ? large : small, variety % 2);
    kc_fill_view(p, &a->x, (kc_fill)(variety % 7 % KC_FILLS));
    kc_view(p, &a->y, yt, folds ? small : large, variety / 2 % 2);
    kc_output_view(p, &a->y);
    p->error_class = KC_EXACT;
    p->bytes = (double)(a->x.n * a->x.h * a->x.w * a->x.c) * (double)dvk_dtype_size(xt) +
               (double)(a->y.n * a->y.h * a->y.w * a->y.c) * (double)dvk_dtype_size(yt);
    snprintf(p->text, sizeof p->text,
             "%lldx%lldx%lldx%lld -> %lldx%lldx%lld by %lld heads %lld from %d,%d %s->%s variety %d", (long long)a->x.n,
             (long long)a->x.h, (long long)a->x.w, (long long)a->x.c, (long long)a->y.h, (long long)a->y.w,
             (long long)a->y.c, (long long)s->r, (long long)a->heads, s->top, s->left, kc_dtype_name(xt),
             kc_dtype_name(yt), variety);
}

static int count(void) {
    return N_SPECS * 12;
}

static void build(kc_problem *p, int i, int folds) {
    const int j = i / N_SPECS;
    make(p, &specs[i % N_SPECS], folds, dtypes[j % 3], dtypes[(j + (j % 4 == 3)) % 3], i);
}

static int bench_count(void) {
    return 2;
}

static void bench(kc_problem *p, int i, int folds) {
    const fold_spec s = {.small = {1, 132, 132, 192}, .r = 2, .heads = 1, .padded = 768, .top = 1, .left = 1};
    make(p, &s, folds, i ? DVK_BF16 : DVK_F32, i ? DVK_BF16 : DVK_F32, 4);
}

static void fold_build(kc_problem *p, int i) {
    build(p, i, 1);
}

static void fold_bench(kc_problem *p, int i) {
    bench(p, i, 1);
}

static void unfold_build(kc_problem *p, int i) {
    build(p, i, 0);
}

static void unfold_bench(kc_problem *p, int i) {
    bench(p, i, 0);
}

const kc_suite kc_suite_fold = {"fold", count, fold_build, bench_count, fold_bench, 0, 54};
const kc_suite kc_suite_unfold = {"unfold", count, unfold_build, bench_count, unfold_bench, 0, 55};
