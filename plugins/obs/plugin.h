/* plugin.h - what the files of the OBS module share.
 *
 * Who runs where: libobs calls a filter's tick, render and update on its graphics thread, create and properties on any
 * other, destroy on a thread of its own. An engine (engine.h) has one worker thread; nothing of OBS's ever waits for it but
 * destroy. Graphics objects are touched on the graphics thread, or inside obs_enter_graphics.
 *
 * License of this folder: GPL-2.0-or-later, as libobs. */
#ifndef DAVY_OBS_PLUGIN_H
#define DAVY_OBS_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

#include <obs-module.h>

#include "abi/davy.h"

#define DAVY_OBS_VERSION "1.0.0"

#define plugin_log(level, format, ...) blog(level, "[davy] " format, ##__VA_ARGS__)

/* The library's table, or NULL: then *why is one sentence on what is missing and what to do. Loaded once. */
const davy_api *plugin_davy(const char **why);

/* `lost` is called, inside the graphics context, when the device that OBS draws with goes and another will come (Windows: the
 * driver has been reset or updated). Any thread; plugin_forget_loss inside the context. */
void plugin_tell_loss(void (*lost)(void *data), void *data);
void plugin_forget_loss(void *data);

extern struct obs_source_info davy_upscale_filter, davy_vae_filter, davy_caption_filter;

#endif
