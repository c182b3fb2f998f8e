/* engine_plan.h - the members of an engine, and the plans that it makes. A plan is the network of a stage for pictures of one size,
 * as steps for a device. The rooms that compute with an engine (tiles, clip) use this header; all others use engine.h. */
#ifndef DV_ENGINE_PLAN_H
#define DV_ENGINE_PLAN_H

#include "core/base/os.h"
#include "core/exec/run.h"
#include "core/plan/int8.h"
#include "core/tiles/engine.h"

enum { DV_STAGES = 4, DV_CACHED_TILE_PLANS = 8, DV_LANES = 16 };

/* Side of the pictures or latents for which a stage is built when only its channels, weights or rules are needed. */
enum { DV_PROBE_PIXELS = 64, DV_PROBE_LATENTS = 8 };

/* A caller's request; the key of the cached tile plans. */
typedef struct dv_request {
    dv_stage stage;
    bool grey;
    int64_t pictures;      /* computed at once: pictures of a batch or frames of a clip; 0 counts as 1 */
    bool continues;        /* the frames continue a clip */
    bool second;           /* only the least number of first frames of the clip precedes these */
    bool keeps;            /* more frames may follow, so state is kept */
    dv_exec_policy policy; /* of a clip */
    bool apart;            /* the caller converts the output itself: no step stores pictures */
    bool given_means;      /* as in dv_plan_options */
    bool own_norms;        /* each tile computes norms over itself, because shared norms need too much memory */
    int64_t batch;         /* pictures of a call; the schedule may compute several together; 0 counts as 1 */
    int64_t h, w;
    dv_tiling tiling;
    uint64_t
        memory_limit; /* bytes that are really available, after a device refused memory within the budget; 0: unknown */
    int64_t max_together; /* the most tiles at once, after a device refused memory for more; 0: no limit */
} dv_request;

typedef struct dv_clip_choice_cache dv_clip_choice_cache; /* clip/choose.c */
struct dv_cached_tile_plan;                               /* pictures.h */
struct dv_picture_run;                                    /* picture_run.h */

struct dv_engine {
    dv_services services;
    dv_tensors *tensors;
    dv_json *config;
    char *file_name;
    const dv_arch *arch;
    _Alignas(16) unsigned char cfg[DV_ARCH_CONFIG_BYTES];
    dvk_dtype compute;
    dv_int8 int8;     /* for INT8: the convolutions that use eight bits */
    bool int8_open;   /* set while candidates are listed: any convolution may use eight bits */
    bool int8_always; /* set during trials: the chosen ones use eight bits even if that is slower */
    bool has_stage[DV_STAGES];
    dv_reach reach[DV_STAGES];
    uint64_t parameters, weight_bytes;
    dv_mutex *lock;
    dv_cond *finished;           /* signalled when a run ends */
    int32_t running;             /* runs under way; guarded by the lock, like all members below */
    uint64_t running_bytes;      /* their workspace */
    struct dv_picture_run *runs; /* list of them */
    int32_t n_lanes;             /* number of GPUs, or 1 for the CPU */
    dv_store *stores[DV_LANES];  /* unload replaces them */
    struct dv_cached_tile_plan *tile_plans[DV_CACHED_TILE_PLANS];
    dv_clip_choice_cache *clip_choices; /* earlier choices for clips; NULL: none */
    uint64_t clock;
};

/* The GPU of a lane. NULL: the engine runs on the CPU. */
static inline dv_gpu *dv_engine_gpu(const dv_engine *e, int32_t lane) {
    return e->services.n_gpus > 0 ? e->services.gpus[lane] : NULL;
}

/* Whether the network's values exceed the range of F16. */
static inline bool dv_engine_is_wide(const dv_engine *e) {
    return e->arch->wide != NULL && e->arch->wide(e->cfg);
}

/* Whether a tile of this size is the whole picture. */
static inline bool dv_tile_is_whole(const dv_request *q, int64_t tile_h, int64_t tile_w) {
    return q->h == tile_h && q->w == tile_w;
}

static inline const char *dv_stage_name(dv_stage stage) {
    return stage == DV_STAGE_ENCODE ? "encode" : stage == DV_STAGE_DECODE ? "decode" : "upscale";
}

uint64_t dv_engine_budget(const dv_engine *e); /* memory budget of the first lane, in bytes */

/* Builds and checks the network of a stage for h x w. For a grey request a luma layer follows it. */
davy_result dv_engine_build_graph(const dv_engine *e, const dv_request *request, int64_t h, int64_t w, dv_graph **out);

typedef struct dv_plan_desc {
    int32_t lane; /* the lane that computes it */
    int64_t h, w; /* size of a tile, or of the frames of a slice */
    bool lean;    /* as in dv_plan_options */
} dv_plan_desc;

/* Builds the same network, fuses it and plans it for a lane. */
davy_result dv_engine_make_plan(const dv_engine *e, const dv_request *request, const dv_plan_desc *desc, dv_plan **out);

/* A lower bound of the arena, in bytes, for any plan of such a request. Valid for frames that are a whole clip. */
davy_result dv_engine_least_arena(const dv_engine *e, const dv_request *request, int64_t h, int64_t w, uint64_t *bytes);

#endif
