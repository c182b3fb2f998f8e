/* sequence_clip.h - sequences of a network that knows what was before a frame: frames go in one by one, slices of them
 * through a stream, results come out one by one. Frames and results lie in two rings, each one block of memory in which no
 * step of a slice goes across the end. */
#ifndef DV_SEQUENCE_CLIP_H
#define DV_SEQUENCE_CLIP_H

#include "core/calls/sequence_priv.h"

typedef struct dv_frame_queue {
    davy_buffer *block; /* NULL: not needed yet */
    int64_t *pts;
    int64_t lead;  /* of item 0: so that later steps begin where a step can */
    int64_t slots; /* a multiple of the step */
} dv_frame_queue;

struct dv_sequence_clip {
    dv_call call; /* whose pixels are the rings */
    dv_clip_rule rule;
    dv_clip_tiles *tiles; /* NULL: before the first slice */
    dv_frame_queue in, out;
    bool begun;          /* a slice has been computed */
    uint64_t used, made; /* frames that are through the network, results */
    int64_t slice;       /* frames at most */
};

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
