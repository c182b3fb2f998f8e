/* filter.h - a filter that replaces its source's pictures by a network's results. Drawing (filter.c) and dialog (filter_ui.c) share
 * this header. There are two kinds: upscaling, and a VAE's encoder followed by its decoder. */
#ifndef DAVY_OBS_FILTER_H
#define DAVY_OBS_FILTER_H

#include "engine.h"
#include "frames.h"
#include "plugin.h"
#include "sync.h"

typedef enum filter_kind { FILTER_UPSCALE = 0, FILTER_VAE } filter_kind;

/* Setting "scale": a factor of 1 or more, or: */
enum {
    SCALE_MODEL = 0,    /* the model's own factor */
    SCALE_CANVAS = -1,  /* the largest size that fits OBS's canvas */
    SCALE_1080P = -1080 /* a height of 1080 pixels; likewise -1440 and -2160 */
};

typedef struct filter_settings {
    char model[1024]; /* "": davy-live; for a VAE: none is chosen */
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
    engine *engine; /* in use, has `key` */
    engine *next;   /* replaces it once it has loaded or failed, has next_key */
    engine_key key, next_key;
    bool drawn;        /* in this frame */
    bool idle;         /* the engine was released because the source was hidden */
    float since_drawn; /* seconds */
    float since_status;
    uint32_t width, height;            /* size of the source below the filter; 0: it shows nothing */
    atomic_uint out_width, out_height; /* size of the filter; 0: the source's size */
    obs_hotkey_id hotkey;
    obs_weak_source_t *self; /* for the hotkey */
    plugin_lock lock;        /* guards all members below; held only to copy */
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
void filter_offer_hotkey(filter *f); /* registers the hotkey once the source is known; called each tick */
void filter_signal(filter *f, const char *text);
void filter_withdraw(filter *f);
/* Updates the status line at most once a second, if it has changed. Called each tick. */
void filter_say(filter *f, float seconds);

#endif
