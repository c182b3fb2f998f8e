/* test_vlm_picture.c - sizes and token counts of the preprocessors (vectors from the models' descriptions), limits, videos, the
 * caller's pixels. tests/vlm compares pixels with the models' own code. */
#include <math.h>

#include "core/vlm/picture.h"
#include "kernels/kernel.h"
#include "tests/lib/file_check.h"
#include "tests/lib/vlm_configs.h"

static dv_vlm_config config_of(const char *json) {
    dv_vlm_config c = {0};
    CHECK_OK(parse_config(json, NULL, &c));
    return c;
}

static void check_tiles(const dv_vlm_config *c, dv_picture_options o, int64_t w, int64_t h, const int64_t want[7]) {
    dv_picture_plan p = {0};
    CHECK_OK(dv_picture_plan_make(c, &o, &(dv_picture_size){w, h, 0}, &p));
    const int64_t got[7] = {p.first_w, p.first_h, p.resized_w, p.resized_h, p.rows, p.cols, p.tokens};
    for (int i = 0; i < 7; i++) {
        CHECKF(got[i] == want[i], "%dx%d, number %d: %d, wanted %d", (int)w, (int)h, i, (int)got[i], (int)want[i]);
    }
    CHECK(p.tiles == (p.rows > 0 ? (int64_t)p.rows * p.cols + 1 : 1) &&
          p.tokens == p.tiles * c->vision.tokens_per_tile);
    CHECK(p.patches == p.tiles * c->vision.grid * c->vision.grid && p.grid_h == c->vision.grid);
}

static void test_tiles(void) {
    const dv_picture_options none = {0};
    dv_vlm_config c = config_of(SMOLVLM_256M);
    check_tiles(&c, none, 640, 480, (const int64_t[]){2048, 1536, 2048, 1536, 3, 4, 832});
    check_tiles(&c, none, 1920, 1080, (const int64_t[]){2048, 1152, 2048, 1536, 3, 4, 832});
    check_tiles(&c, none, 512, 512, (const int64_t[]){2048, 2048, 2048, 2048, 4, 4, 1088});
    check_tiles(&c, none, 1200, 300, (const int64_t[]){2048, 512, 2048, 512, 1, 4, 320});
    check_tiles(&c, none, 3000, 100, (const int64_t[]){2048, 68, 2048, 512, 1, 4, 320});
    check_tiles(&c, none, 300, 1200, (const int64_t[]){512, 2048, 512, 2048, 4, 1, 320});
    check_tiles(&c, none, 60000, 1, (const int64_t[]){2048, 1, 2048, 512, 1, 4, 320});
    c.picture.split = false;
    check_tiles(&c, none, 640, 480, (const int64_t[]){2048, 1536, 512, 512, 0, 0, 64});
    c = config_of(SMOLVLM_2B);
    check_tiles(&c, none, 640, 480, (const int64_t[]){1536, 1152, 1536, 1152, 3, 4, 1053});
    check_tiles(&c, none, 1920, 1080, (const int64_t[]){1536, 864, 1536, 1152, 3, 4, 1053});
    check_tiles(&c, none, 512, 512, (const int64_t[]){1536, 1536, 1536, 1536, 4, 4, 1377});
    check_tiles(&c, none, 1200, 300, (const int64_t[]){1536, 384, 1536, 384, 1, 4, 405});
    check_tiles(&c, none, 3000, 100, (const int64_t[]){1536, 52, 1536, 384, 1, 4, 405});
}

