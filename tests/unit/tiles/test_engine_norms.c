/* test_engine_norms.c - tiles of networks with group norms over the picture (RealPLKSR). The tiles share the statistics of the whole
 * picture, so any tiles give the same result. Also tested: the kept memory, progress and cancellation. */
#include <string.h>

#include "core/tiles/engine_plan.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/fake_convnets.h"

static dv_tensors *square(void) {
    return fake_plksr((fake_plksr_spec){.real = 1, .nf = 16, .blocks = 3, .scale = 2, .k = 5, .gates = 1});
}

static dv_tensors *plain(void) {
    return fake_plksr((fake_plksr_spec){.real = 1, .nf = 8, .blocks = 2, .scale = 4, .k = 7});
}

static dv_tensors *samples(void) {
    return fake_plksr((fake_plksr_spec){.real = 1, .nf = 8, .blocks = 2, .scale = 2, .k = 5, .samples = 1});
}

/* The overlap must be small, so that the tiles keep less memory than the whole picture needs. */
static dv_tensors *near(void) {
    return fake_plksr((fake_plksr_spec){.real = 1, .nf = 16, .blocks = 2, .scale = 1, .k = 1, .mixer = {3, 1}});
}

static fixture_spec spec_of(dv_tensors *t, int32_t threads, davy_dtype compute) {
    return (fixture_spec){.tensors = t, .threads = threads, .cpu = dvk_cpu_detect(), .compute = compute};
}

static const question all = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 101, .w = 133, .tiling = {-1, 0, 0}};

/* Odd sizes, tiles that are not square, a single row of tiles, larger overlaps than necessary. */
static void check_family(const char *name, dv_tensors *t, davy_dtype compute, double bound) {
    static const dv_tiling tilings[] = {{70, 61, 0}, {57, 1000, 0}, {80, 0, 50}};
    fixture f;
    const fixture_spec spec = spec_of(t, 2, compute);
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    const dv_reach *reach = &f.engine->reach[DV_STAGE_UPSCALE];
    CHECKF(reach->n_norms > 1 && !reach->global, "%s", name);
    result whole = {0};
    question q = all;
    CHECKF(ask(&f, &q, &whole) == DAVY_OK && whole.info.tiles_x * whole.info.tiles_y == 1, "%s", last_error());
    for (size_t k = 0; k < DV_ARRAY_LEN(tilings); k++) {
        result r = {0};
        q.tiling = tilings[k];
        CHECKF(ask(&f, &q, &r) == DAVY_OK && r.info.tiles_x * r.info.tiles_y > 1, "%s: %s", name, last_error());
        CHECKF(relative(&r, &whole) < bound, "%s, tiles %d: distance %g", name, (int)k, relative(&r, &whole));
        CHECK(r.info.flops < 5 * whole.info.flops); /* each step runs once */
        free(r.data);
    }
    free(whole.data);
    engine_fixture_close(&f);
}

static void test_families(void) {
    check_family("gates", square(), DAVY_DTYPE_F32, 1e-5);
    check_family("no gates", plain(), DAVY_DTYPE_F32, 1e-5);
    check_family("gates, bf16", square(), DAVY_DTYPE_BF16, 0.01);
    check_family("gates, int8", square(), DAVY_DTYPE_INT8, 0.02);
}

/* The reach of DySample depends on its values. So tiles are not reported as exact, and with little overlap they are not. */
static void test_samples(void) {
    fixture f;
    const fixture_spec spec = spec_of(samples(), 2, DAVY_DTYPE_F32);
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    davy_model_info info = {.struct_size = sizeof info};
    dv_engine_info(f.engine, &info);
    const dv_reach *reach = &f.engine->reach[DV_STAGE_UPSCALE];
    CHECK((info.features & DAVY_MODEL_TILES_EXACT) == 0 && reach->strays && reach->n_norms == 2);
    result whole = {0};
    result r = {0};
    question q = all;
    CHECK(ask(&f, &q, &whole) == DAVY_OK);
    q.tiling = (dv_tiling){90, 80, 60};
    CHECKF(ask(&f, &q, &r) == DAVY_OK && r.info.tiles_x > 1, "%s", last_error());
    CHECKF(relative(&r, &whole) < 1e-5, "distance %g", relative(&r, &whole));
    free(r.data);
    free(whole.data);
    engine_fixture_close(&f);
}

/* Shows that the bounds above are strict: with statistics of each tile this picture would differ clearly. */
static void test_without(void) {
    fixture f;
    const fixture_spec spec = spec_of(square(), 2, DAVY_DTYPE_F32);
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    result whole = {0};
    result r = {0};
    question q = all;
    CHECK(ask(&f, &q, &whole) == DAVY_OK);
    f.engine->reach[DV_STAGE_UPSCALE].n_norms = 0;
    q.tiling = (dv_tiling){70, 61, 0};
    CHECK(ask(&f, &q, &r) == DAVY_OK && r.info.tiles_x > 1);
    CHECKF(relative(&r, &whole) > 1e-3, "distance %g", relative(&r, &whole));
    free(r.data);
    free(whole.data);
    engine_fixture_close(&f);
}

