/* test_bleed.c - colours under full transparency, in every dtype and range. Visible colours grow outwards up to REACH pixels.
 * Visible pixels do not change. */
#include <stdlib.h>
#include <string.h>

#include "core/calls/call.h"
#include "kernels/cuda/pixels/bleed.h"
#include "tests/lib/check.h"

enum { W = 40, H = 30, X = 20, Y = 15 };

typedef struct form {
    davy_dtype dtype;
    davy_channels channels;
    davy_range range;
    float dot[4], hidden; /* hidden: alpha of a transparent pixel */
} form;

/* One visible dot. All other pixels are transparent, and their colours must not appear near it. */
static void test_dot(const form *f) {
    static _Alignas(16) unsigned char memory[W * H * 16];
    static float out[W * H * 3];
    static uint8_t age[W * H];
    const dv_colours colours = dv_colours_of(f->channels);
    const int64_t size = f->dtype == DAVY_DTYPE_U8 ? 1 : f->dtype == DAVY_DTYPE_F32 ? 4 : 2;
    const int64_t c = colours.count + 1;
    const dv_pixels p = {.dtype = f->dtype,
                         .channels = f->channels,
                         .range = f->range,
                         .n = 1,
                         .t = 1,
                         .h = H,
                         .w = W,
                         .c = c,
                         .sc = size,
                         .sw = c * size,
                         .sh = W * c * size,
                         .data = (char *)memory};
    const dv_bleed b = {.p = &p, .colours = colours, .opacity = dv_mapping_in(&p, DAVY_RANGE_UNIT)};
    for (int64_t i = 0; i < W * H * c; i++) {
        const int64_t k = i % c, pixel = i / c;
        const float nothing = k == colours.alpha ? f->hidden : 0.25f * f->dot[3];
        dv_element_store((char *)memory + i * size, f->dtype, pixel == Y * W + X ? f->dot[k] : nothing);
    }
    CHECK(dv_bleed_needed(&b));
    dv_bleed_run(&b, out, age);
    int wrong = 0;
    for (int i = 0; i < W * H; i++) {
        const bool near = abs(i % W - X) <= DVK_BLEED_REACH && abs(i / W - Y) <= DVK_BLEED_REACH;
        for (int k = 0; k < colours.count; k++) {
            const char *at = dv_pixels_at(&p, 0, near ? Y : i / W, near ? X : i % W, colours.map[k]);
            wrong += out[i * colours.count + k] != dv_element_load(at, f->dtype);
        }
    }
    CHECKF(wrong == 0, "dtype %d, channels %d: %d wrong", (int)f->dtype, (int)f->channels, wrong);
    dv_element_store(dv_pixels_at(&p, 0, Y, X, colours.alpha), f->dtype, f->hidden);
    CHECK(!dv_bleed_needed(&b)); /* all is hidden */
}

/* Between two dots the colours are means, computed from the nearest pixels outwards. */
static void test_means(void) {
    static float memory[7][2] = {{8.0f, 1.0f}, {0}, {0}, {0}, {0}, {0}, {2.0f, 0.5f}};
    static const float want[7] = {8.0f, 8.0f, 8.0f, 5.0f, 2.0f, 2.0f, 2.0f};
    const dv_pixels p = {.dtype = DAVY_DTYPE_F32,
                         .channels = DAVY_CHANNELS_GRAYA,
                         .range = DAVY_RANGE_UNIT,
                         .n = 1,
                         .t = 1,
                         .h = 1,
                         .w = 7,
                         .c = 2,
                         .sc = 4,
                         .sw = 8,
                         .sh = 56,
                         .data = (char *)memory};
    const dv_bleed b = {.p = &p, .colours = dv_colours_of(p.channels), .opacity = dv_mapping_in(&p, DAVY_RANGE_UNIT)};
    float out[7];
    uint8_t age[7];
    dv_bleed_run(&b, out, age);
    CHECK(memcmp(out, want, sizeof out) == 0);
}

int main(void) {
    static const form forms[] = {
        {DAVY_DTYPE_U8, DAVY_CHANNELS_RGBA, DAVY_RANGE_FULL, {50, 100, 150, 200}, 0},
        {DAVY_DTYPE_U16, DAVY_CHANNELS_BGRA, DAVY_RANGE_FULL, {1000, 2000, 3000, 4000}, 0},
        {DAVY_DTYPE_F32, DAVY_CHANNELS_RGBA, DAVY_RANGE_SIGNED_UNIT, {-0.5f, 0.0f, 0.75f, 0.9f}, -1.0f},
        {DAVY_DTYPE_F16, DAVY_CHANNELS_GRAYA, DAVY_RANGE_UNIT, {0.5f, 0.25f, 0, 1}, 0}};
    for (size_t i = 0; i < DV_ARRAY_LEN(forms); i++) {
        test_dot(&forms[i]);
    }
    test_means();
    return check_done();
}
