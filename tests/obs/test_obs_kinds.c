/* test_obs_kinds.c - every kind of source below the upscaling filter, in real libobs. If nothing can be computed the source is shown
 * exactly; an identity network leaves it unchanged.
 * usage: test_obs_kinds MODULE DATA WORK_FOLDER [missing | elsewhere] */
#include <X11/Xlib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <util/platform.h>
#include <util/threading.h>

#include "obs_world.h"
#include "tests/lib/check.h"

enum { CANVAS_W = 320, CANVAS_H = 180, PIC_W = 80, PIC_H = 60 };

#define UPSCALE "davy_upscale_filter"

/* Outputs a player's frame. It stays until the next one. */
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

/* ---- checks for each kind ---- */

/* Something is missing: the source is shown exactly, and the status line has the name. */
static void passes_with(const char *what, obs_source_t *source, const char *settings, const char *named) {
    char status[700] = "";
    world_show(source);
    world_frame plain = world_grab(12);
    obs_source_t *filter = world_filter(source, UPSCALE, "%s", settings);
    for (int i = 0; i < 40 && strstr(status, named) == NULL; i++) {
        world_wait_frames(30);
        world_status(filter, status, sizeof status);
    }
    CHECKF(strstr(status, named) != NULL, "%s: the status says: %s", what, status);
    world_frame filtered = world_grab(12);
    CHECKF(world_difference(&plain, &filtered, 0, NULL) == 0, "%s is not shown exactly", what);
    world_unfilter(source, filter);
    world_frame_free(&plain);
    world_frame_free(&filtered);
    world_show(NULL);
}

static void passes(const char *what, obs_source_t *source) {
    passes_with(what, source, "{\"model\":\"/nowhere/none.safetensors\"}", "none.safetensors");
}

