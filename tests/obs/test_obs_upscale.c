/* test_obs_upscale.c - the upscaling filter in real libobs: what is shown is what `davy upscale` computes, where nothing can
 * be computed it is the picture as it is, and nothing that a user does to it hangs, leaks or crashes.
 * usage: test_obs_upscale MODULE DATA WORK_FOLDER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>

#include <util/platform.h>

#include "abi/davy_loader.h"
#include "obs_world.h"
#include "tests/check.h"

enum { CANVAS_W = 320, CANVAS_H = 180, PIC_W = 80, PIC_H = 60 };

static char work[512];

static const char *in_work(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", work, name);
    return path;
}

#define UPSCALE "davy_upscale_filter"

static bool wait_for_width(obs_source_t *source, uint32_t width, int seconds) {
    for (int i = 0; i < seconds * 50 && obs_source_get_width(source) != width; i++) {
        os_sleep_ms(20);
    }
    return obs_source_get_width(source) == width;
}

/* Until the picture on the canvas is no longer what the filter shows while it has no result. */
static bool wait_for_change(const world_frame *from, int seconds) {
    bool changed = false;
    for (int i = 0; i < seconds * 5 && !changed; i++) {
        world_frame now = world_grab(6);
        changed = world_difference(from, &now, 0, NULL) > 0;
        world_frame_free(&now);
    }
    return changed;
}

/* ---- what davy itself says ---- */

static bool upscaled_by_davy(const uint8_t *rgba, uint8_t *out, int32_t scale) {
    davy_library lib;
    davy_context *ctx = NULL;
    davy_model *model = NULL;
    const davy_context_desc cd = {.struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION, .device = "cpu"};
    const davy_source source = {.struct_size = sizeof source, .name = scale == 2 ? "davy-live-x2" : "davy-live-x4"};
    const davy_model_desc md = {.struct_size = sizeof md, .sources = &source, .n_sources = 1};
    davy_tensor in = {.struct_size = sizeof in,
                      .dtype = DAVY_DTYPE_U8,
                      .layout = DAVY_LAYOUT_HWC,
                      .channels = DAVY_CHANNELS_RGBA,
                      .ndim = 3,
                      .data = (uint64_t)(uintptr_t)rgba,
                      .shape = {PIC_H, PIC_W, 4}};
    davy_tensor to = in;
    to.data = (uint64_t)(uintptr_t)out;
    to.shape[0] = PIC_H * scale;
    to.shape[1] = PIC_W * scale;
    const bool ok = davy_load(&lib, NULL, DAVY_ABI_1_0) == DAVY_OK && lib.api->context_create(&cd, &ctx) == DAVY_OK &&
                    lib.api->model_open(ctx, &md, &model) == DAVY_OK &&
                    lib.api->upscale(model, &in, &to, NULL, NULL) == DAVY_OK;
    if (lib.api != NULL) {
        lib.api->model_release(model);
        lib.api->context_release(ctx);
    }
    return ok;
}

/* The picture in the canvas's corner, in front of black. */
static int compare_with(const world_frame *f, const uint8_t *rgba, uint32_t width, uint32_t height, double *share) {
    int worst = 0;
    size_t beyond = 0;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            const uint8_t *is = f->pixels + 4 * ((size_t)y * f->width + x);
            const uint8_t *want = rgba + 4 * ((size_t)y * width + x);
            for (int c = 0; c < 3; c++) {
                const int d = abs((int)is[2 - c] - (int)want[c]);
                worst = d > worst ? d : worst;
                beyond += d > 1;
            }
        }
    }
    *share = (double)beyond / ((double)width * height * 3);
    return worst;
}

static void test_equals_davy(void) {
    static uint8_t rgba[PIC_W * PIC_H * 4];
    static uint8_t want[PIC_W * PIC_H * 4 * 9];
    CHECK(world_picture(in_work("opaque.png"), PIC_W, PIC_H, false, rgba));
    CHECK(upscaled_by_davy(rgba, want, 2));
    obs_source_t *picture = world_image("picture", in_work("opaque.png"));
    world_frame nothing = world_grab(2);
    world_show(picture);
    wait_for_change(&nothing, 10); /* the first frames compile shaders */
    world_frame plain = world_grab(12);
    obs_source_t *filter = world_filter(picture, UPSCALE, "{\"budget_ms\":10000}");
    CHECK(wait_for_width(picture, 2 * PIC_W, 20));
    CHECK(obs_source_get_height(picture) == 2 * PIC_H);
    world_frame resized = world_grab(4);
    wait_for_change(&resized, 20);
    world_frame shown = world_grab(12);
    double share = 1.0;
    const int worst = compare_with(&shown, want, 2 * PIC_W, 2 * PIC_H, &share);
    CHECKF(share <= 0.001, "%.3f %% of the numbers differ by more than 1, at most by %d", 100.0 * share, worst);
    world_save(in_work("upscaled.png"), &shown);
    char status[700];
    world_wait_frames(60);
    world_status(filter, status, sizeof status);
    CHECKF(strstr(status, "160 x 120") != NULL, "the status says: %s", status);
    world_unfilter(picture, filter);
    world_frame after = world_grab(12);
    CHECK(world_difference(&plain, &after, 0, NULL) == 0);
    world_frame_free(&nothing);
    world_frame_free(&plain);
    world_frame_free(&resized);
    world_frame_free(&shown);
    world_frame_free(&after);
    world_show(NULL);
    obs_source_release(picture);
}

