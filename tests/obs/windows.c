/* windows.c - the Windows module with a mock obs.dll (fake_obs.c). It loads, registers its filters, loads a model on its own thread,
 * shows davy's result for a picture, and unloads. With "d3d11" the same with OBS's textures and a mock CUDA driver's memory, before
 * and after the loss of the graphics device.
 * usage: obs_module MODULE_FOLDER OUT_FOLDER [d3d11] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <obs-module.h>

#include "abi/davy_loader.h"
#include "tests/lib/check.h"

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

static struct {
    const uint8_t *(*shown)(uint32_t *, uint32_t *);
    bool (*change_device)(void);
    int (*copies)(void); /* of the mock driver; NULL: pictures go through host memory */
} fake;

/* Draws frames until a picture of the right size is shown, for a minute at most. */
static const uint8_t *drawn(const struct obs_source_info *info, void *filter) {
    for (int i = 0; i < 12000; i++) {
        uint32_t width = 0;
        uint32_t height = 0;
        info->video_tick(filter, 0.005f);
        info->video_render(filter, NULL);
        const uint8_t *pixels = fake.shown(&width, &height);
        if (pixels != NULL && width == 2 * WIDTH && height == 2 * HEIGHT) {
            return pixels;
        }
        Sleep(5);
    }
    return NULL;
}

static void equals(const uint8_t *pixels, const uint8_t *want, size_t bytes) {
    size_t beyond = 0;
    for (size_t i = 0; pixels != NULL && i < bytes; i++) {
        beyond += abs((int)pixels[i] - (int)want[i]) > 1;
    }
    CHECKF(pixels != NULL && beyond * 1000 <= bytes, "%d values differ from davy's", (int)beyond);
}

static void show(const struct obs_source_info *info) {
    static uint8_t want[WIDTH * HEIGHT * 16];
    obs_data_t *none = NULL;
    CHECK(upscaled_by_davy(want));
    info->get_defaults(none);
    void *filter = info->create(none, (obs_source_t *)want);
    CHECK(filter != NULL);
    equals(drawn(info, filter), want, sizeof want);
    CHECK(info->get_width(filter) == 2 * WIDTH && info->get_height(filter) == 2 * HEIGHT);
    const int copies = fake.copies != NULL ? fake.copies() : 0;
    CHECKF(fake.copies == NULL || copies >= 2, "%d copies between textures and memory", copies);
    if (fake.copies != NULL) {
        CHECK(fake.change_device()); /* checks that no object of the old device is left */
        equals(drawn(info, filter), want, sizeof want);
        CHECKF(fake.copies() >= copies + 2, "%d copies, then %d", copies, fake.copies());
    }
    info->destroy(filter);
}

/* Loads the mock driver and selects Direct3D. false: the driver is missing. */
static bool on_d3d11(void) {
    wchar_t driver[MAX_PATH + 32] = L"";
    GetModuleFileNameW(NULL, driver, MAX_PATH);
    wchar_t *name = wcsrchr(driver, L'\\');
    wcscpy(name != NULL ? name + 1 : driver, L"fake_d3d11_cuda.dll");
    HMODULE played = LoadLibraryW(driver);
    if (!CHECK(played != NULL)) {
        return false;
    }
    void *copies = symbol(played, "fake_copies");
    memcpy(&fake.copies, &copies, sizeof fake.copies);
    _putenv("FAKE_OBS_D3D11=1");
    _wputenv_s(L"DAVY_CUDA_DRIVER", driver);
    return true;
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[3], "d3d11") == 0 && !on_d3d11()) {
        return check_done();
    }
    HMODULE obs = LoadLibraryW(L"obs.dll");
    HMODULE module = LoadLibraryW(L"davy-obs.dll");
    if (!CHECK(obs != NULL && module != NULL)) {
        return check_done();
    }
    bool (*load)(void) = NULL;
    void (*unload)(void) = NULL;
    uint32_t (*version)(void) = NULL;
    void *(*info)(const char *) = NULL;
    void *(*device)(void) = NULL;
    void *found[] = {symbol(module, "obs_module_load"), symbol(module, "obs_module_unload"),
                     symbol(module, "obs_module_ver"),  symbol(obs, "fake_info"),
                     symbol(obs, "fake_shown"),         symbol(obs, "fake_pixel"),
                     symbol(obs, "fake_change_device"), symbol(obs, "gs_get_device_obj")};
    memcpy(&load, &found[0], sizeof load);
    memcpy(&unload, &found[1], sizeof unload);
    memcpy(&version, &found[2], sizeof version);
    memcpy(&info, &found[3], sizeof info);
    memcpy(&fake.shown, &found[4], sizeof fake.shown);
    memcpy(&fake_pixel, &found[5], sizeof fake_pixel);
    memcpy(&fake.change_device, &found[6], sizeof fake.change_device);
    memcpy(&device, &found[7], sizeof device);
    if (fake.copies != NULL && device() == NULL) {
        check_skip("no Direct3D 11");
        return check_done();
    }
    CHECK(symbol(module, "obs_module_set_pointer") != NULL && symbol(module, "obs_module_post_load") != NULL);
    CHECK(version() >> 24 == 29);
    CHECK(load());
    CHECK(info("davy_vae_filter") != NULL && info("davy_caption_filter") != NULL);
    const struct obs_source_info *upscale = info("davy_upscale_filter");
    if (CHECK(upscale != NULL)) {
        show(upscale);
    }
    unload();
    FreeLibrary(module);
    return check_done();
}
