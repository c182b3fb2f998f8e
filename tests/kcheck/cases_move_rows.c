/* cases_move_rows.c - problems for gather_rows and add_rows. */
#include <stdio.h>
#include <string.h>

#include "tests/kcheck/cases_lm.h"

static const int64_t sizes[][3] = {/* rows, values of each, taps */
                                   {1, 1, 1},  {5, 768, 1},  {16, 33, 4},   {1, 1280, 4},
                                   {64, 7, 2}, {300, 64, 3}, {33, 1152, 4}, {1024, 96, 1}};
enum { N_SIZES = (int)(sizeof sizes / sizeof sizes[0]) };

static int count(void) {
    return N_SIZES * 2;
}

/* Row numbers below `rows`; with `gaps`, every third is negative. */
static const int32_t *numbers(kc_problem *p, int64_t n, int64_t rows, int gaps) {
    unsigned char *data = NULL;
    kc_alloc(p, (size_t)n * sizeof(int32_t), &data);
    for (int64_t i = 0; i < n; i++) {
        const int32_t row = gaps && i % 3 == 2 ? -1 : (int32_t)kc_below(&p->rng, rows);
        memcpy(data + i * (int64_t)sizeof row, &row, sizeof row);
    }
    return (const int32_t *)(void *)data;
}

static float *output(kc_problem *p, int64_t m, int64_t dim) {
    dvk_rows y;
    const dvk_view v = kc_rows(p, &y, DVK_F32, (kc_rows_shape){m, 1, dim}, 0, KC_UNIFORM);
    kc_output_view(p, &v);
    return y.data;
}

static void gather_build(kc_problem *p, int i) {
    const int64_t *s = sizes[i % N_SIZES];
    const int64_t rows = s[0] + 3;
    dvk_gather_rows_args *a = &p->args.gather_rows;
    *a = (dvk_gather_rows_args){.m = s[0], .dim = s[1]};
    a->x = kc_floats(p, rows * s[1], -1.0f, 1.0f);
    a->order = numbers(p, s[0], rows, 0);
    a->y = output(p, s[0], s[1]);
    p->error_class = KC_EXACT;
    p->bytes = (double)(s[0] * s[1]) * 8.0;
    snprintf(p->text, sizeof p->text, "%lldx%lld", (long long)s[0], (long long)s[1]);
}

static void add_build(kc_problem *p, int i) {
    const int64_t *s = sizes[i % N_SIZES];
    const int64_t rows = s[0] + 3;
    dvk_add_rows_args *a = &p->args.add_rows;
    *a = (dvk_add_rows_args){.m = s[0], .dim = s[1], .taps = s[2]};
    a->x = kc_floats(p, rows * s[1], -1.0f, 1.0f);
    a->row = numbers(p, s[0] * s[2], rows, i % 2);
    a->weight = i < N_SIZES ? kc_floats(p, s[0] * s[2], -1.0f, 1.0f) : NULL;
    a->y = output(p, s[0], s[1]);
    p->error_class = KC_POINTWISE;
    p->bytes = (double)(s[0] * s[1] * (2 + s[2])) * 4.0;
    snprintf(p->text, sizeof p->text, "%lldx%lld taps %lld weights %d gaps %d", (long long)s[0], (long long)s[1],
             (long long)s[2], a->weight != NULL, i % 2);
}

const kc_suite kc_suite_gather_rows = {"gather_rows", count, gather_build, count, gather_build, 0, 26};
const kc_suite kc_suite_add_rows = {"add_rows", count, add_build, count, add_build, 0, 27};
