/* test_engine_tiles.c - runs in tiles: unchanged results, the report of exact tiles, and invalid requests. */
#include "tests/lib/engine_fixture.h"

static void check_exact_tiles(uint32_t cpu) {
    fixture f;
    const fixture_spec spec = {.tensors = cpu == 0 ? narrow() : NULL, .path = MODEL, .threads = 2, .cpu = cpu};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    result whole = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 101, .w = 119, .tiling = {-1, 0, 0}};
    CHECK(ask(&f, &q, &whole) == DAVY_OK && whole.info.tiles_x == 1 && whole.info.tiles_y == 1);
    static const dv_tiling tilings[] = {{64, 64, 0}, {119, 50, 0}, {45, 101, 0}, {48, 0, 40}, {1000, 60, 0}};
    for (size_t i = 0; i < DV_ARRAY_LEN(tilings); i++) {
        result r = {0};
        q.tiling = tilings[i];
        CHECKF(ask(&f, &q, &r) == DAVY_OK && r.info.tiles_x * r.info.tiles_y > 1, "tiles %d: %s", (int)i, last_error());
        CHECKF(relative(&r, &whole) < 1e-6, "tiles %d: distance %g", (int)i, relative(&r, &whole));
        CHECKF(cpu != 0 || same_bits(&r, &whole), "tiles %d: other bits", (int)i);
        free(r.data);
    }
    free(whole.data);
    engine_fixture_close(&f);
}

/* An input of odd size that is unshuffled by 2: tiles must stay on the even grid and pad at the picture's end. */
static void test_odd_sizes(void) {
    fixture f;
    const fixture_spec spec = {.tensors = small_rrdb(12), .threads = 2, .cpu = dvk_cpu_detect()};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    result whole = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 121, .w = 157, .tiling = {-1, 0, 0}};
    CHECKF(ask(&f, &q, &whole) == DAVY_OK && whole.h == 242 && whole.w == 314, "%s", last_error());
    static const dv_tiling tilings[] = {{120, 120, 0}, {140, 150, 0}};
    for (size_t i = 0; i < DV_ARRAY_LEN(tilings); i++) {
        result r = {0};
        q.tiling = tilings[i];
        CHECKF(ask(&f, &q, &r) == DAVY_OK && r.info.tiles_x == 2, "%s", last_error());
        CHECKF(relative(&r, &whole) < 2e-6, "tiles %d: distance %g", (int)i, relative(&r, &whole));
        free(r.data);
    }
    free(whole.data);
    engine_fixture_close(&f);
}

/* Counts the output samples in which two results differ by more than `bound`. */
static int64_t differing(const result *a, const result *b, double bound) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->c * a->h * a->w; i++) {
        n += fabs((double)a->data[i] - (double)b->data[i]) > bound;
    }
    return n;
}

/* Tiles with less overlap than the network's reach are faded. Samples away from fades and tile edges are unchanged. */
static void test_faded_tiles(void) {
    fixture f;
    const fixture_spec spec = {.tensors = narrow(), .threads = 2, .cpu = 0};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    result whole = {0};
    result r = {0};
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 90, .w = 130, .tiling = {-1, 0, 0}};
    CHECK(ask(&f, &q, &whole) == DAVY_OK);
    q.tiling = (dv_tiling){60, 60, 10};
    CHECKF(ask(&f, &q, &r) == DAVY_OK, "%s", last_error());
    CHECK(r.info.tiles_x == 3 && r.info.tiles_y == 2);
    CHECKF(relative(&r, &whole) < 0.02, "distance %g", relative(&r, &whole));
    /* The first tile is 60 pixels wide. Only its last 13 pixels and the fade may differ. */
    int64_t wrong = 0;
    for (int64_t y = 0; y < 2 * 30; y++) {
        for (int64_t x = 0; x < 2 * 46; x++) {
            wrong += r.data[y * r.w + x] != whole.data[y * whole.w + x];
        }
    }
    CHECKF(wrong == 0, "%lld samples far from every edge differ", (long long)wrong);
    CHECK(differing(&r, &whole, 0.0) > 0);
    free(whole.data);
    free(r.data);
    engine_fixture_close(&f);
}

