/* cuda.h - what the files engine_cuda*.c share: pictures on GPUs. */
#ifndef DV_ENGINE_CUDA_H
#define DV_ENGINE_CUDA_H

#include "core/tiles/picture_run.h"
#include "core/exec/run_cuda.h"
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

/* Tiles are counted through all pictures. `together` of them are a group, which one run of the steps computes, each as a
 * picture of a batch; the last group is shifted back to end with the last tile. Pictures of one tile each are loaded and
 * stored as a batch too.
 * Tiles that share means or norms are a picture's, and go through several passes (shared_means.c, shared_norms.c).
 * Where tiles of several GPUs come together, faded or in the caller's device memory, that is done on the first lane's GPU,
 * on a queue `home` of its own: behind the first lane's steps it would have to wait for them. With one lane home is its
 * main queue. */
typedef struct dv_cuda_run {
    dv_picture_run *j;
    dv_lane lanes[DV_LANES];
    int32_t n_lanes;
    int64_t tiles, together, groups;
    int64_t picture;            /* the first tile's; others but 0 only where tiles share something */
    int32_t mean;               /* which one this pass finds; layout.means: none */
    int32_t norm;               /* how far this pass goes; layout.norms: to the end */
    bool whole;                 /* a tile is a picture */
    bool several, fades, waits; /* several groups; waits: the call returns when its work is done */
    bool gathers;               /* results go through home */
    dv_gpu_queue *home;
    int64_t parts;       /* rectangles that a group stores at most */
    uint64_t part_bytes; /* of device memory for each */
    float *band;         /* device memory: rows of the output from band_row on, f32, [width][channels] */
    int64_t band_row, width;
    const float *fade; /* device memory: weights of all tiles, of y, then of x */
    int64_t *fade_at;  /* [y.count + x.count + 1]: where those of a tile begin */
} dv_cuda_run;

typedef struct dv_tile_place {
    int64_t picture, ty, tx;
} dv_tile_place;

typedef struct dv_group { /* tiles [first, end), of which those before `fresh` belong to the group before as well */
    int64_t index, first, fresh, end;
} dv_group;

dv_tile_place dv_cuda_place(const dv_cuda_run *r, int64_t tile);

/* Enqueues all of a group; the host's memory has been read when it returns, and is not written. */
davy_result dv_cuda_begin_group(dv_cuda_run *r, dv_lane *lane, const dv_group *g);
/* Waits for the lane's oldest group and brings to the host what is finished with it. */
davy_result dv_cuda_end_group(dv_cuda_run *r, dv_lane *lane);
/* Brings the lane's oldest finished rectangle to the host. */
davy_result dv_cuda_fetch(dv_cuda_run *r, dv_lane *lane);

/* Converts the caller's rectangles of the group's tiles, which are in the first GPU's memory, to `input`. */
davy_result dv_cuda_load(dv_cuda_run *r, dv_instance *instance, dv_gpu_queue *q, const dv_group *g,
                         const dvk_view *input);
/* From the network's `output` of the group, on q of the lane's GPU, to the pictures: stored or faded. */
davy_result dv_cuda_put(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, const dv_group *g, const dvk_view *output);

/* Converts `view`, on q of the lane's GPU, to the rectangle of the output that begins at y0, x0, of as many pictures as the
 * view has: in its place, or on its way there. */
davy_result dv_cuda_store(dv_cuda_run *r, dv_lane *lane, dv_gpu_queue *q, const dvk_view *view, const dv_group *g,
                          int64_t picture, int64_t y0, int64_t x0);

/* Device memory that a rectangle of one picture takes in a block for several. */
uint64_t dv_cuda_piece(const dv_staging *staging);

/* Events: marks a place of q, of the lane's GPU; makes any queue wait for it. Both nothing within one queue. */
davy_result dv_cuda_mark(dv_lane *lane, int32_t slot, dv_gpu_queue *q);
davy_result dv_cuda_wait(dv_lane *lane, int32_t slot, dv_gpu_queue *q);

/* The part of a tile's output, whatever it lies in, that the picture gets. */
dvk_view dv_cuda_used(const dv_cuda_run *r, const dvk_view *output, dv_tile_place at, int64_t channels);

/* cuda_reserve.c: what groups need in device memory, all of it before the first; and their lists. */
davy_result dv_cuda_reserve(dv_cuda_run *r);

/* cuda_statistics.c: whether this is a pass for a mean, or for it or norms; a group's part of it; then all parts' mean, or
 * statistics, to all lanes. */
bool dv_cuda_seeks_mean(const dv_cuda_run *r);
bool dv_cuda_seeks(const dv_cuda_run *r);
davy_result dv_cuda_sum_group(dv_cuda_run *r, dv_lane *lane, const dv_group *g);
davy_result dv_cuda_give_mean(dv_cuda_run *r);
davy_result dv_cuda_give_norm(dv_cuda_run *r);
/* What a group needs to go on from a norm, to its place or `back`. */
davy_result dv_cuda_keep(dv_cuda_run *r, dv_lane *lane, const dv_group *g, int64_t norm, bool back);
uint64_t dv_cuda_kept_bytes(const dv_cuda_run *r, const dv_lane *lane); /* of DV_SLOT_KEPT */
uint64_t dv_cuda_sum_bytes(const dv_cuda_run *r, const dv_lane *lane);  /* of DV_SLOT_MEANS */

/* cuda_fade.c: weights of the fades, into the first lane's device memory; a tile's output into the band. */
davy_result dv_cuda_prepare_fades(dv_cuda_run *r);
davy_result dv_cuda_fade(dv_cuda_run *r, const dvk_view *output, const dv_group *g, dv_tile_place at);

/* multi_gpu.c */
davy_result dv_cuda_open_multi_gpu(dv_cuda_run *r);
davy_result dv_cuda_close_multi_gpu(dv_cuda_run *r); /* main queues go on when home is done */
/* The caller's pictures in the first GPU's memory become the input of another lane. */
davy_result dv_cuda_scatter(dv_cuda_run *r, dv_lane *lane, const dv_group *g);
/* Before anything of a lane's next group: what it overwrites has been taken. */
davy_result dv_cuda_await_gathered(dv_cuda_run *r, dv_lane *lane);
davy_result dv_cuda_gather(dv_cuda_run *r, dv_lane *lane, const dv_group *g);

#endif
