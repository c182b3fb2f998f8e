/* test_obs_caption.c - the captioning and the VAE filter in real libobs, with real weights. Skipped without the weights.
 * usage: test_obs_caption MODULE DATA WORK_FOLDER SHARED */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <util/platform.h>

#include "abi/davy_loader.h"
#include "obs_world.h"
#include "plugins/cli/pictures/picture.h"
#include "tests/lib/check.h"

enum { CANVAS = 512 };

static char shared[512];

/* ---- captions ---- */

static struct {
    int signals;
    char text[4096];
} heard;

static void on_caption(void *unused, calldata_t *data) {
    const char *text = NULL;
    (void)unused;
    if (calldata_get_string(data, "text", &text)) {
        snprintf(heard.text, sizeof heard.text, "%s", text);
        heard.signals++;
    }
}

/* The library's own answer about the same picture. */
static bool captioned_by_davy(const char *model_folder, const char *picture_file, const char *prompt, char *out,
                              size_t bytes) {
    davy_library lib;
    davy_context *ctx = NULL;
    davy_model *model = NULL;
    davy_text *text = NULL;
    cli_picture p = {0};
    const davy_context_desc cd = {.struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION, .device = "cpu"};
    const davy_source source = {.struct_size = sizeof source, .path = model_folder};
    const davy_model_desc md = {.struct_size = sizeof md, .sources = &source, .n_sources = 1};
    const davy_caption_params params = {.struct_size = sizeof params, .prompt = prompt, .max_tokens = 48};
    if (davy_load(&lib, NULL, DAVY_ABI_1_0) != DAVY_OK || cli_picture_load(picture_file, &p) != 0) {
        return false;
    }
    davy_tensor t = {.struct_size = sizeof t, .dtype = DAVY_DTYPE_U8, .layout = DAVY_LAYOUT_HWC, .ndim = 3};
    t.data = (uint64_t)(uintptr_t)p.pixels;
    t.shape[0] = p.height;
    t.shape[1] = p.width;
    t.shape[2] = p.channels;
    const davy_tensor *const pictures[] = {&t};
    const char *utf8 = "";
    uint64_t n = 0;
    const bool ok = lib.api->context_create(&cd, &ctx) == DAVY_OK && lib.api->model_open(ctx, &md, &model) == DAVY_OK &&
                    lib.api->caption(model, 1, pictures, &params, NULL, NULL, &text) == DAVY_OK &&
                    lib.api->text_get(text, &utf8, &n) == DAVY_OK;
    while (*utf8 == ' ') {
        utf8++;
    }
    snprintf(out, bytes, "%s", utf8);
    lib.api->text_release(text);
    lib.api->model_release(model);
    lib.api->context_release(ctx);
    free(p.pixels);
    return ok;
}

static void text_of(obs_source_t *source, char *out, size_t bytes) {
    obs_data_t *settings = obs_source_get_settings(source);
    snprintf(out, bytes, "%s", obs_data_get_string(settings, "text"));
    obs_data_release(settings);
}

static void caption_of(obs_source_t *filter, char *out, size_t bytes) {
    calldata_t call;
    calldata_init(&call);
    proc_handler_call(obs_source_get_proc_handler(filter), "davy_get_caption", &call);
    snprintf(out, bytes, "%s", calldata_string(&call, "text"));
    calldata_free(&call);
}

