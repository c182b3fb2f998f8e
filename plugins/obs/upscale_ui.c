/* upscale_ui.c - the upscaling filter's settings, dialog and status line. Keys are saved in scene collections: never
 * renamed. */
#include <stdio.h>
#include <string.h>

#include <util/platform.h>

#include "upscale.h"

#define BROWSE        "browse"
#define STATUS_OFTEN  1.0f /* seconds; a new text rebuilds the open dialog */
#define STATUS_SELDOM 10.0f

static const char *say(const char *key) {
    return obs_module_text(key);
}

void upscale_defaults(obs_data_t *settings) {
    obs_data_set_default_string(settings, "model", "");
    obs_data_set_default_string(settings, "model_path", "");
    obs_data_set_default_int(settings, "scale", 2);
    obs_data_set_default_string(settings, "device", "auto");
    obs_data_set_default_string(settings, "precision", "auto");
    obs_data_set_default_int(settings, "budget_ms", 50);
    obs_data_set_default_bool(settings, "keep_loaded", false);
    obs_data_set_default_string(settings, "hdr_mode", "preserve");
}

void upscale_read(obs_data_t *settings, upscale_settings *out) {
    memset(out, 0, sizeof *out);
    const char *model = obs_data_get_string(settings, "model");
    const char *path = obs_data_get_string(settings, "model_path");
    snprintf(out->model, sizeof out->model, "%s", strcmp(model, BROWSE) == 0 ? path : model);
    snprintf(out->device, sizeof out->device, "%s", obs_data_get_string(settings, "device"));
    snprintf(out->precision, sizeof out->precision, "%s", obs_data_get_string(settings, "precision"));
    out->scale = (int)obs_data_get_int(settings, "scale");
    out->budget_ms = (int)obs_data_get_int(settings, "budget_ms");
    out->keep_loaded = obs_data_get_bool(settings, "keep_loaded");
    out->tone_map = strcmp(obs_data_get_string(settings, "hdr_mode"), "tonemap") == 0;
}

/* ---- the dialog ---- */

static bool is_model(const char *file) {
    const char *dot = strrchr(file, '.');
    return dot != NULL && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".pth") == 0 || strcmp(dot, ".pt") == 0);
}

/* What lies in the user's folder of models, plugin_config/davy-obs/models. */
static void add_users_models(obs_property_t *list) {
    char *folder = obs_module_config_path("models");
    os_dir_t *dir = folder != NULL ? os_opendir(folder) : NULL;
    for (struct os_dirent *entry = NULL; dir != NULL && (entry = os_readdir(dir)) != NULL;) {
        char path[2048];
        if (!entry->directory && is_model(entry->d_name) &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path) {
            obs_property_list_add_string(list, entry->d_name, path);
        }
    }
    if (dir != NULL) {
        os_closedir(dir);
    }
    bfree(folder);
}

static bool model_chosen(obs_properties_t *props, obs_property_t *list, obs_data_t *settings) {
    (void)list;
    const bool browse = strcmp(obs_data_get_string(settings, "model"), BROWSE) == 0;
    obs_property_set_visible(obs_properties_get(props, "model_path"), browse);
    return true;
}

static void add_model(obs_properties_t *props) {
    obs_property_t *list = obs_properties_add_list(props, "model", say("Davy.Upscale.Model"), OBS_COMBO_TYPE_LIST,
                                                   OBS_COMBO_FORMAT_STRING);
    obs_property_list_add_string(list, say("Davy.Upscale.Model.Live"), "");
    add_users_models(list);
    obs_property_list_add_string(list, say("Davy.Upscale.Model.Browse"), BROWSE);
    obs_property_set_long_description(list, say("Davy.Upscale.Model.Tip"));
    obs_property_set_modified_callback(list, model_chosen);
    obs_properties_add_path(props, "model_path", say("Davy.Upscale.ModelPath"), OBS_PATH_FILE,
                            "Models (*.safetensors *.pth *.pt);;All (*.*)", NULL);
}

