/* filter_ui.c - settings, dialogs and status line. Scene collections store the keys: never rename them. */
#include <stdio.h>
#include <string.h>

#include <util/platform.h>

#include "filter.h"
#include "text.h"
#include "ui.h"

#define BROWSE        "browse"
#define STATUS_OFTEN  1.0f /* seconds; a new text rebuilds the open dialog */
#define STATUS_SELDOM 10.0f

static void defaults(obs_data_t *settings) {
    obs_data_set_default_string(settings, "model_path", "");
    obs_data_set_default_int(settings, "budget_ms", 50);
    ui_device_defaults(settings);
}

void filter_upscale_defaults(obs_data_t *settings) {
    defaults(settings);
    obs_data_set_default_string(settings, "model", "");
    obs_data_set_default_int(settings, "scale", 2);
    obs_data_set_default_double(settings, "strength", 1.0);
    obs_data_set_default_double(settings, "denoise", 0.5);
    obs_data_set_default_string(settings, "hdr_mode", "preserve");
}

/* A VAE filter keeps the size and makes SDR pictures. */
void filter_vae_defaults(obs_data_t *settings) {
    defaults(settings);
    obs_data_set_default_string(settings, "model", BROWSE);
    obs_data_set_default_int(settings, "scale", 1);
    obs_data_set_default_double(settings, "strength", 1.0);
    obs_data_set_default_string(settings, "hdr_mode", "tonemap");
    obs_data_set_default_double(settings, "latent_strength", 1.0);
    obs_data_set_default_double(settings, "latent_noise", 0.0);
    obs_data_set_default_int(settings, "latent_bits", 0);
}

void filter_read(obs_data_t *settings, filter_settings *out) {
    memset(out, 0, sizeof *out);
    const char *model = obs_data_get_string(settings, "model");
    const char *path = obs_data_get_string(settings, "model_path");
    snprintf(out->model, sizeof out->model, "%s", strcmp(model, BROWSE) == 0 ? path : model);
    snprintf(out->device, sizeof out->device, "%s", obs_data_get_string(settings, "device"));
    snprintf(out->precision, sizeof out->precision, "%s", obs_data_get_string(settings, "precision"));
    out->scale = (int)obs_data_get_int(settings, "scale");
    out->strength = (float)obs_data_get_double(settings, "strength");
    out->denoise = (float)obs_data_get_double(settings, "denoise");
    out->budget_ms = (int)obs_data_get_int(settings, "budget_ms");
    out->keep_loaded = obs_data_get_bool(settings, "keep_loaded");
    out->latent.strength = (float)obs_data_get_double(settings, "latent_strength");
    out->latent.noise = (float)obs_data_get_double(settings, "latent_noise");
    out->latent.bits = (int32_t)obs_data_get_int(settings, "latent_bits");
    out->tone_map = strcmp(obs_data_get_string(settings, "hdr_mode"), "tonemap") == 0;
}

/* ---- the dialog ---- */

static bool is_model(const char *file) {
    const char *dot = strrchr(file, '.');
    return dot != NULL && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".pth") == 0 || strcmp(dot, ".pt") == 0);
}

/* Lists the user's own models in plugin_config/davy-obs/models. */
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
    filter_settings now;
    const bool browse = strcmp(obs_data_get_string(settings, "model"), BROWSE) == 0;
    filter_read(settings, &now);
    obs_property_set_visible(obs_properties_get(props, "model_path"), browse);
    obs_property_t *denoise = obs_properties_get(props, "denoise");
    if (denoise != NULL) {
        obs_property_set_visible(denoise, strstr(now.model, ENGINE_HAS_SISTER) != NULL);
    }
    return true;
}

static void add_model(obs_properties_t *props, filter_kind kind) {
    obs_property_t *list = obs_properties_add_list(props, "model", ui_say("Davy.Upscale.Model"), OBS_COMBO_TYPE_LIST,
                                                   OBS_COMBO_FORMAT_STRING);
    if (kind == FILTER_UPSCALE) {
        obs_property_list_add_string(list, ui_say("Davy.Upscale.Model.Live"), "");
    }
    add_users_models(list);
    obs_property_list_add_string(list, ui_say("Davy.Upscale.Model.Browse"), BROWSE);
    obs_property_set_long_description(list,
                                      ui_say(kind == FILTER_UPSCALE ? "Davy.Upscale.Model.Tip" : "Davy.Vae.Model.Tip"));
    obs_property_set_modified_callback(list, model_chosen);
    list = obs_properties_add_path(props, "model_path", ui_say("Davy.Upscale.ModelPath"), OBS_PATH_FILE,
                                   "Model Files (*.safetensors *.pth *.pt);;All Files (*.*)", NULL);
    obs_property_set_modified_callback(list, model_chosen);
}

