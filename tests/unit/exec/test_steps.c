/* test_steps.c - dv_steps: each unit of each step runs exactly once, after the step before, on any number of threads. Some steps are
 * done alone, some are empty. Sizes change between runs. Also prints the cost of a step. */
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/os.h"
#include "core/base/pool.h"
#include "core/exec/steps.h"
#include "tests/lib/check.h"

enum { STEPS = 200, UNITS = 40 };

typedef struct work {
    int64_t units;
    _Atomic int64_t done;
    _Atomic int64_t *before; /* counter of the step before */
    int64_t before_units;
    _Atomic int64_t early;
} work;

static int64_t units_of(const void *args) {
    return ((const work *)args)->units;
}

static size_t scratch_of(const void *args) {
    return (size_t)((const work *)args)->units * 8 + 8;
}

static void run_units(const void *args, int64_t first, int64_t last, void *scratch) {
    work *w = (work *)(uintptr_t)args;
    if (w->before != NULL && atomic_load(w->before) != w->before_units) {
        atomic_fetch_add(&w->early, 1);
    }
    int64_t *own = scratch;
    for (int64_t i = first; i < last; i++) {
        own[i] = i;
        atomic_fetch_add(&w->done, 1);
    }
}

static const dvk_kernel kernel = {
    .op = "count", .variant = "test", .units = units_of, .scratch_bytes = scratch_of, .run = run_units};

static void test_order(int32_t threads) {
    static work works[STEPS];
    dv_parallel_step list[STEPS];
    dv_pool *pool = NULL;
    dv_steps *steps = NULL;
    for (int i = 0; i < STEPS; i++) {
        list[i] = (dv_parallel_step){.kernel = &kernel, .args = &works[i], .alone = i % 7 < 2};
    }
    CHECK(dv_pool_create(threads, &pool) == DAVY_OK && dv_steps_create(pool, list, STEPS, &steps) == DAVY_OK);
    int64_t wrong = 0;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < STEPS; i++) {
            works[i].units = (i * 13 + round * 5) % UNITS * (i % 11 != 3); /* some are empty */
            atomic_store(&works[i].done, 0);
            atomic_store(&works[i].early, 0);
            works[i].before = i > 0 ? &works[i - 1].done : NULL;
            works[i].before_units = i > 0 ? works[i - 1].units : 0;
        }
        CHECK(dv_steps_run(steps) == DAVY_OK);
        for (int i = 0; i < STEPS; i++) {
            wrong += atomic_load(&works[i].done) != works[i].units || atomic_load(&works[i].early) != 0;
        }
    }
    CHECKF(wrong == 0, "%d threads: %d steps went wrong", (int)threads, (int)wrong);
    dv_steps_release(steps);
    dv_pool_release(pool);
}

static void test_cost(void) {
    static work works[STEPS];
    dv_parallel_step list[STEPS];
    dv_pool *pool = NULL;
    dv_steps *steps = NULL;
    for (int i = 0; i < STEPS; i++) {
        works[i].units = 8;
        list[i] = (dv_parallel_step){.kernel = &kernel, .args = &works[i]};
    }
    CHECK(dv_pool_create(2, &pool) == DAVY_OK && dv_steps_create(pool, list, STEPS, &steps) == DAVY_OK);
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 300; i++) {
        const uint64_t t0 = dv_now_ns();
        dv_steps_run(steps);
        const uint64_t dt = dv_now_ns() - t0;
        best = dt < best ? dt : best;
    }
    printf("a step of 8 empty units on 2 threads: %.2f us\n", (double)best / STEPS * 1e-3);
    dv_steps_release(steps);
    dv_pool_release(pool);
}

int main(void) {
    test_order(1);
    test_order(2);
    test_order(5);
    test_cost();
    dv_steps_release(NULL);
    return check_done();
}
