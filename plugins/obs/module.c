/* module.c - the entry points that libobs calls. The filters are registered even without libdavy, and their status gives the reason. */
#include "plugin.h"

#include <string.h>

#include "abi/davy_loader.h"

#include "caption.h"

OBS_DECLARE_MODULE()
OBS_MODULE_USE_DEFAULT_LOCALE("davy-obs", "en-US")

static davy_library library;

MODULE_EXPORT const char *obs_module_name(void) {
    return "davy";
}

MODULE_EXPORT const char *obs_module_description(void) {
    return obs_module_text("Davy.Description");
}

const davy_api *plugin_davy(const char **why) {
    if (why != NULL) {
        *why = library.api != NULL ? "" : library.error;
    }
    return library.api;
}

#if defined(_WIN32)
static void come_back(void *device, void *data) {
    (void)device;
    (void)data; /* the filters create resources again on demand */
}

void plugin_tell_loss(void (*lost)(void *data), void *data) {
    const struct gs_device_loss calls = {.device_loss_release = lost, .device_loss_rebuild = come_back, .data = data};
    obs_enter_graphics();
    gs_register_loss_callbacks(&calls);
    obs_leave_graphics();
}

void plugin_forget_loss(void *data) {
    gs_unregister_loss_callbacks(data);
}
#else
void plugin_tell_loss(void (*lost)(void *data), void *data) {
    (void)lost;
    (void)data;
}

void plugin_forget_loss(void *data) {
    (void)data;
}
#endif

/* An installation for one user has the library in the data folder. */
static void load_from_data(void) {
    char *path = obs_module_file("lib/" DAVY_LOADER_NAME);
    if (path != NULL) {
        davy_library other;
        if (davy_load(&other, path, DAVY_ABI_1_0) == DAVY_OK) {
            library = other;
        }
        bfree(path);
    }
}

bool obs_module_load(void) {
    if (davy_load(&library, NULL, DAVY_ABI_1_0) != DAVY_OK) {
        load_from_data();
    }
    if (library.api != NULL) {
        plugin_log(LOG_INFO, "plugin %s, libdavy %s, libobs %s", DAVY_OBS_VERSION, library.api->version(),
                   obs_get_version_string());
    } else {
        plugin_log(LOG_WARNING, "plugin %s, libdavy is missing: %s", DAVY_OBS_VERSION, library.error);
    }
    obs_register_source(&davy_upscale_filter);
    obs_register_source(&davy_vae_filter);
    obs_register_source(&davy_caption_filter);
    return true;
}

void obs_module_post_load(void) {
    vendor_open();
}

void obs_module_unload(void) {
    vendor_close();
    engine_stop_all();
    davy_unload(&library);
}