static void test_caption(void) {
    static const char prompt[] = "Describe the image.";
    char folder[1024];
    char picture[1024];
    char file[1024];
    char want[4096] = "?";
    char shown[4096] = "";
    char told[4096] = "";
    snprintf(folder, sizeof folder, "%s/models/davy-tiny-vlm", shared);
    snprintf(picture, sizeof picture, "%s/golden/davy-tiny-vlm/case00.png", shared);
    snprintf(file, sizeof file, "%s", world_file("caption.txt"));
    if (!os_file_exists(folder)) {
        check_skip("the captions: no models/davy-tiny-vlm");
        return;
    }
    CHECK(captioned_by_davy(folder, picture, prompt, want, sizeof want));
    obs_source_t *image = world_image("scene", picture);
    obs_source_t *target = obs_source_create("text_ft2_source_v2", "answer", NULL, NULL);
    world_show(image);
    world_frame plain = world_grab(40);
    obs_source_t *filter =
        world_filter(image, "davy_caption_filter",
                     "{\"model_path\":\"%s\",\"prompt\":\"%s\",\"interval_ms\":1000,\"target_source\":"
                     "\"answer\",\"file\":\"%s\",\"prefix\":\"It is: \"}",
                     folder, prompt, file);
    signal_handler_connect(obs_source_get_signal_handler(filter), "davy_caption", on_caption, NULL);
    for (int i = 0; i < 600 && heard.signals < 2; i++) {
        os_sleep_ms(50);
    }
    CHECK(heard.signals >= 2);
    text_of(target, shown, sizeof shown);
    CHECKF(strncmp(shown, "It is: ", 7) == 0 && strcmp(shown + 7, want) == 0, "the text source says '%s', davy '%s'",
           shown, want);
    CHECK(strcmp(heard.text, shown) == 0);
    caption_of(filter, told, sizeof told);
    CHECK(strcmp(told, shown) == 0);
    char *written = os_quick_read_utf8_file(file);
    CHECK(written != NULL && strncmp(written, shown, strlen(shown)) == 0);
    bfree(written);
    world_frame with = world_grab(12);
    CHECK(world_difference(&plain, &with, 0, NULL) == 0);
    world_unfilter(image, filter);
    world_frame_free(&plain);
    world_frame_free(&with);
    world_show(NULL);
    obs_source_release(target);
    obs_source_release(image);
}

/* ---- functions of the OBS application that the plugin looks up ---- */

static struct {
    obs_source_t *scene;
    int streams;
} application;

obs_source_t *obs_frontend_get_current_scene(void);
obs_output_t *obs_frontend_get_streaming_output(void);

obs_source_t *obs_frontend_get_current_scene(void) {
    return obs_source_get_ref(application.scene);
}

obs_output_t *obs_frontend_get_streaming_output(void) {
    application.streams++;
    return NULL; /* nothing is streamed */
}

/* The button creates a text source in the scene. The next caption appears in it. */
static void make_target(obs_source_t *filter) {
    obs_properties_t *props = obs_source_properties(filter);
    CHECK(obs_property_button_clicked(obs_properties_get(props, "make_target"), filter));
    obs_properties_destroy(props);
    CHECK(obs_scene_find_source(obs_scene_from_source(application.scene), "davy: answer") != NULL);
}

static void check_target(void) {
    char shown[4096] = "";
    obs_source_t *text = obs_get_source_by_name("davy: answer");
    if (CHECK(text != NULL)) {
        text_of(text, shown, sizeof shown);
        CHECKF(strcmp(shown, heard.text) == 0, "the new text source says '%s'", shown);
        obs_source_release(text);
    }
}

static void wait_for_captions(int n) {
    for (int i = 0; i < 1200 && heard.signals < n; i++) {
        os_sleep_ms(50);
    }
    CHECKF(heard.signals >= n, "%d captions, expected %d", heard.signals, n);
}

/* Two questions about each picture. There is one caption when the picture changes, none while it is still, one for the hotkey. */
static void test_asked(void) {
    enum { CHARACTERS = 50 };
    char file[1100];
    char too_long[3 * CHARACTERS + 1] = ""; /* for the prefix, whose limit cuts a character */
    for (int i = 0; i < CHARACTERS; i++) {
        memcpy(too_long + 3 * i, "\xe3\x81\x82", 4);
    }
    snprintf(file, sizeof file, "%s/models/davy-tiny-vlm", shared);
    if (!os_file_exists(file)) {
        return; /* test_caption reports the skip */
    }
    snprintf(file, sizeof file, "%s/golden/davy-tiny-vlm/case00.png", shared);
    obs_source_t *image = world_image("asked", file);
    obs_scene_t *scene = obs_scene_create("program");
    obs_scene_add(scene, image);
    application.scene = obs_scene_get_source(scene);
    world_show(application.scene);
    world_wait_frames(40);
    memset(&heard, 0, sizeof heard);
    obs_source_t *filter =
        world_filter(image, "davy_caption_filter",
                     "{\"model_path\":\"%s/models/davy-tiny-vlm\",\"follow_up\":\"What color is it?\",\"every\":false,"
                     "\"on_change\":true,\"max_tokens\":16,\"to_stream_cc\":true,\"prefix\":\"%s\"}",
                     shared, too_long);
    signal_handler_connect(obs_source_get_signal_handler(filter), "davy_caption", on_caption, NULL);
    wait_for_captions(1);
    CHECKF(strchr(heard.text, '\n') != NULL, "an answer is missing: %s", heard.text);
    obs_data_t *json = obs_data_create(); /* JSON is UTF-8 */
    obs_data_set_string(json, "text", heard.text);
    obs_data_t *read = obs_data_create_from_json(obs_data_get_json(json));
    CHECKF(read != NULL && strcmp(obs_data_get_string(read, "text"), heard.text) == 0, "not valid UTF-8: %s",
           heard.text);
    obs_data_release(read);
    obs_data_release(json);
    os_sleep_ms(1800); /* the filter compares three times */
    CHECKF(heard.signals == 1, "%d captions of one picture", heard.signals);
    CHECKF(application.streams == 1, "%d captions for the stream", application.streams);
    make_target(filter);
    CHECK(world_press("davy.caption.davy"));
    wait_for_captions(2);
    check_target();
    obs_data_t *settings = obs_data_create();
    snprintf(file, sizeof file, "%s/golden/davy-tiny-vlm/case01.png", shared);
    obs_data_set_string(settings, "file", file);
    obs_source_update(image, settings);
    obs_data_release(settings);
    wait_for_captions(3);
    check_target();
    world_unfilter(image, filter);
    world_show(NULL);
    obs_scene_release(scene);
    obs_source_release(image);
}