static void add_scale(obs_properties_t *props) {
    obs_property_t *list =
        obs_properties_add_list(props, "scale", say("Davy.Upscale.Scale"), OBS_COMBO_TYPE_LIST, OBS_COMBO_FORMAT_INT);
    obs_property_list_add_int(list, "2x", 2);
    obs_property_list_add_int(list, "3x", 3);
    obs_property_list_add_int(list, "4x", 4);
    obs_property_list_add_int(list, "1x", 1);
    obs_property_list_add_int(list, say("Davy.Upscale.Scale.1080"), SCALE_1080P);
    obs_property_list_add_int(list, say("Davy.Upscale.Scale.1440"), -1440);
    obs_property_list_add_int(list, say("Davy.Upscale.Scale.2160"), -2160);
    obs_property_list_add_int(list, say("Davy.Upscale.Scale.Canvas"), SCALE_CANVAS);
    obs_property_list_add_int(list, say("Davy.Upscale.Scale.Model"), SCALE_MODEL);
    obs_property_set_long_description(list, say("Davy.Upscale.Scale.Tip"));
}

static void add_device(obs_properties_t *props) {
    obs_property_t *list =
        obs_properties_add_list(props, "device", say("Davy.Device"), OBS_COMBO_TYPE_LIST, OBS_COMBO_FORMAT_STRING);
    const davy_api *api = plugin_davy(NULL);
    int32_t count = 0;
    obs_property_list_add_string(list, say("Davy.Device.Auto"), "auto");
    if (api == NULL || api->device_count(NULL, &count) != DAVY_OK) {
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        davy_device_info info = {.struct_size = sizeof info};
        char label[512];
        if (api->device_info(NULL, i, &info) == DAVY_OK) {
            const bool usable = info.reason[0] == '\0';
            snprintf(label, sizeof label, "%s%s%s", info.name, usable ? "" : ": ", info.reason);
            const size_t item = obs_property_list_add_string(list, label, info.selector);
            obs_property_list_item_disable(list, item, !usable);
        }
    }
}

static void add_advanced(obs_properties_t *props) {
    obs_properties_t *group = obs_properties_create();
    obs_property_t *p = obs_properties_add_list(group, "precision", say("Davy.Precision"), OBS_COMBO_TYPE_LIST,
                                                OBS_COMBO_FORMAT_STRING);
    obs_property_list_add_string(p, say("Davy.Precision.Auto"), "auto");
    obs_property_list_add_string(p, "fp16", "fp16");
    obs_property_list_add_string(p, "bf16", "bf16");
    obs_property_list_add_string(p, "fp32", "fp32");
    p = obs_properties_add_int(group, "budget_ms", say("Davy.Budget"), 1, 10000, 1);
    obs_property_int_set_suffix(p, " ms");
    obs_property_set_long_description(p, say("Davy.Budget.Tip"));
    p = obs_properties_add_list(group, "hdr_mode", say("Davy.Hdr"), OBS_COMBO_TYPE_LIST, OBS_COMBO_FORMAT_STRING);
    obs_property_list_add_string(p, say("Davy.Hdr.Preserve"), "preserve");
    obs_property_list_add_string(p, say("Davy.Hdr.ToneMap"), "tonemap");
    p = obs_properties_add_bool(group, "keep_loaded", say("Davy.KeepLoaded"));
    obs_property_set_long_description(p, say("Davy.KeepLoaded.Tip"));
    obs_properties_add_group(props, "advanced", say("Davy.Advanced"), OBS_GROUP_NORMAL, group);
}

obs_properties_t *upscale_properties(void *data) {
    upscale *u = data;
    obs_properties_t *props = obs_properties_create();
    char status[sizeof u->status] = "";
    int kind = OBS_TEXT_INFO_NORMAL;
    if (u != NULL) {
        plugin_lock_take(&u->lock);
        memcpy(status, u->status, sizeof status);
        kind = u->status_kind;
        plugin_lock_give(&u->lock);
    }
    obs_property_t *line = obs_properties_add_text(props, "status", status, OBS_TEXT_INFO);
    obs_property_text_set_info_type(line, (enum obs_text_info_type)kind);
    add_model(props);
    add_scale(props);
    add_device(props);
    add_advanced(props);
    return props;
}

