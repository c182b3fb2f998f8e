/* test_obs_hdr.c - the upscaling filter on an HDR video and an HDR canvas (Rec. 2100, PQ, P010), in real libobs. An identity network
 * keeps the brightness. A real network's values equal those of `davy upscale` on the PQ picture. Tone mapping equals OBS's own.
 * usage: test_obs_hdr MODULE DATA WORK_FOLDER */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <util/platform.h>

#include "obs_world.h"
#include "tests/lib/check.h"

enum { CANVAS_W = 320, CANVAS_H = 180, PIC_W = 80, PIC_H = 48, PATCH = 16, LARGEST = 1023 };

#define WHITE_NITS 300.0f
#define PEAK_NITS  1000.0f

/* ---- the picture: a player's frame, P010, PQ, Rec. 2020, full range ---- */

/* SMPTE ST 2084 */
static double pq(double nits) {
    const double y = pow(nits / 10000.0, 2610.0 / 16384.0);
    return pow((3424.0 / 4096.0 + 2413.0 / 128.0 * y) / (1.0 + 2392.0 / 128.0 * y), 2523.0 / 32.0);
}

/* Grey patches from black to 1000 nits. The lower half has the same patches with colour. */
static const double patch_nits[PIC_W / PATCH] = {0.0, 20.0, 100.0, 300.0, 1000.0};

static uint16_t brightness_at(int x) {
    return (uint16_t)(LARGEST * pq(patch_nits[x / PATCH]) + 0.5);
}

static void play(obs_source_t *media) {
    static uint16_t luma[PIC_W * PIC_H];
    static uint16_t chroma[PIC_W * PIC_H / 2];
    for (int i = 0; i < PIC_W * PIC_H; i++) {
        luma[i] = (uint16_t)(brightness_at(i % PIC_W) << 6);
    }
    for (int i = 0; i < PIC_W * PIC_H / 2; i += 2) {
        const bool coloured = i / PIC_W >= PIC_H / 4;
        chroma[i] = (uint16_t)((512 + (coloured ? 40 : 0)) << 6);
        chroma[i + 1] = (uint16_t)((512 - (coloured ? 30 : 0)) << 6);
    }
    struct obs_source_frame frame = {.data = {(uint8_t *)luma, (uint8_t *)chroma},
                                     .linesize = {PIC_W * 2, PIC_W * 2},
                                     .width = PIC_W,
                                     .height = PIC_H,
                                     .timestamp = os_gettime_ns(),
                                     .format = VIDEO_FORMAT_P010,
                                     .full_range = true,
                                     .max_luminance = (uint16_t)PEAK_NITS,
                                     .trc = VIDEO_TRC_PQ};
    video_format_get_parameters_for_format(VIDEO_CS_2100_PQ, VIDEO_RANGE_FULL, VIDEO_FORMAT_P010, frame.color_matrix,
                                           frame.color_range_min, frame.color_range_max);
    obs_source_output_video(media, &frame);
}

/* ---- light, before the canvas rounds it to ten bits ---- */

typedef struct light {
    obs_source_t *source;
    uint32_t width, height;
    enum gs_color_space space;
    float *rgba;
} light;

static float from_half(uint16_t h) {
    const int exponent = h >> 10 & 31;
    const float fraction = (float)(h & 1023);
    const float v = exponent == 0 ? ldexpf(fraction, -24) : ldexpf(1024.0f + fraction, exponent - 25);
    return (h & 0x8000) != 0 ? -v : v;
}

/* Renders the source on the graphics thread, as a display does. */
static void look(void *param) {
    light *l = param;
    uint8_t *rows = NULL;
    uint32_t stride = 0;
    obs_enter_graphics();
    gs_texrender_t *target = gs_texrender_create(GS_RGBA16F, GS_ZS_NONE);
    gs_stagesurf_t *stage = gs_stagesurface_create(l->width, l->height, GS_RGBA16F);
    if (gs_texrender_begin_with_color_space(target, l->width, l->height, l->space)) {
        struct vec4 black;
        vec4_set(&black, 0.0f, 0.0f, 0.0f, 1.0f);
        gs_clear(GS_CLEAR_COLOR, &black, 0.0f, 0);
        gs_ortho(0.0f, (float)l->width, 0.0f, (float)l->height, -100.0f, 100.0f);
        obs_source_video_render(l->source);
        gs_texrender_end(target);
    }
    gs_stage_texture(stage, gs_texrender_get_texture(target));
    if (gs_stagesurface_map(stage, &rows, &stride)) {
        for (uint32_t y = 0; y < l->height; y++) {
            const uint16_t *row = (const uint16_t *)(const void *)(rows + (size_t)y * stride);
            for (uint32_t i = 0; i < 4 * l->width; i++) {
                l->rgba[(size_t)y * l->width * 4 + i] = from_half(row[i]);
            }
        }
        gs_stagesurface_unmap(stage);
    }
    gs_stagesurface_destroy(stage);
    gs_texrender_destroy(target);
    obs_leave_graphics();
}

