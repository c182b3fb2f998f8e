/* plugin.h - declarations that all files of the OBS module share.
 *
 * Threads: libobs calls a filter's tick, render and update on its graphics thread, and create and properties on any other thread.
 * It calls destroy on a thread of its own. An engine (engine.h) has one worker thread; of OBS's calls only destroy waits for it.
 * Graphics objects are used on the graphics thread, or inside obs_enter_graphics.
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

/* The library's table. NULL: libdavy was not loaded, and *why is one sentence with the reason. */
const davy_api *plugin_davy(const char **why);

/* Registers `lost`, which OBS calls inside the graphics context before it replaces its graphics device. This happens on Windows when
 * the driver is reset or updated. Any thread; call plugin_forget_loss inside the graphics context. */
void plugin_tell_loss(void (*lost)(void *data), void *data);
void plugin_forget_loss(void *data);

extern struct obs_source_info davy_upscale_filter, davy_vae_filter, davy_caption_filter;

#endif
