/* test_clip_choice.c - choices for clips of the released SeedVR2 on an H200, planned on the mock driver without a run. Their memory must
 * agree with docs/speed.md and be less than half of compiled PyTorch's for the same clip. */
#include "core/clip/stream_priv.h" /* first, because later headers define variables with the names of its parameters */

#include "tests/cuda/mock_use.h"
#include "tests/lib/fake_clips.h"
#include "tests/lib/hooks.h"

#define GIB 1073741824.0

static const dvk_cuda_caps h200 = {.sm = 90,
                                   .processors = 132,
                                   .shared_bytes = 232448,
                                   .l2_bytes = 60 << 20,
                                   .memory_gbs = 4278,
                                   .tensor_tflops = 749,
                                   .simt_tflops = 60.2};

typedef struct bench {
    dv_services services;
    dv_heap *heap;
    dv_gpu *gpu;
    dv_engine *engine;
    dv_log log;
    void *zeros;
} bench;

/* The released SeedVR2 with all weights 0. */
static dv_tensors *weights_of_bench(bench *b) {
    static const int64_t width[4] = {128, 256, 512, 512};
    dv_tensors *t = fake_seedvr2_of(width, 4, 16);
    uint64_t most = 0;
    for (int64_t i = 0; i < t->count; i++) {
        most = t->refs[i].bytes > most ? t->refs[i].bytes : most;
    }
    dv_source *source = NULL;
    b->zeros = calloc(1, (size_t)most);
    CHECK(dv_source_open_memory("zeros", b->zeros, most, &source) == DAVY_OK);
    for (int64_t i = 0; i < t->count; i++) {
        t->refs[i].source = dv_source_ref(source);
    }
    dv_source_release(source);
    return t;
}

static bool bench_open(bench *b) {
    *b = (bench){.heap = dv_heap_create(NULL, 0)};
    const dv_gpu_desc of_gpu = {.heap = b->heap, .log = &b->log};
    if (!CHECKF(dv_gpu_open(&of_gpu, &b->gpu) == DAVY_OK, "%s", last_error())) {
        return false;
    }
    b->gpu->caps = h200;
    b->services = (dv_services){.heap = b->heap, .log = &b->log, .gpus = &b->gpu, .n_gpus = 1};
    const dv_engine_desc desc = {
        .services = &b->services, .tensors = weights_of_bench(b), .file_name = "mock", .compute = DAVY_DTYPE_BF16};
    return CHECK(dv_pool_create(2, &b->services.pool) == DAVY_OK) &&
           CHECKF(dv_engine_create(&desc, &b->engine) == DAVY_OK, "%s", last_error());
}

static void bench_close(bench *b) {
    dv_engine_release(b->engine);
    dv_pool_release(b->services.pool);
    dv_gpu_release(b->gpu);
    dv_heap_release(b->heap);
    free(b->zeros);
}

typedef struct clip {
    dv_stage stage;
    int64_t w, h, latents;
} clip;

static int64_t frames_of(const clip *c) {
    return 4 * c->latents - 3;
}

/* Opens a stream of it in a budget in GiB. */
static dv_clip_stream *open_clip(bench *b, const clip *c, double budget) {
    const bool decodes = c->stage == DV_STAGE_DECODE;
    const int64_t side = decodes ? 8 : 1;
    dv_clip_stream *s = NULL;
    dv_gpu_set_budget(b->gpu, (uint64_t)(budget * GIB));
    CHECKF(dv_clip_stream_open(b->engine,
                               &(dv_clip_stream_desc){.stage = c->stage,
                                                      .h = c->h / side,
                                                      .w = c->w / side,
                                                      .frames = decodes ? c->latents : frames_of(c)},
                               &s) == DAVY_OK,
           "%s", last_error());
    return s;
}

/* Includes the caller's clip and its latents in 16 bits. */
static double gib_of(const dv_clip_stream *s, const clip *c) {
    const int64_t pixels = c->w * c->h;
    return ((double)s->choice.need + 2.0 * (double)(3 * frames_of(c) * pixels + 16 * c->latents * pixels / 64)) / GIB;
}

/* ---- the rows of docs/speed.md ---- */

typedef struct row {
    clip clip;
    double takes, torch; /* GiB */
} row;

static const row rows[] = {
    {{DV_STAGE_DECODE, 1280, 720, 2}, 4.1, 14.7},   {{DV_STAGE_DECODE, 1280, 720, 6}, 7.7, 20.5},
    {{DV_STAGE_DECODE, 1280, 720, 21}, 10.0, 20.8}, {{DV_STAGE_DECODE, 1920, 1088, 2}, 8.4, 33.0},
    {{DV_STAGE_DECODE, 1920, 1088, 6}, 16.7, 46.1}, {{DV_STAGE_DECODE, 1920, 1088, 21}, 22.2, 46.8},
    {{DV_STAGE_ENCODE, 1280, 720, 2}, 2.8, 9.7},    {{DV_STAGE_ENCODE, 1280, 720, 6}, 5.6, 11.6},
    {{DV_STAGE_ENCODE, 1280, 720, 21}, 5.9, 11.9},  {{DV_STAGE_ENCODE, 1920, 1088, 2}, 5.8, 21.7},
    {{DV_STAGE_ENCODE, 1920, 1088, 6}, 12.5, 26.0}, {{DV_STAGE_ENCODE, 1920, 1088, 21}, 13.2, 26.7},
};

