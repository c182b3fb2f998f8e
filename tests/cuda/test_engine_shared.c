/* test_engine_shared.c - tiles that share a picture's means or norms, on the mock driver with reference kernels. They give the whole
 * picture's result, also if memory becomes too short for the whole picture. */
#include "tests/cuda/batch_bench.h"

static double furthest(const char *a, const char *b, uint64_t bytes) {
    double most = a != NULL && b != NULL ? 0.0 : 1e30;
    for (uint64_t i = 0; most < 1e30 && i + 4 <= bytes; i += 4) {
        float of[2];
        memcpy(&of[0], a + i, 4);
        memcpy(&of[1], b + i, 4);
        most = fmax(most, fabs((double)of[0] - (double)of[1]));
    }
    return most;
}

/* Tiles that share means or norms compared with the whole picture: one at a time and together, on one GPU and on two. */
static void test_shared(dv_tensors *(*make)(void), int32_t means, int32_t norms, int32_t n_gpus) {
    ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 2, .h = 44, .w = 51, .tiling = {.width = -1}};
    bench b;
    if (bench_open(&b, make(), n_gpus)) {
        uint64_t bytes = 0;
        char *whole = run(&b, &q, &bytes);
        q.tiling = (dv_tiling){.width = 43, .height = 42};
        for (int k = 0; k < 2; k++) {
            fills = k > 0;
            OK(dv_engine_unload(b.engine));
            char *tiles = run(&b, &q, &bytes);
            const dv_tile_schedule l = schedule_of(&b, &q);
            CHECKF(l.means == means && l.norms == norms && l.tiles > 3 && l.lanes == n_gpus &&
                       (l.together > 1) == fills,
                   "%d together on %d", (int)l.together, (int)l.lanes);
            CHECKF(furthest(whole, tiles, bytes) < 1e-5, "%g apart", furthest(whole, tiles, bytes));
            free(tiles);
        }
        free(whole);
    }
    bench_close(&b, "shared");
}

/* If the device has too little memory for the whole picture, the sums start again with smaller tiles. */
static void test_means_retreat(void) {
    const ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 1, .h = 170, .w = 150};
    bench b;
    if (bench_open(&b, cugan(), 1)) {
        uint64_t bytes = 0;
        char *whole = run(&b, &q, &bytes);
        const dv_tile_schedule l = schedule_of(&b, &q);
        CHECK(l.tiles == 1 && l.means == 0);
        OK(dv_engine_unload(b.engine));
        OK(dv_engine_load(b.engine, &(dv_control){0}));
        dv_engine_trim(b.engine, 0);
        m->device_bytes = m->used_bytes + l.workspace * 3 / 4;
        char *tiles = run(&b, &q, &bytes);
        int32_t means = 0;
        for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
            const dv_cached_tile_plan *tile_plan = b.engine->tile_plans[i];
            means += tile_plan != NULL && tile_plan->request.memory_limit > 0 ? tile_plan->schedule.means : 0;
        }
        CHECKF(means == 4, "%d means", (int)means);
        CHECKF(furthest(whole, tiles, bytes) < 1e-5, "%g apart", furthest(whole, tiles, bytes));
        free(tiles);
        free(whole);
        m->device_bytes = (uint64_t)4 << 30;
    }
    bench_close(&b, "retreat of means");
}

/* The same for norms. With even less memory each tile uses its own norms. */
static void test_norms_retreat(void) {
    const ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 1, .h = 190, .w = 170};
    bench b;
    if (bench_open(&b, plksr(), 1)) {
        uint64_t bytes = 0;
        char *whole = run(&b, &q, &bytes);
        const dv_tile_schedule l = schedule_of(&b, &q);
        CHECK(l.tiles == 1 && l.norms == 0);
        for (int k = 0; k < 2; k++) {
            OK(dv_engine_unload(b.engine));
            OK(dv_engine_load(b.engine, &(dv_control){0}));
            dv_engine_trim(b.engine, 0);
            m->device_bytes = m->used_bytes + l.workspace * (k == 0 ? 9 : 4) / 10;
            char *tiles = run(&b, &q, &bytes);
            int64_t norms = -1;
            for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
                const dv_cached_tile_plan *tile_plan = b.engine->tile_plans[i];
                norms = tile_plan != NULL && tile_plan->request.memory_limit > 0
                            ? dv_max(tile_plan->schedule.norms, norms)
                            : norms;
            }
            CHECKF(norms == (k == 0 ? 2 : 0), "%d norms", (int)norms);
            CHECKF((furthest(whole, tiles, bytes) < 1e-5) == (k == 0), "%g apart", furthest(whole, tiles, bytes));
            free(tiles);
            m->device_bytes = (uint64_t)4 << 30;
        }
        free(whole);
    }
    bench_close(&b, "retreat of norms");
}

int main(void) {
    reference_begin();
    for (int32_t gpus = 1; gpus <= 2; gpus++) {
        test_shared(cugan, 4, 0, gpus);
        test_shared(plksr, 0, 2, gpus);
    }
    test_means_retreat();
    test_norms_retreat();
    return reference_end();
}