static void test_tile_limits(void) {
    const dv_vlm_config c = config_of(SMOLVLM_256M);
    check_tiles(&c, (dv_picture_options){.max_tiles = 12}, 640, 480,
                (const int64_t[]){1536, 1152, 1536, 1536, 3, 3, 640});
    check_tiles(&c, (dv_picture_options){.max_tiles = 9}, 640, 480,
                (const int64_t[]){1024, 768, 1024, 1024, 2, 2, 320});
    check_tiles(&c, (dv_picture_options){.max_tiles = 3}, 640, 480, (const int64_t[]){512, 384, 512, 512, 0, 0, 64});
    check_tiles(&c, (dv_picture_options){.max_tiles = 1}, 640, 480, (const int64_t[]){2048, 1536, 512, 512, 0, 0, 64});
    check_tiles(&c, (dv_picture_options){.max_pixels = 5 << 18}, 640, 480,
                (const int64_t[]){1024, 768, 1024, 1024, 2, 2, 320});
    check_tiles(&c, (dv_picture_options){.max_pixels = 1}, 640, 480, (const int64_t[]){2048, 1536, 512, 512, 0, 0, 64});
    check_tiles(&c, (dv_picture_options){.keep_small = true}, 640, 480,
                (const int64_t[]){1024, 768, 1024, 1024, 2, 2, 320});
    check_tiles(&c, (dv_picture_options){.keep_small = true}, 300, 200,
                (const int64_t[]){512, 342, 512, 512, 0, 0, 64});
}

static void check_smart(const dv_vlm_config *c, int64_t max_pixels, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                        int64_t tokens) {
    dv_picture_plan p = {0};
    const dv_picture_options o = {.max_pixels = max_pixels};
    CHECK_OK(dv_picture_plan_make(c, &o, &(dv_picture_size){w, h, 0}, &p));
    CHECKF(p.resized_w == to_w && p.resized_h == to_h && p.tokens == tokens, "%dx%d: %dx%d, %d tokens", (int)w, (int)h,
           (int)p.resized_w, (int)p.resized_h, (int)p.tokens);
    CHECK(p.patches == 4 * tokens && p.grid_t == 1 && p.patch_values == 6 * c->vision.patch * c->vision.patch);
}

static void test_smart(void) {
    dv_vlm_config c = config_of(QWEN2_5_3B);
    check_smart(&c, 0, 640, 480, 644, 476, 391);
    check_smart(&c, 0, 1920, 1080, 1932, 1092, 2691);
    check_smart(&c, 0, 512, 512, 504, 504, 324);
    check_smart(&c, 0, 1024, 1024, 1036, 1036, 1369);
    check_smart(&c, 0, 3840, 2160, 3836, 2156, 10549);
    check_smart(&c, 0, 70, 98, 56, 112, 8);
    check_smart(&c, 0, 20, 20, 56, 56, 4);
    check_smart(&c, DV_PICTURE_CAPTION_PIXELS, 640, 480, 644, 476, 391);
    check_smart(&c, DV_PICTURE_CAPTION_PIXELS, 1920, 1080, 1316, 728, 1222);
    check_smart(&c, DV_PICTURE_CAPTION_PIXELS, 1024, 1024, 980, 980, 1225);
    check_smart(&c, DV_PICTURE_CAPTION_PIXELS, 3840, 2160, 1316, 728, 1222);
    check_smart(&c, 1, 640, 480, 28, 28, 1);
    dv_picture_plan p = {0};
    dv_picture_options o = {0};
    CHECK_FAILS(dv_picture_plan_make(&c, &o, &(dv_picture_size){2010, 10, 0}, &p), DAVY_E_SHAPE, "ratio 201");
    CHECK_OK(dv_picture_plan_make(&c, &o, &(dv_picture_size){2000, 10, 0}, &p));
    CHECK_FAILS(dv_picture_plan_make(&c, &o, &(dv_picture_size){0, 10, 0}, &p), DAVY_E_SHAPE, "0x10");
    o.fold_still = true;
    CHECK_OK(dv_picture_plan_make(&c, &o, &(dv_picture_size){640, 480, 0}, &p));
    CHECK(p.patch_frames == 1 && p.patch_values == 3 * 14 * 14 && p.patches == 4 * 391);
    c = config_of(QWEN3_2B);
    check_smart(&c, 0, 640, 480, 640, 480, 300);
    check_smart(&c, 0, 1920, 1080, 1920, 1088, 2040);
    check_smart(&c, 0, 512, 512, 512, 512, 256);
    check_smart(&c, 0, 20, 20, 256, 256, 64);
}

