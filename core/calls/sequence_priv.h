/* sequence_priv.h - what sequence.c, which takes frames and gives results, and sequence_clip.c, which computes clips, share. */
#ifndef DV_SEQUENCE_PRIV_H
#define DV_SEQUENCE_PRIV_H

#include <stdatomic.h>

#include "core/base/os.h"
#include "core/calls/sequence.h"
#include "core/calls/tensor.h"

enum { DV_SEQUENCE_WORKERS = 3 }; /* on a GPU: one brings, one computes, one fetches */

typedef struct dv_frame dv_frame;                 /* sequence.c */
typedef struct dv_sequence_clip dv_sequence_clip; /* sequence_clip.c */

struct davy_sequence {
    davy_model *model;
    davy_op op;
    dv_content content_in, content_out;
    davy_run run;      /* of every frame */
    dv_pixels like_in; /* what frames and results are like, without memory */
    dv_pixels like_out;
    davy_tensor in, out; /* the same, packed, as tensors */
    uint64_t in_bytes, out_bytes;
    _Atomic int32_t cancel; /* set under the lock, looked at by runs */
    dv_mutex *lock;
    dv_cond *changed;
    int32_t size;                   /* of the ring */
    dv_frame *frames;               /* NULL: a clip */
    dv_sequence_clip *clip;         /* NULL: frames by themselves */
    uint64_t pushed, begun, pulled; /* frames; begun: taken by a thread */
    bool pushing, pulling, finished, failed, quit;
    int32_t running;
    uint64_t memory_bytes;
    davy_error_info error; /* of the frame that failed first */
    int32_t n_workers, started;
    dv_thread *workers[DV_SEQUENCE_WORKERS];
};

static inline bool dv_sequence_cancelled(const davy_sequence *s) {
    return atomic_load_explicit(&s->cancel, memory_order_relaxed) != 0;
}

/* ---- sequences of a network that knows what was before a frame (sequence_clip.c) ---- */

/* The sequence's frames and results have been described. */
davy_result dv_sequence_clip_open(davy_sequence *s, const dv_clip_rule *rule);
void dv_sequence_clip_close(davy_sequence *s);
void dv_sequence_clip_reset(davy_sequence *s);                               /* under the lock, nothing is on its way */
void dv_sequence_clip_info(const davy_sequence *s, davy_sequence_info *out); /* under the lock */
void dv_sequence_clip_finish(const davy_sequence *s, uint64_t frames);       /* no more than these come */
void dv_sequence_clip_work(void *sequence);                                  /* the thread */

bool dv_sequence_clip_has_room(const davy_sequence *s); /* under the lock, like the next two */
bool dv_sequence_clip_has_result(const davy_sequence *s);
/* What a pull answers where there is no result: DAVY_PENDING, one is on its way. */
davy_result dv_sequence_clip_waits(const davy_sequence *s);
/* Where the next frame goes, and the next result is. */
davy_result dv_sequence_clip_slot(davy_sequence *s, int64_t pts, dv_pixels *to);
void dv_sequence_clip_result(const davy_sequence *s, int64_t *pts, dv_pixels *from);

#endif