/* A network with group norms and attention: tiles change its result, but every sample is a mean of at most two tiles. */
static void test_global_tiles(void) {
    fixture f;
    const fixture_spec spec = {.tensors = small_kl(), .threads = 2, .cpu = dvk_cpu_detect()};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    const question stages[] = {{.stage = DV_STAGE_DECODE, .c = 4, .h = 40, .w = 56, .tiling = {24, 24, 8}},
                               {.stage = DV_STAGE_ENCODE, .c = 3, .h = 320, .w = 264, .tiling = {192, 192, 0}}};
    for (size_t i = 0; i < DV_ARRAY_LEN(stages); i++) {
        result whole = {0};
        result r = {0};
        question q = stages[i];
        CHECKF(ask(&f, &q, &r) == DAVY_OK && r.info.tiles_x > 1 && r.info.tiles_y > 1, "%s", last_error());
        q.tiling = (dv_tiling){0};
        CHECK(ask(&f, &q, &whole) == DAVY_OK && whole.info.tiles_x == 1);
        CHECKF(relative(&r, &whole) < 0.5, "stage %d: distance %g", (int)q.stage, relative(&r, &whole));
        free(whole.data);
        free(r.data);
    }
    engine_fixture_close(&f);
}

/* The graphs decide whether tiles are exact. They are not with a norm over the whole picture or with a very long reach. */
static void test_exactness_reported(void) {
    const struct {
        dv_tensors *tensors;
        bool exact;
    } cases[] = {
        {small_rrdb(3), true},
        {fake_rrdb((fake_rrdb_spec){.dialect = 0, .nf = 16, .gc = 8, .blocks = 6, .doublings = 2, .in = 3}), false},
        {small_kl(), false},
    };
    for (size_t i = 0; i < DV_ARRAY_LEN(cases); i++) {
        fixture f;
        const fixture_spec spec = {.tensors = cases[i].tensors, .threads = 1, .cpu = 0};
        if (engine_fixture_open(&f, &spec)) {
            davy_model_info info = {.struct_size = sizeof info};
            dv_engine_info(f.engine, &info);
            CHECKF(((info.features & DAVY_MODEL_TILES_EXACT) != 0) == cases[i].exact, "case %d", (int)i);
            engine_fixture_close(&f);
        }
    }
}

static void test_bad_requests(void) {
    fixture f;
    result r = {0};
    const fixture_spec spec = {.path = MODEL, .threads = 1, .cpu = dvk_cpu_detect()};
    if (!engine_fixture_open(&f, &spec)) {
        return;
    }
    question q = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 100, .w = 100, .tiling = {20, 20, 0}};
    CHECK(ask(&f, &q, &r) == DAVY_E_INVALID && strstr(last_error(), "too small") != NULL);
    q = (question){.stage = DV_STAGE_DECODE, .c = 3, .h = 100, .w = 100};
    CHECK(ask(&f, &q, &r) == DAVY_E_UNSUPPORTED && strstr(last_error(), "fixture") != NULL);
    q = (question){.stage = DV_STAGE_UPSCALE, .c = 4, .h = 10, .w = 10};
    CHECK(ask(&f, &q, &r) == DAVY_E_SHAPE && strstr(last_error(), "channels") != NULL);
    q = (question){.stage = DV_STAGE_UPSCALE, .c = 3, .h = 0, .w = 10};
    CHECK(ask(&f, &q, &r) == DAVY_E_SHAPE);
    engine_fixture_close(&f);
    const fixture_spec folded = {.tensors = small_rrdb(12), .threads = 1, .cpu = 0};
    if (engine_fixture_open(
            &f, &folded)) { /* the message has the requested tile, not the one rounded to the network's grid */
        q = (question){.stage = DV_STAGE_UPSCALE, .c = 3, .h = 120, .w = 121, .tiling = {1, 3, 0}};
        CHECKF(ask(&f, &q, &r) == DAVY_E_INVALID && strstr(last_error(), "tile of 1 x 3 is") != NULL, "%s",
               last_error());
        CHECK(strstr(last_error(), "multiples of 2") != NULL && strchr(last_error(), '-') == NULL);
        engine_fixture_close(&f);
    }
}

int main(void) {
    check_exact_tiles(0);
    check_exact_tiles(dvk_cpu_detect());
    test_odd_sizes();
    test_faded_tiles();
    test_global_tiles();
    test_exactness_reported();
    test_bad_requests();
    return check_done();
}
