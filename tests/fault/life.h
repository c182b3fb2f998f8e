/* life.h - one life of a small model, for injecting faults: open, info, plan, load, run, run as a job, release. */
#ifndef DV_TESTS_LIFE_H
#define DV_TESTS_LIFE_H

#include <stdbool.h>

#include "tests/hosts/host.h"

typedef struct life {
    const davy_api *api;
    davy_context *ctx;
    davy_source source;
    synth_file file;
    picture in, out, want; /* want: result of an undisturbed run */
    const davy_run *run;   /* may be NULL */
    bool as_job;           /* the run is a job, and life waits for it */
    bool as_frame;         /* the run is a frame of a sequence */
} life;

/* 2: as a call and as a job; 3: also as a frame. */
extern const int life_ways;

/* Makes the weights, the pictures and, when ctx is set, the reference result. */
void life_begin(life *l, const davy_api *api, davy_context *ctx);
void life_end(life *l);
/* Everything from model_open to model_release; the first error, with its record in the calling thread, or DAVY_OK. */
davy_result life_live(life *l);
/* True if the last life's picture equals the reference, exactly or within the bound. */
bool life_right(const life *l, double bound);

#endif
