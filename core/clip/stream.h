/* stream.h - computes a clip with an engine, slice by slice, in bounded memory. A slice is a sequence of frames whose number the
 * network allows. The values that the network needs of earlier frames are kept as state. With the same kernels, a clip computed in
 * slices has the same bits as the clip computed whole.
 * One call at a time for each stream. A stream survives an unload of the engine; the engine must outlive it. */
#ifndef DV_CLIP_STREAM_H
#define DV_CLIP_STREAM_H

#include "core/tiles/engine.h"

typedef struct dv_clip_stream dv_clip_stream;

typedef struct dv_clip_stream_info {
    dv_clip_rule clip;
    int64_t slice; /* the most frames, or latents, that are computed at once */
    int64_t out_h, out_w, out_c;
    uint64_t arena_bytes, state_bytes; /* arena: all memory except state and weights */
    uint64_t offloaded_bytes;          /* part of the state in host memory, because the GPU's is too small */
    bool frame_by_frame; /* large pictures are computed one after the other: less memory, the same numbers */
    uint64_t flops_first,
        flops_step; /* of the first clip.first frames, of every further clip.step; whole clip: all, 0 */
} dv_clip_stream_info;

/* Frames of the longest allowed slice with at most `most` frames. continues: it continues a clip, else it begins one. If `most` is
 * too small, the shortest slice. */
static inline int64_t dv_slice_of(const dv_clip_rule *rule, int64_t most, bool continues) {
    const int64_t least = continues ? rule->step : rule->first;
    return least + dv_max(most - least, 0) / rule->step * rule->step;
}

/* Output frames of a slice. */
static inline int64_t dv_slice_out(const dv_clip_rule *rule, int64_t frames, bool continues) {
    return continues ? frames / rule->step * rule->step_out
                     : rule->first_out + (frames - rule->first) / rule->step * rule->step_out;
}

/* Streams of one size that share memory, such as those of a frame's tiles. */
typedef struct dv_stream_group {
    int64_t streams;       /* each has its own state; 0 counts as 1 */
    uint64_t caller_bytes; /* bytes of the same memory that the caller needs for itself */
    /* NULL: this is the first stream of the group. Otherwise the first stream, which has run: this stream uses its memory, except for
     * the state. Only one stream of a group runs at a time. The first is released last. */
    dv_clip_stream *arena_owner;
} dv_stream_group;

typedef struct dv_clip_stream_desc {
    dv_stage stage;
    int64_t h, w;
    /* Frames of the whole clip, if one dv_clip_stream_run receives them all, so that no state has to be kept; 0: unknown. */
    int64_t frames;
    int64_t slice;                /* requested slice length, rounded to an allowed one; 0: automatic */
    const dv_stream_group *group; /* NULL: none; copied. In a group `frames` must be 0 */
} dv_clip_stream_desc;

/* Plans a stream; takes no memory yet. DAVY_E_BUDGET: even the shortest slice does not fit; the message has the need and the
 * budget. */
davy_result dv_clip_stream_open(dv_engine *e, const dv_clip_stream_desc *desc, dv_clip_stream **out);

typedef struct dv_clip_need { /* least need, in bytes: shortest slices, clip length unknown */
    uint64_t weights;         /* not packed yet */
    uint64_t arena;           /* with the memory through which frames are copied to a GPU */
    uint64_t state;           /* of one stream; a GPU's state may be offloaded to host memory */
    uint64_t resident;        /* the part of the state that cannot be offloaded; also counted in `arena` */
    uint64_t flops;           /* of the first slice */
    double cost;              /* ns of a later frame */
    int64_t out_c;
} dv_clip_need;
/* Measures that need. Of desc only stage, h and w are used. */
davy_result dv_clip_stream_least(dv_engine *e, const dv_clip_stream_desc *desc, bool lean, dv_clip_need *out);

void dv_clip_stream_release(dv_clip_stream *s);
void dv_clip_stream_info_get(const dv_clip_stream *s, dv_clip_stream_info *out);

/* Computes the next work->in.n frames. At the beginning of a clip that is clip.first plus a multiple of clip.step, later a multiple of
 * clip.step. work->out.n must be the number of frames that they give. Progress and cancelling work as in dv_engine_run. stream_ordered,
 * tiles and grey are not supported.
 * The first call takes the memory. If that fails (DAVY_E_BUDGET, DAVY_E_NOMEM_DEVICE), the stream is unchanged. After any other error
 * the clip is lost and the caller must reset the stream. */
davy_result dv_clip_stream_run(dv_clip_stream *s, const dv_work *work);
void dv_clip_stream_reset(dv_clip_stream *s); /* the next frame begins a clip */

#endif
