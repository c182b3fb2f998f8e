/* test_engine_mock.c - engines on the mock driver, which copies memory but computes nothing. No end of a run leaks anything, steps are
 * captured, and short memory makes tiles smaller. */
#include <stdlib.h>

#include "core/base/os.h"
#include "core/base/profile.h"
#include "tests/cuda/all_modules.h"
#include "tests/cuda/mock_use.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/fake_convnets.h"
#include "tests/lib/hooks.h"

typedef struct bench {
    dv_services services;
    dv_gpu *gpus[2];
    dv_engine *engine;
    float *data;
    dv_log log;
} bench;

static bool bench_open(bench *b, dv_tensors *t, int32_t n_gpus, uint64_t budget) {
    *b = (bench){0};
    for (int32_t i = 0; i < n_gpus; i++) {
        const dv_gpu_desc desc = {.index = i, .budget_bytes = budget, .heap = heap, .log = &b->log};
        if (!CHECKF(dv_gpu_open(&desc, &b->gpus[i]) == DAVY_OK, "%s", last_error())) {
            return false;
        }
    }
    b->services = (dv_services){.heap = heap, .log = &b->log, .gpus = b->gpus, .n_gpus = n_gpus};
    b->services.profile = dv_profile_create();
    const dv_engine_desc desc = {.services = &b->services, .tensors = t, .file_name = "mock"};
    return CHECK(fake_fill(t, &b->data)) && CHECK(dv_pool_create(2, &b->services.pool) == DAVY_OK) &&
           CHECKF(dv_engine_create(&desc, &b->engine) == DAVY_OK, "%s", last_error());
}

static void bench_close(bench *b, const char *where) {
    dv_engine_release(b->engine);
    dv_pool_release(b->services.pool);
    dv_profile_release(b->services.profile);
    dv_gpu_release(b->gpus[1]);
    close_gpu(b->gpus[0], where);
    free(b->data);
}

typedef struct ask_for {
    int64_t h, w;
    bool in_device, out_device, ordered;
    dv_tiling tiling;
    dv_control control;
} ask_for;

static davy_result run(bench *b, const ask_for *q) {
    const uint64_t bytes[2] = {(uint64_t)(3 * q->h * q->w * 4), (uint64_t)(12 * q->h * q->w * 4)};
    void *memory[2] = {malloc(bytes[0]), calloc(bytes[1], 1)};
    void *device[2] = {NULL, NULL};
    davy_result r = DAVY_OK;
    for (int i = 0; i < 2; i++) {
        if (r == DAVY_OK && (i == 0 ? q->in_device : q->out_device)) {
            r = dv_gpu_alloc(b->gpus[0], DV_MEM_WORKSPACE, bytes[i], "picture", &device[i]);
        }
    }
    memset(memory[0], 0, bytes[0]);
    const dv_work w = {.stage = DV_STAGE_UPSCALE,
                       .in = planes(q->in_device ? device[0] : memory[0], 3, q->h, q->w),
                       .out = planes(q->out_device ? device[1] : memory[1], 3, q->h * 2, q->w * 2),
                       .in_mul = 1.0f,
                       .out_mul = 1.0f,
                       .in_device = q->in_device,
                       .out_device = q->out_device,
                       .stream_ordered = q->ordered,
                       .tiling = q->tiling,
                       .control = q->control};
    r = r == DAVY_OK ? dv_engine_run(b->engine, &w) : r;
    davy_error_info error = {.struct_size = sizeof error};
    dv_error_get(&error);
    for (int i = 0; i < 2; i++) {
        dv_gpu_free(b->gpus[0], DV_MEM_WORKSPACE, device[i], bytes[i]);
        free(memory[i]);
    }
    dv_error_set(&error);
    return r;
}

static dv_tensors *small(void) {
    return fake_compact(16, 2, 2);
}

