/* test_batch_device.c - pictures of one call, and tiles, computed together on a GPU, compared with the same pictures computed one by
 * one on the CPU. */
#include <stdlib.h>

#include "tests/cuda/device_pair.h"
#include "tests/lib/fake_transformers.h"

typedef struct batch {
    const char *name;
    dv_tensors *(*make)(void);
    dv_stage stage;
    int64_t n, c, h, w;
    dv_tiling tiling;
} batch;

static dv_tensors *compact(void) {
    return fake_compact(64, 2, 2);
}

static dv_tensors *narrow_compact(void) {
    return fake_compact(24, 2, 2);
}

static dv_tensors *kl(void) {
    return fake_kl((fake_kl_spec){.names = 0, .z = 4, .quant = 1, .levels = 2, .enc = {32, 64}, .dec = {32, 64}});
}

static dv_tensors *rrdb(void) {
    return fake_rrdb((fake_rrdb_spec){.dialect = 1, .nf = 16, .gc = 8, .blocks = 1, .doublings = 1, .in = 3});
}

static dv_tensors *swinir(void) {
    return fake_swinir(24, 2, 8, 0);
}

static dv_tensors *drct(void) {
    return fake_drct(20, 6, 4);
}

static dv_tensors *dat(void) {
    return fake_dat(40, 4);
}

static dv_tensors *atd(void) {
    static const int64_t of[3] = {8, 21, 6}; /* window, tokens, channels of each query */
    return fake_atd(24, 4, of);
}

static const batch batches[] = {
    {"compact", compact, DV_STAGE_UPSCALE, 5, 3, 40, 36, {0}},
    {"narrow compact", narrow_compact, DV_STAGE_UPSCALE, 5, 3, 40, 36, {0}},
    {"compact in tiles", compact, DV_STAGE_UPSCALE, 2, 3, 100, 91, {40, 32, 0}},
    {"rrdb in faded tiles", rrdb, DV_STAGE_UPSCALE, 2, 3, 100, 91, {48, 40, 12}},
    {"kl", kl, DV_STAGE_DECODE, 3, 4, 24, 20, {0}},
    {"kl in faded tiles", kl, DV_STAGE_DECODE, 2, 4, 70, 83, {48, 40, 12}},
    {"swinir", swinir, DV_STAGE_UPSCALE, 7, 3, 24, 40, {0}},
    {"drct", drct, DV_STAGE_UPSCALE, 3, 3, 20, 24, {0}},
    {"dat", dat, DV_STAGE_UPSCALE, 3, 3, 24, 20, {0}},
    {"atd", atd, DV_STAGE_UPSCALE, 3, 3, 24, 37, {0}},
};

static bool run_batch(const pair *p, int k, const batch *b, const float *in, float *out, const davy_plan_info *info) {
    dv_work w = {.stage = b->stage, .in_mul = 1.0f, .out_mul = 1.0f, .tiling = b->tiling};
    w.in = planes((void *)(uintptr_t)in, b->c, b->h, b->w);
    w.out = planes(out, info->shape[2], info->shape[0], info->shape[1]);
    w.in.n = w.out.n = b->n;
    w.in.sn = b->c * w.in.sc;
    w.out.sn = info->shape[2] * w.out.sc;
    const davy_result r = dv_engine_run(p->engine[k], &w);
    return CHECKF(r == DAVY_OK, "%s: %s", b->name, last_error());
}

static int64_t together_of(const pair *p, const batch *b) {
    const dv_request q = {.stage = b->stage, .batch = b->n, .h = b->h, .w = b->w, .tiling = b->tiling};
    dv_cached_tile_plan *tile_plan = NULL;
    const int64_t n = dv_tile_plan_get(p->engine[1], &q, &tile_plan) == DAVY_OK ? tile_plan->schedule.together : 0;
    dv_tile_plan_release(tile_plan);
    return n;
}

static void test_batch(const batch *b, davy_dtype compute, double bound) {
    pair p;
    davy_plan_info info = {.struct_size = sizeof info};
    if (open_pair(&p, b->make(), b->make(), compute) &&
        CHECK(dv_engine_plan(p.engine[1],
                             &(dv_batch_desc){.stage = b->stage, .h = b->h, .w = b->w, .tiling = &b->tiling},
                             &info) == DAVY_OK)) {
        const int64_t values = b->n * info.shape[0] * info.shape[1] * info.shape[2];
        float *in = made_up(b->n * b->c, b->h, b->w);
        float *out[2] = {calloc((size_t)values, sizeof(float)), calloc((size_t)values, sizeof(float))};
        bool ok = run_batch(&p, 0, b, in, out[0], &info);
        for (int again = 0; ok && again < 3; again++) {
            ok = run_batch(&p, 1, b, in, out[1], &info);
            const double d = relative_distance(out[1], out[0], values);
            CHECKF(d <= bound, "%s, %d pictures, compute %d, %d together: differ by %g", b->name, (int)b->n,
                   (int)compute, (int)together_of(&p, b), d);
        }
        free(in);
        free(out[0]);
        free(out[1]);
    }
    close_pair(&p);
}

int main(void) {
    open_gpus();
    for (size_t i = 0; n_gpus > 0 && i < sizeof batches / sizeof batches[0]; i++) {
        test_batch(&batches[i], DAVY_DTYPE_F32, 5e-5);
        test_batch(&batches[i], DAVY_DTYPE_F16, 5e-3);
    }
    close_gpus();
    return check_done();
}
