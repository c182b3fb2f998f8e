/* fake_obs.c - a mock obs.dll with the functions that load the Windows module. fake_obs_graphics.c has those that draw a picture
 * through a filter. All other functions return 0. Built for Windows; windows.c uses it. */
#include "fake_obs.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 80, HEIGHT = 60, LARGEST_INFO = 1024 };

/* ---- for windows.c ---- */

static char infos[8][LARGEST_INFO];
static int n_infos;

API void *fake_info(const char *id) {
    for (int i = 0; i < n_infos; i++) {
        const char *name = NULL;
        memcpy(&name, infos[i], sizeof name); /* the first member */
        if (strcmp(name, id) == 0) {
            return infos[i];
        }
    }
    return NULL;
}

API void fake_pixel(uint32_t x, uint32_t y, uint8_t out[4]) {
    out[0] = (uint8_t)(x * 3);
    out[1] = (uint8_t)(y * 4);
    out[2] = (uint8_t)((x / 6 + y / 5) % 2 * 200);
    out[3] = 255;
}

/* ---- module ---- */

API void obs_register_source_s(const void *info, size_t bytes) {
    if (n_infos < 8 && bytes <= LARGEST_INFO) {
        memcpy(infos[n_infos++], info, bytes);
    }
}

API void blog(int level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%d: ", level);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

API void *bmalloc(size_t bytes) {
    return malloc(bytes > 0 ? bytes : 1);
}

API void bfree(void *memory) {
    free(memory);
}

API void *bmemdup(const void *from, size_t bytes) {
    void *to = bmalloc(bytes);
    memcpy(to, from, bytes);
    return to;
}

API const char *obs_get_version_string(void) {
    return "none";
}

API char *obs_find_module_file(void *module, const char *file) {
    const char *models = getenv("DAVY_TEST_MODELS");
    (void)module;
    return models != NULL && strcmp(file, "models") == 0 ? bmemdup(models, strlen(models) + 1)
           : strstr(file, ".effect") != NULL             ? bmemdup(file, strlen(file) + 1)
                                                         : NULL;
}

/* ---- settings: one set ---- */

static struct setting {
    char key[64], text[256];
    double number;
} settings[64];
static int n_settings;

static struct setting *setting(const char *key) {
    for (int i = 0; i < n_settings; i++) {
        if (strcmp(settings[i].key, key) == 0) {
            return &settings[i];
        }
    }
    struct setting *s = &settings[n_settings < 63 ? n_settings++ : 63];
    snprintf(s->key, sizeof s->key, "%s", key);
    return s;
}

API void obs_data_set_default_string(void *data, const char *key, const char *value) {
    (void)data;
    snprintf(setting(key)->text, sizeof settings[0].text, "%s", value);
}

API void obs_data_set_default_double(void *data, const char *key, double value) {
    (void)data;
    setting(key)->number = value;
}

API void obs_data_set_default_int(void *data, const char *key, long long value) {
    obs_data_set_default_double(data, key, (double)value);
}

API void obs_data_set_default_bool(void *data, const char *key, char value) {
    obs_data_set_default_double(data, key, value);
}

API const char *obs_data_get_string(void *data, const char *key) {
    (void)data;
    return setting(key)->text;
}

API double obs_data_get_double(void *data, const char *key) {
    (void)data;
    return setting(key)->number;
}

API long long obs_data_get_int(void *data, const char *key) {
    return (long long)obs_data_get_double(data, key);
}

API char obs_data_get_bool(void *data, const char *key) {
    return obs_data_get_double(data, key) != 0.0;
}

/* ---- the source below the filter ---- */

API void *obs_filter_get_target(void *filter) {
    return filter;
}

API void *obs_filter_get_parent(void *filter) {
    return filter;
}

API uint32_t obs_source_get_base_width(void *source) {
    (void)source;
    return WIDTH;
}

API uint32_t obs_source_get_base_height(void *source) {
    (void)source;
    return HEIGHT;
}

API const char *obs_source_get_name(void *source) {
    (void)source;
    return "fake";
}

API void obs_source_default_render(void *source) {
    (void)source;
    for (uint32_t i = 0; target != NULL && i < target->width * target->height; i++) {
        fake_pixel(i % target->width, i / target->width, target->pixels + 4 * (size_t)i);
    }
}

API float obs_get_video_sdr_white_level(void) {
    return 300.0f;
}

/* ---- functions without an effect ---- */

#define NOTHING(name)                                                                                                  \
    API intptr_t name(void);                                                                                           \
    API intptr_t name(void) {                                                                                          \
        return 0;                                                                                                      \
    }

NOTHING(calldata_get_data)
NOTHING(calldata_get_string)
NOTHING(calldata_set_data)
NOTHING(gs_blend_function)
NOTHING(gs_blend_function_separate)
NOTHING(gs_blend_state_pop)
NOTHING(gs_blend_state_push)
NOTHING(gs_clear)
NOTHING(gs_copy_texture)
NOTHING(gs_effect_destroy)
NOTHING(gs_effect_get_param_by_name)
NOTHING(gs_effect_set_float)
NOTHING(gs_effect_set_vec2)
NOTHING(gs_enable_framebuffer_srgb)
NOTHING(gs_framebuffer_srgb_enabled)
NOTHING(gs_get_color_space)
NOTHING(gs_ortho)
NOTHING(gs_stagesurface_unmap)
NOTHING(gs_texrender_reset)
NOTHING(gs_texture_get_color_format)
NOTHING(obs_data_array_create)
NOTHING(obs_data_array_push_back)
NOTHING(obs_data_array_release)
NOTHING(obs_data_create)
NOTHING(obs_data_release)
NOTHING(obs_data_set_array)
NOTHING(obs_data_set_bool)
NOTHING(obs_data_set_double)
NOTHING(obs_data_set_int)
NOTHING(obs_data_set_string)
NOTHING(obs_enter_graphics)
NOTHING(obs_enum_scenes)
NOTHING(obs_enum_sources)
NOTHING(obs_get_base_effect)
NOTHING(obs_get_latest_input_type_id)
NOTHING(obs_get_proc_handler)
NOTHING(obs_get_source_by_name)
NOTHING(obs_get_video_info)
NOTHING(obs_hotkey_register_source)
NOTHING(obs_hotkey_unregister)
NOTHING(obs_leave_graphics)
NOTHING(obs_missing_file_create)
NOTHING(obs_missing_files_add_file)
NOTHING(obs_missing_files_create)
NOTHING(obs_module_get_config_path)
NOTHING(obs_module_load_locale)
NOTHING(obs_output_output_caption_text2)
NOTHING(obs_output_release)
NOTHING(obs_properties_add_bool)
NOTHING(obs_properties_add_button2)
NOTHING(obs_properties_add_float_slider)
NOTHING(obs_properties_add_group)
NOTHING(obs_properties_add_int)
NOTHING(obs_properties_add_list)
NOTHING(obs_properties_add_path)
NOTHING(obs_properties_add_text)
NOTHING(obs_properties_create)
NOTHING(obs_properties_get)
NOTHING(obs_properties_set_param)
NOTHING(obs_property_int_set_suffix)
NOTHING(obs_property_list_add_int)
NOTHING(obs_property_list_add_string)
NOTHING(obs_property_list_clear)
NOTHING(obs_property_list_item_disable)
NOTHING(obs_property_set_long_description)
NOTHING(obs_property_set_modified_callback)
NOTHING(obs_property_set_visible)
NOTHING(obs_property_text_set_info_type)
NOTHING(obs_scene_add)
NOTHING(obs_scene_from_source)
NOTHING(obs_sceneitem_set_pos)
NOTHING(obs_source_create)
NOTHING(obs_source_enabled)
NOTHING(obs_source_enum_filters)
NOTHING(obs_source_get_color_space)
NOTHING(obs_source_get_output_flags)
NOTHING(obs_source_get_proc_handler)
NOTHING(obs_source_get_ref)
NOTHING(obs_source_get_settings)
NOTHING(obs_source_get_signal_handler)
NOTHING(obs_source_get_unversioned_id)
NOTHING(obs_source_get_weak_source)
NOTHING(obs_source_release)
NOTHING(obs_source_set_enabled)
NOTHING(obs_source_skip_video_filter)
NOTHING(obs_source_update)
NOTHING(obs_source_update_properties)
NOTHING(obs_source_video_render)
NOTHING(obs_weak_source_get_source)
NOTHING(obs_weak_source_release)
NOTHING(os_closedir)
NOTHING(os_file_exists)
NOTHING(os_opendir)
NOTHING(os_quick_write_utf8_file_safe)
NOTHING(os_readdir)
NOTHING(proc_handler_add)
NOTHING(proc_handler_call)
NOTHING(profile_end)
NOTHING(profile_start)
NOTHING(signal_handler_add)
NOTHING(signal_handler_signal)
NOTHING(text_lookup_destroy)
NOTHING(text_lookup_getstr)
