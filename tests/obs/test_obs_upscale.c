/* test_obs_upscale.c - the upscaling filter in real libobs. It shows the result of `davy upscale`, and the unchanged picture if it
 * cannot compute. No action of a user makes it hang, leak or crash.
 * usage: test_obs_upscale MODULE DATA WORK_FOLDER */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>

#include <util/platform.h>

#include "obs_world.h"
#include "tests/lib/check.h"

enum { CANVAS_W = 320, CANVAS_H = 180, PIC_W = 80, PIC_H = 60 };

#define UPSCALE "davy_upscale_filter"

static bool wait_for_width(obs_source_t *source, uint32_t width, int seconds) {
    for (int i = 0; i < seconds * 50 && obs_source_get_width(source) != width; i++) {
        os_sleep_ms(20);
    }
    return obs_source_get_width(source) == width;
}

/* Waits until the canvas differs from `from`. */
static bool wait_for_change(const world_frame *from, int seconds) {
    bool changed = false;
    for (int i = 0; i < seconds * 5 && !changed; i++) {
        world_frame now = world_grab(6);
        changed = world_difference(from, &now, 0, NULL) > 0;
        world_frame_free(&now);
    }
    return changed;
}

/* ---- davy's own result ---- */

static void test_equals_davy(void) {
    static uint8_t rgba[PIC_W * PIC_H * 4];
    static uint8_t want[PIC_W * PIC_H * 4 * 4];
    world_pattern(PIC_W, PIC_H, false, rgba);
    CHECK(world_davy("auto", "davy-live-x2", "auto", world_rgba(rgba, false, PIC_W, PIC_H),
                     world_rgba(want, false, 2 * PIC_W, 2 * PIC_H)));
    obs_source_t *picture = world_pixels("picture", rgba, PIC_W, PIC_H, false);
    world_frame nothing = world_grab(2);
    world_show(picture);
    wait_for_change(&nothing, 60); /* the first frames compile shaders */
    world_frame plain = world_grab(12);
    obs_source_t *filter = world_filter(picture, UPSCALE, "{\"budget_ms\":10000}");
    CHECK(wait_for_width(picture, 2 * PIC_W, 120));
    CHECK(obs_source_get_height(picture) == 2 * PIC_H);
    world_wait_done(filter, 1, 120);
    world_frame shown = world_grab(12);
    double share = 1.0;
    const int worst = world_compare(&shown, want, 2 * PIC_W, 2 * PIC_H, &share);
    CHECKF(share <= 0.001, "%.3f %% of the values differ by more than 1, at most by %d", 100.0 * share, worst);
    world_save(world_file("upscaled.png"), &shown);
    char status[700];
    world_wait_frames(60);
    world_status(filter, status, sizeof status);
    CHECKF(strstr(status, "160x120") != NULL, "the status says: %s", status);
    world_unfilter(picture, filter);
    world_frame after = world_grab(12);
    CHECK(world_difference(&plain, &after, 0, NULL) == 0);
    world_frame_free(&nothing);
    world_frame_free(&plain);
    world_frame_free(&shown);
    world_frame_free(&after);
    world_show(NULL);
    obs_source_release(picture);
}

/* ---- strength ---- */

/* The source, resized by OBS to twice its size in a scene. */
static world_frame resized_by_obs(obs_source_t *picture) {
    obs_scene_t *scene = obs_scene_create("resized");
    obs_sceneitem_t *item = obs_scene_add(scene, picture);
    const struct vec2 twice = {.x = 2.0f, .y = 2.0f};
    obs_sceneitem_set_scale(item, &twice);
    obs_sceneitem_set_scale_filter(item, OBS_SCALE_BICUBIC);
    world_show(obs_scene_get_source(scene));
    world_frame f = world_grab(12);
    world_show(picture);
    obs_scene_release(scene);
    return f;
}

static double light(uint8_t number) {
    const double v = number / 255.0;
    return v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
}

