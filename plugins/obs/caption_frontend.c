/* caption_frontend.c - functions of the OBS application, looked up at run time: the running stream and the current scene. */
#if !defined(_WIN32)
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#else
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#endif
#include <stdio.h>
#include <string.h>

#include "caption.h"

static bool application_has(const char *name, void *to) {
#if defined(_WIN32)
    HMODULE frontend = GetModuleHandleW(L"obs-frontend-api.dll");
    FARPROC symbol = frontend != NULL ? GetProcAddress(frontend, name) : NULL;
#else
    void *symbol = dlsym(RTLD_DEFAULT, name);
#endif
    memcpy(to, &symbol, sizeof symbol);
    return symbol != NULL;
}

void caption_to_stream(const char *text, double seconds) {
    obs_output_t *(*streaming)(void) = NULL;
    obs_output_t *stream = application_has("obs_frontend_get_streaming_output", &streaming) ? streaming() : NULL;
    if (stream != NULL) {
        obs_output_output_caption_text2(stream, text, seconds);
        obs_output_release(stream);
    }
}

/* Creates a text source near the lower left corner of the scene. */
static obs_source_t *new_text(obs_source_t *scene, const char *name) {
#if defined(_WIN32)
    const char *id = obs_get_latest_input_type_id("text_gdiplus");
#else
    const char *id = obs_get_latest_input_type_id("text_ft2_source");
#endif
    obs_source_t *text = id != NULL ? obs_source_create(id, name, NULL, NULL) : NULL;
    obs_sceneitem_t *item = text != NULL ? obs_scene_add(obs_scene_from_source(scene), text) : NULL;
    if (item != NULL) {
        const struct vec2 at = {.x = 0.05f * (float)obs_source_get_base_width(scene),
                                .y = 0.85f * (float)obs_source_get_base_height(scene)};
        obs_sceneitem_set_pos(item, &at);
    }
    return text;
}

bool caption_make_target(obs_source_t *filter) {
    char name[512];
    obs_source_t *(*current)(void) = NULL;
    obs_source_t *scene = application_has("obs_frontend_get_current_scene", &current) ? current() : NULL;
    snprintf(name, sizeof name, "%s: %s", obs_source_get_name(filter), obs_module_text("Davy.Caption.TextSource"));
    obs_source_t *text = scene != NULL ? obs_get_source_by_name(name) : NULL;
    if (scene != NULL && text == NULL) {
        text = new_text(scene, name);
    }
    const bool made = text != NULL;
    if (made) {
        obs_data_t *settings = obs_data_create();
        obs_data_set_string(settings, "target_source", name);
        obs_source_update(filter, settings);
        obs_data_release(settings);
        obs_source_release(text);
    }
    if (scene != NULL) {
        obs_source_release(scene);
    }
    if (!made) {
        plugin_log(LOG_WARNING, "text source cannot be created: %s", scene != NULL ? name : "no current scene");
    }
    return made;
}
