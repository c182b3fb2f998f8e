/* ui.h - the controls that all dialogs of the plugin share. */
#ifndef DAVY_OBS_UI_H
#define DAVY_OBS_UI_H

#include <obs-module.h>

const char *ui_say(const char *key);
void ui_status(obs_properties_t *props, const char *text, int severity); /* enum obs_text_info_type */
void ui_device(obs_properties_t *props);
void ui_precision(obs_properties_t *props);
void ui_keep_loaded(obs_properties_t *props);
void ui_device_defaults(obs_data_t *settings); /* of these controls */

#endif