/* Each retry needs less, and the retries end. */
static void check_smaller(const char *json, int64_t w, int64_t h, int64_t frames, int64_t last) {
    const dv_vlm_config c = config_of(json);
    dv_picture_options o = {0};
    dv_picture_plan p = {0};
    int64_t before = INT64_MAX;
    for (int i = 0; i < 100; i++) {
        CHECK_OK(dv_picture_plan_make(&c, &o, &(dv_picture_size){w, h, frames}, &p));
        CHECKF(p.tokens < before, "%d tokens after %d", (int)p.tokens, (int)before);
        before = p.tokens;
        if (!dv_picture_smaller(&c, &p, &o)) {
            break;
        }
    }
    CHECKF(before == last, "%d tokens are left", (int)before);
}

static void test_smaller(void) {
    check_smaller(SMOLVLM_256M, 1920, 1080, 0, 64);
    check_smaller(SMOLVLM_256M, 10, 5000, 0, 64);
    check_smaller(QWEN2_5_3B, 1920, 1080, 0, 1);
    check_smaller(QWEN2_5_3B, 2000, 10, 0, 1);
    check_smaller(QWEN2_5_3B, 1920, 1080, 8, 4);
    check_smaller(QWEN3_2B, 20, 4000, 0, 1);
    check_smaller(QWEN3_2B, 1920, 1080, 8, 4);
    check_smaller(QWEN3_2B, 3000, 20, 7, 4);
    check_smaller(JOYCAPTION, 1920, 1080, 0, 729);
}

static void test_fixed(void) {
    const dv_picture_options none = {0};
    dv_picture_plan p = {0};
    dv_vlm_config c = config_of(JOYCAPTION);
    CHECK_OK(dv_picture_plan_make(&c, &none, &(dv_picture_size){1000, 10, 0}, &p));
    CHECK(p.resized_w == 384 && p.resized_h == 384 && p.tokens == 729 && p.patches == 729 && p.patch_values == 588);
    c = config_of(LLAVA_1_5);
    CHECK_OK(dv_picture_plan_make(&c, &none, &(dv_picture_size){640, 480, 0}, &p));
    CHECK(p.resized_w == 448 && p.resized_h == 336 && p.crop_x == 56 && p.crop_y == 0 && p.tokens == 576);
    CHECK_OK(dv_picture_plan_make(&c, &none, &(dv_picture_size){337, 500, 0}, &p));
    CHECK(p.resized_w == 336 && p.resized_h == 498 && p.crop_y == 81);
    CHECK_FAILS(dv_picture_plan_make(&c, &none, &(dv_picture_size){60000, 1, 0}, &p), DAVY_E_SHAPE, "too narrow");
    c.picture.pad_square = true;
    CHECK_OK(dv_picture_plan_make(&c, &none, &(dv_picture_size){640, 480, 0}, &p));
    CHECK(p.pad == 640 && p.resized_w == 336 && p.resized_h == 336);
    c = config_of(GHOSTVIS_D20);
    CHECK_OK(dv_picture_plan_make(&c, &none, &(dv_picture_size){339, 336, 0}, &p));
    CHECK(p.crop_x == 2 && p.tokens == 64); /* 1.5, to the even side */
    c = config_of(NANOCHAT_D20);
    CHECK_FAILS(dv_picture_plan_make(&c, &none, &(dv_picture_size){10, 10, 0}, &p), DAVY_E_UNSUPPORTED, "nanochat");
}

static void check_frames(const dv_vlm_config *c, int64_t total, double fps, int64_t n, int64_t second, int64_t last,
                         int64_t sum) {
    static int64_t index[1024];
    int64_t got = 0;
    CHECK_OK(dv_video_frames(c, total, fps, index, &got));
    int64_t all = 0;
    for (int64_t i = 0; i < got; i++) {
        all += index[i];
    }
    CHECKF(got == n && index[got - 1] == last && all == sum && (got < 2 || index[1] == second),
           "%d frames of %d: last %d, sum %d", (int)got, (int)total, (int)index[got - 1], (int)all);
}

