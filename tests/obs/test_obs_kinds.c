/* test_obs_kinds.c - every kind of source below the upscaling filter, in real libobs: passed through exactly where nothing can
 * be computed, and unchanged by a network that changes nothing.
 * usage: test_obs_kinds MODULE DATA WORK_FOLDER [missing] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <util/platform.h>
#include <util/threading.h>

#include "obs_world.h"
#include "tests/check.h"

enum { CANVAS_W = 320, CANVAS_H = 180, PIC_W = 80, PIC_H = 60 };

#define UPSCALE "davy_upscale_filter"

static char work[512];

static const char *in_work(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", work, name);
    return path;
}

/* ---- sources of our own, as capture and media plugins make them ---- */

static const char *own_name(void *unused) {
    (void)unused;
    return "own";
}

static void *own_create(obs_data_t *settings, obs_source_t *source) {
    (void)settings;
    return source;
}

static void own_destroy(void *data) {
    (void)data;
}

static uint32_t own_width(void *data) {
    (void)data;
    return PIC_W;
}

static uint32_t own_height(void *data) {
    (void)data;
    return PIC_H;
}

static uint32_t nothing(void *data) {
    (void)data;
    return 0;
}

/* Draws by itself, as a window capture does. */
static void own_render(void *data, gs_effect_t *effect) {
    (void)data;
    (void)effect;
    gs_effect_t *solid = obs_get_base_effect(OBS_EFFECT_SOLID);
    struct vec4 colour;
    vec4_set(&colour, 0.25f, 0.5f, 0.125f, 1.0f);
    gs_effect_set_vec4(gs_effect_get_param_by_name(solid, "color"), &colour);
    while (gs_effect_loop(solid, "Solid")) {
        gs_draw_sprite(NULL, 0, PIC_W, PIC_H / 2);
    }
}

static struct obs_source_info window_like = {.id = "test_window",
                                             .type = OBS_SOURCE_TYPE_INPUT,
                                             .output_flags = OBS_SOURCE_VIDEO | OBS_SOURCE_CUSTOM_DRAW,
                                             .get_name = own_name,
                                             .create = own_create,
                                             .destroy = own_destroy,
                                             .get_width = own_width,
                                             .get_height = own_height,
                                             .video_render = own_render};
static struct obs_source_info media_like = {.id = "test_media",
                                            .type = OBS_SOURCE_TYPE_INPUT,
                                            .output_flags = OBS_SOURCE_ASYNC_VIDEO,
                                            .get_name = own_name,
                                            .create = own_create,
                                            .destroy = own_destroy};
static struct obs_source_info empty = {.id = "test_empty",
                                       .type = OBS_SOURCE_TYPE_INPUT,
                                       .output_flags = OBS_SOURCE_VIDEO,
                                       .get_name = own_name,
                                       .create = own_create,
                                       .destroy = own_destroy,
                                       .get_width = nothing,
                                       .get_height = nothing,
                                       .video_render = own_render};

/* A frame of a player; the last one stays. */
static void play(obs_source_t *media) {
    static uint8_t bgra[PIC_W * PIC_H * 4];
    for (int i = 0; i < PIC_W * PIC_H; i++) {
        bgra[4 * i] = (uint8_t)(i * 7);
        bgra[4 * i + 1] = (uint8_t)(i % PIC_W * 3);
        bgra[4 * i + 2] = (uint8_t)(i / PIC_W * 4);
        bgra[4 * i + 3] = 255;
    }
    const struct obs_source_frame frame = {.data = {bgra},
                                           .linesize = {PIC_W * 4},
                                           .width = PIC_W,
                                           .height = PIC_H,
                                           .timestamp = os_gettime_ns(),
                                           .format = VIDEO_FORMAT_BGRA,
                                           .full_range = true};
    obs_source_output_video(media, &frame);
}

/* ---- what must hold for each ---- */

