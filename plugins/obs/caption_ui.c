/* caption_ui.c - the captioning filter's settings and dialog. Scene collections store the keys: never rename them. */
#include <stdio.h>
#include <string.h>

#include "caption.h"
#include "text.h"
#include "ui.h"

void caption_defaults(obs_data_t *settings) {
    obs_data_set_default_string(settings, "model_path", "");
    obs_data_set_default_string(settings, "prompt", "Describe the image in one sentence.");
    obs_data_set_default_string(settings, "follow_up", "");
    obs_data_set_default_bool(settings, "every", true);
    obs_data_set_default_int(settings, "interval_ms", 5000);
    obs_data_set_default_bool(settings, "on_change", false);
    obs_data_set_default_int(settings, "max_tokens", 48);
    obs_data_set_default_string(settings, "target_source", "");
    obs_data_set_default_string(settings, "prefix", "");
    obs_data_set_default_int(settings, "clear_after_ms", 0);
    obs_data_set_default_string(settings, "file", "");
    obs_data_set_default_bool(settings, "log_captions", false);
    obs_data_set_default_bool(settings, "to_stream_cc", false);
    ui_device_defaults(settings);
}

void caption_read(obs_data_t *settings, caption_settings *out) {
    caption_question *q = &out->question;
    memset(out, 0, sizeof *out);
    snprintf(out->model, sizeof out->model, "%s", obs_data_get_string(settings, "model_path"));
    snprintf(out->device, sizeof out->device, "%s", obs_data_get_string(settings, "device"));
    snprintf(out->precision, sizeof out->precision, "%s", obs_data_get_string(settings, "precision"));
    text_put(q->prompt, sizeof q->prompt, "%s", obs_data_get_string(settings, "prompt"));
    text_put(q->follow_up, sizeof q->follow_up, "%s", obs_data_get_string(settings, "follow_up"));
    text_put(q->prefix, sizeof q->prefix, "%s", obs_data_get_string(settings, "prefix"));
    text_put(q->target, sizeof q->target, "%s", obs_data_get_string(settings, "target_source"));
    text_put(q->file, sizeof q->file, "%s", obs_data_get_string(settings, "file"));
    q->max_tokens = (int)obs_data_get_int(settings, "max_tokens");
    q->log = obs_data_get_bool(settings, "log_captions");
    q->stream = obs_data_get_bool(settings, "to_stream_cc");
    out->every = obs_data_get_bool(settings, "every");
    out->on_change = obs_data_get_bool(settings, "on_change");
    q->only_changes = out->on_change;
    out->interval_ms = (int)obs_data_get_int(settings, "interval_ms");
    out->clear_after_ms = (int)obs_data_get_int(settings, "clear_after_ms");
    out->keep_loaded = obs_data_get_bool(settings, "keep_loaded");
}

static bool add_text_source(void *list, obs_source_t *source) {
    const char *id = obs_source_get_unversioned_id(source);
    if (strncmp(id, "text_ft2_source", 15) == 0 || strncmp(id, "text_gdiplus", 12) == 0) {
        obs_property_list_add_string(list, obs_source_get_name(source), obs_source_get_name(source));
    }
    return true;
}

static bool now_clicked(obs_properties_t *props, obs_property_t *button, void *board) {
    (void)props;
    (void)button;
    if (board != NULL) {
        atomic_store(&((caption_board *)board)->now, true);
    }
    return false;
}

static bool make_clicked(obs_properties_t *props, obs_property_t *button, void *board) {
    (void)button;
    obs_source_t *filter = board != NULL ? obs_weak_source_get_source(((caption_board *)board)->filter) : NULL;
    const bool made = filter != NULL && caption_make_target(filter);
    if (made) { /* add the new source to the list */
        obs_property_t *list = obs_properties_get(props, "target_source");
        obs_property_list_clear(list);
        obs_property_list_add_string(list, "", "");
        obs_enum_sources(add_text_source, list);
    }
    if (filter != NULL) {
        obs_source_release(filter);
    }
    return made;
}

static void let_go(void *board) {
    caption_board_close(board);
}

obs_properties_t *caption_properties_of(const char *status, int severity, caption_board *board) {
    obs_properties_t *props = obs_properties_create();
    if (board != NULL) { /* the dialog may outlive the filter */
        obs_properties_set_param(props, caption_board_hold(board), let_go);
    }
    ui_status(props, status, severity);
    obs_property_t *p =
        obs_properties_add_path(props, "model_path", ui_say("Davy.Caption.Model"), OBS_PATH_DIRECTORY, NULL, NULL);
    obs_property_set_long_description(p, ui_say("Davy.Caption.Model.Tip"));
    obs_properties_add_text(props, "prompt", ui_say("Davy.Caption.Prompt"), OBS_TEXT_MULTILINE);
    obs_properties_add_text(props, "follow_up", ui_say("Davy.Caption.FollowUp"), OBS_TEXT_MULTILINE);
    obs_properties_add_bool(props, "every", ui_say("Davy.Caption.Every"));
    p = obs_properties_add_int(props, "interval_ms", ui_say("Davy.Caption.Interval"), 100, 3600000, 100);
    obs_property_int_set_suffix(p, " ms");
    obs_properties_add_bool(props, "on_change", ui_say("Davy.Caption.OnChange"));
    p = obs_properties_add_list(props, "target_source", ui_say("Davy.Caption.Target"), OBS_COMBO_TYPE_EDITABLE,
                                OBS_COMBO_FORMAT_STRING);
    obs_property_list_add_string(p, "", "");
    obs_enum_sources(add_text_source, p);
    obs_properties_add_button2(props, "make_target", ui_say("Davy.Caption.MakeTarget"), make_clicked, board);
    obs_properties_t *group = obs_properties_create();
    obs_properties_add_int(group, "max_tokens", ui_say("Davy.Caption.MaxTokens"), 1, 1024, 1);
    obs_properties_add_text(group, "prefix", ui_say("Davy.Caption.Prefix"), OBS_TEXT_DEFAULT);
    p = obs_properties_add_int(group, "clear_after_ms", ui_say("Davy.Caption.ClearAfter"), 0, 3600000, 500);
    obs_property_int_set_suffix(p, " ms");
    obs_properties_add_path(group, "file", ui_say("Davy.Caption.File"), OBS_PATH_FILE_SAVE, "Text Files (*.txt)", NULL);
    obs_properties_add_bool(group, "log_captions", ui_say("Davy.Caption.Log"));
    obs_properties_add_bool(group, "to_stream_cc", ui_say("Davy.Caption.Stream"));
    ui_precision(group);
    ui_keep_loaded(group);
    obs_properties_add_group(props, "advanced", ui_say("Davy.Advanced"), OBS_GROUP_NORMAL, group);
    ui_device(props);
    obs_properties_add_button2(props, "now", ui_say("Davy.Caption.Hotkey"), now_clicked, board);
    return props;
}