/* The same bits on any number of threads. */
static void test_threads(void) {
    question q = all;
    result first = {0};
    q.tiling = (dv_tiling){70, 61, 0};
    for (int32_t threads = 1; threads <= 3; threads++) {
        fixture f;
        result r = {0};
        const fixture_spec spec = spec_of(square(), threads, DAVY_DTYPE_F32);
        if (engine_fixture_open(&f, &spec)) {
            CHECKF(ask(&f, &q, threads == 1 ? &first : &r) == DAVY_OK, "%s", last_error());
            CHECKF(threads == 1 || same_bits(&r, &first), "%d threads: other bits", (int)threads);
            free(r.data);
            engine_fixture_close(&f);
        }
    }
    free(first.data);
}

static int warnings;

static void DAVY_CALL note(void *user, davy_log_level level, const char *text) {
    (void)user;
    warnings += level == DAVY_LOG_WARN && strstr(text, "tiles change the result") != NULL;
}

/* Budgets too small for the whole picture. While the kept values fit, tiles share the picture's norms. In smaller budgets each tile uses
 * its own norms, and a warning reports it. */
static void test_budgets(void) {
    fixture f;
    dv_log log = {.fn = note, .level = DAVY_LOG_WARN};
    const fixture_spec spec = spec_of(near(), 2, DAVY_DTYPE_F32);
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    f.engine->services.log = &log;
    result whole = {0};
    const question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 240, .w = 200};
    CHECK(ask(&f, &q, &whole) == DAVY_OK && whole.info.tiles_x * whole.info.tiles_y == 1);
    const uint64_t most = dv_heap_peak(f.services.heap);
    int shared = 0, own = 0;
    for (uint64_t part = 9; part >= 3; part -= 2) {
        result r = {0};
        const uint64_t budget = most * part / 10;
        CHECK(dv_engine_unload(f.engine) == DAVY_OK);
        dv_heap_set_budget(f.services.heap, budget);
        warnings = 0;
        const davy_result code = ask(&f, &q, &r);
        CHECKF(code == DAVY_OK || code == DAVY_E_BUDGET, "%s", last_error());
        if (code == DAVY_OK && r.info.tiles_x * r.info.tiles_y > 1) {
            CHECKF(warnings > 0 || relative(&r, &whole) < 1e-5, "distance %g", relative(&r, &whole));
            shared += warnings == 0;
            own += warnings > 0;
        }
        free(r.data);
    }
    CHECKF(shared > 0 && own > 0, "%d budgets were enough to share, %d were not", shared, own);
    free(whole.data);
    engine_fixture_close(&f);
}

/* ---- progress and cancellation ---- */

typedef struct watcher {
    int32_t calls, stop_at;
    uint64_t last;
    bool backwards;
} watcher;

static int32_t DAVY_CALL progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    watcher *w = user;
    (void)stage;
    w->backwards = w->backwards || done < w->last || done > total;
    w->last = done;
    return 0;
}

static int32_t cancelled(void *user) {
    watcher *w = user;
    return ++w->calls == w->stop_at;
}

/* Progress advances from tile to tile and ends at the total. A cancelled run does not affect the next run. */
static void test_control(void) {
    fixture f;
    const fixture_spec spec = spec_of(square(), 2, DAVY_DTYPE_F32);
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    result good = {0};
    result r = {0};
    watcher w = {0};
    question q = all;
    q.tiling = (dv_tiling){70, 61, 0};
    q.control = (dv_control){.progress = progress, .progress_user = &w};
    CHECK(ask(&f, &q, &good) == DAVY_OK && !w.backwards && w.last == 1000);
    w = (watcher){0};
    q.control = (dv_control){.cancelled = cancelled, .cancelled_user = &w};
    CHECK(ask(&f, &q, &r) == DAVY_OK && w.calls > 60);
    free(r.data);
    const int32_t polls = w.calls;
    for (int32_t part = 1; part < 6; part++) {
        w = (watcher){.stop_at = polls * part / 8};
        CHECKF(ask(&f, &q, &r) == DAVY_E_CANCELLED, "stopped at %d of %d", (int)w.stop_at, (int)polls);
    }
    w = (watcher){0};
    CHECK(ask(&f, &q, &r) == DAVY_OK && same_bits(&r, &good));
    free(r.data);
    free(good.data);
    engine_fixture_close(&f);
}

int main(void) {
    test_families();
    test_samples();
    test_without();
    test_threads();
    test_budgets();
    test_control();
    return check_done();
}
