/* test_obs_settings.c - the settings of the upscaling filter in real libobs: sizes, the time limit, the list of models, the hotkey.
 * usage: test_obs_settings MODULE DATA WORK_FOLDER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <util/platform.h>

#include "obs_world.h"
#include "tests/lib/check.h"

enum { CANVAS_W = 320, CANVAS_H = 180, PIC_W = 80, PIC_H = 60 };

#define UPSCALE "davy_upscale_filter"

/* ---- sizes ---- */

static void has_size(int setting, const char *model, uint32_t width, uint32_t height) {
    obs_source_t *colour = world_colour("sizes", 0xff3060c0u, PIC_W, PIC_H);
    world_show(colour);
    obs_source_t *filter =
        world_filter(colour, UPSCALE, "{\"model\":\"%s\",\"scale\":%d,\"budget_ms\":10000}", model, setting);
    world_wait_done(filter, 1, 60);
    const uint32_t is[2] = {obs_source_get_width(colour), obs_source_get_height(colour)};
    CHECKF(is[0] == width && is[1] == height, "scale %d is %u x %u", setting, (unsigned)is[0], (unsigned)is[1]);
    world_frame f = world_grab(6);
    const uint32_t x = (width < CANVAS_W ? width : CANVAS_W) - 1;
    const uint32_t y = (height < CANVAS_H ? height : CANVAS_H) - 1;
    const uint8_t *corner = f.pixels + 4 * ((size_t)y * f.width + x);
    CHECKF(abs(corner[0] - 0x30) <= 1 && abs(corner[1] - 0x60) <= 1 && abs(corner[2] - 0xc0) <= 1,
           "scale %d: the last pixel is %d %d %d", setting, corner[2], corner[1], corner[0]);
    world_frame_free(&f);
    world_unfilter(colour, filter);
    world_show(NULL);
    obs_source_release(colour);
}

/* OBS enlarges the result of a network of factor 1, and reduces the result of a network of factor 2. */
static void test_sizes(void) {
    char model[1024];
    snprintf(model, sizeof model, "%s", world_file("identity.safetensors"));
    CHECK(world_network(model, 0.0f));
    has_size(0, model, PIC_W, PIC_H);
    has_size(4, model, 4 * PIC_W, 4 * PIC_H);
    has_size(-1, model, 3 * PIC_W, 3 * PIC_H); /* fits the canvas */
    has_size(-1080, model, 1440, 1080);
    has_size(-1440, model, 1920, 1440);
    has_size(-2160, model, 2880, 2160);
    has_size(1, "davy-live-x2", PIC_W, PIC_H);
}

/* ---- the time limit ---- */

/* Over the time limit a moving picture is shown unchanged, in the chosen size. A still picture is computed, and only once. */
static void test_budget(void) {
    static uint8_t rgba[PIC_W * PIC_H * 4];
    static const char settings[] = "{\"model\":\"davy-live-x4\",\"scale\":4,\"budget_ms\":1}";
    char status[700] = "";
    world_pattern(PIC_W, PIC_H, false, rgba);
    obs_source_t *moving = world_pixels("moving", rgba, PIC_W, PIC_H, true);
    obs_source_t *filter = world_filter(moving, UPSCALE, "%s", settings);
    world_show(moving);
    for (int i = 0; i < 240 && strstr(status, "Time Limit per Frame: 1 ms") == NULL; i++) {
        os_sleep_ms(250);
        world_status(filter, status, sizeof status);
    }
    CHECKF(strstr(status, "Time Limit per Frame: 1 ms") != NULL, "the status says: %s", status);
    CHECK(obs_source_get_width(moving) == 4 * PIC_W && obs_source_get_height(moving) == 4 * PIC_H);
    world_unfilter(moving, filter);
    obs_source_release(moving);
    if (getenv("DAVY_CUDA_DRIVER") == NULL) { /* pictures on a GPU are not compared */
        obs_source_t *still = world_pixels("still", rgba, PIC_W, PIC_H, false);
        filter = world_filter(still, UPSCALE, "%s", settings);
        world_show(still);
        world_wait_done(filter, 1, 60);
        world_wait_frames(120);
        CHECKF(world_number(filter, "done") == 1, "a still picture was computed %d times",
               (int)world_number(filter, "done"));
        world_unfilter(still, filter);
        obs_source_release(still);
    }
    world_show(NULL);
}

/* ---- the list of models ---- */

static bool listed(obs_source_t *filter, const char *name, char *path, size_t bytes) {
    obs_properties_t *props = obs_source_properties(filter);
    obs_property_t *list = obs_properties_get(props, "model");
    bool found = false;
    for (size_t i = 0; i < obs_property_list_item_count(list) && !found; i++) {
        found = strcmp(obs_property_list_item_name(list, i), name) == 0;
        snprintf(path, bytes, "%s", obs_property_list_item_string(list, i));
    }
    obs_properties_destroy(props);
    return found;
}

/* The list shows the files of the user's folder by name. */
static void test_models(const char *config) {
    char folder[1024];
    char path[1100];
    char status[700] = "";
    snprintf(folder, sizeof folder, "%s/davy-obs/models", config);
    snprintf(path, sizeof path, "%s/mine.safetensors", folder);
    os_mkdirs(folder);
    CHECK(world_network(path, 0.0f));
    obs_source_t *colour = world_colour("models", 0xff3060c0u, PIC_W, PIC_H);
    obs_source_t *filter = world_filter(colour, UPSCALE, "{\"budget_ms\":10000}");
    world_show(colour);
    CHECK(!listed(filter, "other.safetensors", path, sizeof path));
    if (CHECK(listed(filter, "mine.safetensors", path, sizeof path))) {
        obs_data_t *settings = obs_data_create();
        obs_data_set_string(settings, "model", path);
        obs_source_update(filter, settings);
        obs_data_release(settings);
    }
    for (int i = 0; i < 240 && strstr(status, "mine.safetensors, ") == NULL; i++) {
        os_sleep_ms(250);
        world_status(filter, status, sizeof status);
    }
    CHECKF(strstr(status, "mine.safetensors, ") != NULL, "the status says: %s", status);
    world_unfilter(colour, filter);
    world_show(NULL);
    obs_source_release(colour);
}

/* ---- the hotkey ---- */

static void test_hotkey(void) {
    obs_source_t *colour = world_colour("hotkey", 0xff3060c0u, PIC_W, PIC_H);
    obs_source_t *filter = world_filter(colour, UPSCALE, "{}");
    world_show(colour);
    world_wait_frames(12); /* it is registered once the source is known */
    CHECK(world_press("davy.toggle.davy") && !obs_source_enabled(filter));
    CHECK(world_press("davy.toggle.davy") && obs_source_enabled(filter));
    world_unfilter(colour, filter);
    world_show(NULL);
    obs_source_release(colour);
}

int main(int argc, char **argv) {
    const char *config = getenv("XDG_CONFIG_HOME");
    if (argc < 4) {
        fprintf(stderr, "usage: test_obs_settings MODULE DATA WORK_FOLDER\n");
        return 2;
    }
    world_folder(argv[3]);
    if (!world_open(CANVAS_W, CANVAS_H, 60, argv[1], argv[2]) || !world_module("image-source")) {
        printf("skipped: no display or no OBS\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    test_sizes();
    test_budget();
    if (config != NULL) {
        test_models(config);
    }
    test_hotkey();
    const long left = world_close();
    CHECKF(left == 0, "libobs counts %ld leaked allocations", left);
    return check_done();
}
