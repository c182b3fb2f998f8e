/* sequence_priv.h - what the files sequence*.c share. */
#ifndef DV_SEQUENCE_PRIV_H
#define DV_SEQUENCE_PRIV_H

#include <stdatomic.h>

#include "core/calls/oneshot.h"
#include "core/base/os.h"
#include "core/calls/sequence.h"

enum { DV_SEQUENCE_WORKERS = 3 }; /* on a GPU: one brings, one computes, one fetches */

typedef enum dv_frame_state {
    DV_FRAME_FREE = 0,
    DV_FRAME_FILLING,
    DV_FRAME_QUEUED,
    DV_FRAME_RUNNING,
    DV_FRAME_DONE
} dv_frame_state;

typedef struct dv_frame {
    dv_frame_state state;
    davy_result result;
    davy_error_info error;
    davy_buffer *in_buffer; /* kept from frame to frame */
    davy_tensor in, out;    /* out.buffer NULL: the next frame brings one */
} dv_frame;

typedef struct dv_sequence_clip dv_sequence_clip; /* sequence_clip.h */

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
    int32_t size; /* of the ring */
    dv_frame *frames;
    dv_sequence_clip *clip;         /* NULL: frames by themselves */
    uint64_t pushed, begun, pulled; /* frames; begun: taken by a thread */
    bool pushing, pulling, finished, failed, quit;
    int32_t running;
    uint64_t memory_bytes;
    davy_error_info error; /* of the frame that failed first */
    int32_t n_workers, started;
    dv_thread *workers[DV_SEQUENCE_WORKERS];
};

static inline dv_frame *dv_sequence_frame(const davy_sequence *s, uint64_t number) {
    return &s->frames[number % (uint64_t)s->size];
}

static inline bool dv_sequence_cancelled(const davy_sequence *s) {
    return atomic_load_explicit(&s->cancel, memory_order_relaxed) != 0;
}

/* Under the lock. */
davy_result dv_sequence_start(davy_sequence *s);

#endif
