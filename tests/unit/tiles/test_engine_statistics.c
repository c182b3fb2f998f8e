/* test_engine_statistics.c - tiles of networks that compute statistics of the picture: means of squeeze and excitation (Real-CUGAN,
 * waifu2x) and group norms (RealPLKSR). The tiles share the statistics of the whole picture, so any tiles give the same result. Also
 * tested: cost, kept memory, progress and cancellation. */
#include <string.h>

#include "core/tiles/engine_plan.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/fake_convnets.h"

/* ---- networks ---- */

static dv_tensors *narrow_x2(void) {
    return fake_cugan_narrow((fake_cugan_spec){.in = 3, .bottom = 3, .k = 4, .out = 3}, 8);
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

typedef struct family {
    const char *name;
    dv_tensors *(*make)(void);
    bool means; /* squeeze and excitation; else group norms */
    davy_dtype compute;
    double bound;
} family;

static const family means = {"x2", narrow_x2, true, DAVY_DTYPE_F32, 1e-5};
static const family norms = {"gates", square, false, DAVY_DTYPE_F32, 1e-5};

/* With generated weights, nearly all of the output comes from the biases and not from the picture. This changes the weights before
 * they are packed. */
static void excite(const fixture *f) {
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
}

static bool open_family(fixture *f, const family *y, int32_t threads) {
    const fixture_spec spec = {
        .tensors = y->make(), .threads = threads, .cpu = dvk_cpu_detect(), .compute = y->compute};
    if (!engine_fixture_open(f, &spec)) {
        return false;
    }
    if (y->means) {
        excite(f);
    }
    return true;
}

static const question all = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 101, .w = 133, .tiling = {-1, 0, 0}};

static question in_tiles(const family *y) {
    question q = all;
    q.tiling = y->means ? (dv_tiling){72, 64, 0} : (dv_tiling){70, 61, 0};
    return q;
}

/* ---- results ---- */

/* Means take a pass of the network each, norms keep values: each step runs once. */
static bool cost_fits(const family *y, const result *r, const result *whole) {
    return y->means ? r->info.flops > 2 * whole->info.flops : r->info.flops < 5 * whole->info.flops;
}

/* Odd sizes, tiles that are not square, a single row of tiles, larger overlaps than necessary. */
static void check_family(const family *y) {
    static const dv_tiling tilings[2][3] = {{{70, 61, 0}, {57, 1000, 0}, {80, 0, 50}},
                                            {{100, 96, 0}, {92, 1000, 0}, {112, 0, 84}}};
    fixture f;
    if (!open_family(&f, y, 2)) {
        return;
    }
    const dv_reach *reach = &f.engine->reach[DV_STAGE_UPSCALE];
    davy_model_info info = {.struct_size = sizeof info};
    dv_engine_info(f.engine, &info);
    if (y->means) {
        CHECKF((info.features & DAVY_MODEL_TILES_EXACT) != 0 && reach->n_means == 4, "%s", y->name);
    } else {
        CHECKF(reach->n_norms > 1 && !reach->global, "%s", y->name);
    }
    result whole = {0};
    question q = all;
    if (y->means) {
        q.h = 103;
        q.w = 131;
        q.grey = true;
    }
    CHECKF(ask(&f, &q, &whole) == DAVY_OK && whole.info.tiles_x * whole.info.tiles_y == 1, "%s", last_error());
    for (size_t k = 0; k < 3; k++) {
        result r = {0};
        q.tiling = tilings[y->means][k];
        CHECKF(ask(&f, &q, &r) == DAVY_OK && r.info.tiles_x * r.info.tiles_y > 1, "%s: %s", y->name, last_error());
        CHECKF(relative(&r, &whole) < y->bound, "%s, tiles %d: distance %g", y->name, (int)k, relative(&r, &whole));
        CHECK(cost_fits(y, &r, &whole));
        free(r.data);
    }
    free(whole.data);
    engine_fixture_close(&f);
}

static void test_families(void) {
    static const family families[] = {
        {"x2", narrow_x2, true, DAVY_DTYPE_F32, 1e-5},         {"x3 pro", narrow_x3, true, DAVY_DTYPE_F32, 1e-5},
        {"x4", narrow_x4, true, DAVY_DTYPE_F32, 1e-5},         {"x2 fast", narrow_fast, true, DAVY_DTYPE_F32, 1e-5},
        {"CUNet", narrow_cunet, true, DAVY_DTYPE_F32, 1e-5},   {"x2, bf16", narrow_x2, true, DAVY_DTYPE_BF16, 0.01},
        {"gates", square, false, DAVY_DTYPE_F32, 1e-5},        {"no gates", plain, false, DAVY_DTYPE_F32, 1e-5},
        {"gates, bf16", square, false, DAVY_DTYPE_BF16, 0.01}, {"gates, int8", square, false, DAVY_DTYPE_INT8, 0.02},
    };
    for (size_t i = 0; i < DV_ARRAY_LEN(families); i++) {
        check_family(&families[i]);
    }
}