static void test_ways(void) {
    for (int32_t n_gpus = 1; n_gpus <= 2; n_gpus++) {
        for (int lazy = 0; lazy < 2; lazy++) {
            bench b;
            if (bench_open(&b, small(), n_gpus, 0)) {
                m->lazy = lazy;
                for (int k = 0; k < 8; k++) {
                    ask_for q = {.h = 50, .w = 60, .in_device = k % 2 == 1, .out_device = k / 2 % 2 == 1};
                    q.tiling = (dv_tiling){.width = k / 4 == 0 ? 0 : 32, .height = k / 4 == 0 ? 0 : 24};
                    for (int again = 0; again < 3; again++) {
                        CHECKF(run(&b, &q) == DAVY_OK, "way %d: %s", k, last_error());
                    }
                    q.ordered = q.in_device && q.out_device;
                    CHECKF(run(&b, &q) == DAVY_OK, "way %d, ordered: %s", k, last_error());
                }
                CHECK(m->graphs > 0);
            }
            bench_close(&b, "ways");
        }
    }
}

static void test_profile(void) {
    bench b;
    if (bench_open(&b, small(), 1, 0)) {
        const ask_for q = {.h = 50, .w = 60, .tiling = {.width = 32, .height = 24}};
        dv_profile_start(b.services.profile);
        CHECKF(run(&b, &q) == DAVY_OK, "%s", last_error());
        dv_profile_stop(b.services.profile);
        char *json = dv_profile_json(b.services.profile);
        CHECK(json != NULL && strstr(json, "conv2d cuda/") != NULL && strstr(json, "load cuda") != NULL);
        dv_free(json);
    }
    bench_close(&b, "profile");
}

static void test_failures(void) {
    for (int64_t at = 1; at < 12; at++) {
        bench b;
        if (bench_open(&b, small(), 1, 0)) {
            const ask_for q = {.h = 50, .w = 60, .tiling = {.width = 32, .height = 24}};
            m->fail_alloc_at = at;
            const davy_result r = run(&b, &q);
            CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_DEVICE, "allocation %d: %s", (int)at, last_error());
            m->fail_alloc_at = 0;
            CHECKF(run(&b, &q) == DAVY_OK, "after it: %s", last_error());
        }
        bench_close(&b, "allocation");
    }
    for (int64_t at = 1; at < 20; at += 3) { /* after an error of a kernel the device is lost */
        bench b;
        if (bench_open(&b, small(), 1, 0)) {
            const ask_for q = {.h = 90, .w = 120, .tiling = {.width = 32, .height = 24}};
            m->fail_launch_with = 700;
            m->fail_launch_at = at;
            CHECKF(run(&b, &q) == DAVY_E_DEVICE_LOST, "launch %d: %s", (int)at, last_error());
            CHECK(run(&b, &q) == DAVY_E_DEVICE_LOST);
        }
        dv_engine_release(b.engine);
        dv_pool_release(b.services.pool);
        dv_profile_release(b.services.profile);
        dv_gpu_release(b.gpus[0]);
        free(b.data);
        mock_call("mock_reset");
    }
    bench b;
    if (bench_open(&b, small(), 1, 0)) {
        const ask_for q = {.h = 50, .w = 60};
        CHECK(run(&b, &q) == DAVY_OK);
        m->fail_capture = 900;
        CHECKF(run(&b, &q) == DAVY_OK && m->graphs == 0, "without a graph: %s", last_error());
        CHECK(run(&b, &q) == DAVY_OK);
    }
    bench_close(&b, "capture");
}

/* A device with too little memory for the tiles fails before the first one, so no computed tile is lost. */
static void test_no_tile_lost(void) {
    for (int k = 0; k < 16; k++) {
        ask_for q = {.h = 150, .w = 160, .in_device = k % 2 == 1, .out_device = k / 2 % 2 == 1};
        q.tiling = (dv_tiling){.width = 48, .height = 40, .overlap = k / 4 % 2 == 0 ? 0 : 4}; /* cut, or faded */
        bench b;
        int64_t refused = 0;
        int64_t late = 0;
        davy_result r = DAVY_E_NOMEM_DEVICE;
        for (uint64_t left = 4 << 10; r == DAVY_E_NOMEM_DEVICE && left < 64 << 20; left += left / 8) {
            if (!bench_open(&b, small(), 1 + k / 8, 0) || !CHECK(dv_engine_load(b.engine, &q.control) == DAVY_OK)) {
                return;
            }
            const int64_t before = m->launches;
            m->device_bytes = m->used_bytes + left;
            r = run(&b, &q);
            refused += r != DAVY_OK;
            late += r != DAVY_OK && m->launches > before;
            m->device_bytes = (uint64_t)4 << 30;
            bench_close(&b, "too little");
        }
        CHECKF(r == DAVY_OK && refused > 0 && late == 0, "way %d: %s; %d times too little, %d of them told too late", k,
               last_error(), (int)refused, (int)late);
    }
}

