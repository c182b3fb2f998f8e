/* dialogue_priv.h - between caption_options.c, which checks and copies options, turn.c, which does a turn, dialogue.c, which
 * guards a dialogue, and captions.c, which asks about many pictures. Each uses those before it. */
#ifndef DV_DIALOGUE_PRIV_H
#define DV_DIALOGUE_PRIV_H

#include <stdatomic.h>

#include "core/base/os.h"
#include "core/dialogue/dialogue.h"
#include "core/calls/tensor.h"
#include "core/vlm/session.h"

typedef struct dv_caption_options { /* checked, with strings of its own, zeros replaced by the defaults */
    davy_caption_params p;
    char *prompt, *system; /* NULL: not given */
    char **stop;
} dv_caption_options;

/* params NULL: defaults. On an error *out holds nothing. */
davy_result dv_caption_options_copy(const davy_caption_params *params, const davy_model *m, dv_caption_options *out);
void dv_caption_options_clear(dv_caption_options *a);
/* What of a run means nothing to captions. */
davy_result dv_caption_check_run(const davy_run *run);
davy_result dv_caption_check_model(const davy_model *m);
davy_result dv_caption_check_image(const davy_tensor *image, dv_pixels *out);  /* one picture, */
davy_result dv_caption_check_images(const davy_tensor *image, dv_pixels *out); /* or a video */

typedef struct dv_event {
    davy_token_kind kind;
    char *text; /* NULL: none */
    uint64_t bytes;
    int32_t index;
    davy_turn_end end;
} dv_event;

typedef struct dv_dialogue_clip { /* pictures that are frames of one video */
    int64_t first, n, total;
    double fps;
    int64_t *index; /* [n] */
} dv_dialogue_clip;

typedef struct dv_turn_record { /* of a complete turn */
    dv_session_mark mark;       /* after it */
    char *text;
} dv_turn_record;

typedef enum dv_turn_stage { DV_TURN_LOAD = 0, DV_TURN_ENCODE, DV_TURN_READ, DV_TURN_ANSWER } dv_turn_stage;

typedef struct dv_turn {
    davy_dialogue *dialogue; /* a reference where there is a job */
    dv_caption_options own_options;
    const dv_caption_options *options; /* own_options, or the dialogue's */
    davy_run run;
    uint64_t deadline_ns;
    davy_job *job;
    dv_turn_stage stage;
    int64_t part, parts;  /* of the stage: pictures, tokens */
    uint64_t base, total; /* in turns: of a caption of many pictures */
    uint64_t start_ns, first_ns, last_ns, progress_ns;
    int32_t pieces;
    bool timed_out, smaller, out_of_memory; /* out_of_memory: no memory for a piece of the answer */
    bool shared;                            /* by several pictures: base is all that is done */
    bool quiet;                             /* another turn reports progress */
    const _Atomic bool *stop;               /* set: cancelled. NULL: never */
} dv_turn;

struct davy_dialogue {
    _Atomic int64_t refs;
    davy_model *model;
    dv_caption_options options;
    dv_mutex *lock;
    dv_cond *changed;
    bool busy, reading; /* under the lock, down to: */
    dv_turn *queued;    /* its job has not begun */
    dv_event *events;
    int64_t n_events, events_room, next_event;
    char *read_text; /* of the last event read: the reader's; here of whoever is in the dialogue: */
    int32_t gpu;     /* that it is on, of those of the context */
    dv_weights_pin *pin;
    dv_session *session;
    dv_rgb8 *pictures;
    int64_t n_pictures, pictures_room;
    dv_dialogue_clip *clips; /* rising */
    int64_t n_clips, clips_room;
    char *user_text, *system_text;
    dv_turn_record *turns;
    int64_t n_turns, turns_room;
    davy_dialogue_info info;
    dv_turn *current; /* NULL: none is worked on */
};

davy_result dv_dialogue_add_picture(davy_dialogue *d, const dv_pixels *pixels); /* a still */
davy_result dv_dialogue_add_video(davy_dialogue *d, const dv_pixels *pixels);   /* its pictures along t */
void dv_dialogue_drop_inputs(davy_dialogue *d);                                 /* what was added */
void dv_dialogue_forget_turns(davy_dialogue *d, int64_t keep);
void dv_dialogue_clear_events(davy_dialogue *d);
/* The whole turn, of what was added; the added inputs are dropped, also on an error. */
davy_result dv_turn_run(davy_dialogue *d, dv_turn *t);

/* ---- parts of a turn ---- */

enum { DV_TURN_PARTS = 1000, DV_TURN_LOAD_PARTS = 150, DV_TURN_ENCODE_PARTS = 300 }; /* of its progress */

/* DAVY_E_CANCELLED where the turn was cancelled, or is out of time. */
davy_result dv_turn_begin_stage(davy_dialogue *d, dv_turn *t, dv_turn_stage stage, int64_t parts);
/* Reports progress; other than 0: the turn was cancelled, or is out of time. user: the dialogue, whose `current` is the turn.
 * The session calls it before every token and between the layers of a prompt. */
int32_t dv_turn_should_stop(void *user);
bool dv_turn_make_room(void *user); /* gives back other models' memory */
davy_result dv_turn_load_weights(davy_dialogue *d, dv_turn *t);
dv_picture_options dv_turn_picture_options(const davy_dialogue *d, const dv_caption_options *a);
const char *dv_turn_question(const davy_dialogue *d, const dv_caption_options *a);
/* For an answer that follows so many tokens. */
davy_result dv_turn_answer_options(const dv_caption_options *a, int64_t context, int64_t tokens,
                                   dv_answer_options *out);
davy_result dv_turn_result(const dv_turn *t, davy_result r); /* E_TIMEOUT for a cancelled one that was out of time */

/* A dialogue with the same options, on another GPU or in another thread. */
davy_result dv_dialogue_open_same(const davy_dialogue *d, int32_t gpu, davy_dialogue **out);

#endif
