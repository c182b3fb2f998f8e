/* test_engine_memory.c - an engine with little memory: budgets, weights freed and packed again, failing allocations. */
#include <stdatomic.h>

#include "tests/lib/engine_fixture.h"
#include "tests/lib/hooks.h"

static void test_budgets(void) {
    fixture f;
    const fixture_spec spec = {.tensors = narrow(), .threads = 2, .cpu = 0};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    result whole = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 200, .w = 160};
    CHECK(ask(&f, &q, &whole) == DAVY_OK && whole.info.tiles_x * whole.info.tiles_y == 1);
    const uint64_t all = dv_heap_peak(f.services.heap);
    int tiled = 0;
    int refused = 0;
    for (uint64_t budget = all; budget > 200000; budget = budget * 3 / 4) {
        CHECK(dv_engine_unload(f.engine) == DAVY_OK);
        dv_heap_set_budget(f.services.heap, budget);
        result r = {0};
        const davy_result code = ask(&f, &q, &r);
        if (code == DAVY_OK) {
            CHECK(refused == 0 && same_bits(&r, &whole));
            CHECK(dv_heap_used(f.services.heap, DV_MEM_WEIGHTS) + dv_heap_used(f.services.heap, DV_MEM_WORKSPACE) <=
                  budget);
            tiled += r.info.tiles_x * r.info.tiles_y > 1;
        } else {
            CHECKF(code == DAVY_E_BUDGET && strstr(last_error(), "needs at least") != NULL, "%s", last_error());
            CHECK(dv_heap_used(f.services.heap, DV_MEM_WORKSPACE) == 0);
            refused++;
        }
        free(r.data);
    }
    CHECKF(tiled > 3 && refused > 0, "%d budgets gave tiles, %d were refused", tiled, refused);
    q.tiling.width = -1;
    dv_heap_set_budget(f.services.heap, all / 2);
    result r = {0};
    CHECK(ask(&f, &q, &r) == DAVY_E_BUDGET);
    free(whole.data);
    engine_fixture_close(&f);
}

/* If the weights of Winograd kernels do not fit, kernels with smaller weights are chosen. */
static void test_lean(void) {
    fixture f;
    const fixture_spec spec = {.tensors = small_kl(), .threads = 1, .cpu = dvk_cpu_detect()};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    result usual = {0};
    result lean = {0};
    const question q = {.stage = DV_STAGE_DECODE, .c = 4, .h = 16, .w = 16};
    CHECK(ask(&f, &q, &usual) == DAVY_OK);
    const uint64_t weights = dv_heap_used(f.services.heap, DV_MEM_WEIGHTS);
    CHECK(dv_engine_unload(f.engine) == DAVY_OK && dv_heap_used(f.services.heap, DV_MEM_WEIGHTS) == 0);
    dv_heap_set_budget(f.services.heap, usual.info.workspace_bytes + weights * 9 / 10);
    CHECKF(ask(&f, &q, &lean) == DAVY_OK, "%s", last_error());
    CHECK((spec.cpu & DVK_CPU_AVX2) == 0 || dv_heap_used(f.services.heap, DV_MEM_WEIGHTS) < weights / 2);
    CHECKF(relative(&lean, &usual) < 1e-4, "distance %g", relative(&lean, &usual));
    free(usual.data);
    free(lean.data);
    engine_fixture_close(&f);
}

/* Weights packed for a small picture must not take the memory of a large one: they are freed for smaller ones. */
static void test_repacking(void) {
    fixture f;
    const fixture_spec spec = {.tensors = small_kl(), .threads = 1, .cpu = dvk_cpu_detect()};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    dv_heap *heap = f.services.heap;
    const question small = {.stage = DV_STAGE_DECODE, .c = 4, .h = 8, .w = 8};
    question large = {.stage = DV_STAGE_DECODE, .c = 4, .h = 48, .w = 40};
    result r = {0};
    CHECK(ask(&f, &large, &r) == DAVY_OK);
    free(r.data);
    const uint64_t usual = dv_heap_used(heap, DV_MEM_WEIGHTS);
    const uint64_t whole = r.info.workspace_bytes;
    CHECK(dv_engine_unload(f.engine) == DAVY_OK);
    dv_heap_set_budget(heap, whole + usual - usual / 8);
    CHECK(ask(&f, &small, &r) == DAVY_OK);
    free(r.data);
    const uint64_t before = dv_heap_used(heap, DV_MEM_WEIGHTS);
    CHECKF(ask(&f, &large, &r) == DAVY_OK, "%s", last_error());
    CHECK(r.info.tiles_x == 1 && r.info.tiles_y == 1);
    CHECK((spec.cpu & DVK_CPU_AVX2) == 0 || dv_heap_used(heap, DV_MEM_WEIGHTS) < before / 2);
    CHECK(dv_heap_peak(heap) <= whole + usual + (32u << 20));
    free(r.data);
    CHECK(ask(&f, &small, &r) == DAVY_OK);
    free(r.data);
    engine_fixture_close(&f);
}

/* If not all f32 copies fit beside the packed weights, the weights are packed a few at a time. */
static void test_small_batches(void) {
    fixture f;
    fixture_spec spec = {.tensors = narrow(), .threads = 1, .cpu = 0};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    CHECK(dv_engine_load(f.engine, NULL) == DAVY_OK);
    const uint64_t weights = dv_heap_used(f.services.heap, DV_MEM_WEIGHTS);
    engine_fixture_close(&f);
    spec.tensors = narrow();
    spec.budget = weights + weights / 4;
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    CHECKF(dv_engine_load(f.engine, NULL) == DAVY_OK, "%s", last_error());
    CHECK(dv_heap_used(f.services.heap, DV_MEM_WEIGHTS) == weights);
    CHECK(dv_engine_unload(f.engine) == DAVY_OK);
    const question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 8, .w = 8, .tiling = {.width = -1}};
    result r = {0};
    CHECKF(ask(&f, &q, &r) == DAVY_OK, "%s", last_error());
    CHECK(r.info.workspace_bytes < weights / 4);
    free(r.data);
    engine_fixture_close(&f);
}