/* A model that is not there: the picture as it is, exactly, and a sentence that names the file. */
static void passes(const char *what, obs_source_t *source) {
    world_show(source);
    world_frame plain = world_grab(12);
    obs_source_t *filter = world_filter(source, UPSCALE, "{\"model\":\"/nowhere/none.safetensors\"}");
    world_wait_frames(90);
    world_frame filtered = world_grab(12);
    CHECKF(world_difference(&plain, &filtered, 0, NULL) == 0, "%s is not passed through exactly", what);
    char status[700];
    world_status(filter, status, sizeof status);
    CHECKF(strstr(status, "none.safetensors") != NULL, "%s: the status says: %s", what, status);
    world_unfilter(source, filter);
    world_frame_free(&plain);
    world_frame_free(&filtered);
    world_show(NULL);
}

/* A network whose result is its input, of zeros: what comes out has gone all the way, and must be what went in. */
static bool write_identity(const char *path) {
    static const char header[] =
        "{\"body.0.weight\":{\"dtype\":\"F32\",\"shape\":[8,3,3,3],\"data_offsets\":[0,864]},"
        "\"body.0.bias\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[864,896]},"
        "\"body.1.weight\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[896,928]},"
        "\"body.2.weight\":{\"dtype\":\"F32\",\"shape\":[3,8,3,3],\"data_offsets\":[928,1792]},"
        "\"body.2.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[1792,1804]}}";
    static const char zeros[1804];
    const uint64_t bytes = sizeof header - 1;
    FILE *f = fopen(path, "wb");
    const bool ok = f != NULL && fwrite(&bytes, sizeof bytes, 1, f) == 1 && fwrite(header, bytes, 1, f) == 1 &&
                    fwrite(zeros, sizeof zeros, 1, f) == 1;
    return f != NULL && fclose(f) == 0 && ok;
}

static void comes_through(const char *what, obs_source_t *source, int within) {
    char status[700] = "";
    world_show(source);
    world_frame plain = world_grab(12);
    obs_source_t *filter = world_filter(source, UPSCALE, "{\"model\":\"%s\",\"scale\":1,\"budget_ms\":10000}",
                                        in_work("identity.safetensors"));
    for (int i = 0; i < 20 && strstr(status, "frames done") == NULL; i++) {
        world_wait_frames(60);
        world_status(filter, status, sizeof status);
    }
    CHECKF(strstr(status, "frames done") != NULL, "%s: the status says: %s", what, status);
    world_frame through = world_grab(12);
    const int worst = world_difference(&plain, &through, 0, NULL);
    CHECKF(worst <= within, "%s differs by %d after an identity", what, worst);
    world_unfilter(source, filter);
    world_frame_free(&plain);
    world_frame_free(&through);
    world_show(NULL);
}

static void each_kind(const char *what, obs_source_t *source, int within) {
    passes(what, source);
    comes_through(what, source, within);
}

static void test_kinds(void) {
    static uint8_t rgba[PIC_W * PIC_H * 4];
    CHECK(world_picture(in_work("alpha.png"), PIC_W, PIC_H, true, rgba));
    CHECK(write_identity(in_work("identity.safetensors")));
    obs_source_t *colour = world_colour("colour", 0xff3060c0u, PIC_W, PIC_H);
    obs_source_t *glass = world_colour("glass", 0x803060c0u, PIC_W, PIC_H);
    obs_source_t *alpha = world_image("alpha", in_work("alpha.png"));
    obs_source_t *window = obs_source_create("test_window", "window", NULL, NULL);
    obs_source_t *media = obs_source_create("test_media", "media", NULL, NULL);
    play(media);
    each_kind("a colour", colour, 0);
    each_kind("a transparent colour", glass, 1); /* numbers of 8 bits, divided by alpha and multiplied again */
    each_kind("a picture with alpha", alpha, 3);
    each_kind("a window", window, 0);
    each_kind("a player", media, 0);
    obs_scene_t *scene = obs_scene_create("scene");
    obs_scene_add(scene, alpha);
    each_kind("a scene", obs_scene_get_source(scene), 3);
    obs_sceneitem_t *group = obs_scene_add_group(scene, "group");
    obs_sceneitem_t *item = obs_scene_add(scene, colour);
    obs_sceneitem_group_add_item(group, item);
    world_show(obs_scene_get_source(scene)); /* a group has a size once it has been seen */
    world_wait_frames(12);
    each_kind("a group", obs_sceneitem_get_source(group), 3);
    obs_scene_release(scene);
    obs_source_release(media);
    obs_source_release(window);
    obs_source_release(alpha);
    obs_source_release(glass);
    obs_source_release(colour);
}

