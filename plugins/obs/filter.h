/* filter.h - a filter that replaces pictures by what a network makes of them: what its drawing (filter.c) and its dialog
 * (filter_ui.c) share. Two kinds: upscaling, and a VAE's encoder and decoder one behind the other. */
#ifndef DAVY_OBS_FILTER_H
#define DAVY_OBS_FILTER_H

#include "engine.h"
#include "frames.h"
#include "plugin.h"
#include "sync.h"

typedef enum filter_kind { FILTER_UPSCALE = 0, FILTER_VAE } filter_kind;

/* Setting "scale": a factor from 1 on; below: */
enum {
    SCALE_MODEL = 0,    /* as the model does */
    SCALE_CANVAS = -1,  /* as large as fits OBS's canvas */
    SCALE_1080P = -1080 /* to so many rows; likewise -1440 and -2160 */
};

typedef struct filter_settings {
    char model[1024]; /* "": davy-live; of a VAE: none has been chosen */
    char device[64], precision[8];
    int scale;
    float strength, denoise;
    int budget_ms;
    bool keep_loaded, tone_map;
    latent_change latent;
} filter_settings;

typedef struct filter {
    obs_source_t *context;
    filter_kind kind;
    client *client;
    /* graphics thread */
    filter_settings settings;
    frames frames;
    engine *engine; /* that of `key` */
    engine *next;   /* takes its place once it is ready; that of next_key */
    engine_key key, next_key;
    bool drawn;        /* in this frame */
    bool idle;         /* the engine was given back */
    float since_drawn; /* seconds */
    float since_status;
    uint32_t width, height;            /* of what is below; 0: nothing */
    atomic_uint out_width, out_height; /* of the filter; 0: as what is below */
    obs_hotkey_id hotkey;
    obs_weak_source_t *self; /* for the hotkey */
    plugin_lock lock;        /* of what follows, for the dialog and for others: held to copy it only */
    char status[640];
    int status_kind; /* enum obs_text_info_type */
    uint64_t said_done, said_dropped;
} filter;

void filter_upscale_defaults(obs_data_t *settings);
void filter_vae_defaults(obs_data_t *settings);
obs_properties_t *filter_upscale_properties(void *data);
obs_properties_t *filter_vae_properties(void *data);
obs_missing_files_t *filter_missing_files(void *data);
void filter_read(obs_data_t *settings, filter_settings *out);
/* filter_outside.c: the filter's procedures, signal and hotkey. */
void filter_offer(filter *f);
void filter_offer_hotkey(filter *f); /* once the source is known; each tick */
void filter_signal(filter *f, const char *text);
void filter_withdraw(filter *f);
/* Once in a while: says in the dialog how things are, where that has changed. */
void filter_say(filter *f, float seconds);

#endif