static void test_videos(void) {
    dv_vlm_config c = config_of(SMOLVLM_256M);
    check_frames(&c, 300, 30, 10, 33, 299, 1491);
    check_frames(&c, 1, 30, 1, 0, 0, 0);
    check_frames(&c, 3000, 29.97, 64, 75, 2970, 95937);
    check_frames(&c, 100000, 25, 64, 1611, 99975, 3199969);
    dv_picture_plan p = {0};
    const dv_picture_options none = {0};
    CHECK_OK(dv_picture_plan_make(&c, &none, &(dv_picture_size){640, 480, 10}, &p));
    CHECK(p.first_w == 2048 && p.first_h == 1536 && p.resized_h == 512 && p.tiles == 10 && p.tokens == 640);
    c = config_of(QWEN2_5_3B);
    check_frames(&c, 300, 30, 20, 15, 285, 2850);
    check_frames(&c, 7, 24, 4, 1, 5, 9);
    check_frames(&c, 1, 30, 1, 0, 0, 0);
    check_frames(&c, 3000, 29.97, 200, 15, 2985, 298500);
    check_frames(&c, 100000, 25, 768, 130, 99869, 38349632);
    CHECK_OK(dv_picture_plan_make(&c, &none, &(dv_picture_size){640, 480, 7}, &p)); /* the last frame twice */
    CHECK(p.resized_w == 644 && p.resized_h == 476 && p.grid_t == 4 && p.tokens == 4 * 391 && p.patch_frames == 2);
    c = config_of(QWEN3_2B);
    check_frames(&c, 300, 30, 20, 16, 299, 2990);
    check_frames(&c, 50, 25, 4, 16, 49, 98);
    check_frames(&c, 100000, 25, 768, 130, 99999, 38399616);
    CHECK_OK(dv_picture_plan_make(&c, &none, &(dv_picture_size){1920, 1080, 100}, &p)); /* 25165824 pixels in all */
    CHECK(p.resized_w == 640 && p.resized_h == 352 && p.grid_t == 50 && p.tokens == 50 * 20 * 11);
    const int64_t index[4] = {0, 16, 33, 49};
    CHECK(fabs(dv_video_seconds(&c, index, 4, 25, 0) - 0.32) < 1e-12);
    CHECK(fabs(dv_video_seconds(&c, index, 3, 25, 1) - 1.32) < 1e-12); /* the last frame alone */
    c = config_of(JOYCAPTION);
    CHECK_FAILS(dv_picture_plan_make(&c, &none, &(dv_picture_size){64, 64, 4}, &p), DAVY_E_UNSUPPORTED,
                "do not support videos");
}

/* ---- pixels ---- */

static void check_pixel(const dv_pixels *p, uint8_t r, uint8_t g, uint8_t b) {
    dv_rgb8 got = {0};
    CHECK_OK(dv_picture_load(p, 0, &got));
    if (got.data != NULL) {
        CHECKF(got.data[0] == r && got.data[1] == g && got.data[2] == b, "%d %d %d, wanted %d %d %d", got.data[0],
               got.data[1], got.data[2], r, g, b);
    }
    dv_picture_free(&got);
}