/* A missing folder appears in the status line. */
static void test_no_model(void) {
    obs_source_t *image = world_image("none", "/nowhere.png");
    obs_source_t *filter = world_filter(image, "davy_caption_filter", "{\"model_path\":\"/nowhere/at-all\"}");
    char status[700] = "";
    world_show(image);
    for (int i = 0; i < 10 && strstr(status, "at-all") == NULL; i++) {
        world_wait_frames(30);
        world_status(filter, status, sizeof status);
    }
    CHECKF(strstr(status, "/nowhere/at-all") != NULL, "the status says: %s", status);
    world_unfilter(image, filter);
    world_show(NULL);
    obs_source_release(image);
}

/* ---- a VAE ---- */

static void test_vae(void) {
    char weights[1024];
    char picture[1024];
    char status[700] = "";
    static uint8_t rgba[203 * 101 * 4];
    snprintf(weights, sizeof weights, "%s/models/tae/taef2_encoder.safetensors", shared);
    snprintf(picture, sizeof picture, "%s", world_file("odd.png"));
    if (!os_file_exists(weights)) {
        check_skip("the VAE: no models/tae/taef2_encoder.safetensors");
        return;
    }
    CHECK(world_picture(picture, 203, 101, true, rgba)); /* odd sides, multiples of no factor */
    obs_source_t *image = world_image("picture", picture);
    world_show(image);
    world_frame plain = world_grab(40);
    obs_source_t *filter = world_filter(image, "davy_vae_filter", "{\"model\":\"%s\",\"budget_ms\":10000}", weights);
    for (int i = 0; i < 40 && strstr(status, " computed") == NULL; i++) {
        world_wait_frames(30);
        world_status(filter, status, sizeof status);
    }
    CHECKF(strstr(status, " computed") != NULL, "the status says: %s", status);
    world_frame through = world_grab(12);
    double share = 0.0;
    world_difference(&plain, &through, 64, &share);
    CHECKF(share < 0.05, "%.1f %% of the values are off by more than 64", 100.0 * share);
    CHECK(world_difference(&plain, &through, 0, NULL) > 0);
    CHECK(obs_source_get_width(image) == 203 && obs_source_get_height(image) == 101);
    char out[1024];
    snprintf(out, sizeof out, "%s", world_file("vae.png"));
    world_save(out, &through);
    world_unfilter(image, filter);
    world_frame_free(&plain);
    world_frame_free(&through);
    world_show(NULL);
    obs_source_release(image);
}

