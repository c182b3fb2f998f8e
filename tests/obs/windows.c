/* windows.c - the Windows module with a played obs.dll (fake_obs.c): it loads, registers its filters, loads a model on a thread
 * of its own and shows what davy makes of a picture; and it goes again. usage: obs_module MODULE_FOLDER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <obs-module.h>

#include "abi/davy_loader.h"
#include "tests/check.h"

enum { WIDTH = 80, HEIGHT = 60 };

static void *symbol(HMODULE library, const char *name) {
    FARPROC f = GetProcAddress(library, name);
    void *address = NULL;
    memcpy(&address, &f, sizeof address);
    CHECKF(address != NULL, "%s is not exported", name);
    return address;
}

static void (*fake_pixel)(uint32_t, uint32_t, uint8_t *);

static bool upscaled_by_davy(uint8_t *out) {
    static uint8_t rgba[WIDTH * HEIGHT * 4];
    davy_library lib;
    davy_context *ctx = NULL;
    davy_model *model = NULL;
    const davy_option models = {"models_dir", getenv("DAVY_TEST_MODELS")};
    const davy_context_desc cd = {
        .struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION, .device = "cpu", .options = &models, .n_options = 1};
    const davy_source source = {.struct_size = sizeof source, .name = "davy-live-x2"};
    const davy_model_desc md = {.struct_size = sizeof md, .sources = &source, .n_sources = 1};
    davy_tensor in = {.struct_size = sizeof in,
                      .dtype = DAVY_DTYPE_U8,
                      .layout = DAVY_LAYOUT_HWC,
                      .channels = DAVY_CHANNELS_RGBA,
                      .ndim = 3,
                      .data = (uint64_t)(uintptr_t)rgba,
                      .shape = {HEIGHT, WIDTH, 4}};
    davy_tensor to = in;
    to.data = (uint64_t)(uintptr_t)out;
    to.shape[0] = 2 * HEIGHT;
    to.shape[1] = 2 * WIDTH;
    for (uint32_t i = 0; i < WIDTH * HEIGHT; i++) {
        fake_pixel(i % WIDTH, i / WIDTH, rgba + 4 * i);
    }
    const bool ok = davy_load(&lib, NULL, DAVY_ABI_1_0) == DAVY_OK && lib.api->context_create(&cd, &ctx) == DAVY_OK &&
                    lib.api->model_open(ctx, &md, &model) == DAVY_OK &&
                    lib.api->upscale(model, &in, &to, NULL, NULL) == DAVY_OK;
    if (lib.api != NULL) {
        lib.api->model_release(model);
        lib.api->context_release(ctx);
    }
    return ok;
}

static void show(const struct obs_source_info *info, const uint8_t *(*shown)(uint32_t *, uint32_t *)) {
    static uint8_t want[WIDTH * HEIGHT * 16];
    uint32_t width = 0;
    uint32_t height = 0;
    const uint8_t *pixels = NULL;
    obs_data_t *none = NULL;
    CHECK(upscaled_by_davy(want));
    info->get_defaults(none);
    void *filter = info->create(none, (obs_source_t *)want);
    CHECK(filter != NULL);
    for (int i = 0; i < 12000 && width != 2 * WIDTH; i++) {
        info->video_tick(filter, 0.005f);
        info->video_render(filter, NULL);
        pixels = shown(&width, &height);
        Sleep(5);
    }
    CHECK(info->get_width(filter) == 2 * WIDTH && info->get_height(filter) == 2 * HEIGHT);
    if (CHECK(width == 2 * WIDTH && height == 2 * HEIGHT && pixels != NULL)) {
        size_t beyond = 0;
        for (size_t i = 0; i < sizeof want; i++) {
            beyond += abs((int)pixels[i] - (int)want[i]) > 1;
        }
        CHECKF(beyond * 1000 <= sizeof want, "%d numbers are not those that davy makes", (int)beyond);
    }
    info->destroy(filter);
}

int main(void) {
    HMODULE obs = LoadLibraryW(L"obs.dll");
    HMODULE module = LoadLibraryW(L"davy-obs.dll");
    if (!CHECK(obs != NULL && module != NULL)) {
        return check_done();
    }
    bool (*load)(void) = NULL;
    void (*unload)(void) = NULL;
    uint32_t (*version)(void) = NULL;
    void *(*info)(const char *) = NULL;
    const uint8_t *(*shown)(uint32_t *, uint32_t *) = NULL;
    void *found[] = {symbol(module, "obs_module_load"), symbol(module, "obs_module_unload"),
                     symbol(module, "obs_module_ver"),  symbol(obs, "fake_info"),
                     symbol(obs, "fake_shown"),         symbol(obs, "fake_pixel")};
    memcpy(&load, &found[0], sizeof load);
    memcpy(&unload, &found[1], sizeof unload);
    memcpy(&version, &found[2], sizeof version);
    memcpy(&info, &found[3], sizeof info);
    memcpy(&shown, &found[4], sizeof shown);
    memcpy(&fake_pixel, &found[5], sizeof fake_pixel);
    CHECK(symbol(module, "obs_module_set_pointer") != NULL && symbol(module, "obs_module_post_load") != NULL);
    CHECK(version() >> 24 == 29);
    CHECK(load());
    CHECK(info("davy_vae_filter") != NULL && info("davy_caption_filter") != NULL);
    const struct obs_source_info *upscale = info("davy_upscale_filter");
    if (CHECK(upscale != NULL)) {
        show(upscale, shown);
    }
    unload();
    FreeLibrary(module);
    return check_done();
}