/* ---- what users do ---- */

typedef struct storm {
    obs_source_t *source;
    volatile bool over;
    unsigned seed;
} storm;

static void *storming(void *arg) {
    storm *s = arg;
    static const char *const models[] = {"", "davy-live-x4", "/nowhere/none.safetensors"};
    while (!s->over) {
        s->seed = s->seed * 1664525u + 1013904223u;
        const unsigned what = s->seed >> 16;
        obs_data_t *settings = obs_data_create();
        obs_data_set_string(settings, "model", models[what % 3]);
        obs_data_set_int(settings, "scale", (long long)(what / 3 % 5));
        obs_data_set_int(settings, "width", (long long)(16 + what / 16 % 64));
        obs_source_t *filter = obs_source_create_private("davy_upscale_filter", "storm", settings);
        obs_source_filter_add(s->source, filter);
        os_sleep_ms(what % 23);
        obs_source_update(filter, settings);
        obs_source_update(s->source, settings); /* another width */
        obs_source_set_enabled(filter, what % 2 == 0);
        obs_source_filter_set_order(s->source, filter, OBS_ORDER_MOVE_UP);
        obs_properties_destroy(obs_source_properties(filter));
        os_sleep_ms(what % 31);
        obs_source_filter_remove(s->source, filter);
        obs_source_release(filter);
        obs_data_release(settings);
    }
    return NULL;
}

static void test_storm(int seconds) {
    enum { THREADS = 3 };
    obs_source_t *colour = world_colour("storm", 0xff804020u, PIC_W, PIC_H);
    pthread_t threads[THREADS];
    storm storms[THREADS];
    world_show(colour);
    for (int i = 0; i < THREADS; i++) {
        storms[i] = (storm){.source = colour, .seed = (unsigned)i * 77u + 5u};
        pthread_create(&threads[i], NULL, storming, &storms[i]);
    }
    const uint64_t before = world_frames();
    os_sleep_ms((uint32_t)seconds * 1000);
    for (int i = 0; i < THREADS; i++) {
        storms[i].over = true;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECKF(world_frames() - before > (uint64_t)seconds * 3, "only %d frames in %d seconds of storm",
           (int)(world_frames() - before), seconds);
    world_show(NULL);
    obs_source_release(colour);
}

static long resident_kb(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f != NULL && fscanf(f, "%*d %ld", &pages) != 1) {
        pages = 0;
    }
    if (f != NULL) {
        fclose(f);
    }
    return pages * 4;
}

static void test_flat(uint64_t frames) {
    static uint8_t rgba[PIC_W * PIC_H * 4];
    CHECK(world_picture(in_work("flat.png"), PIC_W, PIC_H, true, rgba));
    obs_source_t *picture = world_image("flat", in_work("flat.png"));
    obs_source_t *filter = world_filter(picture, UPSCALE, "{\"budget_ms\":10000}");
    char status[700] = "";
    world_show(picture);
    for (int i = 0; i < 60 && strstr(status, "frames done") == NULL; i++) { /* the model is there */
        world_wait_frames(30);
        world_status(filter, status, sizeof status);
    }
    /* What leaks grows in every window; caches and late arenas in one. */
    enum { WINDOWS = 4 };
    long least = 1 << 30;
    for (int i = 0; i < WINDOWS; i++) {
        const long before = resident_kb();
        world_wait_frames(frames / WINDOWS);
        const long more = resident_kb() - before;
        least = more < least ? more : least;
    }
    CHECKF(least < 2048, "every %d frames take %ld KiB more", (int)frames / WINDOWS, least);
    world_unfilter(picture, filter);
    world_show(NULL);
    obs_source_release(picture);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: test_obs_upscale MODULE DATA WORK_FOLDER [FRAMES]\n");
        return 2;
    }
    snprintf(work, sizeof work, "%s", argv[3]);
    os_mkdirs(work);
    if (!world_open(CANVAS_W, CANVAS_H, 60, argv[1], argv[2]) || !world_module("image-source")) {
        printf("no display or no OBS here\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    test_equals_davy();
    test_storm(5);
    test_flat(argc > 4 ? (uint64_t)atoi(argv[4]) : 600);
    const long left = world_close();
    CHECKF(left == 0, "libobs counts %ld allocations that are left", left);
    return check_done();
}