static void add_strength(obs_properties_t *props) {
    obs_property_t *p =
        obs_properties_add_float_slider(props, "strength", ui_say("Davy.Upscale.Strength"), 0.0, 1.0, 0.01);
    obs_property_set_long_description(p, ui_say("Davy.Upscale.Strength.Tip"));
    p = obs_properties_add_float_slider(props, "denoise", ui_say("Davy.Upscale.Denoise"), 0.0, 1.0, 0.01);
    obs_property_set_long_description(p, ui_say("Davy.Upscale.Denoise.Tip"));
}

static void add_scale(obs_properties_t *props) {
    obs_property_t *list = obs_properties_add_list(props, "scale", ui_say("Davy.Upscale.Scale"), OBS_COMBO_TYPE_LIST,
                                                   OBS_COMBO_FORMAT_INT);
    obs_property_list_add_int(list, "2x", 2);
    obs_property_list_add_int(list, "3x", 3);
    obs_property_list_add_int(list, "4x", 4);
    obs_property_list_add_int(list, "1x", 1);
    obs_property_list_add_int(list, ui_say("Davy.Upscale.Scale.1080"), SCALE_1080P);
    obs_property_list_add_int(list, ui_say("Davy.Upscale.Scale.1440"), -1440);
    obs_property_list_add_int(list, ui_say("Davy.Upscale.Scale.2160"), -2160);
    obs_property_list_add_int(list, ui_say("Davy.Upscale.Scale.Canvas"), SCALE_CANVAS);
    obs_property_list_add_int(list, ui_say("Davy.Upscale.Scale.Model"), SCALE_MODEL);
    obs_property_set_long_description(list, ui_say("Davy.Upscale.Scale.Tip"));
}

static void add_advanced(obs_properties_t *props, filter_kind kind) {
    obs_properties_t *group = obs_properties_create();
    ui_precision(group);
    obs_property_t *p = obs_properties_add_int(group, "budget_ms", ui_say("Davy.Budget"), 1, 10000, 1);
    obs_property_int_set_suffix(p, " ms");
    obs_property_set_long_description(p, ui_say("Davy.Budget.Tip"));
    if (kind == FILTER_UPSCALE) {
        p = obs_properties_add_list(group, "hdr_mode", ui_say("Davy.Hdr"), OBS_COMBO_TYPE_LIST,
                                    OBS_COMBO_FORMAT_STRING);
        obs_property_list_add_string(p, ui_say("Davy.Hdr.Preserve"), "preserve");
        obs_property_list_add_string(p, ui_say("Davy.Hdr.ToneMap"), "tonemap");
    }
    ui_keep_loaded(group);
    obs_properties_add_group(props, "advanced", ui_say("Davy.Advanced"), OBS_GROUP_NORMAL, group);
}

static void add_latent(obs_properties_t *props) {
    obs_property_t *p =
        obs_properties_add_float_slider(props, "latent_strength", ui_say("Davy.Vae.Strength"), 0.0, 2.0, 0.01);
    obs_property_set_long_description(p, ui_say("Davy.Vae.Strength.Tip"));
    p = obs_properties_add_float_slider(props, "latent_noise", ui_say("Davy.Vae.Noise"), 0.0, 2.0, 0.01);
    obs_property_set_long_description(p, ui_say("Davy.Vae.Noise.Tip"));
    p = obs_properties_add_list(props, "latent_bits", ui_say("Davy.Vae.Bits"), OBS_COMBO_TYPE_LIST,
                                OBS_COMBO_FORMAT_INT);
    obs_property_list_add_int(p, ui_say("Davy.Vae.Bits.All"), 0);
    static const char *const names[] = {"1 bit", "2 bits", "3 bits", "4 bits", "6 bits", "8 bits"};
    static const int bits[] = {1, 2, 3, 4, 6, 8};
    for (int i = 0; i < 6; i++) {
        obs_property_list_add_int(p, names[i], bits[i]);
    }
}

static obs_properties_t *properties(filter *f, filter_kind kind) {
    obs_properties_t *props = obs_properties_create();
    char status[sizeof f->status] = "";
    int severity = OBS_TEXT_INFO_NORMAL;
    if (f != NULL) {
        plugin_lock_take(&f->lock);
        memcpy(status, f->status, sizeof status);
        severity = f->status_kind;
        plugin_lock_give(&f->lock);
    }
    ui_status(props, status, severity);
    add_model(props, kind);
    if (kind == FILTER_UPSCALE) {
        add_scale(props);
        add_strength(props);
    } else {
        add_latent(props);
    }
    ui_device(props);
    add_advanced(props, kind);
    return props;
}