static void test_load(void) {
    uint8_t bytes[4] = {10, 200, 30, 128};
    uint16_t words[3] = {0x12ff, 0xff00, 0x00ff};
    float floats[4] = {0.5f, -1.0f, 2.0f, 0.25f};
    dv_pixels p = {.dtype = DAVY_DTYPE_U8,
                   .channels = DAVY_CHANNELS_RGB,
                   .range = DAVY_RANGE_FULL,
                   .n = 1,
                   .t = 1,
                   .h = 1,
                   .w = 1,
                   .c = 3,
                   .sc = 1,
                   .data = (char *)bytes};
    check_pixel(&p, 10, 200, 30);
    p.channels = DAVY_CHANNELS_BGR;
    check_pixel(&p, 30, 200, 10);
    p.channels = DAVY_CHANNELS_RGBA; /* half transparent over white, rounded as in Pillow */
    check_pixel(&p, 132, 227, 142);
    bytes[3] = 0;
    check_pixel(&p, 255, 255, 255);
    p.channels = DAVY_CHANNELS_GRAY;
    check_pixel(&p, 10, 10, 10);
    p.channels = DAVY_CHANNELS_GRAYA;
    bytes[1] = 255;
    check_pixel(&p, 10, 10, 10);
    p.dtype = DAVY_DTYPE_U16;
    p.channels = DAVY_CHANNELS_RGB;
    p.sc = 2;
    p.data = (char *)words;
    check_pixel(&p, 0x12, 0xff, 0);
    p.dtype = DAVY_DTYPE_F32;
    p.range = DAVY_RANGE_UNIT;
    p.sc = 4;
    p.data = (char *)floats;
    check_pixel(&p, 128, 0, 255);
    p.range = DAVY_RANGE_SIGNED_UNIT;
    check_pixel(&p, 191, 0, 255);
    dv_rgb8 none;
    p.range = DAVY_RANGE_RAW;
    CHECK_FAILS(dv_picture_load(&p, 0, &none), DAVY_E_INVALID, "raw");
    p.on_device = true;
    CHECK_FAILS(dv_picture_load(&p, 0, &none), DAVY_E_UNSUPPORTED, "host memory");
}

/* Pixels of a 56x28 picture encode their place; checks the patch order of Qwen's tower. */
static void test_patches(void) {
    dv_vlm_config c = config_of(QWEN2_5_3B);
    c.picture.mean[0] = c.picture.mean[1] = c.picture.mean[2] = 0;
    c.picture.std[0] = c.picture.std[1] = c.picture.std[2] = 1;
    c.picture.rescale = 1;
    c.picture.min_pixels = 1;
    static uint8_t data[2][28 * 56 * 3];
    static float out[8 * 1176];
    dv_rgb8 frames[2];
    for (int f = 0; f < 2; f++) {
        for (int i = 0; i < 28 * 56 * 3; i++) {
            const int x = i / 3 % 56;
            const int y = i / 168;
            data[f][i] = (uint8_t)(i % 3 == 0 ? x : i % 3 == 1 ? y : 100 + f);
        }
        frames[f] = (dv_rgb8){.data = data[f], .width = 56, .height = 28, .stride = 168};
    }
    dv_picture_plan p = {0};
    const dv_picture_options none = {0};
    const dv_picture_work work = {.cpu = dvk_cpu_detect()};
    c.picture.video_min_pixels = 1;
    CHECK_OK(dv_picture_plan_make(&c, &none, &(dv_picture_size){56, 28, 2}, &p));
    CHECK(p.patches == 8 && p.patch_values == 1176 && p.tokens == 2);
    CHECK_OK(dv_picture_prepare(&c, &p, &work, frames, out));
    static const int left[8] = {0, 14, 0, 14, 28, 42, 28, 42};
    static const int top[8] = {0, 0, 14, 14, 0, 0, 14, 14};
    for (int k = 0; k < 8; k++) {
        int wrong = 0;
        for (int i = 0; i < 1176; i++) { /* [colour][frame][y][x] */
            const int colour = i / 392;
            const int want = colour == 0 ? left[k] + i % 14 : colour == 1 ? top[k] + i / 14 % 14 : 100 + i / 196 % 2;
            wrong += out[1176 * k + i] != (float)want;
        }
        CHECKF(wrong == 0, "patch %d: %d values", k, wrong);
    }
    frames[1].width = 55;
    CHECK_FAILS(dv_picture_prepare(&c, &p, &work, frames, out), DAVY_E_SHAPE, "picture 1 is 55x28");
}

int main(void) {
    test_tiles();
    test_tile_limits();
    test_smart();
    test_smaller();
    test_fixed();
    test_videos();
    test_load();
    test_patches();
    return check_done();
}