static light light_of(obs_source_t *source, enum gs_color_space space) {
    light l = {.source = source, .width = obs_source_get_width(source), .height = obs_source_get_height(source)};
    l.space = space;
    l.rgba = calloc((size_t)l.width * l.height * 4, sizeof *l.rgba);
    obs_queue_task(OBS_TASK_GRAPHICS, look, &l, true);
    return l;
}

/* The largest difference in 1/10000 of the PQ scale. Negative values count as 0. */
static double difference(const light *a, const light *b) {
    double worst = a->width == b->width && a->height == b->height ? 0.0 : 1e9;
    for (size_t i = 0; worst < 1e9 && i < (size_t)a->width * a->height * 4; i++) {
        const double x = pq(fmax((double)a->rgba[i], 0.0) * (double)WHITE_NITS);
        const double y = pq(fmax((double)b->rgba[i], 0.0) * (double)WHITE_NITS);
        worst = fmax(worst, fabs(x - y) * 10000.0);
    }
    return worst;
}

/* ---- the filter ---- */

static void wait_for_results(obs_source_t *filter) {
    char status[700] = "";
    for (int i = 0; i < 40 && strstr(status, " computed") == NULL; i++) {
        world_wait_frames(30);
        world_status(filter, status, sizeof status);
    }
    CHECKF(strstr(status, " computed") != NULL, "the status says: %s", status);
    world_wait_frames(6);
}

static uint16_t luma(const world_frame *f, int x, int y) {
    uint16_t v = 0;
    memcpy(&v, f->pixels + 2 * ((size_t)y * f->width + (size_t)x), sizeof v);
    return (uint16_t)(v >> 6);
}

/* Checks the ten bits of luma in the middle of each grey patch of a picture `factor` times as large. */
static void check_patches(const char *what, const world_frame *f, int factor) {
    for (int i = 0; i < PIC_W / PATCH; i++) {
        const int x = (i * PATCH + PATCH / 2) * factor;
        const int want = (int)(64.5 + 876.0 * pq(patch_nits[i])); /* the canvas has limited range */
        const int is = luma(f, x, PIC_H / 4 * factor);
        CHECKF(abs(is - want) <= 2, "%s: %g nits are %d on the canvas, expected %d", what, patch_nits[i], is, want);
    }
}

/* The largest difference of two frames in codes of ten bits. */
static int codes_between(const world_frame *a, const world_frame *b) {
    const size_t n = (size_t)a->width * a->height * 3 / 2;
    int worst = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t x = 0;
        uint16_t y = 0;
        memcpy(&x, a->pixels + 2 * i, sizeof x);
        memcpy(&y, b->pixels + 2 * i, sizeof y);
        worst = abs((x >> 6) - (y >> 6)) > worst ? abs((x >> 6) - (y >> 6)) : worst;
    }
    return worst;
}

static void test_identity(obs_source_t *media) {
    world_frame plain = world_grab(6);
    light before = light_of(media, GS_CS_709_EXTENDED);
    check_patches("without a filter", &plain, 1);
    obs_source_t *filter =
        world_filter(media, "davy_upscale_filter", "{\"model\":\"%s\",\"scale\":1,\"budget_ms\":10000}",
                     world_file("identity.safetensors"));
    wait_for_results(filter);
    world_frame through = world_grab(6);
    light after = light_of(media, GS_CS_709_EXTENDED);
    check_patches("after an identity", &through, 1);
    const int codes = codes_between(&plain, &through);
    CHECKF(codes <= 1, "the canvas differs by %d 10-bit codes", codes);
    const double off = difference(&before, &after);
    printf("identity: %d 10-bit codes on the canvas, %.2f / 10000 of the PQ scale before it\n", codes, off);
    CHECKF(off <= 10.0, "the light differs by %.2f / 10000 of the PQ scale", off);
    world_unfilter(media, filter);
    free(before.rgba);
    free(after.rgba);
    world_frame_free(&plain);
    world_frame_free(&through);
}

/* ---- davy's own result for the PQ picture ---- */

/* ITU-R BT.2087, Rec.709 to Rec.2020. */
static const double to_2020[3][3] = {{0.6274, 0.3293, 0.0433}, {0.0691, 0.9195, 0.0114}, {0.0164, 0.0880, 0.8956}};

static void to_signal(const light *l, float *out) {
    for (size_t i = 0; i < (size_t)l->width * l->height; i++) {
        for (int c = 0; c < 3; c++) {
            double v = 0.0;
            for (int k = 0; k < 3; k++) {
                v += to_2020[c][k] * (double)l->rgba[4 * i + (size_t)k];
            }
            out[4 * i + (size_t)c] = (float)pq(fmax(v, 0.0) * (double)WHITE_NITS);
        }
        out[4 * i + 3] = 1.0f;
    }
}

