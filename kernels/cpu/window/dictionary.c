/* dictionary.c - the ops of kernels/dictionary.h in f32 on any processor. The ops that only move pixels have no other
 * CPU kernel. */
#define DICTIONARY_LANES 4
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/window/dictionary_tmpl.h"

enum { MOVED = 512 }; /* pixels per unit */

/* --- order --- */

static int order_supports(const void *args) {
    const dvk_order_args *a = args;
    return a->s.dtype == DVK_F32 && a->y.dtype == DVK_F32;
}

static int64_t order_units(const void *args) {
    return ((const dvk_order_args *)args)->y.n;
}

static size_t order_scratch(const void *args) {
    const dvk_order_args *a = args;
    return (size_t)(a->s.c + 1) * sizeof(int64_t) + (size_t)pixels(&a->s) * sizeof(int32_t);
}

static double order_cost(const void *args) {
    const dvk_order_args *a = args;
    return (double)(a->s.n * pixels(&a->s)) * (double)a->s.c * CPU_COST(order, element);
}

static int32_t greatest(const float *s, int64_t count) {
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++) {
        best = s[i] > s[best] ? i : best;
    }
    return best;
}

static void order_one(const dvk_order_args *a, int64_t *next) {
    const int64_t count = pixels(&a->s);
    int32_t *kinds = (int32_t *)(void *)(next + a->s.c + 1);
    float *y = a->y.data;
    memset(next, 0, (size_t)(a->s.c + 1) * sizeof *next);
    for (int64_t p = 0; p < count; p++) {
        kinds[p] = greatest(row(&a->s, p), a->s.c);
        next[kinds[p] + 1]++;
    }
    for (int64_t i = 0; i < a->s.c; i++) {
        next[i + 1] += next[i];
    }
    for (int64_t p = 0; p < count; p++) {
        y[at(&a->y, next[kinds[p]]++)] = (float)p;
    }
    for (int64_t t = count; t < pixels(&a->y); t++) {
        y[at(&a->y, t)] = y[at(&a->y, 2 * count - 1 - t)];
    }
}

static void order_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_order_args *a = args;
    for (int64_t n = first; n < last; n++) {
        const dvk_order_args one = {.s = dvk_picture_of(a->s, n), .y = dvk_picture_of(a->y, n)};
        order_one(&one, scratch);
    }
}

/* --- gather, scatter --- */

static int64_t gather_units(const void *args) {
    const dvk_gather_args *a = args;
    return a->y.n * units_of(&a->y, MOVED);
}

static double gather_cost(const void *args) {
    const dvk_gather_args *a = args;
    return (double)(a->y.n * pixels(&a->y)) * (double)a->y.c * CPU_COST(gather, element);
}

static void move(const dvk_gather_args *a, int64_t from, int64_t to) {
    const int64_t x = at(&a->x, from);
    const int64_t y = at(&a->y, to);
    if (a->scale == NULL && a->x.dtype == a->y.dtype) {
        const size_t size = dvk_dtype_size(a->x.dtype);
        memcpy((char *)a->y.data + (size_t)y * size, (const char *)a->x.data + (size_t)x * size, (size_t)a->y.c * size);
        return;
    }
    for (int64_t c = 0; c < a->y.c; c++) {
        const float v = dvk_load(a->x.data, a->x.dtype, x + c);
        dvk_store(a->y.data, a->y.dtype, y + c, a->scale != NULL ? v * a->scale[c] : v);
    }
}

static int64_t place_of(const dvk_gather_args *a, int64_t t) {
    return (int64_t)dvk_load(a->order.data, a->order.dtype, at(&a->order, t));
}

static dvk_gather_args gather_of(const dvk_gather_args *a, int64_t n) {
    return (dvk_gather_args){.x = dvk_picture_of(a->x, n),
                             .order = dvk_picture_of(a->order, n),
                             .y = dvk_picture_of(a->y, n),
                             .scale = a->scale};
}

static void gather_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_gather_args *all = args;
    (void)scratch;
    OF_PICTURES(s, first, last, units_of(&all->y, MOVED)) {
        const dvk_gather_args a = gather_of(all, s.n);
        for (int64_t t = s.first * MOVED; t < least(s.last * MOVED, pixels(&a.y)); t++) {
            move(&a, place_of(&a, t), t);
        }
    }
}

static void scatter_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_gather_args *all = args;
    (void)scratch;
    OF_PICTURES(s, first, last, units_of(&all->y, MOVED)) {
        const dvk_gather_args a = gather_of(all, s.n);
        for (int64_t t = s.first * MOVED; t < least(s.last * MOVED, pixels(&a.y)); t++) {
            move(&a, t, place_of(&a, t));
        }
    }
}

DICTIONARY(similarity, base, "cpu/base", 0);
DICTIONARY(mix, base, "cpu/base", 0);
DICTIONARY(refine, base, "cpu/base", 0);
DICTIONARY(order, base, "cpu/base", 0);

#define MOVE(NAME)                                                                                                     \
    const dvk_kernel dvk_##NAME##_base = {.op = #NAME,                                                                 \
                                          .variant = "cpu/base",                                                       \
                                          .compute = DVK_F32,                                                          \
                                          .cost = gather_cost,                                                         \
                                          .units = gather_units,                                                       \
                                          .run = NAME##_run}

MOVE(gather);
MOVE(scatter);
