/* test_pool.c - the parallel loop: every unit exactly once, on any number of threads, several loops at once, stopped
 * early, uneven work; the caller's floating-point mode; the time of an empty loop. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/base/pool.h"
#include "tests/lib/check.h"

enum { UNITS = 5000, MAX_WORKERS = 8 };

typedef struct job {
    _Atomic int32_t seen[UNITS];
    _Atomic int32_t inside[MAX_WORKERS]; /* two threads must never share a worker index of one loop */
    _Atomic int32_t shared_index;
    int64_t ticks;
    int64_t last_done;
    int64_t stop_at;
    _Atomic int32_t stopped; /* the tick has stopped the loop */
    bool done_went_back;
    bool wait_for_stop;
} job;

static void count_units(void *user, int64_t first, int64_t last, int32_t worker) {
    job *j = user;
    if (worker < 0 || worker >= MAX_WORKERS || atomic_fetch_add(&j->inside[worker], 1) != 0) {
        atomic_store(&j->shared_index, 1);
    }
    for (int64_t i = first; i < last; i++) {
        atomic_fetch_add(&j->seen[i], 1);
    }
    /* Workers wait here for the stop, so that they do not finish the loop before the caller's tick. */
    while (j->wait_for_stop && worker != 0 && last > UNITS / 2 && atomic_load(&j->stopped) == 0) {
        dv_sleep_ns(100000);
    }
    atomic_fetch_sub(&j->inside[worker], 1);
}

static int32_t count_ticks(void *user, int64_t done) {
    job *j = user;
    j->ticks++;
    j->done_went_back = j->done_went_back || done < j->last_done;
    j->last_done = done;
    if (j->stop_at == 0 || done < j->stop_at) {
        return 0;
    }
    atomic_store(&j->stopped, 1);
    return 77;
}

static int64_t wrong_units(job *j, int64_t units) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < UNITS; i++) {
        wrong += j->seen[i] != (i < units ? 1 : 0);
    }
    return wrong;
}

static void test_each_unit_once(void) {
    for (int32_t threads = 1; threads <= MAX_WORKERS; threads++) {
        dv_pool *pool = NULL;
        if (!CHECK(dv_pool_create(threads, &pool) == DAVY_OK)) {
            return;
        }
        CHECK(dv_pool_threads(pool) == threads);
        static const int64_t sizes[] = {0, 1, 2, 3, 17, 1000, UNITS};
        for (size_t i = 0; i < DV_ARRAY_LEN(sizes); i++) {
            job *j = dv_calloc(1, sizeof *j);
            const dv_loop loop = {.units = sizes[i], .run = count_units, .tick = count_ticks, .user = j};
            CHECK(dv_pool_run(pool, &loop) == 0);
            CHECK(wrong_units(j, sizes[i]) == 0 && j->shared_index == 0 && !j->done_went_back);
            CHECK(threads > 1 || sizes[i] == 0 || (j->ticks > 0 && j->last_done == sizes[i]));
            dv_free(j);
        }
        dv_pool_release(pool);
    }
    dv_pool_release(NULL);
    dv_pool *none = NULL;
    CHECK(dv_pool_create(0, &none) == DAVY_E_INVALID && none == NULL);
}

static void test_stop(void) {
    dv_pool *pool = NULL;
    job *j = dv_calloc(1, sizeof *j);
    if (CHECK(dv_pool_create(3, &pool) == DAVY_OK) && CHECK(j != NULL)) {
        j->stop_at = 10;
        j->wait_for_stop = true;
        const dv_loop loop = {.units = UNITS, .run = count_units, .tick = count_ticks, .user = j};
        CHECK(dv_pool_run(pool, &loop) == 77);
        int64_t done = 0;
        for (int64_t i = 0; i < UNITS; i++) {
            CHECKF(j->seen[i] <= 1, "unit %d ran twice", (int)i);
            done += j->seen[i];
        }
        CHECK(done >= 10 && done < UNITS);
        for (int i = 0; i < MAX_WORKERS; i++) {
            CHECK(j->inside[i] == 0);
        }
    }
    dv_free(j);
    dv_pool_release(pool);
}

