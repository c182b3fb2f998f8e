/* test_engine_means.c - tiles of networks with squeeze and excitation (Real-CUGAN, waifu2x). The tiles share the means of the whole
 * picture, so any tiles give the same result. Also tested: the cost, progress and cancellation. */
#include <string.h>

#include "core/tiles/engine_plan.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/fake_convnets.h"

static const fake_cugan_spec x2 = {.in = 3, .bottom = 3, .k = 4, .out = 3};

static dv_tensors *narrow_x2(void) {
    return fake_cugan_narrow(x2, 8);
}

static dv_tensors *narrow_x3(void) {
    return fake_cugan_narrow((fake_cugan_spec){.in = 3, .bottom = 3, .k = 5, .out = 3, .pro = 1}, 8);
}

static dv_tensors *narrow_x4(void) {
    return fake_cugan_narrow((fake_cugan_spec){.in = 3, .bottom = 64, .k = 4, .out = 64, .final = 12}, 16);
}

static dv_tensors *narrow_fast(void) {
    return fake_cugan_narrow((fake_cugan_spec){.in = 12, .bottom = 64, .k = 4, .out = 64, .final = 12}, 16);
}

static dv_tensors *narrow_cunet(void) {
    return fake_cugan_narrow((fake_cugan_spec){.in = 3, .bottom = 3, .k = 3, .out = 3}, 8);
}

/* With generated weights, nearly all of the output comes from the biases and not from the picture. This changes the weights before
 * they are packed. */
static bool open_excited(fixture *f, const fixture_spec *spec) {
    if (!engine_fixture_open(f, spec)) {
        return false;
    }
    for (int64_t i = 0; i < f->engine->tensors->count; i++) {
        const dv_tensor_ref *ref = &f->engine->tensors->refs[i];
        const bool squeezes = strstr(ref->name, "seblock.conv1.weight") != NULL;
        const bool gates = strstr(ref->name, "seblock") != NULL;
        const float gain = strstr(ref->name, ".bias") != NULL ? (gates ? 0.0f : 0.05f) : gates ? 1.0f : 3.0f;
        float *w = f->data + ref->offset / sizeof *w;
        for (uint64_t k = 0; k < ref->bytes / sizeof *w; k++) {
            w[k] = gain * (squeezes ? fabsf(w[k]) : w[k]); /* positive, so that most of it passes the ReLU */
        }
    }
    return true;
}

static const dv_tiling tilings[] = {{100, 96, 0}, {92, 1000, 0}, {112, 0, 84}};

static void check_size(fixture *f, const char *name, question q, double bound) {
    result whole = {0};
    q.tiling = (dv_tiling){-1, 0, 0};
    CHECKF(ask(f, &q, &whole) == DAVY_OK && whole.info.tiles_x * whole.info.tiles_y == 1, "%s", last_error());
    for (size_t k = 0; k < DV_ARRAY_LEN(tilings); k++) {
        result r = {0};
        q.tiling = tilings[k];
        CHECKF(ask(f, &q, &r) == DAVY_OK && r.info.tiles_x * r.info.tiles_y > 1, "%s: %s", name, last_error());
        CHECKF(relative(&r, &whole) < bound, "%s, tiles %d: distance %g", name, (int)k, relative(&r, &whole));
        CHECK(r.info.flops > 2 * whole.info.flops);
        free(r.data);
    }
    free(whole.data);
}

/* Odd sizes, tiles that are not square, a single row of tiles, larger overlaps than necessary. */
static void check_family(const char *name, dv_tensors *(*make)(void), davy_dtype compute, double bound) {
    fixture f;
    const fixture_spec spec = {.tensors = make(), .threads = 2, .cpu = dvk_cpu_detect(), .compute = compute};
    if (open_excited(&f, &spec)) {
        davy_model_info info = {.struct_size = sizeof info};
        dv_engine_info(f.engine, &info);
        CHECKF((info.features & DAVY_MODEL_TILES_EXACT) != 0 && f.engine->reach[DV_STAGE_UPSCALE].n_means == 4, "%s",
               name);
        check_size(&f, name, (question){.stage = DV_STAGE_UPSCALE, .c = 3, .h = 103, .w = 131, .grey = true}, bound);
        engine_fixture_close(&f);
    }
}

/* Shows that the bounds above are strict: with means of each tile this picture would differ clearly. */
static void test_without(void) {
    fixture f;
    const fixture_spec spec = {.tensors = narrow_x2(), .threads = 2, .cpu = dvk_cpu_detect()};
    if (!open_excited(&f, &spec)) {
        return;
    }
    result whole = {0};
    result r = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 101, .w = 133, .tiling = {-1, 0, 0}};
    CHECK(ask(&f, &q, &whole) == DAVY_OK);
    f.engine->reach[DV_STAGE_UPSCALE].n_means = 0;
    q.tiling = (dv_tiling){72, 64, 0};
    CHECK(ask(&f, &q, &r) == DAVY_OK && r.info.tiles_x > 1);
    CHECKF(relative(&r, &whole) > 1e-3, "distance %g", relative(&r, &whole));
    free(r.data);
    free(whole.data);
    engine_fixture_close(&f);
}