/* The largest difference between f and the mean of a and b in linear light. */
static int from_halfway(const world_frame *f, const world_frame *a, const world_frame *b) {
    int worst = 0;
    for (size_t i = 0; i < (size_t)f->width * f->height * 4; i++) {
        const double v = 0.5 * (light(a->pixels[i]) + light(b->pixels[i]));
        const int want = (int)(255.0 * (v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1.0 / 2.4) - 0.055) + 0.5);
        const int d = abs((int)f->pixels[i] - want);
        worst = d > worst ? d : worst;
    }
    return worst;
}

/* Waits until the canvas equals `want`, or until the time is up. Returns the remaining difference. */
static int becomes(const world_frame *want, int (*difference)(const world_frame *now, const world_frame *to),
                   int seconds) {
    int left = 256;
    for (int i = 0; i < seconds * 5 && left > 1; i++) {
        world_frame now = world_grab(6);
        left = difference(&now, want);
        world_frame_free(&now);
    }
    return left;
}

static const world_frame *other_end;

static int to_halfway(const world_frame *now, const world_frame *to) {
    return from_halfway(now, to, other_end);
}

static int to_itself(const world_frame *now, const world_frame *to) {
    return world_difference(now, to, 0, NULL);
}

static void set_number(obs_source_t *filter, const char *key, double value) {
    obs_data_t *settings = obs_data_create();
    obs_data_set_double(settings, key, value);
    obs_source_update(filter, settings);
    obs_data_release(settings);
}

/* Strength 1, 0, 0.5, and 1 again with a picture that is already computed. */
static void test_strength(void) {
    static uint8_t rgba[PIC_W * PIC_H * 4];
    world_pattern(PIC_W, PIC_H, false, rgba); /* OBS's output divides by alpha */
    obs_source_t *picture = world_pixels("strength", rgba, PIC_W, PIC_H, false);
    world_frame plain = resized_by_obs(picture);
    obs_source_t *filter = world_filter(picture, UPSCALE, "{\"budget_ms\":10000}");
    CHECK(wait_for_width(picture, 2 * PIC_W, 120));
    char status[700] = "";
    for (int i = 0; i < 60 && strstr(status, " computed") == NULL; i++) {
        world_wait_frames(30);
        world_status(filter, status, sizeof status);
    }
    world_frame whole = world_grab(12);
    CHECK(world_difference(&plain, &whole, 8, NULL) > 8);
    set_number(filter, "strength", 0.0);
    int left = becomes(&plain, to_itself, 120);
    CHECKF(left <= 1, "at strength 0 it differs by %d from OBS's own resize", left);
    set_number(filter, "strength", 0.5);
    other_end = &whole;
    left = becomes(&plain, to_halfway, 120);
    CHECKF(left <= 2, "at strength 0.5 it differs by %d from halfway", left);
    set_number(filter, "strength", 1.0);
    CHECK(becomes(&whole, to_itself, 120) == 0);
    world_unfilter(picture, filter);
    world_frame_free(&plain);
    world_frame_free(&whole);
    world_show(NULL);
    obs_source_release(picture);
}

/* One network adds 0.2, its milder variant adds nothing. With a denoise setting of 0.5 the picture gains 0.1. */
static void test_denoise(void) {
    char model[1024];
    snprintf(model, sizeof model, "%s", world_file("tiny-general-x4v3.safetensors"));
    CHECK(world_network(model, 0.2f) && world_network(world_file("tiny-general-wdn-x4v3.safetensors"), 0.0f));
    obs_source_t *colour = world_colour("noise", 0xff404040u, PIC_W, PIC_H);
    world_show(colour);
    obs_source_t *filter = world_filter(colour, UPSCALE, "{\"model\":\"%s\",\"scale\":1,\"budget_ms\":10000}", model);
    static const struct {
        double share;
        int want;
    } steps[] = {{0.5, 0x40 + 26}, {1.0, 0x40 + 51}, {0.0, 0x40}};
    for (int i = 0; i < 3; i++) {
        set_number(filter, "denoise", steps[i].share);
        int is = -1;
        for (int k = 0; k < 100 && abs(is - steps[i].want) > 1; k++) {
            world_frame f = world_grab(6);
            is = f.pixels[4 * ((size_t)(PIC_H / 2) * f.width + PIC_W / 2)];
            world_frame_free(&f);
        }
        CHECKF(abs(is - steps[i].want) <= 1, "denoise %.1f shows %d, expected %d", steps[i].share, is, steps[i].want);
    }
    world_unfilter(colour, filter);
    world_show(NULL);
    obs_source_release(colour);
}

