/* upscale.h - the upscaling filter: what its drawing (upscale.c) and its dialog (upscale_ui.c) share. */
#ifndef DAVY_OBS_UPSCALE_H
#define DAVY_OBS_UPSCALE_H

#include "engine.h"
#include "frames.h"
#include "plugin.h"
#include "threads.h"

/* Setting "scale": a factor from 1 on; below: */
enum {
    SCALE_MODEL = 0,    /* as the model does */
    SCALE_CANVAS = -1,  /* as large as fits OBS's canvas */
    SCALE_1080P = -1080 /* to so many rows; likewise -1440 and -2160 */
};

typedef struct upscale_settings {
    char model[1024]; /* "": davy-live */
    char device[64], precision[8];
    int scale;
    int budget_ms;
    bool keep_loaded, tone_map;
} upscale_settings;

typedef struct upscale {
    obs_source_t *context;
    client *client;
    /* graphics thread */
    upscale_settings settings;
    frames frames;
    engine *engine; /* that of `key` */
    engine *next;   /* takes its place once it is ready; that of next_key */
    engine_key key, next_key;
    bool drawn; /* in this frame */
    bool idle;  /* the engine was given back */
    enum gs_color_space space;
    float since_drawn; /* seconds */
    float since_status;
    uint64_t late;                     /* what `dropped` was when the status was last made */
    uint32_t width, height;            /* of what is below; 0: nothing */
    atomic_uint out_width, out_height; /* of the filter; 0: as what is below */
    plugin_lock lock;                  /* of status, for the dialog: held to copy it only */
    char status[640];
    int status_kind; /* enum obs_text_info_type */
} upscale;

void upscale_defaults(obs_data_t *settings);
obs_properties_t *upscale_properties(void *data);
obs_missing_files_t *upscale_missing_files(void *data);
void upscale_read(obs_data_t *settings, upscale_settings *out);
/* Once in a while: says in the dialog how things are, where that has changed. */
void upscale_say(upscale *u, float seconds);

#endif