/* Tiles with less overlap than the network's reach still share its means. */
static void test_less_shared(void) {
    fixture f;
    const fixture_spec spec = {.tensors = narrow_x2(), .threads = 2, .cpu = dvk_cpu_detect()};
    if (!open_excited(&f, &spec)) {
        return;
    }
    result whole = {0};
    result r = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 101, .w = 133, .tiling = {-1, 0, 0}};
    CHECK(ask(&f, &q, &whole) == DAVY_OK);
    q.tiling = (dv_tiling){50, 60, 16};
    CHECKF(ask(&f, &q, &r) == DAVY_OK && r.info.tiles_x > 2, "%s", last_error());
    CHECKF(relative(&r, &whole) < 0.02, "distance %g", relative(&r, &whole));
    free(r.data);
    free(whole.data);
    engine_fixture_close(&f);
}

/* The same bits on any number of threads. */
static void test_threads(void) {
    const question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 101, .w = 133, .tiling = {72, 64, 0}};
    result first = {0};
    for (int32_t threads = 1; threads <= 3; threads++) {
        fixture f;
        result r = {0};
        const fixture_spec spec = {.tensors = narrow_x2(), .threads = threads, .cpu = dvk_cpu_detect()};
        if (open_excited(&f, &spec)) {
            CHECKF(ask(&f, &q, threads == 1 ? &first : &r) == DAVY_OK, "%s", last_error());
            CHECKF(threads == 1 || same_bits(&r, &first), "%d threads: other bits", (int)threads);
            free(r.data);
            engine_fixture_close(&f);
        }
    }
    free(first.data);
}

/* In a budget too small for the whole picture, tiles are chosen and the result stays the same. */
static void test_budgets(void) {
    fixture f;
    const fixture_spec spec = {.tensors = narrow_x2(), .threads = 2, .cpu = dvk_cpu_detect()};
    if (!open_excited(&f, &spec)) {
        return;
    }
    result whole = {0};
    const question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 260, .w = 220};
    CHECK(ask(&f, &q, &whole) == DAVY_OK && whole.info.tiles_x * whole.info.tiles_y == 1);
    const uint64_t all = dv_heap_peak(f.services.heap);
    int tiled = 0;
    for (uint64_t budget = all; budget > all / 5; budget = budget * 2 / 3) {
        result r = {0};
        CHECK(dv_engine_unload(f.engine) == DAVY_OK);
        dv_heap_set_budget(f.services.heap, budget);
        const davy_result code = ask(&f, &q, &r);
        CHECKF(code == DAVY_OK || code == DAVY_E_BUDGET, "%s", last_error());
        CHECKF(code != DAVY_OK || relative(&r, &whole) < 1e-5, "distance %g", relative(&r, &whole));
        tiled += code == DAVY_OK && r.info.tiles_x * r.info.tiles_y > 1;
        free(r.data);
    }
    CHECKF(tiled > 1, "%d budgets gave tiles", tiled);
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
    w->calls++;
    w->backwards = w->backwards || done < w->last || done > total;
    w->last = done;
    return 0;
}

static int32_t cancelled(void *user) {
    watcher *w = user;
    return ++w->calls == w->stop_at;
}

/* Progress counts all passes and ends at the total. A run cancelled in any pass does not affect the next run. */
static void test_control(void) {
    fixture f;
    const fixture_spec spec = {.tensors = narrow_x2(), .threads = 2, .cpu = dvk_cpu_detect()};
    if (!open_excited(&f, &spec)) {
        return;
    }
    result good = {0};
    watcher w = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 140, .w = 150, .tiling = {90, 100, 0}};
    q.control = (dv_control){.progress = progress, .progress_user = &w};
    CHECK(ask(&f, &q, &good) == DAVY_OK && !w.backwards && w.last == 1000);
    w = (watcher){0};
    q.control = (dv_control){.cancelled = cancelled, .cancelled_user = &w};
    result r = {0};
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
    check_family("x2", narrow_x2, DAVY_DTYPE_F32, 1e-5);
    check_family("x3 pro", narrow_x3, DAVY_DTYPE_F32, 1e-5);
    check_family("x4", narrow_x4, DAVY_DTYPE_F32, 1e-5);
    check_family("x2 fast", narrow_fast, DAVY_DTYPE_F32, 1e-5);
    check_family("CUNet", narrow_cunet, DAVY_DTYPE_F32, 1e-5);
    check_family("x2, bf16", narrow_x2, DAVY_DTYPE_BF16, 0.01);
    test_without();
    test_less_shared();
    test_threads();
    test_budgets();
    test_control();
    return check_done();
}
