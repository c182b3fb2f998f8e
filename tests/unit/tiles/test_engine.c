/* test_engine.c - whole runs: threads, cancellation, caches, concurrent callers. */
#include <stdatomic.h>

#include "core/base/profile.h"
#include "core/tiles/engine_plan.h"
#include "tests/lib/engine_fixture.h"

/* ---- the same bits on any number of threads ---- */

static void check_threads(fixture_spec spec, dv_tensors *(*make)(void), const question *q, const char *what) {
    result first = {0};
    static const int32_t threads[] = {1, 2, 3, 7};
    for (size_t i = 0; i < DV_ARRAY_LEN(threads); i++) {
        fixture f;
        result r = {0};
        spec.threads = threads[i];
        spec.tensors = make != NULL ? make() : NULL;
        if (!engine_fixture_open(&f, &spec)) {
            continue;
        }
        CHECKF(ask(&f, q, &r) == DAVY_OK, "%s: %s", what, last_error());
        if (i == 0) {
            first = r;
        } else {
            CHECKF(same_bits(&r, &first), "%s: %d threads give other bits", what, (int)threads[i]);
            free(r.data);
        }
        engine_fixture_close(&f);
    }
    free(first.data);
}

static void test_threads(void) {
    const fixture_spec f32 = {.path = MODEL, .cpu = dvk_cpu_detect()};
    const fixture_spec bf16 = {.path = MODEL, .cpu = dvk_cpu_detect(), .compute = DAVY_DTYPE_BF16};
    const question picture = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 61, .w = 83};
    const question tiled = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 61, .w = 83, .tiling = {40, 40, 8}};
    const question latent = {.stage = DV_STAGE_DECODE, .c = 4, .h = 13, .w = 9};
    const question encode = {.stage = DV_STAGE_ENCODE, .c = 3, .h = 72, .w = 104};
    check_threads(f32, NULL, &picture, "compact");
    check_threads(bf16, NULL, &picture, "compact bf16");
    check_threads(f32, NULL, &tiled, "compact in faded tiles");
    check_threads(f32, small_kl, &latent, "kl decoder");
    check_threads(bf16, small_kl, &encode, "kl encoder bf16");
}

/* ---- progress and cancellation ---- */

typedef struct watcher {
    int32_t calls, stop_at;
    uint64_t last, total;
    bool backwards;
} watcher;

static int32_t DAVY_CALL progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    watcher *w = user;
    w->calls++;
    w->backwards = w->backwards || done < w->last || done > total || strcmp(stage, "upscale") != 0;
    w->last = done;
    w->total = total;
    return w->stop_at > 0 && w->calls >= w->stop_at;
}

static int32_t cancelled(void *user) {
    watcher *w = user;
    return ++w->calls >= w->stop_at;
}

static void test_control(void) {
    fixture f;
    const fixture_spec spec = {.path = MODEL, .threads = 2, .cpu = dvk_cpu_detect()};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    result r = {0};
    result good = {0};
    watcher w = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 200, .w = 200};
    q.control = (dv_control){.progress = progress, .progress_user = &w};
    const uint64_t t0 = dv_now_ns();
    CHECK(ask(&f, &q, &good) == DAVY_OK);
    const double seconds = (double)(dv_now_ns() - t0) / 1e9;
    CHECK(!w.backwards && w.last == 1000 && w.total == 1000);
    CHECKF((double)w.calls <= seconds * 20.0 + 1.0, "%d calls in %g s", (int)w.calls, seconds);

    w = (watcher){0}; /* this run is a part of a larger task */
    q.control.base = 50;
    q.control.share = 25;
    q.control.total = 100;
    CHECK(ask(&f, &q, &r) == DAVY_OK && w.last <= 75 && (w.calls == 0 || w.last >= 50) && !w.backwards);
    free(r.data);

    for (int32_t stop_at = 1; stop_at < 200; stop_at = stop_at * 3) { /* cancelled at various times, then run again */
        w = (watcher){.stop_at = stop_at};
        q.control = (dv_control){.cancelled = cancelled, .cancelled_user = &w};
        const davy_result code = ask(&f, &q, &r);
        CHECKF(code == DAVY_E_CANCELLED || (code == DAVY_OK && w.calls < stop_at), "stopped at %d: %d", (int)stop_at,
               (int)code);
        CHECK(code != DAVY_OK || same_bits(&r, &good));
        free(r.data);
    }
    w = (watcher){.stop_at = 1};
    q.control = (dv_control){.progress = progress, .progress_user = &w};
    CHECK(ask(&f, &q, &r) == DAVY_E_CANCELLED && w.calls == 1);
    q.control = (dv_control){.deadline_ns = dv_now_ns() + 1000000};
    CHECK(ask(&f, &q, &r) == DAVY_E_TIMEOUT);
    q.control = (dv_control){.deadline_ns = dv_now_ns() + 600000000000ull};
    CHECK(ask(&f, &q, &r) == DAVY_OK && same_bits(&r, &good));
    free(r.data);
    free(good.data);
    engine_fixture_close(&f);
}