obs_properties_t *filter_upscale_properties(void *data) {
    return properties(data, FILTER_UPSCALE);
}

obs_properties_t *filter_vae_properties(void *data) {
    return properties(data, FILTER_VAE);
}

static void model_found(void *data, const char *path, void *unused) {
    filter *f = data;
    (void)unused;
    obs_data_t *settings = obs_source_get_settings(f->context);
    obs_data_set_string(settings, "model", BROWSE);
    obs_data_set_string(settings, "model_path", path);
    obs_source_update(f->context, settings);
    obs_data_release(settings);
}

obs_missing_files_t *filter_missing_files(void *data) {
    filter *f = data;
    obs_missing_files_t *files = obs_missing_files_create();
    filter_settings now;
    obs_data_t *settings = obs_source_get_settings(f->context);
    filter_read(settings, &now);
    obs_data_release(settings);
    if (now.model[0] != '\0' && !os_file_exists(now.model)) {
        obs_missing_files_add_file(
            files, obs_missing_file_create(now.model, model_found, OBS_MISSING_FILE_SOURCE, f->context, NULL));
    }
    return files;
}

/* ---- the status line ---- */

static int describe(const filter *f, bool numbers, char *out, size_t bytes) {
    const engine_state state = f->engine != NULL ? engine_look(f->engine) : ENGINE_LOADING;
    char text[ENGINE_TEXT] = "";
    if (f->engine != NULL) {
        engine_text(f->engine, text, sizeof text);
    }
    if (state == ENGINE_FAILED) {
        text_put(out, bytes, "%s. %s", text, ui_say("Davy.Status.Unfiltered"));
        return OBS_TEXT_INFO_ERROR;
    }
    if (state == ENGINE_LOADING) {
        text_put(out, bytes, "%s", ui_say("Davy.Status.Loading"));
        return OBS_TEXT_INFO_NORMAL;
    }
    if (client_why(f->client, out, bytes)) {
        text_add(out, bytes, ". %s", ui_say("Davy.Status.Unfiltered"));
        return OBS_TEXT_INFO_WARNING;
    }
    const float ms = (float)atomic_load(&f->client->last_us) / 1000.0f;
    const bool over = f->frames.passing && ms > (float)f->settings.budget_ms;
    text_put(out, bytes, "%s, %ux%u -> %ux%u.", text, f->width, f->height, atomic_load(&f->out_width),
             atomic_load(&f->out_height));
    if (over) {
        text_add(out, bytes, " %.0f ms/frame. %s: %d ms. %s", (double)ms, ui_say("Davy.Budget"), f->settings.budget_ms,
                 ui_say("Davy.Status.Over"));
        return OBS_TEXT_INFO_WARNING;
    }
    if (f->frames.gpu.why != NULL) {
        text_add(out, bytes, " %s: %s.", ui_say("Davy.Status.Host"), f->frames.gpu.why);
    }
    if (numbers && ms > 0.0f) {
        text_add(out, bytes, " %.1f ms/frame, %llu %s, %llu %s.", (double)ms, (unsigned long long)f->frames.done,
                 ui_say("Davy.Status.Done"), (unsigned long long)f->frames.dropped, ui_say("Davy.Status.Dropped"));
    }
    return OBS_TEXT_INFO_NORMAL;
}

/* Counts and times change all the time. They alone update an open dialog only every STATUS_SELDOM seconds. */
void filter_say(filter *f, float seconds) {
    char plain[sizeof f->status];
    char text[sizeof f->status];
    f->since_status += seconds;
    if (f->since_status < STATUS_OFTEN) {
        return;
    }
    describe(f, false, plain, sizeof plain);
    const int kind = describe(f, true, text, sizeof text);
    plugin_lock_take(&f->lock);
    const bool news = strncmp(f->status, plain, strlen(plain)) != 0 || kind != f->status_kind;
    const bool due = news || (f->since_status >= STATUS_SELDOM && strcmp(f->status, text) != 0);
    if (due) {
        memcpy(f->status, text, sizeof text);
        f->status_kind = kind;
    }
    f->said_done = f->frames.done;
    f->said_dropped = f->frames.dropped;
    plugin_lock_give(&f->lock);
    if (news) {
        filter_signal(f, plain);
    }
    if (due) {
        f->since_status = 0.0f;
        obs_source_update_properties(f->context);
    }
}
