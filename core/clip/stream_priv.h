/* stream_priv.h - a stream from inside, for its three files: stream.c (opening and running), choose.c (how a clip is computed)
 * and cuda.c (a slice on a GPU). */
#ifndef DV_STREAM_PRIV_H
#define DV_STREAM_PRIV_H

#include "core/clip/stream.h"
#include "core/cuda/gpu.h"
#include "core/tiles/engine_plan.h"
#include "core/tiles/pictures.h"

enum { DV_SLICE_PROGRAMS = 6 };

typedef struct dv_clip_slice { /* of a clip */
    int64_t frames;
    bool continues; /* others come before it */
    bool second;    /* only the clip's first ones do (dv_request.second) */
} dv_clip_slice;

typedef struct dv_slice_program { /* a slice of so many frames, made ready to run */
    int64_t frames;
    bool continues, second;
    dv_program *program;
    dv_instance *instance;
    uint64_t used_at;
} dv_slice_program;

typedef struct dv_stage_memory { /* device memory that the caller's pictures pass through; grows */
    void *data;
    uint64_t bytes;
} dv_stage_memory;

typedef struct dv_slice_choice { /* how a clip is computed */
    dv_clip_stream_info info;
    bool whole; /* the clip is one slice: nothing is kept */
    bool lean;
    dv_exec_policy policy;
    uint64_t need; /* of everything, weights not packed yet included, but for what is in the host's memory */
    uint64_t weights, weights_all; /* not packed yet, packed or not */
    uint64_t staging;              /* of the caller's frames */
    bool apart;                    /* they pass through memory of their own, not through the arena */
    int64_t in_c;
    double cost_slice, cost_frame; /* of a later one, of a later slice's */
} dv_slice_choice;

/* Plans of a choice's longest slices, made while it was chosen: of a clip's first frames, of later ones, and of those behind the
 * first that have a plan of their own (dv_request.second). NULL: is to be made. */
typedef struct dv_slice_plans {
    dv_plan *first, *later, *second;
} dv_slice_plans;

static inline void dv_slice_plans_drop(dv_slice_plans *p) {
    dv_plan_release(p->first);
    dv_plan_release(p->later);
    dv_plan_release(p->second);
    *p = (dv_slice_plans){0};
}

static inline void dv_slice_plans_move(dv_slice_plans *to, dv_slice_plans *from) {
    dv_slice_plans_drop(to);
    *to = *from;
    *from = (dv_slice_plans){0};
}

struct dv_clip_stream {
    dv_engine *e;
    dv_store *store;
    dv_stage stage;
    int64_t h, w;
    dv_stream_group group;
    bool packs_anew; /* while it is decided: as if nothing were packed */
    dv_slice_choice choice;
    dv_slice_plans plans; /* of the choice; the first programs of these slices take them */
    dv_slice_program programs[DV_SLICE_PROGRAMS];
    uint64_t clock;
    void *arena, *state;                      /* of all programs in turn; NULL: not taken yet */
    dv_pinned offloaded;                      /* of the state, what is in the host's memory */
    dv_stage_memory own_staging[2], *staging; /* in and out: its own, or the arena owner's */
    bool second;   /* of the slice made ready: the rule says so, and only the clip's first frames have been taken */
    int64_t taken; /* frames of the clip so far */
    bool lost;
    dv_instance *busy; /* GPU: may still be at work, after an error */
};

/* Bytes of the state that lie where the steps are computed: on the GPU, or in the processor's memory. */
static inline uint64_t dv_resident_bytes(const dv_clip_stream_info *i) {
    return i->state_bytes - i->offloaded_bytes;
}

/* ---- choose.c ---- */

/* Sets s->choice and s->plans. frames and slice as in dv_clip_stream_open. */
davy_result dv_clip_stream_choose(dv_clip_stream *s, int64_t frames, int64_t slice);
void dv_clip_stream_log_choice(const dv_clip_stream *s);

/* The plan of a slice by a choice. */
davy_result dv_clip_stream_plan(const dv_clip_stream *s, const dv_slice_choice *c, dv_clip_slice slice, dv_plan **out);
/* What a choice takes whose slice, whole, lean and policy are set. */
davy_result dv_clip_stream_measure(const dv_clip_stream *s, dv_slice_choice *c);
/* The same for the shortest slices, with as little of the device's memory as that can be. */
davy_result dv_clip_stream_measure_least(const dv_clip_stream *s, bool lean, dv_slice_choice *out);

typedef struct dv_clip_candidate {
    dv_slice_choice c;
    dv_weight_set counted; /* weights */
    dv_slice_plans plans;
    bool complete; /* first slices are counted, too */
} dv_clip_candidate;

/* dv_clip_stream_measure in two steps: later slices (made: their plan, or NULL; taken over), then the first slices of a clip.
 * These may add to `need` and to nothing else that decides. dv_clip_candidate_end in any case. */
davy_result dv_clip_stream_weigh(const dv_clip_stream *s, const dv_slice_choice *c, dv_plan *made,
                                 dv_clip_candidate *w);
davy_result dv_clip_stream_weigh_all(const dv_clip_stream *s, dv_clip_candidate *w);
void dv_clip_candidate_end(dv_clip_candidate *w);

/* ---- cuda.c ---- */

/* Computes one slice: the frames of `work`. */
davy_result dv_clip_stream_slice_cuda(dv_clip_stream *s, dv_slice_program *p, const dv_work *work, dv_watch *watch);
/* Whether so many bytes of the caller's frames find room in the arena beside `view`, which lies at `at`, and where. */
bool dv_clip_stream_passes(uint64_t arena, const dvk_view *view, uint64_t at, uint64_t bytes, uint64_t *where);
/* Memory for such slices of the caller's pictures, before any of them is computed. */
davy_result dv_clip_stream_stage(dv_clip_stream *s, const dv_work *work, int64_t frames_in, int64_t frames_out);
void dv_clip_stream_settle(dv_clip_stream *s); /* nothing on the device uses its memory any more */

#endif