static void test_equals_davy(obs_source_t *media) {
    light before = light_of(media, GS_CS_709_EXTENDED);
    float *in = calloc((size_t)PIC_W * PIC_H * 4, sizeof *in);
    float *want = calloc((size_t)PIC_W * PIC_H * 16, sizeof *want);
    float *is = calloc((size_t)PIC_W * PIC_H * 16, sizeof *is);
    to_signal(&before, in);
    CHECK(world_davy("auto", "davy-live-x2", "auto", world_rgba(in, true, PIC_W, PIC_H),
                     world_rgba(want, true, 2 * PIC_W, 2 * PIC_H)));
    obs_source_t *filter = world_filter(media, "davy_upscale_filter", "{\"budget_ms\":10000}");
    wait_for_results(filter);
    CHECK(obs_source_get_width(media) == 2 * PIC_W && obs_source_get_height(media) == 2 * PIC_H);
    light after = light_of(media, GS_CS_709_EXTENDED);
    to_signal(&after, is);
    size_t beyond = 0;
    double worst = 0.0;
    const size_t numbers = (size_t)PIC_W * PIC_H * 16;
    for (size_t i = 0; i < numbers; i++) {
        const double d = fabs(fmin(fmax((double)want[i], 0.0), 1.0) - (double)is[i]);
        worst = fmax(worst, d);
        beyond += d > 1.0 / 255.0;
    }
    printf("davy-live: %.3f per mille of the values off by more than 1/255, at most by %.4f\n",
           1000.0 * (double)beyond / (double)numbers, worst);
    CHECK((double)beyond <= 0.001 * (double)numbers);
    world_frame shown = world_grab(6);
    check_patches("davy-live", &shown, 2);
    world_frame_free(&shown);
    world_unfilter(media, filter);
    free(before.rgba);
    free(after.rgba);
    free(in);
    free(want);
    free(is);
}

static double srgb(double linear) {
    const double v = fmin(fmax(linear, 0.0), 1.0);
    return v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1.0 / 2.4) - 0.055;
}

/* "Tone Map to SDR" equals OBS's own tone mapping. */
static void test_tone_map(obs_source_t *media) {
    light want = light_of(media, GS_CS_SRGB);
    obs_source_t *filter = world_filter(media, "davy_upscale_filter",
                                        "{\"model\":\"%s\",\"scale\":1,\"budget_ms\":10000,\"hdr_mode\":\"tonemap\"}",
                                        world_file("identity.safetensors"));
    wait_for_results(filter);
    light is = light_of(media, GS_CS_SRGB);
    double worst = 0.0;
    for (size_t i = 0; i < (size_t)PIC_W * PIC_H * 4; i++) {
        worst = fmax(worst, fabs(srgb((double)want.rgba[i]) - srgb((double)is.rgba[i])));
    }
    printf("tone-mapped: at most %.2f of 255 from OBS's own\n", 255.0 * worst);
    CHECKF(255.0 * worst <= 1.0, "%.2f of 255 from OBS's own", 255.0 * worst);
    world_unfilter(media, filter);
    free(want.rgba);
    free(is.rgba);
}

static void test_sdr(void) {
    obs_source_t *colour = world_colour("sdr", 0xff3060c0u, PIC_W, PIC_H);
    world_show(colour);
    world_frame plain = world_grab(12);
    obs_source_t *filter =
        world_filter(colour, "davy_upscale_filter", "{\"model\":\"%s\",\"scale\":1,\"budget_ms\":10000}",
                     world_file("identity.safetensors"));
    wait_for_results(filter);
    world_frame through = world_grab(6);
    CHECKF(codes_between(&plain, &through) <= 1, "an SDR source differs by %d codes", codes_between(&plain, &through));
    world_unfilter(colour, filter);
    world_frame_free(&plain);
    world_frame_free(&through);
    world_show(NULL);
    obs_source_release(colour);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: test_obs_hdr MODULE DATA WORK_FOLDER\n");
        return 2;
    }
    world_folder(argv[3]);
    if (!world_open_hdr(CANVAS_W, CANVAS_H, 60, argv[1], argv[2]) || !world_module("image-source")) {
        printf("skipped: no display or no OBS\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    obs_set_video_levels(WHITE_NITS, PEAK_NITS);
    CHECK(world_network(world_file("identity.safetensors"), 0.0f));
    obs_source_t *media = world_player("media");
    world_show(media);
    play(media);
    world_wait_frames(60);
    static const enum gs_color_space spaces[] = {GS_CS_SRGB, GS_CS_SRGB_16F, GS_CS_709_EXTENDED};
    CHECK(obs_source_get_color_space(media, 3, spaces) == GS_CS_709_EXTENDED);
    test_identity(media);
    test_equals_davy(media);
    test_tone_map(media);
    world_show(NULL);
    obs_source_release(media);
    test_sdr();
    const long left = world_close();
    CHECKF(left == 0, "libobs counts %ld leaked allocations", left);
    return check_done();
}
