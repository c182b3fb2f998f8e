/* engine_priv.h - what the files engine*.c share. */
#ifndef DV_ENGINE_PRIV_H
#define DV_ENGINE_PRIV_H

#include <stdatomic.h>

#include "core/plan/int8.h"
#include "core/tiles/engine.h"
#include "core/base/os.h"
#include "core/exec/run.h"
#include "core/tiles/tile.h"

enum { DV_STAGES = 4, DV_CACHED_TILE_PLANS = 8, DV_LANES = 16 };

#define DV_WORTH_SHARING_NS 3e6 /* what takes less stays on one GPU */

/* What a caller asks for; answers are kept under it. */
typedef struct dv_request {
    dv_stage stage;
    bool grey;
    int64_t pictures;      /* computed at once: of a batch, or frames of a clip; 0 and 1: one */
    bool continues;        /* a clip's frames that come after others */
    bool second;           /* and only the clip's first, of the least number, are before them */
    bool keeps;            /* and others may come after these */
    dv_exec_policy policy; /* of a clip */
    bool apart;            /* the result is taken from its place: no step stores pictures itself */
    bool given_means;      /* as in dv_plan_options */
    bool own_norms;        /* a tile's norms are over the tile: what shared ones keep has no room */
    int64_t batch;         /* pictures of a call, of which the layout may put several together; 0 and 1: one */
    int64_t h, w;
    dv_tiling tiling;
    uint64_t limit; /* memory there really is, once a device has refused some within the budget; 0: unknown */
    int64_t most;   /* tiles together, once a device has refused memory for more; 0: any number */
} dv_request;

/* How a picture will be computed: which tiles, which kernels. */
typedef struct dv_tile_schedule {
    int64_t tile_h, tile_w;
    int64_t overlap; /* input samples */
    bool exact;
    bool lean;
    bool comfortable; /* not the last resort: faded tiles have their whole overlap */
    int64_t tiles;    /* of a picture */
    int64_t together; /* tiles, whatever their picture, that one run of the steps computes */
    int64_t groups;   /* such runs, for all pictures */
    int32_t lanes;    /* which they are dealt to */
    int32_t means; /* of a picture that its tiles share, each found in a pass over all of them: one picture at a time */
    int32_t norms; /* of a picture that its tiles share, which all are run as far as each of them: also */
    uint64_t kept; /* of workspace: what tiles leave meanwhile */
    bool apart;    /* as in dv_request */
    uint64_t workspace; /* of an instance */
    uint64_t band;      /* f32 rows in which fades are added up */
    uint64_t weights;   /* not packed yet */
    uint64_t copies;    /* of them, while they are packed, at least */
    uint64_t flops;     /* all tiles of a picture */
    double cost;        /* also */
    double moving;      /* ns that a group's pictures take to come and go, from and to the host */
} dv_tile_schedule;

/* An answered request: layout, axes and the programs that compute a tile, one for each GPU. Reference-counted. */
typedef struct dv_cached_tile_plan {
    _Atomic int32_t refs;
    dv_request request;
    dv_tile_schedule layout;
    dv_axis y, x;
    int64_t out_c; /* channels of the network's output */
    int32_t n_lanes;
    dv_store *stores[DV_LANES];
    dv_program *programs[DV_LANES];
    uint64_t used_at; /* under the engine's lock */
} dv_cached_tile_plan;

typedef struct dv_clip_choice_cache dv_clip_choice_cache; /* clip/choice_cache.c */
struct dv_picture_run;                                    /* picture_run.h */

struct dv_engine {
    dv_services services;
    dv_tensors *tensors;
    dv_json *config;
    char *file_name;
    const dv_arch *arch;
    _Alignas(16) unsigned char cfg[DV_ARCH_CONFIG_BYTES];
    dvk_dtype compute;
    dv_int8 int8;     /* compute is INT8: the convolutions that may */
    bool int8_open;   /* while they are looked for: any may */
    bool int8_always; /* while they are tried: they do, whether they gain or not */
    bool has_stage[DV_STAGES];
    dv_reach reach[DV_STAGES];
    uint64_t parameters, weight_bytes;
    dv_mutex *lock;
    dv_cond *finished;           /* a run ended */
    int32_t running;             /* under the lock, like all below */
    uint64_t running_bytes;      /* workspace of those runs */
    struct dv_picture_run *jobs; /* those runs */
    int32_t n_lanes;             /* the CPU is one, or every GPU is one */
    dv_store *stores[DV_LANES];  /* replaced by unload */
    dv_cached_tile_plan *routes[DV_CACHED_TILE_PLANS];
    dv_clip_choice_cache *clips; /* how clips were computed before; NULL: none was */
    uint64_t clock;
};

const char *dv_stage_name(dv_stage stage);

/* NULL: the CPU computes. */
static inline dv_gpu *dv_engine_gpu(const dv_engine *e, int32_t lane) {
    return e->services.n_gpus > 0 ? e->services.gpus[lane] : NULL;
}

