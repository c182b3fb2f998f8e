/* cuda_group.h - pictures on GPUs: a run of them, and what is enqueued for a group of its tiles. cuda.c makes the run and decides
 * the order of the groups.
 *
 * Tiles are counted through all pictures. `together` of them are a group, which one run of the steps computes, each as a picture
 * of a batch; the last group is shifted back to end with the last tile. Pictures of one tile each are loaded and stored as a
 * batch too. Tiles that share means or norms are of one picture, and go through several passes (statistics.h).
 * Where tiles of several GPUs come together, faded or in the caller's device memory, the first GPU does that, on a queue of
 * its own, gather_queue: on the first lane's main queue it would have to wait for the steps. With one lane it is the main queue. */
#ifndef DV_TILE_CUDA_GROUP_H
#define DV_TILE_CUDA_GROUP_H

#include "core/exec/run_cuda.h"
#include "core/tiles/picture_run.h"
#include "core/tiles/staging.h"

enum { DV_DEPTH = 2 }; /* groups of a lane under way at once */

typedef struct dv_fetch { /* a rectangle that lies converted in device memory, on its way to the host */
    dv_staging staging;   /* of one picture */
    char *block;
    int64_t n, step; /* pictures of a batch that have it, bytes between them in the host's memory */
    int64_t group;   /* it is fetched when that one ends */
} dv_fetch;

typedef struct dv_lane { /* one GPU */
    int32_t index;
    dv_program *program;
    dv_instance *instance;
    dv_gpu_queue *main, *up, *down; /* one and the same for a single group */
    int64_t begun, ended;           /* groups */
    uint64_t begun_ns[DV_DEPTH], ended_ns;
    int64_t stored, fetched; /* of fetches */
    dv_fetch *fetches;       /* [DV_DEPTH * parts] in turn */
} dv_lane;

typedef struct dv_cuda_run {
    dv_picture_run *run;
    dv_lane lanes[DV_LANES];
    int32_t n_lanes;
    int64_t tiles, together, groups;
    int64_t picture;            /* the first tile's; others but 0 only where tiles share something */
    int32_t mean;               /* which one this pass finds; schedule.means: none */
    int32_t norm;               /* how far this pass goes; schedule.norms: to the end */
    bool whole;                 /* a tile is a picture */
    bool several, fades, waits; /* several groups; waits: the call returns when its work is done */
    bool gathers;               /* results go through gather_queue */
    dv_gpu_queue *gather_queue;
    int64_t parts;       /* rectangles that a group stores at most */
    uint64_t part_bytes; /* of device memory for each */
    float *band;         /* device memory: rows of the output from band_row on, f32, [width][channels] */
    int64_t band_row, width;
    const float *fade; /* device memory: weights of all tiles, of y, then of x */
    int64_t *fade_at;  /* [y.count + x.count + 1]: where those of a tile begin */
} dv_cuda_run;

typedef struct dv_group { /* tiles [first, end), of which those before `fresh` belong to the group before as well */
    int64_t index, first, fresh, end;
} dv_group;

/* Enqueues all of a group. The host's memory has been read when it returns, and is not written. */
davy_result dv_cuda_begin_group(dv_cuda_run *r, dv_lane *lane, const dv_group *g);
/* Waits for the lane's oldest group and brings to the host what is finished with it. */
davy_result dv_cuda_end_group(dv_cuda_run *r, dv_lane *lane);
/* Brings the lane's oldest finished rectangle to the host. */
davy_result dv_cuda_fetch(dv_cuda_run *r, dv_lane *lane);

/* For functions that wait: the watch of the run is `user`. */
static inline davy_result dv_cuda_poll(void *user) {
    return dv_watch_poll(user);
}

/* Device memory that a rectangle of one picture takes in a block for several. */
static inline uint64_t dv_cuda_piece(const dv_staging *staging) {
    return dv_align_up(staging->bytes, 256);
}

/* Marks a place of q, of the lane's GPU, by an event. */
static inline davy_result dv_cuda_mark(dv_lane *lane, int32_t slot, dv_gpu_queue *q) {
    dv_gpu_event *event = NULL;
    const davy_result r = dv_instance_event(lane->instance, slot, &event);
    return r < 0 ? r : dv_gpu_event_record(event, q);
}

/* Makes any queue wait for that place. Nothing within one queue. */
static inline davy_result dv_cuda_wait(dv_lane *lane, int32_t slot, dv_gpu_queue *q) {
    dv_gpu_event *event = NULL;
    const davy_result r = dv_instance_event(lane->instance, slot, &event);
    return r < 0 ? r : dv_gpu_event_wait(q, event);
}

/* ---- what the tiles of a picture share ---- */

/* Whether this is a pass for a mean or a norm; the last pass, for the result, is not. */
static inline bool dv_cuda_is_statistics_pass(const dv_cuda_run *r) {
    const dv_tile_schedule *l = &r->run->tile_plan->schedule;
    return r->norm < l->norms || r->mean < l->means;
}

/* Device memory for such passes, before the first group. */
davy_result dv_cuda_reserve_statistics(const dv_cuda_run *r, dv_lane *lane);
/* After such a pass: what the tiles share, added up, to all lanes. */
davy_result dv_cuda_give_statistics(dv_cuda_run *r);

#endif