static int32_t after_some(void *user) {
    int *left = user;
    return (*left)-- <= 0;
}

static void test_cancel(void) {
    for (int looks = 0; looks < 30; looks += 2) {
        bench b;
        if (bench_open(&b, small(), 2, 0)) {
            int left = looks;
            ask_for q = {.h = 50, .w = 60, .tiling = {.width = 24, .height = 24}};
            q.out_device = looks % 4 == 0;
            q.control = (dv_control){.cancelled = after_some, .cancelled_user = &left};
            m->lazy = 1;
            const davy_result r = run(&b, &q);
            CHECKF(r == DAVY_OK || r == DAVY_E_CANCELLED, "%s", last_error());
            CHECKF(looks > 2 || r == DAVY_E_CANCELLED, "not cancelled");
            q.control = (dv_control){0};
            CHECKF(run(&b, &q) == DAVY_OK, "after it: %s", last_error());
        }
        bench_close(&b, "cancel");
    }
}

static uint64_t told; /* of progress */

static int32_t DAVY_CALL progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)user;
    (void)stage;
    CHECKF(done >= told && done <= total, "from %d to %d", (int)told, (int)done);
    told = done;
    return 0;
}

static dv_tensors *with_means(void) {
    static const fake_cugan_spec cugan = {.in = 3, .bottom = 3, .k = 4, .out = 3};
    return fake_cugan(cugan);
}

static dv_tensors *with_norms(void) {
    return fake_plksr((fake_plksr_spec){.real = 1, .nf = 16, .blocks = 2, .scale = 2, .k = 5, .gates = 1});
}

/* Passes over tiles that share means or norms: every kind of input and output, repeated; cancelled or short of memory in any pass. */
static void test_shared(dv_tensors *(*make)(void)) {
    for (int k = 0; k < 16; k++) {
        ask_for q = {.h = 70, .w = 81, .in_device = k % 2 == 1, .out_device = k / 2 % 2 == 1};
        q.tiling = (dv_tiling){.width = 50, .height = 44, .overlap = k / 4 % 2 == 0 ? 0 : 12}; /* cut, or faded */
        bench b;
        if (bench_open(&b, make(), 1 + k / 8, 0)) {
            m->lazy = k % 3 == 0;
            told = 0;
            q.control.progress = progress;
            for (int again = 0; again < 3; again++) {
                CHECKF(run(&b, &q) == DAVY_OK, "way %d: %s", k, last_error());
                CHECKF(told == 1000, "way %d: %d of 1000 told", k, (int)told);
                told = 0;
            }
            q.control.progress = NULL;
            q.ordered = q.in_device && q.out_device;
            CHECKF(run(&b, &q) == DAVY_OK, "way %d, ordered: %s", k, last_error());
            for (int looks = 1; looks < 40; looks += 6) {
                int left = looks;
                q.ordered = false;
                q.control = (dv_control){.cancelled = after_some, .cancelled_user = &left};
                const davy_result r = run(&b, &q);
                CHECKF(r == DAVY_E_CANCELLED || (r == DAVY_OK && left >= 0), "look %d: %s", looks, last_error());
                q.control = (dv_control){0};
            }
            for (int64_t at = 1; at < 14; at += 1 + k % 3) {
                dv_engine_trim(b.engine, 0);
                m->fail_alloc_at = at;
                const davy_result r = run(&b, &q);
                CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_DEVICE, "allocation %d: %s", (int)at, last_error());
                m->fail_alloc_at = 0;
            }
            CHECKF(run(&b, &q) == DAVY_OK, "after it: %s", last_error());
        }
        bench_close(&b, "shared");
    }
}

