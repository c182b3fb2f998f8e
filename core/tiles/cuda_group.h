/* cuda_group.h - pictures on GPUs: the data of a run, and the work that is enqueued for one group of tiles. cuda.c creates the run
 * and decides the order of the groups.
 *
 * Tiles are counted through all pictures. A group is `together` of them, computed by one run of the steps as a batch. The last group
 * is shifted back to end with the last tile. If every picture is one tile, a group is also loaded and stored as a batch. Tiles that
 * share means or norms belong to one picture and go through several passes (statistics.h).
 * A lane is one GPU. If tiles of several GPUs meet, in fades or in the caller's device memory, the first GPU gathers them on a
 * separate queue, gather_queue. The first lane's main queue would have to wait for the steps. With one lane gather_queue is the main
 * queue. */
#ifndef DV_TILE_CUDA_GROUP_H
#define DV_TILE_CUDA_GROUP_H

#include "core/exec/run_cuda.h"
#include "core/tiles/picture_run.h"
#include "core/tiles/staging.h"

enum { DV_DEPTH = 2 }; /* groups of a lane that are under way at once */

typedef struct dv_fetch { /* a converted rectangle in device memory that has to be downloaded */
    dv_staging staging;   /* of one picture */
    char *block;
    int64_t n, step; /* the rectangle in n pictures of a batch, `step` bytes apart in host memory */
    int64_t group;   /* the download follows the end of this group */
} dv_fetch;

typedef struct dv_lane { /* one GPU */
    int32_t index;
    dv_program *program;
    dv_instance *instance;
    dv_gpu_queue *main, *up, *down; /* one and the same queue if there is only one group */
    int64_t begun, ended;           /* counts of groups */
    uint64_t begun_ns[DV_DEPTH], ended_ns;
    int64_t stored, fetched; /* counts of fetches: stored on the device, downloaded */
    dv_fetch *fetches;       /* [DV_DEPTH * parts], a ring */
} dv_lane;

typedef struct dv_cuda_run {
    dv_picture_run *run;
    dv_lane lanes[DV_LANES];
    int32_t n_lanes;
    int64_t tiles, together, groups;
    int64_t picture;            /* picture of the first tile; 0 unless tiles share means or norms */
    int32_t mean;               /* the mean that this pass computes; schedule.means: none */
    int32_t norm;               /* the norm up to which this pass runs; schedule.norms: to the end */
    bool whole;                 /* every picture is one tile */
    bool several, fades, waits; /* several: more than one group; waits: the call returns when its work is done */
    bool gathers;               /* results go through gather_queue */
    dv_gpu_queue *gather_queue;
    int64_t parts;       /* the most rectangles that a group stores */
    uint64_t part_bytes; /* device memory for each */
    float *band;         /* device memory: rows of the output from band_row on, f32, [width][channels] */
    int64_t band_row, width;
    const float *fade; /* device memory: fade weights of all tiles, first along y, then along x */
    int64_t *fade_at;  /* [y.count + x.count + 1]: the first weight of each tile */
} dv_cuda_run;

typedef struct dv_group { /* tiles [first, end); those before `fresh` were in the group before, too */
    int64_t index, first, fresh, end;
} dv_group;

/* Enqueues all work of a group. On return the input in host memory has been read; nothing has been written to host memory. */
davy_result dv_cuda_begin_group(dv_cuda_run *r, dv_lane *lane, const dv_group *g);
/* Waits for the lane's oldest group and downloads the rectangles that it has finished. */
davy_result dv_cuda_end_group(dv_cuda_run *r, dv_lane *lane);
/* Downloads the lane's oldest finished rectangle. */
davy_result dv_cuda_fetch(dv_cuda_run *r, dv_lane *lane);

/* The poll function for waits; user: the watch of the run. */
static inline davy_result dv_cuda_poll(void *user) {
    return dv_watch_poll(user);
}

/* Bytes from one picture's rectangle to the next in a block of device memory. */
static inline uint64_t dv_cuda_piece(const dv_staging *staging) {
    return dv_align_up(staging->bytes, 256);
}

/* Records the event of `slot` on q, a queue of the lane's GPU. */
static inline davy_result dv_cuda_mark(dv_lane *lane, int32_t slot, dv_gpu_queue *q) {
    dv_gpu_event *event = NULL;
    const davy_result r = dv_instance_event(lane->instance, slot, &event);
    return r < 0 ? r : dv_gpu_event_record(event, q);
}

/* Makes any queue wait for that event. Has no effect if q recorded it. */
static inline davy_result dv_cuda_wait(dv_lane *lane, int32_t slot, dv_gpu_queue *q) {
    dv_gpu_event *event = NULL;
    const davy_result r = dv_instance_event(lane->instance, slot, &event);
    return r < 0 ? r : dv_gpu_event_wait(q, event);
}

/* ---- means and norms that the tiles of a picture share ---- */

/* Whether this pass computes a mean or a norm. The last pass computes the result. */
static inline bool dv_cuda_is_statistics_pass(const dv_cuda_run *r) {
    const dv_tile_schedule *l = &r->run->tile_plan->schedule;
    return r->norm < l->norms || r->mean < l->means;
}

/* Allocates the device memory for such passes. Call it before the first group. */
davy_result dv_cuda_reserve_statistics(const dv_cuda_run *r, dv_lane *lane);
/* After such a pass: sums up the tiles' statistics and uploads the result to all lanes. */
davy_result dv_cuda_give_statistics(dv_cuda_run *r);

#endif