/* Nothing to see: nothing is computed and nothing breaks, also when it comes and goes. */
static void test_empty(void) {
    obs_source_t *none = obs_source_create("test_empty", "none", NULL, NULL);
    obs_source_t *media = obs_source_create("test_media", "not yet", NULL, NULL);
    obs_source_t *filters[2] = {world_filter(none, UPSCALE, "{}"),
                                world_filter(media, UPSCALE, "{\"budget_ms\":10000}")};
    world_show(none);
    world_wait_frames(30);
    CHECK(obs_source_get_width(none) == 0);
    world_show(media);
    world_wait_frames(30);
    play(media);
    for (int i = 0; i < 200 && obs_source_get_width(media) != 2 * PIC_W; i++) {
        world_wait_frames(2);
    }
    CHECK(obs_source_get_width(media) == 2 * PIC_W);
    obs_source_output_video(media, NULL);
    world_wait_frames(30);
    world_unfilter(none, filters[0]);
    world_unfilter(media, filters[1]);
    world_show(NULL);
    obs_source_release(none);
    obs_source_release(media);
}

/* Two on one source: the second sees what the first makes. */
static void test_two(void) {
    obs_source_t *colour = world_colour("two", 0xff3060c0u, PIC_W, PIC_H);
    obs_source_t *first = world_filter(colour, UPSCALE, "{\"budget_ms\":10000}");
    obs_source_t *second = world_filter(colour, UPSCALE, "{\"budget_ms\":10000,\"scale\":3}");
    world_show(colour);
    for (int i = 0; i < 300 && obs_source_get_width(colour) != 6 * PIC_W; i++) {
        world_wait_frames(2);
    }
    CHECK(obs_source_get_width(colour) == 6 * PIC_W);
    obs_source_set_enabled(first, false);
    for (int i = 0; i < 100 && obs_source_get_width(colour) != 3 * PIC_W; i++) {
        world_wait_frames(2);
    }
    CHECK(obs_source_get_width(colour) == 3 * PIC_W);
    world_unfilter(colour, second);
    world_unfilter(colour, first);
    world_show(NULL);
    obs_source_release(colour);
}

/* Without libdavy: the filters are there, change nothing and say what is missing and what to do. */
static void test_missing(void) {
    static const char *const ids[] = {"davy_upscale_filter", "davy_vae_filter", "davy_caption_filter"};
    obs_source_t *colour = world_colour("colour", 0xff3060c0u, PIC_W, PIC_H);
    world_show(colour);
    world_frame plain = world_grab(30);
    for (int i = 0; i < 3; i++) {
        char status[700] = "";
        obs_source_t *filter = world_filter(colour, ids[i], "{}");
        for (int k = 0; k < 20 && strstr(status, "libdavy") == NULL; k++) {
            world_wait_frames(30);
            world_status(filter, status, sizeof status);
        }
        CHECKF(strstr(status, "libdavy is missing") != NULL && strstr(status, "DAVY_LIBRARY") != NULL, "%s says: %s",
               ids[i], status);
        world_frame with = world_grab(6);
        CHECK(world_difference(&plain, &with, 0, NULL) == 0);
        world_frame_free(&with);
        world_unfilter(colour, filter);
    }
    world_frame_free(&plain);
    world_show(NULL);
    obs_source_release(colour);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: test_obs_kinds MODULE DATA WORK_FOLDER [missing]\n");
        return 2;
    }
    snprintf(work, sizeof work, "%s", argv[3]);
    os_mkdirs(work);
    if (!world_open(CANVAS_W, CANVAS_H, 60, argv[1], argv[2]) || !world_module("image-source")) {
        printf("no display or no OBS here\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    obs_register_source(&window_like);
    obs_register_source(&media_like);
    obs_register_source(&empty);
    if (argc > 4) {
        test_missing();
    } else {
        test_kinds();
        test_empty();
        test_two();
    }
    const long left = world_close();
    CHECKF(left == 0, "libobs counts %ld allocations that are left", left);
    return check_done();
}
