/* test_clip_choice.c - how clips of the released SeedVR2 would be computed on an H200: planned on the mock driver, nothing is
 * run. What they take is what docs/speed.md says, beside half of what PyTorch takes, compiled, for the same clip. */
#include "core/stream_priv.h" /* what follows has variables of names that are parameters there */

#include "tests/cuda/mock_use.h"
#include "tests/unit/fake_clips.h"

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
} bench;

static bool bench_open(bench *b) {
    static const int64_t width[4] = {128, 256, 512, 512};
    *b = (bench){.heap = dv_heap_create(NULL, 0)};
    const dv_gpu_desc of_gpu = {.heap = b->heap, .log = &b->log};
    if (!CHECKF(dv_gpu_open(&of_gpu, &b->gpu) == DAVY_OK, "%s", last_error())) {
        return false;
    }
    b->gpu->caps = h200;
    b->services = (dv_services){.heap = b->heap, .log = &b->log, .gpus = &b->gpu, .n_gpus = 1};
    const dv_engine_desc desc = {.services = &b->services,
                                 .tensors = fake_seedvr2_of(width, 4, 16),
                                 .file_name = "mock",
                                 .compute = DAVY_DTYPE_BF16};
    return CHECK(dv_pool_create(2, &b->services.pool) == DAVY_OK) &&
           CHECKF(dv_engine_create(&desc, &b->engine) == DAVY_OK, "%s", last_error());
}

static void bench_close(bench *b) {
    dv_engine_release(b->engine);
    dv_pool_release(b->services.pool);
    dv_gpu_release(b->gpu);
    dv_heap_release(b->heap);
}

typedef struct clip {
    dv_stage stage;
    int64_t w, h, latents;
} clip;

static int64_t frames_of(const clip *c) {
    return 4 * c->latents - 3;
}

/* A stream of it within so many GiB. */
static dv_clip_stream *open_clip(bench *b, const clip *c, double budget) {
    const bool decodes = c->stage == DV_STAGE_DECODE;
    const int64_t side = decodes ? 8 : 1;
    dv_clip_stream *s = NULL;
    dv_gpu_set_budget(b->gpu, (uint64_t)(budget * GIB));
    CHECKF(dv_clip_stream_open(b->engine, c->stage, c->h / side, c->w / side, decodes ? c->latents : frames_of(c), 0,
                               &s) == DAVY_OK,
           "%s", last_error());
    return s;
}

/* With the clip and its latents in 16 bits, as a caller holds them. */
static double gib_of(const dv_clip_stream *s, const clip *c) {
    const int64_t pixels = c->w * c->h;
    return ((double)s->choice.need + 2.0 * (double)(3 * frames_of(c) * pixels + 16 * c->latents * pixels / 64)) / GIB;
}

/* ---- the rows of docs/speed.md ---- */

typedef struct row {
    clip clip;
    double takes, torch; /* GiB */
} row;

/* Encoding 81 frames of 1280x720 takes 51 % of torch's: what is kept is the most of it, and the clip itself a fifteenth. */
static const row rows[] = {
    {{DV_STAGE_DECODE, 1280, 720, 2}, 4.1, 14.7},   {{DV_STAGE_DECODE, 1280, 720, 6}, 7.7, 20.5},
    {{DV_STAGE_DECODE, 1280, 720, 21}, 10.2, 20.8}, {{DV_STAGE_DECODE, 1920, 1088, 2}, 8.4, 33.0},
    {{DV_STAGE_DECODE, 1920, 1088, 6}, 16.7, 46.1}, {{DV_STAGE_DECODE, 1920, 1088, 21}, 22.2, 46.8},
    {{DV_STAGE_ENCODE, 1280, 720, 2}, 2.8, 9.7},    {{DV_STAGE_ENCODE, 1280, 720, 6}, 5.7, 11.6},
    {{DV_STAGE_ENCODE, 1280, 720, 21}, 6.0, 11.9},  {{DV_STAGE_ENCODE, 1920, 1088, 2}, 5.8, 21.7},
    {{DV_STAGE_ENCODE, 1920, 1088, 6}, 12.5, 26.0}, {{DV_STAGE_ENCODE, 1920, 1088, 21}, 13.2, 26.7},
};

static void test_rows(bench *b) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        dv_clip_stream *s = open_clip(b, &r->clip, 125.0);
        if (s == NULL) {
            continue;
        }
        const bool more = r->clip.stage == DV_STAGE_ENCODE && r->clip.h == 720 && r->clip.latents == 21;
        const double takes = gib_of(s, &r->clip);
        CHECKF(takes < 1.01 * r->takes + 0.05 && takes < (more ? 0.51 : 0.5) * r->torch,
               "%s of %d frames of %d x %d: %.2f GiB", dv_stage_name(r->clip.stage), (int)frames_of(&r->clip),
               (int)r->clip.w, (int)r->clip.h, takes);
        CHECK(s->choice.info.offloaded_bytes == 0 && s->choice.winograd);
        CHECK(s->choice.bands == (r->clip.stage == DV_STAGE_ENCODE));
        dv_clip_stream_release(s);
    }
}

/* design.md's, in less memory; encoding in little more time than without a budget, as most of the state stays. */
static void test_budgets(bench *b) {
    static const struct {
        clip clip;
        double budget, ms; /* ms: of a frame, at most; 0: any */
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

static void see_weights(const dv_clip_stream *s, dv_seen *seen) {
    const dv_slice_choice *c = &s->choice;
    for (int later = 0; later < (c->whole ? 1 : 2); later++) {
        dv_plan *plan = NULL;
        const int64_t frames = dv_slice_of(&c->info.clip, c->info.slice, later == 1);
        OK(dv_clip_stream_plan(s, c, frames, later == 1, false, &plan));
        dv_store_missing_beside(s->store, s->stage, plan, true, seen);
        dv_plan_release(plan);
    }
}

/* Clips of other lengths want nearly the same forms: a process that decodes short and long ones packs little more than for
 * one of them. */
static void test_weights(bench *b) {
    for (dv_stage stage = DV_STAGE_ENCODE; stage <= DV_STAGE_DECODE; stage++) {
        dv_seen all = {0};
        uint64_t most = 0;
        for (int64_t latents = 2; latents <= 21; latents += latents == 2 ? 4 : 15) {
            const clip c = {stage, 1280, 720, latents};
            dv_clip_stream *s = open_clip(b, &c, 125.0);
            dv_seen own = {0};
            if (s != NULL) {
                see_weights(s, &own);
                see_weights(s, &all);
                dv_clip_stream_release(s);
            }
            most = own.bytes > most ? own.bytes : most;
            dv_free(own.hashes);
        }
        CHECKF(most > 0 && (double)all.bytes <= 1.1 * (double)most, "%s: %.3f GiB of weights, %.3f of one length",
               dv_stage_name(stage), (double)all.bytes / GIB, (double)most / GIB);
        dv_free(all.hashes);
    }
}

int main(void) {
    bench b;
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    dv_gpu_use_modules(mock_modules, 2);
    mock_call("mock_reset");
    if (bench_open(&b)) {
        test_rows(&b);
        test_budgets(&b);
        test_weights(&b);
    }
    bench_close(&b);
    return check_done();
}