static void comes_through(const char *what, obs_source_t *source, int within) {
    char status[700] = "";
    world_show(source);
    world_frame plain = world_grab(12);
    obs_source_t *filter = world_filter(source, UPSCALE, "{\"model\":\"%s\",\"scale\":1,\"budget_ms\":10000}",
                                        world_file("identity.safetensors"));
    for (int i = 0; i < 20 && strstr(status, " computed") == NULL; i++) {
        world_wait_frames(60);
        world_status(filter, status, sizeof status);
    }
    CHECKF(strstr(status, " computed") != NULL, "%s: the status says: %s", what, status);
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

/* A truncated file, and a GPU that does not exist. */
static void test_broken(void) {
    char settings[1200];
    char whole[2048];
    obs_source_t *colour = world_colour("broken", 0xff3060c0u, PIC_W, PIC_H);
    FILE *from = fopen(world_file("identity.safetensors"), "rb");
    const size_t bytes = from != NULL ? fread(whole, 1, sizeof whole, from) : 0;
    FILE *to = fopen(world_file("broken.safetensors"), "wb");
    CHECK(bytes > 1000 && to != NULL && fwrite(whole, 1, 1000, to) == 1000);
    if (from != NULL) {
        fclose(from);
    }
    if (to != NULL) {
        fclose(to);
    }
    snprintf(settings, sizeof settings, "{\"model\":\"%s\"}", world_file("broken.safetensors"));
    passes_with("a broken file", colour, settings, "broken.safetensors");
    passes_with("no GPU", colour, "{\"device\":\"cuda:15\"}", "The device cannot be used: ");
    obs_source_release(colour);
}

/* A capture of the display. */
static void test_capture(void) {
    Display *display = XOpenDisplay(NULL);
    if (display == NULL || !world_module("linux-capture")) {
        check_skip("no module linux-capture");
        return;
    }
    XSetWindowBackground(display, DefaultRootWindow(display), 0x3060c0);
    XClearWindow(display, DefaultRootWindow(display));
    XSync(display, False);
    obs_data_t *settings = obs_data_create_from_json("{\"screen\":0,\"show_cursor\":false}");
    obs_source_t *capture = obs_source_create("xshm_input", "capture", settings, NULL);
    obs_data_release(settings);
    world_show(capture);
    for (int i = 0; i < 100 && obs_source_get_width(capture) == 0; i++) {
        world_wait_frames(3);
    }
    CHECK(obs_source_get_width(capture) > 0);
    world_wait_frames(12);
    world_frame f = world_grab(6);
    CHECK(f.pixels[0] == 0xc0 && f.pixels[1] == 0x60 && f.pixels[2] == 0x30);
    world_frame_free(&f);
    each_kind("a display", capture, 0);
    obs_source_release(capture);
    XCloseDisplay(display);
}

static void test_kinds(void) {
    static uint8_t rgba[PIC_W * PIC_H * 4];
    CHECK(world_picture(world_file("alpha.png"), PIC_W, PIC_H, true, rgba));
    CHECK(world_network(world_file("identity.safetensors"), 0.0f)); /* its result must equal the source */
    obs_source_t *colour = world_colour("colour", 0xff3060c0u, PIC_W, PIC_H);
    obs_source_t *glass = world_colour("glass", 0x803060c0u, PIC_W, PIC_H);
    obs_source_t *alpha = world_image("alpha", world_file("alpha.png"));
    obs_source_t *window = world_window("window", PIC_W, PIC_H);
    obs_source_t *media = world_player("media");
    play(media);
    each_kind("a colour", colour, 0);
    each_kind("a transparent colour", glass, 1); /* 8-bit values are divided by alpha and multiplied again */
    each_kind("a picture with alpha", alpha, 3);
    each_kind("a window", window, 0);
    each_kind("a player", media, 0);
    obs_scene_t *scene = obs_scene_create("scene");
    obs_scene_add(scene, alpha);
    each_kind("a scene", obs_scene_get_source(scene), 3);
    obs_sceneitem_t *group = obs_scene_add_group(scene, "group");
    obs_sceneitem_t *item = obs_scene_add(scene, colour);
    obs_sceneitem_group_add_item(group, item);
    world_show(obs_scene_get_source(scene)); /* a group has a size once it has been shown */
    world_wait_frames(12);
    each_kind("a group", obs_sceneitem_get_source(group), 3);
    obs_scene_release(scene);
    obs_source_release(media);
    obs_source_release(window);
    obs_source_release(alpha);
    obs_source_release(glass);
    obs_source_release(colour);
}

/* A source without a picture: nothing is computed and nothing breaks, even if pictures come and go. */
static void test_empty(void) {
    obs_source_t *none = world_window("none", 0, 0);
    obs_source_t *media = world_player("not yet");
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

/* Two filters on one source: the second gets the first one's result. */
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

/* A source with a new size in each frame is computed. */
static void test_growing(void) {
    obs_source_t *window = world_growing("growing", PIC_W, PIC_H);
    obs_source_t *filter = world_filter(window, UPSCALE, "{\"model\":\"%s\",\"scale\":1,\"budget_ms\":10000}",
                                        world_file("identity.safetensors"));
    world_show(window);
    world_wait_done(filter, 5, 20);
    CHECKF(world_number(filter, "done") >= 5, "%lld pictures of a window that grows", world_number(filter, "done"));
    world_unfilter(window, filter);
    world_show(NULL);
    obs_source_release(window);
}

/* Counts frames with this colour in the corner. */
typedef struct corner {
    uint8_t bgr[3];
    volatile long frames;
} corner;

static void look_at_corner(void *data, struct video_data *frame) {
    corner *c = data;
    if (memcmp(frame->data[0], c->bgr, sizeof c->bgr) == 0) {
        os_atomic_inc_long(&c->frames);
    }
}

/* A source that is shown again after a pause does not show a result from before the pause. */
static void test_hidden(void) {
    corner before = {.bgr = {0xc0, 0x60, 0x30}};
    corner after = {.bgr = {0x20, 0xa0, 0x10}};
    obs_source_t *colour = world_colour("hidden", 0xffc06030u, PIC_W, PIC_H);
    obs_source_t *filter = world_filter(colour, UPSCALE, "{\"model\":\"%s\",\"scale\":1,\"budget_ms\":10000}",
                                        world_file("identity.safetensors"));
    obs_data_t *settings = obs_data_create();
    world_show(colour);
    world_wait_done(filter, 1, 60);
    world_show(NULL);
    world_wait_frames(40);
    obs_data_set_int(settings, "color", 0xff20a010u);
    obs_source_update(colour, settings);
    obs_data_release(settings);
    world_wait_frames(10);
    obs_add_raw_video_callback(NULL, look_at_corner, &before);
    obs_add_raw_video_callback(NULL, look_at_corner, &after);
    world_show(colour);
    world_wait_frames(20);
    obs_remove_raw_video_callback(look_at_corner, &before);
    obs_remove_raw_video_callback(look_at_corner, &after);
    CHECKF(before.frames == 0, "%ld frames show a picture from before the source was hidden", before.frames);
    CHECK(after.frames > 0);
    world_unfilter(colour, filter);
    world_show(NULL);
    obs_source_release(colour);
}

/* Without libdavy the filters exist, change nothing, and their status has the reason and the remedy. */
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

/* OBS draws on a GPU that CUDA does not have. The picture is computed through host memory, and the status line gives the reason. */
static void test_elsewhere(void) {
    static const char because[] = "Frames go through system memory: OBS does not draw on an NVIDIA GPU.";
    char status[700] = "";
    CHECK(world_network(world_file("identity.safetensors"), 0.0f));
    obs_source_t *colour = world_colour("colour", 0xff3060c0u, PIC_W, PIC_H);
    world_show(colour);
    world_frame plain = world_grab(12);
    obs_source_t *filter = world_filter(colour, UPSCALE, "{\"model\":\"%s\",\"scale\":1,\"budget_ms\":10000}",
                                        world_file("identity.safetensors"));
    world_wait_done(filter, 1, 60);
    world_frame through = world_grab(12);
    world_status(filter, status, sizeof status);
    CHECKF(strstr(status, because) != NULL, "the status says: %s", status);
    CHECK(world_number(filter, "done") > 0 && world_difference(&plain, &through, 0, NULL) == 0);
    world_unfilter(colour, filter);
    world_frame_free(&plain);
    world_frame_free(&through);
    world_show(NULL);
    obs_source_release(colour);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: test_obs_kinds MODULE DATA WORK_FOLDER [missing | elsewhere]\n");
        return 2;
    }
    world_folder(argv[3]);
    if (!world_open(CANVAS_W, CANVAS_H, 60, argv[1], argv[2]) || !world_module("image-source")) {
        printf("skipped: no display or no OBS\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    if (argc > 4 && strcmp(argv[4], "elsewhere") == 0) {
        test_elsewhere();
    } else if (argc > 4) {
        test_missing();
    } else {
        test_kinds();
        test_broken();
        test_capture();
        test_empty();
        test_two();
        test_growing();
        test_hidden();
    }
    const long left = world_close();
    CHECKF(left == 0, "libobs counts %ld leaked allocations", left);
    return check_done();
}
