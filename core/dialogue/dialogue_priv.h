/* dialogue_priv.h - between dialogue.c, which guards a dialogue and its queue of events, turn.c, which works, params.c,
 * which checks and copies what a question may say, and captions.c and captions_batch.c. */
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
davy_result dv_dialogue_check_run(const davy_run *run);
davy_result dv_dialogue_check_model(const davy_model *m);
davy_result dv_dialogue_check_image(const davy_tensor *image, dv_pixels *out);  /* one picture, */
davy_result dv_dialogue_check_images(const davy_tensor *image, dv_pixels *out); /* or a video */

typedef struct dv_event {
    davy_token_kind kind;
    char *text; /* NULL: none */
    uint64_t bytes;
    int32_t index;
    davy_turn_end end;
} dv_event;

typedef struct dv_clip { /* pictures that are frames of one video */
    int64_t first, n, total;
    double fps;
    int64_t *index; /* [n] */
} dv_clip;

typedef struct dv_turn_record { /* a complete turn */
    dv_session_mark mark;       /* after it */
    char *text;
} dv_turn_record;

typedef enum dv_turn_stage { DV_TURN_LOAD = 0, DV_TURN_LOOK, DV_TURN_READ, DV_TURN_ANSWER } dv_turn_stage;

typedef struct dv_turn {
    davy_dialogue *dialogue; /* a reference where there is a job */
    dv_caption_options own;
    const dv_caption_options *asking; /* own, or the dialogue's */
    davy_run run;
    uint64_t deadline_ns;
    davy_job *job;
    dv_turn_stage stage;
    int64_t part, parts;  /* of the stage: pictures, tokens */
    uint64_t base, total; /* in turns: of a caption of many pictures */
    uint64_t start_ns, first_ns, last_ns, progress_ns;
    int32_t pieces;
    bool timed_out, smaller, lost; /* lost: no memory for a piece of the answer */
    bool shared;                   /* by several pictures: base is all that is done */
    bool quiet;                    /* another turn tells how far it is */
    const _Atomic bool *stop;      /* set: it is not wanted any more. NULL: never */
} dv_turn;

struct davy_dialogue {
    _Atomic int64_t refs;
    davy_model *model;
    dv_caption_options asking;
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
    dv_clip *clips; /* rising */
    int64_t n_clips, clips_room;
    char *words, *system;
    dv_turn_record *turns;
    int64_t n_turns, turns_room;
    davy_dialogue_info info;
    dv_turn *now; /* NULL: none is worked on */
};

dv_heap *dv_dialogue_heap(const davy_dialogue *d);
davy_result dv_dialogue_add_pixels(davy_dialogue *d, const dv_pixels *pixels); /* a still */
davy_result dv_dialogue_add_video(davy_dialogue *d, const dv_pixels *pixels);  /* its pictures along t */
void dv_dialogue_drop(davy_dialogue *d);                                       /* what was added */
void dv_dialogue_forget_turns(davy_dialogue *d, int64_t keep);
davy_result dv_dialogue_push(davy_dialogue *d, const dv_event *event); /* takes its text over */
void dv_dialogue_clear_events(davy_dialogue *d);
/* The whole turn, of what was added; whatever comes of it, nothing is added afterwards. */
davy_result dv_dialogue_turn(davy_dialogue *d, dv_turn *t);
uint64_t dv_dialogue_deadline(const davy_run *run);

/* ---- parts of a turn ---- */

enum { DV_TURN_PARTS = 1000, DV_TURN_LOAD_PARTS = 150, DV_TURN_LOOK_PARTS = 300 }; /* of its progress */

/* DAVY_E_CANCELLED where it is not wanted any more. */
davy_result dv_turn_begin(davy_dialogue *d, dv_turn *t, dv_turn_stage stage, int64_t parts);
/* Tells how far it is; other than 0: it is not wanted any more. user: the dialogue, whose `now` is the turn. It is asked
 * before every token and between the layers of a prompt. */
int32_t dv_turn_should_stop(void *user);
bool dv_turn_make_room(void *user);                     /* of the context's, for a dialogue's memory */
davy_result dv_turn_load(davy_dialogue *d, dv_turn *t); /* the weights */
dv_picture_options dv_turn_picture_options(const davy_dialogue *d, const dv_caption_options *a);
const char *dv_turn_question(const davy_dialogue *d, const dv_caption_options *a);
/* For an answer behind so many tokens. */
davy_result dv_turn_answer_options(const dv_caption_options *a, int64_t context, int64_t tokens,
                                   dv_answer_options *out);
davy_result dv_turn_why(const dv_turn *t, davy_result r); /* a cancelled one may have been out of time */

/* ---- many pictures ---- */

typedef struct dv_captions {
    davy_dialogue *dialogue; /* nobody else is in it */
    uint32_t n;
    const dv_pixels *pixels;
    davy_text **texts; /* one for each picture that is done */
    dv_turn turn;
    _Atomic uint32_t next; /* that nobody has taken yet */
    _Atomic bool stop;     /* somebody has failed */
} dv_captions;

/* As many as can be done together (captions_gpus.c); texts tells which are left: all, where the model or the memory is not
 * for it. */
davy_result dv_caption_together(dv_captions *c);

/* What one GPU, or the CPU, does of them (captions_batch.c). */
typedef struct dv_captioning {
    dv_captions *all;
    davy_dialogue *dialogue;
    dv_turn turn;
    int64_t most;                 /* pictures at once */
    _Atomic uint64_t parts;       /* of progress, done */
    struct dv_captioning *others; /* whose parts this one tells together with its own; NULL: it tells nothing */
    int32_t n_others;
    davy_result r; /* once it has ended */
    davy_error_info error;
    dv_thread *thread;
} dv_captioning;

/* Takes pictures as long as there are any. The dialogue's weights have been loaded. */
davy_result dv_caption_share(dv_captioning *c);
/* A dialogue that asks the same, on another GPU or in another thread. */
davy_result dv_dialogue_open_same(const davy_dialogue *d, int32_t gpu, davy_dialogue **out);

/* One picture, as a turn of d, d->now. */
davy_result dv_caption_look(davy_dialogue *d, const dv_pixels *pixels, dv_encoded *out);

/* Pictures that are looked at in a thread of its own (captions_ahead.c). */
typedef struct dv_ahead dv_ahead;
davy_result dv_ahead_start(dv_captioning *c, dv_ahead **out); /* whatever it answers, end follows */
void dv_ahead_end(dv_ahead *a);                               /* NULL: nothing */
void dv_ahead_ask(dv_ahead *a, uint32_t index);               /* nothing where one was asked for and not taken */
bool dv_ahead_ready(dv_ahead *a);
/* Waits for the one that was asked for; *start_ns: when it was begun. */
davy_result dv_ahead_take(dv_ahead *a, dv_encoded *out, uint64_t *start_ns);

#endif