/* The picture is one tile, and no more than the picture. */
static inline bool dv_tile_is_whole(const dv_request *q, int64_t tile_h, int64_t tile_w) {
    return q->h == tile_h && q->w == tile_w;
}

/* The network of a request's stage for h x w, with grey a luma behind it; planned for a lane. */
davy_result dv_engine_make_plan(const dv_engine *e, int32_t lane, const dv_request *request, int64_t h, int64_t w,
                                bool lean, dv_plan **out);

/* Bytes below which no plan of such a request, of frames that no others come before or after, has its arena. */
davy_result dv_engine_least_arena(const dv_engine *e, const dv_request *request, int64_t h, int64_t w, uint64_t *bytes);

/* precision.c: sets `compute`, of an engine with an architecture. */
davy_result dv_engine_set_compute(dv_engine *e, davy_dtype compute, bool tf32);

/* Channels of what a stage reads. */
davy_result dv_engine_channels(const dv_engine *e, dv_stage stage, int64_t *out);

/* Whether its values leave the range of F16. */
static inline bool dv_engine_is_wide(const dv_engine *e) {
    return e->arch->wide != NULL && e->arch->wide(e->cfg);
}

/* calibrate.c: of an engine in INT8 that nobody else has yet: which convolutions have eight bits. What is stored where none has. */
davy_result dv_engine_calibrate(dv_engine *e);

/* Sides that stages are tried at. */
enum { DV_PROBE_PIXELS = 64, DV_PROBE_LATENTS = 8 };

/* load.c: a store for each lane; NULL behind them. */
davy_result dv_stores_create(dv_engine *e, dv_store *out[DV_LANES]);
void dv_stores_release(dv_store *stores[DV_LANES]);
/* dv_engine_unload, where nobody but the caller uses the first lane's store. */
davy_result dv_engine_unload_alone(dv_engine *e, const dv_store *store, bool *unloaded);

/* size.c: the best layout within `available` bytes; store: what is packed already, NULL: nothing. DAVY_E_BUDGET
 * names need and budget. */
davy_result dv_tile_schedule_choose(dv_engine *e, dv_store *store, const dv_request *request, uint64_t available,
                                    dv_tile_schedule *out);
/* Something else than pictures that is cut alike: what a layout costs whose tile size, overlap and `lean` are set. */
typedef struct dv_schedule_cost {
    davy_result (*measure)(const void *user, const dv_request *request, dv_tile_schedule *l);
    const void *user;
} dv_schedule_cost;

davy_result dv_tile_schedule_choose_by(dv_engine *e, const dv_schedule_cost *gauge, const dv_request *request,
                                       uint64_t available, dv_tile_schedule *out);
/* group.c: what a layout costs, whose tile size, overlap and `together` are set. */
davy_result dv_tile_schedule_measure(dv_engine *e, dv_store *store, const dv_request *request, dv_tile_schedule *l);
uint64_t dv_tile_schedule_need(const dv_tile_schedule *l);
/* Of a layout that fits with one tile at a time: how many are computed together, and on how many GPUs. */
davy_result dv_tile_schedule_group(dv_engine *e, dv_store *store, const dv_request *request, uint64_t available,
                                   dv_tile_schedule *l);
/* Whether a picture's tiles share something, so that they go through several passes. */
static inline bool dv_tile_schedule_shares(const dv_tile_schedule *l) {
    return l->means > 0 || l->norms > 0;
}

/* The request that a run of the steps is planned for. */
dv_request dv_tile_schedule_request(const dv_request *request, const dv_tile_schedule *l);
bool dv_tile_schedule_better(const dv_tile_schedule *a, const dv_tile_schedule *b);
bool dv_stage_tiles_exactly(const dv_reach *reach);
void dv_tile_schedule_axes(const dv_engine *e, const dv_request *request, const dv_tile_schedule *layout,
                           dv_axis_desc *y, dv_axis_desc *x);

/* tile_plan_cache.c */
davy_result dv_tile_plan_get(dv_engine *e, const dv_request *request, dv_cached_tile_plan **out); /* referenced */
void dv_tile_plan_release(dv_cached_tile_plan *route);
void dv_tile_plan_forget(dv_engine *e, dv_cached_tile_plan *route); /* the next dv_tile_plan_get decides anew */
void dv_tile_plans_drop(dv_engine *e);
/* Idle arenas of all routes but `except`, least recently used first, until at most keep_bytes remain. */
void dv_tile_plans_trim(dv_engine *e, const dv_cached_tile_plan *except, uint64_t keep_bytes);
uint64_t dv_engine_budget(const dv_engine *e);
uint64_t dv_engine_available(dv_engine *e); /* of the lane that has least */
/* run.c, under the lock: weights on a lane that runs of pictures still use, though the engine has given them up. */
uint64_t dv_engine_leaving(const dv_engine *e, int32_t lane);
dv_store *dv_engine_store(dv_engine *e, int32_t lane); /* referenced */

#endif