/* ---- caches ---- */

static void test_caches(void) {
    fixture f;
    const fixture_spec spec = {.path = MODEL, .threads = 2, .cpu = dvk_cpu_detect()};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    dv_heap *heap = f.services.heap;
    result first = {0};
    result r = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 90, .w = 120};
    CHECK(dv_engine_load(f.engine, NULL) == DAVY_OK && dv_heap_used(heap, DV_MEM_WEIGHTS) > 0);
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 0);
    CHECK(ask(&f, &q, &first) == DAVY_OK);
    const uint64_t workspace = dv_heap_used(heap, DV_MEM_WORKSPACE);
    CHECKF(workspace == first.info.workspace_bytes, "%llu kept, %llu planned", (unsigned long long)workspace,
           (unsigned long long)first.info.workspace_bytes);
    CHECK(ask(&f, &q, &r) == DAVY_OK && same_bits(&r, &first) && dv_heap_used(heap, DV_MEM_WORKSPACE) == workspace);
    free(r.data);
    for (int64_t h = 20; h < 60; h++) { /* more sizes than the cache holds */
        question other = q;
        other.h = h;
        CHECK(ask(&f, &other, &r) == DAVY_OK);
        free(r.data);
    }
    CHECK(ask(&f, &q, &r) == DAVY_OK && same_bits(&r, &first));
    free(r.data);
    dv_engine_trim(f.engine, workspace);
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) <= workspace);
    dv_engine_trim(f.engine, 0);
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 0);
    CHECK(dv_engine_unload(f.engine) == DAVY_OK && dv_heap_used(heap, DV_MEM_WEIGHTS) == 0);
    CHECK(ask(&f, &q, &r) == DAVY_OK && same_bits(&r, &first));
    free(r.data);
    free(first.data);
    engine_fixture_close(&f);
}

typedef struct runner {
    const fixture *f;
    const question *q;
    const result *expected;
    _Atomic int32_t right;
} runner;

static void run_some(void *arg) {
    runner *r = arg;
    for (int i = 0; i < 3; i++) {
        result got = {0};
        if (ask(r->f, r->q, &got) == DAVY_OK && same_bits(&got, r->expected)) {
            atomic_fetch_add(&r->right, 1);
        }
        free(got.data);
    }
}

/* Eight threads, but memory for two arenas: six threads wait, and all get the same bits. */
static void test_many_callers(void) {
    fixture f;
    const fixture_spec spec = {.tensors = small_kl(), .threads = 2, .cpu = dvk_cpu_detect()};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    const question q = {.stage = DV_STAGE_DECODE, .c = 4, .h = 12, .w = 12};
    result expected = {0};
    CHECK(ask(&f, &q, &expected) == DAVY_OK);
    dv_heap_set_budget(f.services.heap,
                       dv_heap_used(f.services.heap, DV_MEM_WEIGHTS) + 2 * expected.info.workspace_bytes + 1000);
    runner r = {.f = &f, .q = &q, .expected = &expected};
    dv_thread *threads[8] = {0};
    for (size_t i = 0; i < DV_ARRAY_LEN(threads); i++) {
        CHECK(dv_thread_start(run_some, &r, "caller", &threads[i]) == DAVY_OK);
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(threads); i++) {
        dv_thread_join(threads[i]);
    }
    CHECKF(atomic_load(&r.right) == 24, "%d of 24 runs are right", (int)atomic_load(&r.right));
    CHECK(dv_heap_peak(f.services.heap) <= dv_heap_budget(f.services.heap));
    free(expected.data);
    engine_fixture_close(&f);
}

/* ---- various ---- */

