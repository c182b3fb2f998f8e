/* ui.c - see ui.h. */
#include "ui.h"

#include <stdio.h>

#include "plugin.h"

const char *ui_say(const char *key) {
    return obs_module_text(key);
}

void ui_device_defaults(obs_data_t *settings) {
    obs_data_set_default_string(settings, "device", "auto");
    obs_data_set_default_string(settings, "precision", "auto");
    obs_data_set_default_bool(settings, "keep_loaded", false);
}

void ui_status(obs_properties_t *props, const char *text, int severity) {
    obs_property_t *line = obs_properties_add_text(props, "status", text, OBS_TEXT_INFO);
    obs_property_text_set_info_type(line, (enum obs_text_info_type)severity);
}

void ui_device(obs_properties_t *props) {
    obs_property_t *list =
        obs_properties_add_list(props, "device", ui_say("Davy.Device"), OBS_COMBO_TYPE_LIST, OBS_COMBO_FORMAT_STRING);
    const davy_api *api = plugin_davy(NULL);
    int32_t count = 0;
    obs_property_list_add_string(list, ui_say("Davy.Device.Auto"), "auto");
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

void ui_precision(obs_properties_t *props) {
    obs_property_t *p = obs_properties_add_list(props, "precision", ui_say("Davy.Precision"), OBS_COMBO_TYPE_LIST,
                                                OBS_COMBO_FORMAT_STRING);
    obs_property_list_add_string(p, ui_say("Davy.Precision.Auto"), "auto");
    obs_property_list_add_string(p, "fp16", "fp16");
    obs_property_list_add_string(p, "bf16", "bf16");
    obs_property_list_add_string(p, "fp32", "fp32");
}

void ui_keep_loaded(obs_properties_t *props) {
    obs_property_t *p = obs_properties_add_bool(props, "keep_loaded", ui_say("Davy.KeepLoaded"));
    obs_property_set_long_description(p, ui_say("Davy.KeepLoaded.Tip"));
}