/* ---- actions of users ---- */

typedef struct storm {
    obs_source_t *source;
    volatile bool over;
    unsigned seed;
} storm;

/* libobs's settings have no lock. Two threads that change the settings of one source crash libobs even without a filter, and so does
 * a thread that adds a key during a read. The lock here prevents the first; changing only existing keys prevents the second. */
static void resize(obs_source_t *source, unsigned width) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    obs_data_t *settings = obs_data_create();
    obs_data_set_int(settings, "width", (long long)width);
    pthread_mutex_lock(&one);
    obs_source_update(source, settings);
    pthread_mutex_unlock(&one);
    obs_data_release(settings);
}

static void *storming(void *arg) {
    storm *s = arg;
    static const char *const models[] = {"", "davy-live-x4", "/nowhere/none.safetensors"};
    while (!s->over) {
        s->seed = s->seed * 1664525u + 1013904223u;
        const unsigned what = s->seed >> 16;
        obs_data_t *settings = obs_data_create();
        obs_data_set_string(settings, "model", models[what % 3]);
        obs_data_set_int(settings, "scale", (long long)(what / 3 % 5));
        obs_source_t *filter = obs_source_create_private("davy_upscale_filter", "storm", settings);
        obs_source_filter_add(s->source, filter);
        os_sleep_ms(what % 23);
        obs_source_update(filter, settings);
        resize(s->source, 16 + what / 16 % 64);
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
    /* Removed filters must not compute: OBS destroys hundreds of them, one after another. */
    const uint64_t start = os_gettime_ns();
    obs_wait_for_destroy_queue();
    const uint64_t ms = (os_gettime_ns() - start) / 1000000;
    CHECKF(ms < 5000, "%d ms until the filters of the storm were destroyed", (int)ms);
    printf("%d ms until the filters of the storm were destroyed\n", (int)ms);
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

/* ---- memory with a new picture in each frame ---- */

static void test_flat(uint64_t frames) {
    enum { AS_FAST_AS_IT_GOES = 1000 };
    CHECK(world_rate(AS_FAST_AS_IT_GOES));
    obs_source_t *picture = world_moving("moving", PIC_W, PIC_H);
    obs_source_t *filter = world_filter(picture, UPSCALE, "{\"budget_ms\":10000}");
    world_show(picture);
    world_wait_done(filter, 1, 120);
    CHECK(world_number(filter, "done") > 0);
    /* A leak grows in every window. Caches and late arenas grow only in some, and in more of them on a busy machine. */
    enum { WINDOWS = 4, MOST = 3 * WINDOWS, BOUND = 2048 };
    long least = 1 << 30;
    for (int i = 0; i < WINDOWS || (least >= BOUND && i < MOST); i++) {
        const long before = resident_kb();
        world_wait_frames(frames / WINDOWS);
        const long more = resident_kb() - before;
        printf("%d frames: %ld KiB more\n", (int)(frames / WINDOWS), more);
        least = more < least ? more : least;
    }
    printf("%lld pictures computed, %lld skipped\n", world_number(filter, "done"), world_number(filter, "dropped"));
    CHECKF(least < BOUND, "every %d frames take %ld KiB more", (int)frames / WINDOWS, least);
    world_unfilter(picture, filter);
    world_show(NULL);
    obs_source_release(picture);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: test_obs_upscale MODULE DATA WORK_FOLDER [FRAMES]\n");
        return 2;
    }
    world_folder(argv[3]);
    if (!world_open(CANVAS_W, CANVAS_H, 60, argv[1], argv[2]) || !world_module("image-source")) {
        printf("skipped: no display or no OBS\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    test_equals_davy();
    test_strength();
    test_denoise();
    test_storm(5);
    test_flat(argc > 4 ? (uint64_t)atoi(argv[4]) : 10000);
    const long left = world_close();
    CHECKF(left == 0, "libobs counts %ld leaked allocations", left);
    return check_done();
}