static void test_rows(bench *b) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        dv_clip_stream *s = open_clip(b, &r->clip, 125.0);
        if (s == NULL) {
            continue;
        }
        const double takes = gib_of(s, &r->clip);
        CHECKF(takes < 1.01 * r->takes + 0.05 && takes < 0.5 * r->torch, "%s of %d frames of %d x %d: %.2f GiB",
               dv_stage_name(r->clip.stage), (int)frames_of(&r->clip), (int)r->clip.w, (int)r->clip.h, takes);
        CHECK(s->choice.info.offloaded_bytes == 0 && s->choice.policy.transform_frames);
        CHECK(s->choice.policy.transform_bands == (r->clip.stage == DV_STAGE_ENCODE));
        dv_clip_stream_release(s);
    }
}

/* The clips of design.md in less memory. Encoding takes little more time than without a budget, because most of the state stays on the
 * GPU. */
static void test_budgets(bench *b) {
    static const struct {
        clip clip;
        double budget, ms; /* ms: the most time for a frame; 0: any */
    } tight[] = {{{DV_STAGE_DECODE, 1920, 1088, 2}, 8.0, 0.0},    {{DV_STAGE_DECODE, 1280, 720, 6}, 8.0, 0.0},
                 {{DV_STAGE_DECODE, 1280, 720, 21}, 8.0, 0.0},    {{DV_STAGE_DECODE, 1920, 1088, 21}, 12.0, 0.0},
                 {{DV_STAGE_ENCODE, 1920, 1088, 21}, 12.0, 23.0}, {{DV_STAGE_ENCODE, 1280, 720, 21}, 5.5, 10.5}};
    for (size_t i = 0; i < sizeof tight / sizeof tight[0]; i++) {
        dv_clip_stream *s = open_clip(b, &tight[i].clip, tight[i].budget);
        if (s != NULL) {
            CHECKF((double)s->choice.need <= tight[i].budget * GIB, "row %d: %.2f GiB", (int)i,
                   (double)s->choice.need / GIB);
            CHECKF(tight[i].ms <= 0.0 || s->choice.cost_frame <= 1e6 * tight[i].ms, "row %d: %.2f ms a frame", (int)i,
                   1e-6 * s->choice.cost_frame);
            dv_clip_stream_release(s);
        }
    }
}

/* ---- weights ---- */

/* Loads the weights, as its first run does. */
static void pack_weights(const dv_clip_stream *s) {
    static const dv_control nobody;
    const dv_slice_choice *c = &s->choice;
    for (int later = 0; later < (c->whole ? 1 : 2); later++) {
        dv_plan *plan = NULL;
        const int64_t frames = dv_slice_of(&c->info.clip, c->info.slice, later == 1);
        OK(dv_clip_stream_plan(s, c, (dv_clip_slice){frames, later == 1, false}, &plan));
        const void **pointers = calloc(plan != NULL ? (size_t)plan->n_weights : 1, sizeof *pointers);
        dv_watch watch;
        dv_watch_begin(&watch, &nobody, "test", 1.0);
        OK(dv_store_bind(s->store, s->stage, plan, &watch, pointers));
        free(pointers);
        dv_plan_release(plan);
    }
}

/* A process that has encoded a short clip uses the packed weights for a long one, too. Without them it would leave some convolutions
 * plain, because their larger weights do not pay. */
static void test_weights(bench *b) {
    static const clip clips[2] = {{DV_STAGE_ENCODE, 1280, 720, 2}, {DV_STAGE_ENCODE, 1280, 720, 21}};
    uint64_t packed[2] = {0};
    for (int i = 0; i < 2; i++) {
        dv_clip_stream *s = open_clip(b, &clips[i], 125.0);
        if (s != NULL) {
            pack_weights(s);
            packed[i] = dv_store_bytes(s->store);
            dv_clip_stream_release(s);
        }
    }
    CHECKF(packed[0] > 0 && (double)packed[1] < 1.05 * (double)packed[0], "%.3f GiB, %.3f of a short clip alone",
           (double)packed[1] / GIB, (double)packed[0] / GIB);
}

int main(void) {
    bench b;
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    dv_gpu_use_modules(mock_modules, 2);
    mock_call("mock_reset");
    if (bench_open(&b)) {
        test_rows(&b);
        test_budgets(&b);
    }
    bench_close(&b);
    if (bench_open(&b)) { /* a new engine without cached choices */
        test_weights(&b);
    }
    bench_close(&b);
    return check_done();
}