static void model_found(void *data, const char *path, void *unused) {
    upscale *u = data;
    (void)unused;
    obs_data_t *settings = obs_source_get_settings(u->context);
    obs_data_set_string(settings, "model", BROWSE);
    obs_data_set_string(settings, "model_path", path);
    obs_source_update(u->context, settings);
    obs_data_release(settings);
}

obs_missing_files_t *upscale_missing_files(void *data) {
    upscale *u = data;
    obs_missing_files_t *files = obs_missing_files_create();
    upscale_settings now;
    obs_data_t *settings = obs_source_get_settings(u->context);
    upscale_read(settings, &now);
    obs_data_release(settings);
    if (now.model[0] != '\0' && !os_file_exists(now.model)) {
        obs_missing_files_add_file(
            files, obs_missing_file_create(now.model, model_found, OBS_MISSING_FILE_SOURCE, u->context, NULL));
    }
    return files;
}

/* ---- the status line ---- */

static int describe(const upscale *u, bool numbers, char *out, size_t bytes) {
    const engine_state state = u->engine != NULL ? engine_look(u->engine) : ENGINE_LOADING;
    if (u->engine != NULL && state == ENGINE_FAILED) {
        snprintf(out, bytes, "%s %s", engine_text(u->engine), say("Davy.Status.Unfiltered"));
        return OBS_TEXT_INFO_ERROR;
    }
    if (state == ENGINE_LOADING) {
        snprintf(out, bytes, "%s", say("Davy.Status.Loading"));
        return OBS_TEXT_INFO_NORMAL;
    }
    const float ms = (float)atomic_load(&u->client->last_us) / 1000.0f;
    const bool over = u->frames.passing && ms > (float)u->settings.budget_ms;
    int used = snprintf(out, bytes, "%s, %u x %u -> %u x %u.", engine_text(u->engine), u->width, u->height,
                        atomic_load(&u->out_width), atomic_load(&u->out_height));
    if (over && used >= 0 && (size_t)used < bytes) {
        snprintf(out + used, bytes - (size_t)used, " %.0f ms > %d ms: %s", (double)ms, u->settings.budget_ms,
                 say("Davy.Status.Over"));
        return OBS_TEXT_INFO_WARNING;
    }
    if (numbers && ms > 0.0f && used >= 0 && (size_t)used < bytes) {
        snprintf(out + used, bytes - (size_t)used, " %.1f ms, %llu %s, %llu %s", (double)ms,
                 (unsigned long long)u->frames.done, say("Davy.Status.Done"), (unsigned long long)u->frames.dropped,
                 say("Davy.Status.Dropped"));
    }
    return OBS_TEXT_INFO_NORMAL;
}

/* Numbers change all the time: they alone are no reason to rebuild a dialog that somebody is using. */
void upscale_say(upscale *u, float seconds) {
    char plain[sizeof u->status];
    char text[sizeof u->status];
    u->since_status += seconds;
    if (u->since_status < STATUS_OFTEN) {
        return;
    }
    describe(u, false, plain, sizeof plain);
    const int kind = describe(u, true, text, sizeof text);
    plugin_lock_take(&u->lock);
    const bool news = strncmp(u->status, plain, strlen(plain)) != 0 || kind != u->status_kind;
    const bool due = news || (u->since_status >= STATUS_SELDOM && strcmp(u->status, text) != 0);
    if (due) {
        memcpy(u->status, text, sizeof text);
        u->status_kind = kind;
    }
    plugin_lock_give(&u->lock);
    if (due) {
        u->since_status = 0.0f;
        obs_source_update_properties(u->context);
    }
}
