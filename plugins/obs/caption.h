/* caption.h - the captioning filter: draws its source unchanged and asks a vision-language model about it at intervals.
 *
 * The engine's thread sends each answer to a text source, a file, the log, the filter's signal "davy_caption" and
 * obs-websocket. */
#ifndef DAVY_OBS_CAPTION_H
#define DAVY_OBS_CAPTION_H

#include "engine.h"
#include "plugin.h"
#include "sync.h"

enum { CAPTION_TEXT = 4096 };

/* State that a filter shares with its questions and with requests from outside. Reference-counted. */
typedef struct caption_board {
    atomic_int holders;
    obs_weak_source_t *filter; /* for the signal and the names */
    plugin_lock lock;          /* guards all members below; held only to copy */
    char text[CAPTION_TEXT];
    uint64_t answered_ns; /* 0: no answer yet */
    uint64_t asked;       /* questions so far */
    int latency_ms;
    uint8_t seen[16 * 16]; /* brightness of the picture of the last answer */
    bool has_seen;
    atomic_bool now; /* a caption was requested (hotkey, button, obs-websocket) */
} caption_board;

typedef struct caption_question {
    caption_board *board;
    char prompt[1024], follow_up[1024], prefix[128];
    char source[256];             /* name of the filter's source */
    char target[256], file[1024]; /* "": none */
    int max_tokens;
    bool log, stream, only_changes;
} caption_question;

caption_board *caption_board_open(obs_source_t *filter);
void caption_board_close(caption_board *b);
caption_board *caption_board_hold(caption_board *b);

/* Sends the answer to all outputs that q names. On the engine's thread. */
void caption_publish(const caption_question *q, const char *text, int latency_ms);
void caption_question_free(caption_question *q);

/* The list of all captioning filters, for requests from outside (vendor.c). */
void caption_enlist(caption_board *b);
void caption_delist(caption_board *b);
/* Calls `each` for every filter until it returns false. */
void caption_each(bool (*each)(caption_board *b, void *user), void *user);

/* caption_frontend.c. Does nothing outside of the OBS application or without a running stream. */
void caption_to_stream(const char *text, double seconds);
/* Creates a text source in the current scene and makes it the filter's target. Only on the user interface's thread. */
bool caption_make_target(obs_source_t *filter);

/* vendor.c: the vendor "davy" of obs-websocket. Does nothing if obs-websocket is not loaded. */
void vendor_open(void);
void vendor_close(void);
void vendor_caption(const char *source, const char *filter, const char *text, int latency_ms);

/* caption_ui.c */
typedef struct caption_settings {
    char model[1024], device[64], precision[8];
    caption_question question; /* its board is NULL */
    int interval_ms, clear_after_ms;
    bool every, on_change, keep_loaded;
} caption_settings;

void caption_defaults(obs_data_t *settings);
void caption_read(obs_data_t *settings, caption_settings *out);
obs_properties_t *caption_properties_of(const char *status, int severity, caption_board *b);

#endif