typedef struct caller {
    dv_pool *pool;
    int64_t wrong;
} caller;

static void run_many(void *arg) {
    caller *c = arg;
    job *j = dv_calloc(1, sizeof *j);
    for (int round = 0; j != NULL && round < 100; round++) {
        memset(j, 0, sizeof *j);
        const int64_t units = 1 + (round * 37) % 400;
        const dv_loop loop = {.units = units, .run = count_units, .user = j};
        c->wrong += dv_pool_run(c->pool, &loop);
        c->wrong += wrong_units(j, units) + j->shared_index;
    }
    dv_free(j);
}

static void test_callers_at_once(void) {
    dv_pool *pool = NULL;
    if (!CHECK(dv_pool_create(3, &pool) == DAVY_OK)) {
        return;
    }
    caller callers[4];
    dv_thread *t[4] = {NULL};
    for (int i = 0; i < 4; i++) {
        callers[i] = (caller){.pool = pool};
        CHECK(dv_thread_start(run_many, &callers[i], "test", &t[i]) == DAVY_OK);
    }
    for (int i = 0; i < 4; i++) {
        dv_thread_join(t[i]);
        CHECK(callers[i].wrong == 0);
    }
    dv_pool_release(pool);
}

static void multiply_tiny(void *user, int64_t first, int64_t last, int32_t worker) {
    _Atomic int32_t *flushed = user;
    volatile float tiny = 1e-38f;
    (void)worker;
    const float product = tiny * 0.25f;
    atomic_fetch_add(flushed, product == 0.0f ? (int32_t)(last - first) : 0);
}

static int32_t tick_keeps_mode(void *user, int64_t done) {
    volatile float tiny = 1e-38f;
    (void)user;
    (void)done;
    return tiny * 0.25f > 0.0f ? 0 : 1;
}

static void test_fp_mode(void) {
#if defined(__x86_64__) || defined(_M_X64)
    dv_pool *pool = NULL;
    _Atomic int32_t flushed = 0;
    if (CHECK(dv_pool_create(2, &pool) == DAVY_OK)) {
        const dv_loop loop = {.units = 1000, .run = multiply_tiny, .tick = tick_keeps_mode, .user = &flushed};
        CHECK(dv_pool_run(pool, &loop) == 0); /* the host's callback sees the host's mode */
        CHECK(flushed == 1000);
        CHECK(tick_keeps_mode(NULL, 0) == 0); /* and so does the host afterwards */
    }
    dv_pool_release(pool);
#else
    check_skip("no denormal mode on this processor");
#endif
}

static void nothing(void *user, int64_t first, int64_t last, int32_t worker) {
    (void)user;
    (void)first;
    (void)last;
    (void)worker;
}

static int compare_u64(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Prints the time and does not check it: a limit would fail on a busy machine. */
static void measure_empty_loop(void) {
    enum { ROUNDS = 1001 };
    static uint64_t times[ROUNDS];
    dv_pool *pool = NULL;
    if (!CHECK(dv_pool_create(2, &pool) == DAVY_OK)) {
        return;
    }
    const dv_loop loop = {.units = 2, .run = nothing};
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t t0 = dv_now_ns();
        dv_pool_run(pool, &loop);
        times[i] = dv_now_ns() - t0;
    }
    qsort(times, ROUNDS, sizeof times[0], compare_u64);
    printf("empty loop on 2 threads: median %.2f us, 90%% below %.2f us\n", (double)times[ROUNDS / 2] / 1e3,
           (double)times[ROUNDS * 9 / 10] / 1e3);
    dv_pool_release(pool);
}

int main(void) {
    test_each_unit_once();
    test_stop();
    test_callers_at_once();
    test_fp_mode();
    measure_empty_loop();
    return check_done();
}
