/* test_engine_clip_tiles.c - clips in tiles on the mock driver with reference kernels: the CPU's numbers, the same bits for every kind of
 * input and output, and budgets too small for whole frames. */
#include <math.h>

#include "core/clip/tiles.h"
#include "tests/cuda/clip_bench.h"

enum { H = 6, W = 8, LATENTS = 2, FRAMES = 3, SIDE = 4 }; /* a latent is four pixels high and wide */

enum { IN_BYTES = LATENTS * 4 * H * W * 4, OUT_BYTES = FRAMES * 3 * H * W * SIDE * SIDE * 4 };

typedef struct way { /* how frames enter and leave */
    bool device, flows;
} way;

static const dv_tiling asked = {.width = 6, .height = 4, .overlap = 2};

static dv_clip_tiles *open_clip(bench *b, const way *y, dv_tiling tiling) {
    const dv_clip_tiles_desc desc = {
        .stage = DV_STAGE_DECODE, .h = H, .w = W, .frames = y->flows ? 0 : LATENTS, .slice = 1, .tiling = tiling};
    dv_clip_tiles *t = NULL;
    CHECKF(dv_clip_tiles_open(b->engine, &desc, &t) == DAVY_OK, "%s", last_error());
    return t;
}

static davy_result run_some(dv_clip_tiles *t, const way *y, char *in, char *out, int64_t at, int64_t n) {
    const int64_t made = at == 0 ? 0 : 2 * at - 1;
    const dv_work w = {.stage = DV_STAGE_DECODE,
                       .in = frames_image(in + at * IN_BYTES / LATENTS, n, 4, H, W),
                       .out = frames_image(out + made * OUT_BYTES / FRAMES, 2 * n - (at == 0), 3, H * SIDE, W * SIDE),
                       .in_device = y->device,
                       .out_device = y->device,
                       .in_mul = 1.0f,
                       .out_mul = 0.5f,
                       .out_add = 0.25f};
    return dv_clip_tiles_run(t, &w, NULL);
}

static davy_result run_all(dv_clip_tiles *t, const way *y, char *in, char *out) {
    davy_result r = DAVY_OK;
    const int64_t n = y->flows ? 1 : LATENTS;
    for (int64_t at = 0; r == DAVY_OK && at < LATENTS; at += n) {
        r = run_some(t, y, in, out, at, n);
    }
    return r;
}

/* Computes the frames in the requested tiles. */
static float *frames_of(const way *y, bool gpu) {
    bench b;
    float *in = made_up_frames(LATENTS, 4, H, W);
    float *out = calloc(1, OUT_BYTES);
    void *device[2] = {in, out};
    if (bench_open(&b, DAVY_DTYPE_F32, gpu, 0)) {
        for (int i = 0; y->device && i < 2; i++) {
            CHECK(dv_gpu_alloc(b.gpu, DV_MEM_WORKSPACE, i == 0 ? IN_BYTES : OUT_BYTES, "frames", &device[i]) ==
                  DAVY_OK);
        }
        if (y->device) {
            memcpy(device[0], in, IN_BYTES); /* the mock's device memory is host memory */
        }
        dv_clip_tiles *t = open_clip(&b, y, asked);
        if (t != NULL) {
            for (int again = 0; again < 1 + y->flows; again++) {
                CHECKF(run_all(t, y, device[0], device[1]) == DAVY_OK, "%s", last_error());
                dv_clip_tiles_reset(t);
            }
        }
        dv_clip_tiles_release(t);
        if (y->device) {
            memcpy(out, device[1], OUT_BYTES);
            dv_gpu_free(b.gpu, DV_MEM_WORKSPACE, device[0], IN_BYTES);
            dv_gpu_free(b.gpu, DV_MEM_WORKSPACE, device[1], OUT_BYTES);
        }
    }
    bench_close(&b, "tiles");
    free(in);
    return out;
}

static void test_ways(void) {
    const way plain = {0};
    float *cpu = frames_of(&plain, false), *want = frames_of(&plain, true);
    double worst = 0.0;
    for (size_t i = 0; i < OUT_BYTES / sizeof(float); i++) {
        worst = fmax(worst, fabs((double)want[i] - (double)cpu[i]));
    }
    CHECKF(worst < 1e-4, "%g away from the CPU's", worst);
    const way others[] = {{.device = true}, {.flows = true}, {.device = true, .flows = true}};
    for (size_t i = 0; i < DV_ARRAY_LEN(others); i++) {
        float *got = frames_of(&others[i], true);
        CHECKF(memcmp(got, want, OUT_BYTES) == 0, "way %d: other bits", (int)i);
        free(got);
    }
    free(cpu), free(want);
}

/* Budgets from the need of whole frames downwards: tiles in the end, and never more memory than the budget. */
static void test_short(bool flows) {
    const way y = {.flows = flows};
    const dv_tiling automatic = {0};
    enum { TALL = 40, WIDE = 44 };
    bench b;
    int64_t tiled = 0;
    for (uint64_t budget = 1ull << 30, last = 0; budget != last;) {
        if (!bench_open(&b, DAVY_DTYPE_F32, true, budget)) {
            break;
        }
        const dv_clip_tiles_desc desc = {.stage = DV_STAGE_DECODE,
                                         .h = TALL,
                                         .w = WIDE,
                                         .frames = y.flows ? 0 : LATENTS,
                                         .slice = 1,
                                         .tiling = automatic};
        dv_clip_tiles *t = NULL;
        dv_clip_tiles_info info = {0};
        const davy_result r = dv_clip_tiles_open(b.engine, &desc, &t);
        last = budget;
        if (r == DAVY_OK) {
            dv_clip_tiles_info_get(t, &info);
            tiled += info.tiles_y * info.tiles_x > 1;
            budget = budget == 1ull << 30 ? 192ull << 20 : budget * 3 / 5;
        } else {
            CHECKF(r == DAVY_E_BUDGET && strstr(last_error(), "in the smallest tiles") != NULL, "%s", last_error());
        }
        dv_clip_tiles_release(t);
        bench_close(&b, "short");
    }
    CHECKF(tiled > 0, "no tiles, %s", flows ? "a sequence" : "a clip");
}

int main(void) {
    reference_begin();
    test_ways();
    test_short(false);
    test_short(true);
    return reference_end();
}
