/* stream_priv.h - what engine_stream.c (which slices, which plans) and engine_stream_run.c (their runs) share. */
#ifndef DV_STREAM_PRIV_H
#define DV_STREAM_PRIV_H

#include "core/engine_priv.h"
#include "core/stream.h"

enum { DV_PIECES = 6 };

typedef struct dv_piece { /* a slice of so many frames, made ready to run */
    int64_t frames;
    bool continues, second;
    dv_program *program;
    dv_instance *instance;
    uint64_t used_at;
} dv_piece;

typedef struct dv_stage_memory { /* device memory that the caller's pictures pass through; grows */
    void *data;
    uint64_t bytes;
} dv_stage_memory;

struct dv_clip_stream {
    dv_engine *e;
    dv_store *store;
    dv_stage stage;
    int64_t h, w;
    dv_clip_company company;
    bool whole; /* the clip is one slice: nothing is kept */
    bool lean;
    int64_t slots; /* this and what follows: as in dv_request */
    bool moved;
    uint64_t near;
    double ahead;
    bool apart; /* the caller's frames pass through memory of their own, not through the arena */
    dv_clip_stream_info info;
    int64_t in_c;
    double cost_frame; /* of a later slice's */
    dv_piece pieces[DV_PIECES];
    uint64_t clock;
    void *away;                               /* of the state, what is in the host's memory */
    void *arena, *state;                      /* of all pieces in turn; NULL: not taken yet */
    dv_stage_memory own_staging[2], *staging; /* that, or the lender's */
    bool second;   /* of the slice made ready: the rule says so, and only the clip's first frames have been taken */
    int64_t taken; /* frames of the clip so far */
    bool lost;
    dv_instance *busy; /* GPU: may still be at work, after an error */
};

davy_result dv_clip_stream_plan(const dv_clip_stream *s, int64_t frames, bool continues, dv_plan **out);
/* The program of such a slice, loaded, and its instance on the stream's memory. */
davy_result dv_clip_stream_piece(dv_clip_stream *s, int64_t frames, bool continues, dv_watch *watch, dv_piece **out);

/* engine_stream_cuda.c: one slice; `image`s are its frames. */
davy_result dv_clip_stream_slice_cuda(dv_clip_stream *s, dv_piece *p, const dv_work *work, const dvk_image *in,
                                      const dvk_image *out, dv_watch *watch);
/* Whether so many bytes of the caller's frames find room in the arena beside `view`, which lies at `at`, and where. */
bool dv_clip_stream_passes(uint64_t arena, const dvk_view *view, uint64_t at, uint64_t bytes, uint64_t *where);
/* Memory for such slices of the caller's pictures, before any of them is computed. */
davy_result dv_clip_stream_stage(dv_clip_stream *s, const dv_work *work, int64_t frames_in, int64_t frames_out);
void dv_clip_stream_settle(dv_clip_stream *s); /* nothing on the device uses its memory any more */

#endif
