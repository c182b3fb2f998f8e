/* stream.h - a clip on its way through an engine, slice by slice, in bounded memory: a slice is a run of frames of any
 * allowed number, and what the network needs of the frames before it is kept as state. The clip computed in slices is, to
 * the bit, what it is computed whole by the same kernels.
 * One call at a time for each stream. It outlives an unload of the engine, but not the engine. */
#ifndef DV_CLIP_STREAM_H
#define DV_CLIP_STREAM_H

#include "core/tiles/engine.h"

typedef struct dv_clip_stream dv_clip_stream;

typedef struct dv_clip_stream_info {
    dv_clip_rule clip;
    int64_t slice; /* frames, or latents, that are computed at once: at most so many */
    int64_t out_h, out_w, out_c;
    uint64_t arena_bytes, state_bytes; /* arena: all but state and weights */
    uint64_t offloaded_bytes;          /* of the state, in the host's memory for lack of the GPU's */
    bool frame_by_frame; /* large pictures are computed one after the other: less memory, the same numbers */
    uint64_t flops_first, flops_step; /* of clip.first, and of every clip.step; of a whole clip at once all, and 0 */
} dv_clip_stream_info;

/* Frames of the longest slice that begins or continues a clip, of no more than `most`. */
static inline int64_t dv_slice_of(const dv_clip_rule *rule, int64_t most, bool continues) {
    const int64_t least = continues ? rule->step : rule->first;
    return least + dv_max(most - least, 0) / rule->step * rule->step;
}

/* What comes of a slice. */
static inline int64_t dv_slice_out(const dv_clip_rule *rule, int64_t frames, bool continues) {
    return continues ? frames / rule->step * rule->step_out
                     : rule->first_out + (frames - rule->first) / rule->step * rule->step_out;
}

/* Streams of one size that belong together, as those of a frame's tiles do. */
typedef struct dv_stream_group {
    int64_t streams;       /* each with a state of its own; 0 and 1: one */
    uint64_t caller_bytes; /* bytes of the same memory that the caller takes */
    /* NULL: the first stream of the group. Else that first one, which has run: the others use its memory, but for the state. One
     * runs at a time, and it is released last. */
    dv_clip_stream *arena_owner;
} dv_stream_group;

typedef struct dv_clip_stream_desc {
    dv_stage stage;
    int64_t h, w;
    /* Of the whole clip, which one dv_clip_stream_run will be given, so that nothing is kept for later; 0: not known. */
    int64_t frames;
    int64_t slice;                /* 0, or a wish, rounded to what is allowed */
    const dv_stream_group *group; /* NULL: none; copied. frames is 0 in a group */
} dv_clip_stream_desc;

/* Plans only, no memory is taken. DAVY_E_BUDGET, naming need and budget, where even the shortest slice does not fit. */
davy_result dv_clip_stream_open(dv_engine *e, const dv_clip_stream_desc *desc, dv_clip_stream **out);

typedef struct dv_clip_need { /* of the shortest slices, frames to come unknown */
    uint64_t weights;         /* not packed yet */
    uint64_t arena;           /* with the memory through which frames pass to a GPU */
    uint64_t state;           /* of one stream; a GPU's may be offloaded to the host's memory */
    uint64_t resident;        /* of the state, what cannot be offloaded; counted in `arena`, too */
    uint64_t flops;           /* of the first slice */
    double cost;              /* of a later frame */
    int64_t out_c;
} dv_clip_need;
/* desc: stage, h and w. */
davy_result dv_clip_stream_least(dv_engine *e, const dv_clip_stream_desc *desc, bool lean, dv_clip_need *out);

void dv_clip_stream_release(dv_clip_stream *s);
void dv_clip_stream_info_get(const dv_clip_stream *s, dv_clip_stream_info *out);

/* The next frames: work->in.n of them, clip.first and a multiple of clip.step more at a clip's beginning, then a multiple of
 * clip.step; work->out.n is what comes of them. Watched as dv_engine_run is; not stream_ordered, no tiles, not grey. The first
 * call takes the memory: where that is refused (DAVY_E_BUDGET, DAVY_E_NOMEM_DEVICE) the stream is as it was. After any other
 * error the clip is lost, and a reset is wanted. */
davy_result dv_clip_stream_run(dv_clip_stream *s, const dv_work *work);
void dv_clip_stream_reset(dv_clip_stream *s); /* the next frame begins a clip */

#endif