/* davy decodes the lent latent. The result must be the picture that the filter shows. */
static void check_latent(obs_source_t *filter, const char *weights, const world_frame *shown, uint32_t width,
                         uint32_t height) {
    char decoder[1024];
    davy_library lib;
    davy_context *ctx = NULL;
    davy_model *model = NULL;
    calldata_t call;
    snprintf(decoder, sizeof decoder, "%s", weights);
    memcpy(strstr(decoder, "encoder"), "decoder", 7);
    const davy_context_desc cd = {.struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION, .device = "cpu"};
    const davy_source sources[] = {{.struct_size = sizeof(davy_source), .path = weights},
                                   {.struct_size = sizeof(davy_source), .path = decoder}};
    const davy_model_desc md = {.struct_size = sizeof md, .sources = sources, .n_sources = 2};
    calldata_init(&call);
    proc_handler_call(obs_source_get_proc_handler(filter), "davy_lend_latent", &call);
    const davy_tensor *lent = calldata_ptr(&call, "tensor");
    if (!CHECK(lent != NULL)) {
        calldata_free(&call);
        return;
    }
    CHECK(lent->dtype == DAVY_DTYPE_F32 && lent->ndim == 3 && lent->buffer != NULL && calldata_int(&call, "frame") > 0);
    const davy_tensor z = *lent;
    davy_model_info info = {.struct_size = sizeof info};
    CHECK(davy_load(&lib, NULL, DAVY_ABI_1_0) == DAVY_OK && lib.api->context_create(&cd, &ctx) == DAVY_OK &&
          lib.api->model_open(ctx, &md, &model) == DAVY_OK && lib.api->model_info(model, &info) == DAVY_OK);
    const uint32_t step = (uint32_t)info.spatial_factor;
    const uint32_t padded[2] = {(uint32_t)z.shape[1] * step, (uint32_t)z.shape[0] * step};
    CHECK(padded[0] >= width && padded[0] < width + 2 * step && padded[1] >= height && padded[1] < height + 2 * step);
    uint8_t *rgb = malloc((size_t)padded[0] * padded[1] * 3);
    davy_tensor out = {.struct_size = sizeof out, .dtype = DAVY_DTYPE_U8, .layout = DAVY_LAYOUT_HWC, .ndim = 3};
    out.data = (uint64_t)(uintptr_t)rgb;
    out.shape[0] = padded[1];
    out.shape[1] = padded[0];
    out.shape[2] = 3;
    CHECK(lib.api->vae_decode(model, &z, &out, NULL, NULL) == DAVY_OK);
    size_t beyond = 0;
    for (uint32_t i = 0; i < width * height * 3; i++) {
        const uint32_t x = i / 3 % width;
        const uint32_t y = i / 3 / width;
        const int is = shown->pixels[4 * ((size_t)y * shown->width + x) + 2 - i % 3];
        beyond += abs(is - (int)rgb[3 * ((size_t)y * padded[0] + x) + i % 3]) > 1;
    }
    CHECKF(beyond <= width * height * 3 / 1000, "%d values of the picture differ from the decoded latent", (int)beyond);
    proc_handler_call(obs_source_get_proc_handler(filter), "davy_return_latent", &call);
    calldata_free(&call);
    free(rgb);
    lib.api->model_release(model);
    lib.api->context_release(ctx);
}

static void test_latent(void) {
    char weights[1024];
    char picture[1024];
    char status[700] = "";
    static uint8_t rgba[203 * 101 * 4];
    snprintf(weights, sizeof weights, "%s/models/tae/taef2_encoder.safetensors", shared);
    snprintf(picture, sizeof picture, "%s", world_file("whole.png"));
    if (!os_file_exists(weights)) {
        check_skip("the latent: no models/tae/taef2_encoder.safetensors");
        return;
    }
    CHECK(world_picture(picture, 203, 101, false, rgba));
    obs_source_t *image = world_image("latent", picture);
    world_show(image);
    obs_source_t *filter =
        world_filter(image, "davy_vae_filter",
                     "{\"model\":\"%s\",\"budget_ms\":10000,\"latent_bits\":4,\"latent_strength\":0.9}", weights);
    for (int i = 0; i < 60 && strstr(status, " computed") == NULL; i++) {
        world_wait_frames(30);
        world_status(filter, status, sizeof status);
    }
    world_frame shown = world_grab(12);
    check_latent(filter, weights, &shown, 203, 101);
    world_frame_free(&shown);
    world_unfilter(image, filter);
    world_show(NULL);
    obs_source_release(image);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: test_obs_caption MODULE DATA WORK_FOLDER SHARED\n");
        return 2;
    }
    snprintf(shared, sizeof shared, "%s", argv[4]);
    world_folder(argv[3]);
    if (!world_open(CANVAS, CANVAS, 60, argv[1], argv[2]) || !world_module("image-source") ||
        !world_module("text-freetype2")) {
        printf("skipped: no display or no OBS\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    test_no_model();
    test_caption();
    test_asked();
    test_vae();
    test_latent();
    const long left = world_close();
    CHECKF(left == 0, "libobs counts %ld leaked allocations", left);
    return check_done();
}