typedef struct long_run { /* a run that pauses while it holds its memory */
    fixture *f;
    const question *q;
    result r;
    davy_result code;
    _Atomic int32_t stopped, go_on, ended;
} long_run;

static int32_t stop_here(void *user) {
    long_run *l = user;
    if (dv_heap_used(l->f->services.heap, DV_MEM_WORKSPACE) > 0) {
        atomic_store(&l->stopped, 1);
        while (atomic_load(&l->go_on) == 0) {
            dv_thread_yield();
        }
    }
    return 0;
}

static void run_long(void *arg) {
    long_run *l = arg;
    l->code = ask(l->f, l->q, &l->r);
    atomic_store(&l->ended, 1);
}

/* Weights are freed during a run, and the budget has no room for two sets of them: the next run waits. */
static void test_unload_under_a_run(void) {
    fixture f;
    const fixture_spec spec = {.tensors = narrow(), .threads = 1, .cpu = 0};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    result want = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 16, .w = 16, .tiling = {.width = -1}};
    long_run first = {.f = &f, .q = &q}, second = {.f = &f, .q = &q};
    CHECK(ask(&f, &q, &want) == DAVY_OK);
    dv_engine_trim(f.engine, 0);
    question stops = q;
    stops.control = (dv_control){.cancelled = stop_here, .cancelled_user = &first};
    first.q = &stops;
    dv_thread *threads[2] = {0};
    CHECK(dv_thread_start(run_long, &first, "first", &threads[0]) == DAVY_OK);
    while (atomic_load(&first.stopped) == 0 && atomic_load(&first.ended) == 0) {
        dv_thread_yield();
    }
    const uint64_t weights = dv_heap_used(f.services.heap, DV_MEM_WEIGHTS);
    CHECK(weights > want.info.workspace_bytes / 2);
    CHECK(dv_engine_unload(f.engine) == DAVY_OK);
    dv_heap_set_budget(f.services.heap, weights + want.info.workspace_bytes * 3 / 2);
    dv_engine_review(f.engine);
    CHECK(dv_thread_start(run_long, &second, "second", &threads[1]) == DAVY_OK);
    for (const uint64_t until = dv_now_ns() + 50000000; dv_now_ns() < until && atomic_load(&second.ended) == 0;) {
        dv_thread_yield();
    }
    CHECK(atomic_load(&second.ended) == 0);
    atomic_store(&first.go_on, 1);
    dv_thread_join(threads[0]);
    dv_thread_join(threads[1]);
    CHECKF(first.code == DAVY_OK && second.code == DAVY_OK, "%d, %d: %s", (int)first.code, (int)second.code,
           last_error());
    CHECK(same_bits(&first.r, &want) && same_bits(&second.r, &want));
    CHECK(dv_heap_used(f.services.heap, DV_MEM_WEIGHTS) == weights);
    free(want.data);
    free(first.r.data);
    free(second.r.data);
    engine_fixture_close(&f);
}

#if defined(__SANITIZE_THREAD__)
enum { ALLOCATIONS = 7 }; /* the period of failing allocations; short, so that threads meet them soon */
#else
enum { ALLOCATIONS = 1 };
#endif

/* Each allocation fails once: creation and runs return an error and leak nothing. */
static void test_failing_allocations(void) {
    dv_services services = {.heap = dv_heap_create(NULL, 0), .cpu = dvk_cpu_detect()};
    CHECK(dv_pool_create(2, &services.pool) == DAVY_OK);
    int failures = 0;
    bool worked = false;
    for (int64_t n = 0; n < 3000 && !worked; n += ALLOCATIONS) {
        dv_tensors *t = open_weights(MODEL);
        const dv_engine_desc desc = {.services = &services, .tensors = t, .file_name = "failing"};
        fixture f = {.services = services};
        result r = {0};
        const question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 24, .w = 20, .tiling = {16, 16, 4}};
        dv_alloc_fail_after(n);
        davy_result code = dv_engine_create(&desc, &f.engine);
        if (code != DAVY_OK) {
            dv_tensors_release(t);
        } else {
            code = ask(&f, &q, &r);
        }
        dv_alloc_fail_after(-1);
        worked = code == DAVY_OK;
        failures += !worked;
        if (code != DAVY_OK && code != DAVY_E_NOMEM_HOST) {
            CHECKF(0, "allocation %d: %d %s", (int)n, (int)code, last_error());
        }
        if (f.engine != NULL && !worked) { /* the engine still works */
            CHECK(ask(&f, &q, &r) == DAVY_OK);
        }
        free(r.data);
        dv_engine_release(f.engine);
    }
    CHECKF(worked && failures > 100 / ALLOCATIONS, "%d failures", failures);
    CHECK(dv_heap_used(services.heap, DV_MEM_WEIGHTS) == 0 && dv_heap_used(services.heap, DV_MEM_WORKSPACE) == 0);
    dv_pool_release(services.pool);
    dv_heap_release(services.heap);
}

int main(void) {
    test_budgets();
    test_lean();
    test_repacking();
    test_small_batches();
    test_unload_under_a_run();
    test_failing_allocations();
    return check_done();
}