/* The distance of a picture in tiles from the whole one. own: each tile uses its own statistics. */
static double distance_in(fixture *f, dv_tiling tiling, bool own) {
    result whole = {0};
    result r = {0};
    question q = all;
    CHECK(ask(f, &q, &whole) == DAVY_OK);
    if (own) {
        f->engine->reach[DV_STAGE_UPSCALE].n_means = f->engine->reach[DV_STAGE_UPSCALE].n_norms = 0;
    }
    q.tiling = tiling;
    CHECKF(ask(f, &q, &r) == DAVY_OK && r.info.tiles_x > 1, "%s", last_error());
    const double d = relative(&r, &whole);
    free(r.data);
    free(whole.data);
    return d;
}

/* Shows that the bounds above are strict: with statistics of each tile this picture would differ clearly. */
static void test_without(const family *y) {
    fixture f;
    if (open_family(&f, y, 2)) {
        const double d = distance_in(&f, in_tiles(y).tiling, true);
        CHECKF(d > 1e-3 && d < 1e30, "%s: distance %g", y->name, d);
        engine_fixture_close(&f);
    }
}

/* Tiles with less overlap than the network's reach still share its means. */
static void test_less_shared(void) {
    fixture f;
    if (open_family(&f, &means, 2)) {
        const double d = distance_in(&f, (dv_tiling){50, 60, 16}, false);
        CHECKF(d < 0.02, "distance %g", d);
        engine_fixture_close(&f);
    }
}

/* The reach of DySample depends on its values. So tiles are not reported as exact, and with little overlap they are not. */
static void test_samples(void) {
    static const family dysample = {"samples", samples, false, DAVY_DTYPE_F32, 1e-5};
    fixture f;
    if (!open_family(&f, &dysample, 2)) {
        return;
    }
    davy_model_info info = {.struct_size = sizeof info};
    dv_engine_info(f.engine, &info);
    const dv_reach *reach = &f.engine->reach[DV_STAGE_UPSCALE];
    CHECK((info.features & DAVY_MODEL_TILES_EXACT) == 0 && reach->strays && reach->n_norms == 2);
    const double d = distance_in(&f, (dv_tiling){90, 80, 60}, false);
    CHECKF(d < dysample.bound, "distance %g", d);
    engine_fixture_close(&f);
}

/* The same bits on any number of threads. */
static void test_threads(const family *y) {
    const question q = in_tiles(y);
    result first = {0};
    for (int32_t threads = 1; threads <= 3; threads++) {
        fixture f;
        result r = {0};
        if (open_family(&f, y, threads)) {
            CHECKF(ask(&f, &q, threads == 1 ? &first : &r) == DAVY_OK, "%s", last_error());
            CHECKF(threads == 1 || same_bits(&r, &first), "%s, %d threads: other bits", y->name, (int)threads);
            free(r.data);
            engine_fixture_close(&f);
        }
    }
    free(first.data);
}

/* ---- budgets ---- */

/* In a budget too small for the whole picture, tiles are chosen and the result stays the same. */
static void test_budgets_of_means(void) {
    fixture f;
    if (!open_family(&f, &means, 2)) {
        return;
    }
    result whole = {0};
    const question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 260, .w = 220};
    CHECK(ask(&f, &q, &whole) == DAVY_OK && whole.info.tiles_x * whole.info.tiles_y == 1);
    const uint64_t peak = dv_heap_peak(f.services.heap);
    int tiled = 0;
    for (uint64_t budget = peak; budget > peak / 5; budget = budget * 2 / 3) {
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

static int warnings;

static void DAVY_CALL note(void *user, davy_log_level level, const char *text) {
    (void)user;
    warnings += level == DAVY_LOG_WARN && strstr(text, "tiles change the result") != NULL;
}

/* Budgets too small for the whole picture. While the kept values fit, tiles share the picture's norms. In smaller budgets each tile uses
 * its own norms, and a warning reports it. */
static void test_budgets_of_norms(void) {
    fixture f;
    dv_log log = {.fn = note, .level = DAVY_LOG_WARN};
    static const family closer = {"near", near, false, DAVY_DTYPE_F32, 1e-5};
    if (!open_family(&f, &closer, 2)) {
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
static void test_control(const family *y) {
    fixture f;
    if (!open_family(&f, y, 2)) {
        return;
    }
    result good = {0};
    result r = {0};
    watcher w = {0};
    question q = in_tiles(y);
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
    test_less_shared();
    test_samples();
    test_budgets_of_means();
    test_budgets_of_norms();
    for (int i = 0; i < 2; i++) {
        const family *y = i == 0 ? &means : &norms;
        test_without(y);
        test_threads(y);
        test_control(y);
    }
    return check_done();
}
