/* sequence_priv.h - shared by sequence.c (frames in, results out) and sequence_clip.c (computes clips). */
#ifndef DV_SEQUENCE_PRIV_H
#define DV_SEQUENCE_PRIV_H

#include <stdatomic.h>

#include "core/base/os.h"
#include "core/calls/sequence.h"
#include "core/calls/tensor.h"

enum { DV_SEQUENCE_WORKERS = 3 }; /* on a GPU: upload, compute and download overlap */

typedef struct dv_frame dv_frame;                 /* sequence.c */
typedef struct dv_sequence_clip dv_sequence_clip; /* sequence_clip.c */

struct davy_sequence {
    davy_model *model;
    davy_op op;
    dv_content content_in, content_out;
    davy_run run;      /* of every frame */
    dv_pixels like_in; /* format and size of each frame and each result, without memory */
    dv_pixels like_out;
    davy_tensor in, out; /* the same as packed tensors */
    uint64_t in_bytes, out_bytes;
    _Atomic int32_t cancel; /* set under the lock; runs read it */
    dv_mutex *lock;
    dv_cond *changed;
    int32_t size;                   /* of the ring */
    dv_frame *frames;               /* NULL: a clip */
    dv_sequence_clip *clip;         /* NULL: frames do not depend on each other */
    uint64_t pushed, begun, pulled; /* frames so far; begun: a thread has taken them */
    bool pushing, pulling, finished, failed, quit;
    int32_t running;
    uint64_t memory_bytes;
    davy_error_info error; /* of the first frame that failed */
    int32_t n_workers, started;
    dv_thread *workers[DV_SEQUENCE_WORKERS];
};

static inline bool dv_sequence_cancelled(const davy_sequence *s) {
    return atomic_load_explicit(&s->cancel, memory_order_relaxed) != 0;
}

/* ---- sequences of a network whose results depend on earlier frames (sequence_clip.c) ---- */

/* like_in, like_out, in and out must be set. */
davy_result dv_sequence_clip_open(davy_sequence *s, const dv_clip_rule *rule);
void dv_sequence_clip_close(davy_sequence *s);
void dv_sequence_clip_reset(davy_sequence *s);                               /* under the lock; no frame is in flight */
void dv_sequence_clip_info(const davy_sequence *s, davy_sequence_info *out); /* under the lock */
void dv_sequence_clip_finish(const davy_sequence *s, uint64_t frames);       /* the clip ends after this many */
void dv_sequence_clip_work(void *sequence);                                  /* the thread's function */

bool dv_sequence_clip_has_room(const davy_sequence *s); /* under the lock, like the next two */
bool dv_sequence_clip_has_result(const davy_sequence *s);
/* Result of a pull when no result is ready: DAVY_PENDING if one is being computed. */
davy_result dv_sequence_clip_waits(const davy_sequence *s);
/* slot: memory for the next frame. result: memory and time stamp of the next result. */
davy_result dv_sequence_clip_slot(davy_sequence *s, int64_t pts, dv_pixels *to);
void dv_sequence_clip_result(const davy_sequence *s, int64_t *pts, dv_pixels *from);

#endif
