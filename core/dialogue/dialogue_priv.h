/* dialogue_priv.h - shared by caption_options.c (checks and copies options), turn.c (runs a turn), dialogue.c (locking and
 * lifetime) and captions.c (many pictures). Each file uses those before it in this list. */
#ifndef DV_DIALOGUE_PRIV_H
#define DV_DIALOGUE_PRIV_H

#include <stdatomic.h>

#include "core/base/os.h"
#include "core/dialogue/dialogue.h"
#include "core/calls/tensor.h"
#include "core/vlm/session.h"

typedef struct dv_caption_options { /* checked copy that owns its strings; defaults replace zeros */
    davy_caption_params p;
    char *prompt, *system; /* NULL: not given */
    char **stop;
} dv_caption_options;

/* params NULL: defaults. On an error *out holds nothing. */
davy_result dv_caption_options_copy(const davy_caption_params *params, const davy_model *m, dv_caption_options *out);
void dv_caption_options_clear(dv_caption_options *a);
/* DAVY_E_INVALID if a run sets a member that captions do not support. */
davy_result dv_caption_check_run(const davy_run *run);
davy_result dv_caption_check_model(const davy_model *m);
davy_result dv_caption_check_image(const davy_tensor *image, dv_pixels *out);  /* one picture */
davy_result dv_caption_check_images(const davy_tensor *image, dv_pixels *out); /* one picture or a video */

typedef struct dv_event {
    davy_token_kind kind;
    char *text; /* NULL: none */
    uint64_t bytes;
    int32_t index;
    davy_turn_end end;
} dv_event;

typedef struct dv_dialogue_clip { /* pictures [first, first + n) are frames of one video of `total` frames */
    int64_t first, n, total;
    double fps;
    int64_t *index; /* [n]: frame numbers in the video */
} dv_dialogue_clip;

typedef struct dv_turn_record { /* a complete turn */
    dv_session_mark mark;       /* end of the turn in the session */
    char *text;
} dv_turn_record;

typedef enum dv_turn_stage { DV_TURN_LOAD = 0, DV_TURN_ENCODE, DV_TURN_READ, DV_TURN_ANSWER } dv_turn_stage;

typedef struct dv_turn {
    davy_dialogue *dialogue; /* with a job: holds a reference */
    dv_caption_options own_options;
    const dv_caption_options *options; /* own_options, or the dialogue's */
    davy_run run;
    uint64_t deadline_ns;
    davy_job *job;
    dv_turn_stage stage;
    int64_t part, parts;  /* progress of the stage: pictures or tokens */
    uint64_t base, total; /* progress of a call for many pictures, DV_TURN_PARTS each */
    uint64_t start_ns, first_ns, last_ns, progress_ns;
    int32_t pieces;
    bool timed_out, smaller, out_of_memory; /* out_of_memory: no memory for a piece of the answer */
    bool shared;                            /* several pictures run at once: base alone is the progress */
    bool quiet;                             /* another turn reports progress */
    const _Atomic bool *stop;               /* true cancels the turn; NULL: never */
} dv_turn;

struct davy_dialogue {
    _Atomic int64_t refs;
    davy_model *model;
    dv_caption_options options;
    dv_mutex *lock;
    dv_cond *changed;
    bool busy, reading; /* the lock guards the members from here to next_event */
    dv_turn *queued;    /* its job has not started */
    dv_event *events;
    int64_t n_events, events_room, next_event;
    char *read_text; /* text of the last event read; the reading thread uses it. The rest: the thread that set busy */
    int32_t gpu;     /* index of its GPU in the context */
    dv_weights_pin *pin;
    dv_session *session;
    dv_rgb8 *pictures;
    int64_t n_pictures, pictures_room;
    dv_dialogue_clip *clips; /* in order of `first` */
    int64_t n_clips, clips_room;
    char *user_text, *system_text;
    dv_turn_record *turns;
    int64_t n_turns, turns_room;
    davy_dialogue_info info;
    dv_turn *current; /* the running turn; NULL: none */
};

davy_result dv_dialogue_add_picture(davy_dialogue *d, const dv_pixels *pixels); /* a still */
davy_result dv_dialogue_add_video(davy_dialogue *d, const dv_pixels *pixels);   /* frames along axis t */
void dv_dialogue_drop_inputs(davy_dialogue *d);                                 /* added pictures, videos and text */
void dv_dialogue_forget_turns(davy_dialogue *d, int64_t keep);
void dv_dialogue_clear_events(davy_dialogue *d);
/* Runs a whole turn on the added inputs, and drops the inputs, also on an error. */
davy_result dv_turn_run(davy_dialogue *d, dv_turn *t);

/* ---- parts of a turn ---- */

enum { DV_TURN_PARTS = 1000, DV_TURN_LOAD_PARTS = 150, DV_TURN_ENCODE_PARTS = 300 }; /* units of progress */

/* DAVY_E_CANCELLED if the turn was cancelled or its time is over. */
davy_result dv_turn_begin_stage(davy_dialogue *d, dv_turn *t, dv_turn_stage stage, int64_t parts);
/* Reports progress. Not 0: the turn was cancelled, or its time is over. user: the dialogue; its `current` is the turn.
 * The session calls it before every token and between the layers of a prompt. */
int32_t dv_turn_should_stop(void *user);
bool dv_turn_make_room(void *user); /* frees idle memory of other models */
davy_result dv_turn_load_weights(davy_dialogue *d, dv_turn *t);
dv_picture_options dv_turn_picture_options(const davy_dialogue *d, const dv_caption_options *a);
const char *dv_turn_question(const davy_dialogue *d, const dv_caption_options *a);
/* Options for an answer after `tokens` tokens of a context of `context` tokens. DAVY_E_CONTEXT_FULL: no room. */
davy_result dv_turn_answer_options(const dv_caption_options *a, int64_t context, int64_t tokens,
                                   dv_answer_options *out);
davy_result dv_turn_result(const dv_turn *t, davy_result r); /* E_TIMEOUT if the time limit caused E_CANCELLED */

/* A dialogue with the same options, on another GPU or in another thread. */
davy_result dv_dialogue_open_same(const davy_dialogue *d, int32_t gpu, davy_dialogue **out);

#endif
