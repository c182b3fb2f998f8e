/* stream_priv.h - the members of a stream, for its three files: stream.c (opening and running), choose.c (how a clip is computed) and
 * cuda.c (a slice on a GPU). */
#ifndef DV_STREAM_PRIV_H
#define DV_STREAM_PRIV_H

#include "core/clip/stream.h"
#include "core/cuda/gpu.h"
#include "core/tiles/engine_plan.h"
#include "core/tiles/pictures.h"

enum { DV_SLICE_PROGRAMS = 6 };

typedef struct dv_clip_slice { /* of a clip */
    int64_t frames;
    bool continues; /* earlier slices precede it */
    bool second;    /* only the clip's first frames precede it (dv_request.second) */
} dv_clip_slice;

typedef struct dv_slice_program { /* the program for slices of one length */
    int64_t frames;
    bool continues, second;
    dv_program *program;
    dv_instance *instance;
    uint64_t used_at;
} dv_slice_program;

typedef struct dv_stage_memory { /* device memory for staging the caller's pictures; it only grows */
    void *data;
    uint64_t bytes;
} dv_stage_memory;

typedef struct dv_slice_choice { /* how a clip is computed */
    dv_clip_stream_info info;
    bool whole; /* the clip is one slice: no state is kept */
    bool lean;
    dv_exec_policy policy;
    uint64_t need;                 /* bytes of all memory, unpacked weights included; without the part in host memory */
    uint64_t weights, weights_all; /* bytes of weights: not packed yet; all of them */
    uint64_t staging;              /* bytes of the caller's frames */
    bool apart;                    /* they are staged in separate memory, not in the arena */
    int64_t in_c;
    double cost_slice, cost_frame; /* ns of a later slice, and of one of its frames */
} dv_slice_choice;

/* Plans of a choice's longest slices, made while choosing: for a clip's first frames, for later ones, and for those behind the first
 * if they need a separate plan (dv_request.second). NULL: not made yet. */
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
    bool packs_anew; /* set during a choice: weights are counted as if none were packed */
    dv_slice_choice choice;
    dv_slice_plans plans; /* of the choice; the first programs of these slices take them */
    dv_slice_program programs[DV_SLICE_PROGRAMS];
    uint64_t clock;
    void *arena, *state;                      /* shared by all programs, one at a time; NULL: not taken yet */
    dv_pinned offloaded;                      /* the part of the state in host memory */
    dv_stage_memory own_staging[2], *staging; /* for input and output: its own, or the arena owner's */
    bool second; /* the current slice is a second one: the rule has them, and only the clip's first frames were taken */
    int64_t taken; /* frames of the clip so far */
    bool lost;
    dv_instance *busy; /* GPU: an instance that may still be running after an error */
};

/* Bytes of the state in the memory of the computing device: the GPU's, or the host's for a CPU. */
static inline uint64_t dv_resident_bytes(const dv_clip_stream_info *i) {
    return i->state_bytes - i->offloaded_bytes;
}

/* ---- choose.c ---- */

/* Sets s->choice and s->plans. frames and slice: as in dv_clip_stream_desc. */
davy_result dv_clip_stream_choose(dv_clip_stream *s, int64_t frames, int64_t slice);
void dv_clip_stream_log_choice(const dv_clip_stream *s);

/* Plans a slice as a choice says. */
davy_result dv_clip_stream_plan(const dv_clip_stream *s, const dv_slice_choice *c, dv_clip_slice slice, dv_plan **out);
/* Measures memory and time of a choice whose slice, whole, lean and policy are set. */
davy_result dv_clip_stream_measure(const dv_clip_stream *s, dv_slice_choice *c);
/* The same for the shortest slices with the least possible device memory. */
davy_result dv_clip_stream_measure_least(const dv_clip_stream *s, bool lean, dv_slice_choice *out);

typedef struct dv_clip_candidate {
    dv_slice_choice c;
    dv_weight_set counted; /* weights */
    dv_slice_plans plans;
    bool complete; /* first slices are counted, too */
} dv_clip_candidate;

/* dv_clip_stream_measure in two steps. weigh measures the later slices; made: their plan or NULL, the call takes ownership. weigh_all
 * adds the first slices of a clip, which may increase `need` but change no other value that decides. dv_clip_candidate_end must follow
 * in every case. */
davy_result dv_clip_stream_weigh(const dv_clip_stream *s, const dv_slice_choice *c, dv_plan *made,
                                 dv_clip_candidate *w);
davy_result dv_clip_stream_weigh_all(const dv_clip_stream *s, dv_clip_candidate *w);
void dv_clip_candidate_end(dv_clip_candidate *w);

/* ---- cuda.c ---- */

/* Computes one slice: the frames of `work`. */
davy_result dv_clip_stream_slice_cuda(dv_clip_stream *s, dv_slice_program *p, const dv_work *work, dv_watch *watch);
/* Whether `bytes` bytes of the caller's frames fit into the arena beside `view`, which lies at offset `at`. *where: their offset. */
bool dv_clip_stream_passes(uint64_t arena, const dvk_view *view, uint64_t at, uint64_t bytes, uint64_t *where);
/* Takes staging memory for slices of so many frames. Call it before the first of them is computed. */
davy_result dv_clip_stream_stage(dv_clip_stream *s, const dv_work *work, int64_t frames_in, int64_t frames_out);
void dv_clip_stream_settle(dv_clip_stream *s); /* waits until no work on the device uses the stream's memory */

#endif