typedef struct share { /* of one thread; it counts its failures here, because threads must not use CHECK */
    bench *b;
    int32_t index, failed;
} share;

static void run_many(void *user) {
    share *s = user;
    for (int k = 0; k < 6; k++) {
        const int64_t side = 40 + 4 * ((k + s->index) % 3);
        const ask_for q = {.h = side, .w = side, .tiling = {.width = 24, .height = 32}, .out_device = k % 2 == 1};
        s->failed += run(s->b, &q) != DAVY_OK;
    }
}

static void test_threads(void) {
    bench b;
    if (bench_open(&b, small(), 2, 0)) {
        share shares[4];
        dv_thread *threads[4] = {NULL};
        for (int32_t i = 0; i < 4; i++) {
            shares[i] = (share){&b, i, 0};
            CHECK(dv_thread_start(run_many, &shares[i], "test", &threads[i]) == DAVY_OK);
        }
        for (int32_t i = 0; i < 4; i++) {
            dv_thread_join(threads[i]);
            CHECKF(shares[i].failed == 0, "thread %d: %d runs", (int)i, (int)shares[i].failed);
        }
    }
    bench_close(&b, "threads");
}

static void test_budget(void) {
    bench b;
    if (bench_open(&b, fake_compact(64, 4, 2), 1, 12 << 20)) {
        davy_plan_info info = {.struct_size = sizeof info};
        CHECKF(dv_engine_plan(b.engine, &(dv_batch_desc){.stage = DV_STAGE_UPSCALE, .h = 400, .w = 400}, &info) ==
                   DAVY_OK,
               "%s", last_error());
        CHECKF(info.tiles_x * info.tiles_y > 1 && info.workspace_bytes <= 12u << 20, "%d tiles, %llu bytes",
               (int)(info.tiles_x * info.tiles_y), (unsigned long long)info.workspace_bytes);
        const ask_for q = {.h = 400, .w = 400};
        CHECKF(run(&b, &q) == DAVY_OK, "%s", last_error());
        CHECK(dv_gpu_peak(b.gpus[0]) <= 12u << 20);
        dv_gpu_set_budget(b.gpus[0], 100 << 10);
        const ask_for other = {.h = 410, .w = 400};
        CHECK(run(&b, &other) == DAVY_E_BUDGET);
    }
    bench_close(&b, "budget");
}

/* Device memory held by other programs is in no budget. */
static void test_full_device(void) {
    bench b;
    if (bench_open(&b, fake_compact(64, 4, 2), 1, (uint64_t)1 << 30)) {
        const ask_for q = {.h = 400, .w = 400};
        m->device_bytes = m->used_bytes + (12 << 20);
        CHECKF(run(&b, &q) == DAVY_OK, "in smaller tiles: %s", last_error());
        for (uint64_t left = 0; left <= 256 << 10; left += 64 << 10) {
            OK(dv_engine_unload(b.engine));
            m->device_bytes = m->used_bytes + left;
            CHECKF(run(&b, &q) == DAVY_E_NOMEM_DEVICE, "%llu bytes: %s", (unsigned long long)left, last_error());
            SAYS("cuda:0 has too little free memory");
            CHECK(last_native() == 2);
        }
        m->device_bytes = (uint64_t)4 << 30;
        CHECKF(run(&b, &q) == DAVY_OK, "afterwards: %s", last_error());
    }
    bench_close(&b, "full device");
}

int main(void) {
    heap = dv_heap_create(NULL, 0);
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    use_all_modules();
    mock_call("mock_reset");
    test_ways();
    test_profile();
    test_threads();
    test_failures();
    test_no_tile_lost();
    test_cancel();
    test_shared(with_means);
    test_shared(with_norms);
    test_budget();
    test_full_device();
    dv_heap_release(heap);
    return check_done();
}