static void test_grey(void) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
        fixture f;
        const fixture_spec spec = {
            .path = MODEL, .threads = 2, .cpu = dvk_cpu_detect(), .compute = bf16 ? DAVY_DTYPE_BF16 : 0};
        if (!engine_fixture_open(&f, &spec)) {
            return;
        }
        result rgb = {0};
        result grey = {0};
        question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 40, .w = 50};
        CHECK(ask(&f, &q, &rgb) == DAVY_OK);
        q.grey = true;
        CHECKF(ask(&f, &q, &grey) == DAVY_OK, "%s", last_error());
        double largest = 0.0;
        for (int64_t i = 0; i < grey.h * grey.w; i++) {
            const int64_t n = grey.h * grey.w;
            const double luma =
                0.299 * (double)rgb.data[i] + 0.587 * (double)rgb.data[n + i] + 0.114 * (double)rgb.data[2 * n + i];
            largest = fmax(largest, fabs((double)grey.data[i] - luma));
        }
        CHECKF(largest < 1e-6, "luma is off by %g", largest);
        free(rgb.data);
        free(grey.data);
        engine_fixture_close(&f);
    }
}

static void check_dumps(const dv_engine *e) {
    const dv_request q = {.stage = DV_STAGE_UPSCALE}, decode = {.stage = DV_STAGE_DECODE};
    dv_graph *built = NULL;
    dv_plan *plan = NULL, *none = NULL;
    CHECK(dv_engine_build_graph(e, &q, 32, 32, &built) == DAVY_OK);
    CHECK(dv_engine_make_plan(e, &q, &(dv_plan_desc){.h = 32, .w = 32}, &plan) == DAVY_OK);
    CHECK(dv_engine_make_plan(e, &decode, &(dv_plan_desc){.h = 32, .w = 32}, &none) != DAVY_OK && none == NULL);
    char *text = dv_plan_dump(plan);
    CHECK(text != NULL && strstr(text, "body.0") != NULL && strstr(text, "pixel_shuffle") != NULL);
    dv_free(text);
    for (int fused = 0; fused < 2; fused++) {
        text = dv_graph_dump(fused == 1 ? plan->graph : built);
        CHECK(text != NULL && strstr(text, "body.0") != NULL);
        dv_free(text);
    }
    dv_graph_release(built);
    dv_plan_release(plan);
}

static void test_facts(void) {
    fixture f;
    const fixture_spec spec = {.path = MODEL, .threads = 1, .cpu = 0};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    davy_model_info info = {.struct_size = sizeof info};
    dv_engine_info(f.engine, &info);
    CHECK(strcmp(info.arch, "compact") == 0 && info.task == DAVY_TASK_UPSCALE && info.parameters == 115756);
    CHECKF(info.weight_bytes == 2 * 115756, "%llu", (unsigned long long)info.weight_bytes);
    CHECK((info.features & DAVY_MODEL_TILES_EXACT) != 0 && info.scale_num == 2 && info.compute == DAVY_DTYPE_F32);
    check_dumps(f.engine);
    engine_fixture_close(&f);
}

static void test_profiled(void) {
    fixture f;
    const fixture_spec spec = {.path = MODEL, .threads = 2, .cpu = dvk_cpu_detect()};
    dv_profile *profile = dv_profile_create();
    if (!CHECK(profile != NULL) || !engine_fixture_open(&f, &spec)) {
        dv_profile_release(profile);
        return;
    }
    engine_fixture_close(&f);
    /* The engine copies its services, so the profile must be set first. */
    dv_services services = {.heap = dv_heap_create(NULL, 0), .cpu = dvk_cpu_detect(), .profile = profile};
    CHECK(dv_pool_create(2, &services.pool) == DAVY_OK);
    const dv_engine_desc desc = {.services = &services, .tensors = open_weights(MODEL), .file_name = "profiled"};
    CHECK(dv_engine_create(&desc, &f.engine) == DAVY_OK);
    f.services = services;
    result r = {0};
    const question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 20, .w = 30};
    dv_profile_start(profile);
    CHECK(ask(&f, &q, &r) == DAVY_OK);
    free(r.data);
    dv_profile_stop(profile);
    char *json = dv_profile_json(profile);
    CHECK(json != NULL && strstr(json, "body.24") != NULL && strstr(json, "\"load\"") != NULL &&
          strstr(json, "conv2d") != NULL);
    dv_free(json);
    engine_fixture_close(&f);
    dv_profile_release(profile);
}

int main(void) {
    test_threads();
    test_control();
    test_caches();
    test_many_callers();
    test_grey();
    test_facts();
    test_profiled();
    return check_done();
}
